"""
Copies that a bookie holds of ledgers which exist and do not name it: left over from repairs, from ensemble changes,
from a bookie that was replaced and came back.  They cost space only, so they go slowly and on full evidence
(protocol-rules.md 5.2).

A copy goes only if all of this holds: the ledger is CLOSED; none of its ensembles names the bookie; no add for it was
accepted here for 24 hours, counted from the start of the process too; its repair lock is held; every entry is read,
with its digest, from all the bookies that should have it; and the metadata, read again after that, has the same
version, in a store that is not behind what the bookie has seen of it.  Being absent from the ensembles alone is no
evidence: a repair copies first and names the target after.

Knows: that rule.  Does not know: how the bookie keeps its copies; `Holder` is its side.  Ledgers that do not exist are
its garbage collection's.
Safety: anything that can't be had, a lock, an answer, a lock in this kind of store, keeps the copy.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.availability import runs_of
from quire.protocol.errors import LedgerError, NoSuchLedgerExistsOnMetadataServer
from quire.replication.checker import check_ledger
from quire.replication.freeing.lock import repair_lock

# SPDX-License-Identifier: Apache-2.0

log = Logger()
IDLE_S = 86_400


class Holder(Protocol):
    """The bookie that has the copies."""

    def stored_ledgers(self) -> "Deferred[array[int]]": ...

    def held(self, ledger: int) -> Deferred[bytes]:
        """Lists the entries that it has, as `availability` encodes them."""
        ...

    def idle_seconds(self, ledger: int) -> int: ...

    def trust_store(self, deleted: Sequence[int] = ()) -> Deferred[None]:
        """`MetaStore` while the metadata store is behind what the bookie has seen of it."""
        ...

    def drop_copy(self, ledger: int) -> None:
        """Forgets its entries; a writer that slept since before it was closed may not add to it here after all."""
        ...


@dataclass(slots=True)
class Surplus:
    """
    The result of a run: ledgers looked at, copies dropped, and why others were kept although the ledger does not name
    the bookie.
    """

    looked_at: int = 0
    dropped: list[int] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)


def drop_surplus(client: Client, bookie: str, holder: Holder) -> Deferred[Surplus]:
    """
    One run over everything that the bookie holds, one ledger at a time.  Fails as `stored_ledgers` does; what goes
    wrong with one ledger keeps its copy.
    """
    return Deferred.fromCoroutine(_drop_surplus(client, bookie, holder))


async def _drop_surplus(client: Client, bookie: str, holder: Holder) -> Surplus:
    done = Surplus()
    for ledger in await holder.stored_ledgers():
        if holder.idle_seconds(ledger) < IDLE_S:
            continue
        done.looked_at += 1
        try:
            found = await client.store.read_ledger(ledger)
            if not is_surplus(found.value, bookie) or not any(runs_of(await holder.held(ledger))):
                continue
            kept = await _judge(client, ledger, found, holder)
        except NoSuchLedgerExistsOnMetadataServer:
            continue
        except LedgerError as failure:
            kept = str(failure)
        if kept is None:
            done.dropped.append(ledger)
            log.info("ledger {ledger} has all its copies elsewhere; the one here is dropped", ledger=ledger)
        else:
            done.kept[ledger] = kept
    return done


def is_surplus(metadata: LedgerMetadata, bookie: str) -> bool:
    """True if a closed ledger does without the bookie."""
    return metadata.is_closed and all(bookie not in fragment.bookies for fragment in metadata.fragments)


async def _judge(client: Client, ledger: int, found: Versioned[LedgerMetadata], holder: Holder) -> str | None:
    """None: the copy was dropped; else why it was kept."""
    async with repair_lock(client.store.repairs, ledger) as ours:
        if not ours:
            return "its repair lock can't be had"
        check = await check_ledger(client, ledger)
        if not check.complete:
            return f"{check.copies_missing} of {check.copies_expected} copies did not answer"
        again = await client.store.read_ledger(ledger)
        if again.version != found.version:
            return "its metadata changed meanwhile"
        await holder.trust_store()
        if holder.idle_seconds(ledger) < IDLE_S:
            return "an add for it came meanwhile"
        holder.drop_copy(ledger)
        return None
