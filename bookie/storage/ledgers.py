"""
The ledgers of this bookie in memory: key, fence, limbo, LAC, watchers.

Knows: which states differ from the ledger table (dirty) and must reach it at the next checkpoint; which deleted
ledgers may still have rows in the index; which ledgers were deleted recently.
Does not know: entries, journal, disk; rows are loaded by a function that is given.

All of it belongs to the reactor thread, except `rows_of`, which the storage pool calls on a set of changes that it was
given.
Safety: a dirty state is never evicted, and a deleted ledger never comes back from its old row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile

from quire.bookie.index.ledger_table import LedgerRow
from quire.protocol.digest import LAC_HEADER, explicit_lac

# SPDX-License-Identifier: Apache-2.0

# above this, unused states are evicted after a checkpoint, the oldest first, down to half of it
STATES_MAX = 20_000
EVICTED_AT_ONCE = 500
KEYS_SHARED_MAX = 1000
PAGE_LEDGERS = 256
PAGES_MAX = 8192  # of rows that are remembered: 3 MB
KINDS_MAX = 255
FENCED_S = 7 * 86_400.0  # for so long a deleted ledger is refused that was fenced: it may never be written again
UNFENCED_S = 600.0  # and one that was not: an id that its user chose may be used again
DELETED_MAX = 100_000  # remembered of a kind
FORGOTTEN_EVERY_S = 60.0
MOMENTS_PER_HOUR = 1 << 32  # more than are ever asked for
MOMENT_PAGES_MAX = 65_536  # of moments that are remembered: 8 MB


class StoredLedger:
    """One ledger."""

    __slots__ = (
        "dropped",
        "explicit_lac",
        "fence_durable",
        "fenced",
        "id",
        "index_stale",
        "key",
        "key_logged",
        "lac",
        "last",
        "limbo",
        "moment",
        "read_next",
        "surveyed",
        "unjournaled",
        "watchers",
    )

    def __init__(self, ledger: int, key: bytes) -> None:
        self.id = ledger
        self.key = key
        self.fenced = False
        self.fence_durable = False  # before that no answer may mention the fence
        self.limbo = False  # entries may be missing: never a "no"
        self.dropped = False  # its entries went, and none came since
        self.explicit_lac: bytes | None = None  # as it was written last
        self.lac = -1  # the highest LAC seen; what storage holds counts only once `surveyed`
        self.last = -1  # the highest entry, likewise
        self.surveyed = False
        self.moment = 0  # of `Ledgers`, in which the last write was taken, or a later one
        self.key_logged = False  # the key is in the journal or in the table
        self.index_stale = False  # the index still holds rows of a deleted ledger with this id
        self.unjournaled = -1  # the checkpoint since which the journal says that this ledger's adds are not in it
        self.read_next = -1  # the entry that a sequential reader would ask for next
        # called when LAC rises, an explicit LAC arrives, on fence and delete
        self.watchers: list[Callable[[], None]] | None = None

    @classmethod
    def of_row(cls, ledger: int, row: LedgerRow) -> "StoredLedger":
        state = cls(ledger, row.key)
        state.fenced = state.fence_durable = row.fenced
        state.limbo = row.limbo
        state.dropped = row.dropped
        state.explicit_lac = row.explicit_lac
        state.key_logged = True
        if row.explicit_lac is not None and len(row.explicit_lac) >= LAC_HEADER.size:
            state.lac = explicit_lac(row.explicit_lac)
        return state

    def fence_synced(self) -> None:
        self.fence_durable = True

    @property
    def row(self) -> LedgerRow:
        return LedgerRow(self.key, self.fenced, self.explicit_lac, self.limbo, self.dropped)

    def differs(self, row: LedgerRow | None) -> bool:
        return (
            row is None
            or self.fenced is not row.fenced
            or self.limbo is not row.limbo
            or self.dropped is not row.dropped
            or self.key != row.key
            or self.explicit_lac != row.explicit_lac
        )

    def watch(self, watcher: Callable[[], None]) -> None:
        if self.watchers is None:
            self.watchers = []
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Does nothing when it doesn't watch."""
        if self.watchers is not None and watcher in self.watchers:
            self.watchers.remove(watcher)
            self.watchers = self.watchers or None

    def wake(self) -> None:
        for watcher in tuple(self.watchers or ()):
            watcher()


