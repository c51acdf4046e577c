"""
The contents of a storage in memory, and how what is journaled changes it: the same for what arrives and for what a
start replays.

Knows: write cache, ledgers, the memory of deleted ones, and what must be forgotten of what was read ahead.
Does not know: journals' files and threads, who may write, disks.

Safety: an entry is put in the cache before its ledger's state counts it; a ledger that was deleted does not come back
by a block that came before.
"""

from quire.bookie.apache import journal
from quire.bookie.journal.format import (
    BODIES,
    DELETED,
    END,
    EXPLICIT_LAC,
    FENCE,
    FRAME_BODY,
    FRAMES,
    KEY,
    LIMBO,
    UNJOURNALED,
    split_bodies,
    split_frames,
)
from quire.bookie.storage.ledgers import DeletedLedgers, StoredLedger
from quire.bookie.storage.lookup import Lookup
from quire.bookie.storage.parts import StorageParts
from quire.bookie.storage.write_cache import ENTRY_OVERHEAD
from quire.protocol.digest import EXPLICIT_LAC_OFFSET, FIELD, LAC_END, LAC_HEADER, LAC_OFFSET, entry_id
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

ARRIVED_MAX = 10_000  # ledgers that are remembered as new

lac_of = FIELD.unpack_from
FRAME_EXTRA = ENTRY_OVERHEAD - FRAME_BODY  # a frame is its body and FRAME_BODY bytes
MASTER_KEY = slice(8, 28)  # where a V2 add frame holds the key
UNSET_KEY = bytes(20)
COPY_ONLY = b"\0"  # in a block of a deletion: the ledger lives on elsewhere


