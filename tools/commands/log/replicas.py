"""
`quire log snapshots`: what replicas of a log begin from.

Knows: what an operator sees of a snapshot.  Does not know: how it is made, what it holds.
"""

from typing import TYPE_CHECKING

from quire.tools.commands.log.shared import Name, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata

if TYPE_CHECKING:
    from quire.log.api import Logs
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"index": 12, "ledger": 12, "bytes": 12, "entries": 8, "epoch": 6, "machine": 0}


def snapshots(name: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists the snapshots that replicas of a log begin from, the oldest first: the first record that is not in each.

    \b
    Example:
      quire log snapshots config
    """
    log = name_of(name)
    table = output.Table(json_wanted, COLUMNS)

    async def work(_reactor: "ProcessReactor", logs: "Logs") -> None:
        for each in await logs.snapshots(log):
            table.row({column: getattr(each, column) for column in COLUMNS})

    with_logs(metadata, work)
