"""
Copying entries to a bookie from others, as the bookie offers it: the ledgers that it may have lost entries of, what it
holds of each, a way to store copies, and the end of limbo.

Knows: that copies go into the storage as recovery adds do, and wait for room like them.
Does not know: other bookies, metadata; `replication/own_copies.py` does, and neither imports the other.

While the metadata store is behind what was seen of it, nothing is forgotten here and no limbo ends.

Safety: a ledger leaves limbo only by `settle`, after everything stored before it is on disk; a fence is on disk before
limbo ends. What was said of a ledger before it was doubted is no reason to end its limbo; that is looked at in the turn
in which limbo ends.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from quire.bookie.server.contract import Own
from quire.metadata.clock import Clock
from quire.protocol.errors import Read, Status, code_of
from quire.protocol.messages import AddRun
from quire.rows.files import StorageError, status_of

if TYPE_CHECKING:
    from quire.bookie.storage.storage import Storage
    from quire.bookie.upkeep.store_guard import StoreGuard

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 0.02  # between two tries to store what found no room
V3_VERSION = 3


class Copies:
    """All of it belongs to the reactor thread.  `clock` is the reactor."""

    def __init__(self, clock: Clock, storage: "Storage", guard: "StoreGuard") -> None:
        self._clock = clock
        self._storage = storage
        self._guard = guard
        self._limbo: set[int] | None = None
        self._doubted: set[int] = set()  # since `add`: what is held of them may be less soon
        self._unasked: set[int] = set()  # doubted before; what is held of them was not read since

    def whole(self) -> None:
        """No ledger lacks anything, so that the tables need not be read for it."""
        self._limbo = set()

    def limbo(self) -> list[int]:
        """The ledgers that may lack something here, ascending; read once, later ones are reported through `add`."""
        if self._limbo is None:
            self._limbo = set(self._storage.limbo_ledgers())
        return sorted(self._limbo)

    def add(self, ledgers: Iterable[int]) -> None:
        """Adds ledgers in limbo, which stay so until `decided` and another look at what is held of them."""
        ledgers = list(ledgers)
        self._doubted.update(ledgers)
        if self._limbo is not None:
            self._limbo.update(ledgers)

    def decided(self) -> None:
        """Ends the doubt: what is held of the ledgers is known from now on."""
        self._unasked |= self._doubted
        self._doubted = set()

    @property
    def left(self) -> int:
        """How many ledgers may lack something here, as far as `limbo` was called."""
        return len(self._limbo or ())

    def held(self, ledger: int) -> Deferred[bytes]:
        """Returns what is here of a ledger, as `availability` encodes it; `Read` where that can't be found out."""
        self._unasked.discard(ledger)
        return Deferred.fromCoroutine(self._held(ledger))

    async def _held(self, ledger: int) -> bytes:
        try:
            return await self._storage.held(ledger)
        except (StorageError, OSError) as error:
            raise Read(
                f"ledger {ledger}: what is held of it here can't be read: {error}; `quire bookie rebuild-index` "
                "rebuilds the index"
            ) from error

    def store(self, ledger: int, master_key: bytes, first: int, bodies: list[bytes]) -> Deferred[int]:
        """Stores consecutive entries; the BookKeeper code: 0 once they are on disk, or why they are refused."""
        run = AddRun(
            ledger,
            first,
            bodies,
            master_key,
            recovery=True,
            priority=1,
            txns=list(range(len(bodies))),
            version=V3_VERSION,
        )
        return self._taken(lambda own: self._storage.add(run, own))

    def settle(self, ledger: int, master_key: bytes, fenced: bool) -> Deferred[int]:
        """Ends limbo, the ledger being fenced before if it is to be; the code once that is on disk."""
        return Deferred.fromCoroutine(self._settle(ledger, master_key, fenced))

    async def _settle(self, ledger: int, master_key: bytes, fenced: bool) -> int:
        if fenced and (code := await self._taken(lambda own: self._storage.fence(ledger, master_key, own))):
            return code
        if self._is_doubted(ledger) or self._guard.is_behind:
            return code_of(Status.EUNKNOWNLEDGERSTATE, writing=True)
        code = await self._taken(lambda own: self._storage.set_limbo(ledger, False, own))
        if not code and self._limbo is not None and not self._is_doubted(ledger):
            self._limbo.discard(ledger)
        return code

    def _is_doubted(self, ledger: int) -> bool:
        return ledger in self._doubted or ledger in self._unasked

    def trust_store(self, deleted: Sequence[int] = ()) -> Deferred[None]:
        """`MetaStore` unless the store may be believed, also that these are deleted; asked in the turn that forgets."""
        return Deferred.fromCoroutine(self._guard.trust_store(deleted))

    def next_moment(self) -> int:
        """The moment that writes from now on have, or a later one."""
        return self._storage.next_moment()

    def drop(self, ledger: int, moment: int) -> bool:
        """Forgets a ledger unless it was written to since `moment`, before the metadata was asked; whether it did."""
        if self._storage.written_since(ledger, moment):
            return False
        if self._limbo is not None:
            self._limbo.discard(ledger)
        self._unasked.discard(ledger)
        self._storage.delete_ledger(ledger)
        return True

    def stored_ledgers(self) -> "Deferred[array[int]]":
        """The ids in the ledger tables, ascending, perhaps without the newest.  Fails with `OSError`."""
        return self._storage.stored_ledgers()

    def idle_seconds(self, ledger: int) -> int:
        """For so long at least no add of the ledger was taken here, counted from the start of the process."""
        return self._storage.idle_seconds(ledger)

    def drop_copy(self, ledger: int) -> None:
        """
        Forgets the entries, not the fence, of a closed ledger that lives elsewhere; it may be copied here again.
        `Read`: its row can't be read.
        """
        try:
            self._storage.drop_copy(ledger)
        except (StorageError, OSError) as error:
            raise Read(f"ledger {ledger}: its copy here can't be dropped: {error}") from error

    def _taken(self, hand_over: Callable[[tuple[Own, Own]], Status | None]) -> Deferred[int]:
        """Hands something to the storage until it takes it; the Deferred gives the code."""
        own = Own()

        def attempt() -> None:
            try:
                status = hand_over((own, own))
            except (StorageError, OSError) as error:  # its row can't be read
                status = status_of(error)
            if status is None:
                self._clock.callLater(AGAIN_S, attempt)
            elif status is not Status.EOK:
                own.done.callback(code_of(status, writing=True))

        attempt()
        return own.done
