"""
How long the writers of open ledgers have to replace bookies that are lost.

Knows: which last add confirmed each of these ledgers had, under which mark, and since when.
Does not know: what is done when the grace is over.

Safety: a grace is over only when nothing moved during all of it, for this very mark: another mark, or another bookie
that is gone, begins another one.
"""

from collections.abc import Collection

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.repairs import Shortage
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedgerExistsOnMetadataServer
from quire.replication.core.fragments import writer_depends_on
from quire.replication.scrub.ledgers import end_of

# SPDX-License-Identifier: Apache-2.0

UNREADABLE = -2  # in place of a last add confirmed that can't be had
KEPT_MAX = 10_000  # ledgers; the grace of who came first begins anew


class Graces:
    """Those of one worker, on a clock that is never set."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._seen: dict[int, tuple[object, float]] = {}

    async def left(
        self, ledger: int, metadata: LedgerMetadata, gone: Collection[str], shortage: Shortage
    ) -> float | None:
        """Seconds until an open ledger that depends on bookies that are gone is to be closed; None for any other."""
        if not writer_depends_on(metadata, gone):
            return None
        try:
            confirmed, _metadata = await end_of(self._client, ledger, metadata)
        except (MetaStore, NoSuchLedgerExistsOnMetadataServer):
            raise
        except LedgerError:
            confirmed = UNREADABLE
        now = self._client.reactor.seconds()
        state = confirmed, shortage, frozenset(gone)
        if ledger not in self._seen or self._seen[ledger][0] != state:
            self._seen.pop(ledger, None)
            self._seen[ledger] = state, now
        if len(self._seen) > KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        return self._seen[ledger][1] + self._seconds - now

    def over(self, ledger: int) -> None:
        """It is closed, or none of its bookies is gone."""
        self._seen.pop(ledger, None)