class RowMemory:
    """
    Rows of ledgers that are not in memory, a byte for each: few rows differ, and ids are mostly close together.  It
    may forget any row.  To read a row from the table takes eight microseconds, to look here one.
    """

    __slots__ = ("_kinds", "_numbers", "_pages")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._kinds: list[LedgerRow | None] = [None]
        self._numbers: dict[LedgerRow, int] = {}

    def get(self, ledger: int) -> LedgerRow | None:
        page = self._pages.get(ledger // PAGE_LEDGERS)
        return None if page is None else self._kinds[page[ledger % PAGE_LEDGERS]]

    def put(self, ledger: int, row: LedgerRow) -> None:
        if row not in self._numbers and len(self._kinds) > KINDS_MAX:
            self.clear()
        page = self._pages.get(ledger // PAGE_LEDGERS)
        if page is None:
            if len(self._pages) >= PAGES_MAX:
                self._pages.clear()
            page = self._pages[ledger // PAGE_LEDGERS] = bytearray(PAGE_LEDGERS)
        number = self._numbers.get(row)
        if number is None:
            number = self._numbers[row] = len(self._kinds)
            self._kinds.append(row)
        page[ledger % PAGE_LEDGERS] = number

    def forget(self, ledger: int) -> None:
        page = self._pages.get(ledger // PAGE_LEDGERS)
        if page is not None:
            page[ledger % PAGE_LEDGERS] = 0


class LastWrites:
    """
    The moments of the last writes to ledgers that are not in memory: one for each page of ids, which are mostly close
    together as they are written.  Never earlier than the write; later where a neighbour was written since.
    """

    __slots__ = ("_of_all", "_pages")

    def __init__(self) -> None:
        self._of_all = 0
        self._pages: dict[int, int] = {}

    def of(self, ledger: int) -> int:
        """No write to the ledger was later than that."""
        return max(self._of_all, self._pages.get(ledger // PAGE_LEDGERS, 0))

    def put(self, ledger: int, moment: int) -> None:
        """A ledger goes whose last write was then."""
        if moment > self.of(ledger):
            self._pages[ledger // PAGE_LEDGERS] = moment
            if len(self._pages) > MOMENT_PAGES_MAX:
                self._join_half()

    def _join_half(self) -> None:
        """The half that was written earlier becomes one."""
        self._of_all = sorted(self._pages.values())[len(self._pages) // 2]
        self._pages = {page: moment for page, moment in self._pages.items() if moment > self._of_all}


class DeletedLedgers:
    """
    The memory of deleted ledgers: a writer that does not know of the deletion may not bring one back.  What is in the
    journal is remembered through a restart, from which on time counts.  `seconds` is the clock.

    Safety: bounded; beyond `DELETED_MAX` the oldest are forgotten, and then only the next garbage collection removes
    what a late writer wrote.
    """

    __slots__ = ("_fenced", "_forgets_at", "_seconds", "_unfenced")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._forgets_at = 0.0  # when those are looked for whose time is over
        self._fenced: dict[int, float] = {}  # ledger -> when it was deleted, in that order
        self._unfenced: dict[int, float] = {}

    def add(self, ledger: int, fenced: bool) -> None:
        """The ledger was deleted."""
        kept, now = self._fenced if fenced else self._unfenced, self._seconds()
        kept.pop(ledger, None)
        kept[ledger] = now
        if len(kept) > DELETED_MAX:
            for old in list(islice(kept, DELETED_MAX // 10)):
                del kept[old]
        if now >= self._forgets_at:
            self._forgets_at = now + FORGOTTEN_EVERY_S
            _forget_before(self._fenced, now - FENCED_S)
            _forget_before(self._unfenced, now - UNFENCED_S)

    def refuses(self, ledger: int) -> bool:
        """True if it may not be created again yet."""
        now = self._seconds()
        since = self._unfenced.get(ledger)
        if since is not None and now - since < UNFENCED_S:
            return True
        since = self._fenced.get(ledger)
        return since is not None and now - since < FENCED_S

    def forget(self, ledger: int) -> None:
        """Forgets a ledger that was created again."""
        self._fenced.pop(ledger, None)
        self._unfenced.pop(ledger, None)

    def __len__(self) -> int:
        return len(self._fenced) + len(self._unfenced)


def _forget_before(kept: dict[int, float], when: float) -> None:
    """Forgets what was deleted then or before; of a dict in that order."""
    for old in list(takewhile(lambda ledger: kept[ledger] <= when, kept)):
        del kept[old]


Changes = Mapping[int, StoredLedger | None]


class Ledgers:
    """All ledgers of all directories."""

    def __init__(self, load: Callable[[int], LedgerRow | None]) -> None:
        self.states: dict[int, StoredLedger] = {}
        self.dirty: dict[int, StoredLedger | None] = {}  # None: deleted
        self.checkpoint = 0  # the number of the last checkpoint that has begun
        self._settling: Changes = {}  # taken by a checkpoint, perhaps not yet in the table
        # deleted since the last checkpoint began, and those that it took: the index may still have rows of these
        self._deleted: set[int] = set()
        self._deleting: set[int] = set()
        self._load = load
        self._rows = RowMemory()  # what it has of a ledger that is not in `states` is the row in the table
        self._keys: dict[bytes, bytes] = {}  # most ledgers have one of few keys: it is kept once
        # how long the process has lived: the hours, and below them how many moments were asked for in the last one
        self.moment = 0
        self._written = LastWrites()  # of those that are not in `states`

    def get(self, ledger: int) -> StoredLedger | None:
        state = self.states.get(ledger)
        if state is None and self.dirty.get(ledger, self) is not None and self._settling.get(ledger, self) is not None:
            row = self._rows.get(ledger) or self._load(ledger)
            if row is not None:
                state = self.states[ledger] = StoredLedger.of_row(ledger, row)
                state.moment = self._written.of(ledger)
        return state

    def create(self, ledger: int, key: bytes) -> StoredLedger:
        """A ledger that `get` does not know; it has no entries."""
        if len(self._keys) >= KEYS_SHARED_MAX:
            self._keys.clear()
        state = self.states[ledger] = self.dirty[ledger] = StoredLedger(ledger, self._keys.setdefault(key, key))
        state.surveyed = True
        state.index_stale = state.dropped = ledger in self._deleted or ledger in self._deleting
        state.moment = self.moment
        return state

    def came_back(self, state: StoredLedger) -> None:
        """A ledger that was dropped has entries again."""
        state.dropped = False
        self.dirty[state.id] = state

    def delete(self, ledger: int) -> StoredLedger | None:
        state = self.states.pop(ledger, None)
        self.dirty[ledger] = None
        self._deleted.add(ledger)
        self._rows.forget(ledger)
        return state

    def take_dirty(self) -> Changes:
        """A checkpoint begins: what must reach the table now; `settled` says that it has."""
        self.checkpoint += 1
        self._settling, self.dirty = self.dirty, {}
        return self._settling

    def settled(self) -> None:
        self._settling = {}

    def take_deleted(self) -> set[int]:
        """The ledgers whose rows must go from the index now; `deleted_settled` says that they have."""
        self._deleting, self._deleted = self._deleted, set()
        return self._deleting

    def join_deleted(self) -> tuple[Changes, set[int]]:
        """Joins ledgers deleted since a checkpoint that failed to its share, as if taken with it."""
        joined, self._deleted = self._deleted, set()
        self._deleting |= joined
        gone = [ledger for ledger in joined if self.dirty.get(ledger, self) is None]
        if gone:
            self._settling = {**self._settling, **{ledger: self.dirty.pop(ledger) for ledger in gone}}
        return self._settling, joined

    def deleted_settled(self) -> None:
        """The index has no old rows of those taken; what it has is of new ledgers with these ids."""
        for ledger in self._deleting:
            state = self.states.get(ledger)
            if state is not None and ledger not in self._deleted:
                state.index_stale = False
        self._deleting = set()

    def evict(self, used: Callable[[int], bool]) -> Iterator[None]:
        """Forgets clean states without watchers that `used` does not claim, `EVICTED_AT_ONCE` a step."""
        if len(self.states) <= STATES_MAX:
            return
        for number, ledger in enumerate(list(self.states), 1):
            state = self.states.get(ledger)
            if state is not None and not used(ledger) and self._settled(ledger, state):
                del self.states[ledger]
                if state.differs(self._rows.get(ledger)):
                    self._rows.put(ledger, state.row)
                self._written.put(ledger, state.moment)
                if len(self.states) <= STATES_MAX // 2:
                    return
            if number % EVICTED_AT_ONCE == 0:
                yield

    def _settled(self, ledger: int, state: StoredLedger) -> bool:
        """True if its row in the table says all there is to know."""
        return (
            state.watchers is None
            and ledger not in self.dirty
            and ledger not in self._settling
            and not state.index_stale
            and state.fenced == state.fence_durable
        )

    def directory_failed(self, number: int, count: int) -> None:
        """Puts ledgers of directory `number` of `count` in limbo; `load` says so of those not in memory."""
        self._rows.clear()
        for ledger, state in self.states.items():
            if ledger % count == number:
                state.limbo = True

    def hours_passed(self, hours: int) -> None:
        """Says how many hours have passed since the start; a clock that jumped back changes nothing."""
        self.moment = max(self.moment, hours * MOMENTS_PER_HOUR)

    def next_moment(self) -> int:
        """Writes that are taken from now on have this moment or a later one."""
        self.moment += 1
        return self.moment

    def idle_hours(self, ledger: int) -> int:
        """For so many whole hours at least there was no write, counted from the start; loads nothing."""
        state = self.states.get(ledger)
        moment = self._written.of(ledger) if state is None else state.moment
        return max(0, self.moment // MOMENTS_PER_HOUR - moment // MOMENTS_PER_HOUR - 1)

    def written_since(self, ledger: int, moment: int) -> bool:
        """True if there may have been a write since `next_moment` gave that."""
        state = self.get(ledger)
        return state is not None and state.moment >= moment

    def taken(self) -> list[int]:
        """The ledgers that a checkpoint has taken; the table may not have them yet, nor for long if it fails."""
        return [ledger for ledger, state in self._settling.items() if state is not None]

    def changed(self) -> frozenset[int]:
        """The ledgers whose row in the table is old, or not there yet; deleted ones left out."""
        return frozenset(
            ledger for changes in (self._settling, self.dirty) for ledger, state in changes.items() if state is not None
        )

    def in_limbo(self, stored: Iterable[int], has_failed: Callable[[int], bool]) -> list[int]:
        """Ledgers in limbo, ascending.  `stored`: by their rows; `has_failed`: nothing can be copied to those."""
        states = self.states
        from_rows = {ledger for ledger in stored if ledger not in states}
        from_memory = {ledger for ledger, state in states.items() if state.limbo and not has_failed(ledger)}
        return sorted(from_rows | from_memory)

    def ids(self, stored: Iterable[int]) -> Iterator[int]:
        """Every ledger: those `stored` in tables and those only in memory, without deleted ones."""
        changes = {**self._settling, **self.dirty}
        for ledger in stored:
            if ledger not in changes:
                yield ledger
        for ledger, state in changes.items():
            if state is not None:
                yield ledger


def rows_of(changes: Changes) -> dict[int, LedgerRow | None]:
    """
    The rows to store.  A state may have moved on since the changes were taken: a row that is newer than the checkpoint
    needs is harmless, for whatever changed will be replayed from the journal too.
    """
    return {ledger: None if state is None else state.row for ledger, state in changes.items()}