class Contents:
    """All of it belongs to the reactor thread, or to a start."""

    def __init__(
        self,
        parts: StorageParts,
        lookup: Lookup,
        deleted: DeletedLedgers,
    ) -> None:
        self._cache = parts.cache
        self._ledgers = parts.ledgers
        self._deleted = deleted
        self._lookup = lookup
        self._counters = parts.counters
        self._arrived: set[int] = set()  # ledgers that were new here since the last `take_arrived`

    def insert(self, state: StoredLedger, first: int, bodies: list[bytes], size: int) -> None:
        """Consecutive entries from `first` on; `size`: what they take in memory, roughly."""
        self._cache.put(state.id, first, bodies, size)
        if state.dropped:
            self._ledgers.came_back(state)
        last = first + len(bodies) - 1
        if first <= state.last or not state.surveyed:
            self._lookup.forget(state.id)  # older copies may have been read ahead
        state.last = max(state.last, last)
        state.moment = self._ledgers.moment
        # A writer's LAC only rises, so the last body of what came together has the highest.
        body = bodies[-1]
        if len(body) >= LAC_END:
            (lac,) = lac_of(body, LAC_OFFSET)
            if lac > state.lac:
                state.lac = lac
                if state.watchers is not None:
                    state.wake()

    def create(self, ledger: int, key: bytes) -> StoredLedger:
        """A ledger that is unknown here, without entries."""
        self._deleted.forget(ledger)
        if len(self._arrived) < ARRIVED_MAX:
            self._arrived.add(ledger)
        return self._ledgers.create(ledger, key)

    def refuses(self, ledger: int) -> bool:
        """True if an unknown ledger was deleted so recently that it may not be created again."""
        return self._deleted.refuses(ledger)

    def take_arrived(self) -> set[int]:
        """The ledgers that were new here since the last call."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def create_from_journal(self, ledger: int, key: bytes) -> StoredLedger:
        """Makes a ledger that has no row; a crash may have left entries in the index, behind the journal's."""
        state = self.create(ledger, key)
        state.surveyed = state.index_stale
        return state

    def keep_explicit_lac(self, state: StoredLedger, body: bytes) -> None:
        """An explicit LAC as it was written: ledger, LAC, digest."""
        state.explicit_lac = body
        self._ledgers.dirty[state.id] = state
        if len(body) >= LAC_HEADER.size:
            (lac,) = lac_of(body, EXPLICIT_LAC_OFFSET)
            state.lac = max(state.lac, lac)

    def drop(self, ledger: int, remembered: bool = True) -> StoredLedger | None:
        """Forgets a ledger, its entries and its state, if in memory.  `remembered`: writes are refused for a while."""
        self._cache.forget(ledger)
        self._lookup.forget(ledger)
        if remembered:
            state = self._ledgers.get(ledger)
            self._deleted.add(ledger, state is not None and state.fenced)
        return self._ledgers.delete(ledger)

    def apply(self, data: bytes, kind: int, count: int, ledger: int, begin: int, end: int) -> None:
        """One replayed block.  A block for an unknown ledger belongs to one that was deleted."""
        state = self._ledgers.get(ledger)
        if kind in (FRAMES, BODIES):
            bodies = split_frames(data, begin, end, count) if kind == FRAMES else split_bodies(data, begin, end, count)
            if state is None and kind == FRAMES and bodies:
                state = self.create_from_journal(ledger, data[begin + MASTER_KEY.start : begin + MASTER_KEY.stop])
                state.key_logged = True
            if state is not None and bodies:
                self.insert(state, entry_id(bodies[0]), bodies, end - begin + FRAME_EXTRA * count)
                self._counters.replayed_entries += count
        elif kind == KEY:
            if state is None:
                state = self.create_from_journal(ledger, data[begin:end])
            elif state.key in (b"", UNSET_KEY):
                state.key = data[begin:end]
                self._ledgers.dirty[ledger] = state
            state.key_logged = True
        elif kind == FENCE and state is not None:
            state.fenced = state.fence_durable = True
            self._ledgers.dirty[ledger] = state
        elif kind == EXPLICIT_LAC and state is not None:
            self.keep_explicit_lac(state, data[begin:end])
        elif kind == UNJOURNALED and state is not None:
            state.limbo = True
            state.unjournaled = self._ledgers.checkpoint
            self._ledgers.dirty[ledger] = state
        elif kind == LIMBO and state is not None:
            # Limbo may have ended when all was here; what was only in memory since the last checkpoint, copies among
            # it, is not here any more.
            state.limbo = data[begin:end] == b"\1" or state.unjournaled >= 0
            self._ledgers.dirty[ledger] = state
        elif kind == DELETED:
            self.drop(ledger, remembered=data[begin:end] != COPY_ONLY)
        elif kind not in (KEY, FENCE, EXPLICIT_LAC, LIMBO, DELETED, END, UNJOURNALED):
            raise StorageError(f"journal: block of unknown kind {kind} for ledger {ledger}; a newer version wrote it")

    def apply_apache(self, ledger: int, kind: int, bodies: list[bytes]) -> None:
        """
        One block of Apache's journal.  An unknown ledger is created without a key, which the first writer gives:
        its key record may lie before the mark (storage-order.md 1.3, 3), and a fence may not be forgotten.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            state = self.create(ledger, b"")
            state.surveyed = False  # Apache's index may have entries of it
        if kind == journal.KEY:
            if state.key in (b"", UNSET_KEY):
                state.key = bodies[0]
                state.key_logged = True
                self._ledgers.dirty[ledger] = state
            elif bodies[0] not in (state.key, UNSET_KEY):
                raise StorageError(
                    f"Apache's journal has another master key for ledger {ledger} than its index; these are not the "
                    "directories of one bookie"
                )
        elif kind == journal.FENCE:
            state.fenced = state.fence_durable = True
            self._ledgers.dirty[ledger] = state
        elif kind == journal.EXPLICIT_LAC:
            self.keep_explicit_lac(state, bodies[0])
        else:
            self.insert(state, kind, bodies, sum(map(len, bodies)) + ENTRY_OVERHEAD * len(bodies))
            self._counters.replayed_entries += len(bodies)
