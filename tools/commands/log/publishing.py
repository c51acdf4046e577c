"""
`quire log txns, janitor, adopt`: what publishers of closed ledgers did, what they left, and plain ledgers.

Knows: what an operator sees of a publisher.  Does not know: how a batch is published.

Safety: the janitor deletes only what can't be published any more.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.log.printing import time_text
from quire.tools.commands.log.shared import Name, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata

if TYPE_CHECKING:
    from quire.log.api import Logs, Receipt, Tended
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"txn": 36, "run": 36, "claim": 5, "last": 8, "first": 12, "end": 12, "aborted": 8, "at": 0}


def txns(name: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists the publishers of a log: each one's run, its last batch, and which indexes that became.

    \b
    Example:
      quire log txns facts
    """
    log = name_of(name)
    table = output.Table(json_wanted, COLUMNS)

    async def work(_reactor: "ProcessReactor", logs: "Logs") -> None:
        async for txn in logs.txns(log):
            row: dict[str, Any] = {
                "txn": txn.txn,
                "run": txn.run,
                "claim": txn.claim,
                "last": txn.last,
                "first": None if txn.receipt is None else txn.receipt.first,
                "end": None if txn.receipt is None else txn.receipt.end,
                "aborted": None if txn.aborted is None else txn.aborted.batch,
                "at": time_text(txn.at),
            }
            table.row(row)

    with_logs(metadata, work)


def adopt(
    name: Name,
    ledgers: Annotated[list[int], typer.Argument(metavar="LEDGER…", min=0, help="the ledgers' ids, in their order")],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Takes closed plain ledgers into a log, each of their entries a record. Their deletion is the log's from then on.

    \b
    Example:
      quire log adopt archive 7 8 9
    """
    log = name_of(name)

    async def work(_reactor: "ProcessReactor", logs: "Logs") -> "Receipt":
        return await logs.adopt(log, ledgers)

    done = with_logs(metadata, work)
    found = {"log": log, "first": done.first, "end": done.end, "segments": list(done.segments), "again": done.again}
    output.document(json_wanted, found, f"{log}: {len(ledgers)} ledgers are index {done.first} to {done.end - 1}")


def janitor(name: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes what tasks of publishers wrote and what can't be published any more, or was left by a publisher that is
    silent for too long: 90 days, a day for a batch query of Spark. May be run at any time, beside them. `quire log
    tidy` does it, too. Exit status 1 when a ledger could not be deleted: `quire log tidy --abandon` deletes it
    nevertheless.

    \b
    Example:
      quire log janitor facts
    """
    log = name_of(name)

    async def work(_reactor: "ProcessReactor", logs: "Logs") -> "Tended":
        return await logs.janitor(log)

    done = with_logs(metadata, work)
    found = {"log": log, "txns": done.publishers, "parts": done.parts, "forgotten": done.forgotten}
    text = f"{log}: {done.parts} parts of {done.publishers} publishers were deleted, {done.forgotten} forgotten"
    output.document(json_wanted, found | {"stayed": done.stayed}, text)
    for ledger, why in done.stayed.items():
        output.note(f"quire: ledger {ledger} stays: {why}")
    if done.stayed:
        raise typer.Exit(1)
