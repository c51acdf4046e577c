"""
Watches of ledgers in ZooKeeper, each until its ledger is deleted.

Knows: that a ledger which can't be read is no news until it changes.  Does not know: how a tree is watched.
"""

from collections.abc import Awaitable, Callable

from twisted.logger import Logger

from quire.metadata.clock import Clock
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.metadata.tree import NoNode, Tree, Wake
from quire.metadata.watches import Reading, Watches
from quire.protocol.errors import MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

log = Logger()


class LedgerWatches(Watches[int, Versioned[LedgerMetadata]]):
    """The watches of ledgers, each until it is deleted."""

    def __init__(self, clock: Clock, tree: Tree, path_of: Callable[[int], Awaitable[str]]) -> None:
        async def read(ledger: int, wake: Wake) -> Reading[Versioned[LedgerMetadata]] | None:
            try:
                data, stat = await tree.get(await path_of(ledger), wake)
            except NoNode:
                return Reading(None, None, last=True)
            try:
                return Reading(stat.changed, ledger_codec.decode_stored(ledger, data, stat.version))
            except MetadataSerialization as error:
                log.error("{uri}: a watched ledger can't be read: {error}", uri=tree.uri, error=str(error))
                return None

        super().__init__(clock, tree, read)
