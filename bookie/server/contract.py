"""
The storage and a connection as the service sees them, as types: `storage.Storage` and `listener.Connection` are the
real ones, tests have others.

Knows: the calls, their results, and what a token is.  Does not know: how anything is kept or sent.

Safety: a token handed in comes back by `durable` only when what it was given for is on disk, and nothing is answered
before that.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, final

from twisted.internet.defer import Deferred

from quire.protocol.errors import Status
from quire.protocol.messages import AddRun, BatchRead, ListEntries, Read, ReadLac, WriteLac

# SPDX-License-Identifier: Apache-2.0


WriteRequest = AddRun | WriteLac  # what may have to wait for room
ReadRequest = Read | BatchRead | ReadLac | ListEntries  # what may have to wait for the disk


@final
class Own:
    """
    In place of a connection and of its request: something that the bookie itself put into its storage; the code comes
    by `done`.
    """

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: Deferred[int] = Deferred()


class Peer(Protocol):
    """One connection.  It must be hashable."""

    peer: str  # host:port of its other side
    source: str  # the address that it is counted for
    alive: bool
    last_active: float  # when whole requests came last
    outside_since: float | None  # it is not admitted yet
    partial_since: float | None  # the first byte of an unfinished frame
    paused_since: float | None  # it is not read from
    choked: bool  # it does not take its answers, so it is not read from
    given_bytes: int  # of answers
    held: deque[ReadRequest]  # reads that wait for their turn
    reads_under_way: int
    settled: bool  # something that it asked for was given to it
    lone: bool  # what came last was one request, and no read was answered since
    answer_bytes: int  # of the last answer with a body, or of one to come
    parked: deque[WriteRequest]  # what found no room, in order
    copies: deque[AddRun] | None  # of a repair, which wait for their turn; None: there were none

    @property
    def transport(self) -> Any: ...

    @property
    def frame_bytes(self) -> int:
        """Returns how large its unfinished frame will be."""
        ...

    def send(self, data: bytes) -> None:
        """Sends whole frames; nothing happens once the connection is gone."""
        ...

    def send_at_once(self, data: bytes) -> None:
        """Sends the only answers of this turn, which need not wait for the next one."""
        ...

    def settle(self) -> None:
        """Notes that something is given to it for the first time."""
        ...

    def flow(self) -> None:
        """Stops reading, or begins again, as what it holds demands."""
        ...

    def abort(self) -> None:
        """Ends it at once."""
        ...


class LedgerView(Protocol):
    """
    The state of one ledger that a bookie holds in memory.  Watchers are called when its LAC rises, and at an explicit
    LAC, a fence, a deletion.
    """

    @property
    def fenced(self) -> bool: ...

    def watch(self, watcher: Callable[[], None]) -> None: ...

    def unwatch(self, watcher: Callable[[], None]) -> None: ...


class LedgerStorage(Protocol):
    """
    Ledgers on disks.  Results are a value, a `Status` that refuses, or a Deferred of either when the disk must be
    asked.  All calls are made, and all callbacks come, on the reactor's thread.
    """

    def add(self, run: AddRun, token: object) -> Status | None:
        """
        EOK: taken, the token comes back by `durable`.  None: no room, nothing taken; try again after `relieved`.  EUA,
        EFENCED, …: refused.
        """
        ...

    def fence(self, ledger: int, master_key: bytes, token: object) -> Status:
        """
        EOK: no plain add of this ledger is taken any more, and the token comes back when that is on disk (at once if it
        was).
        """
        ...

    def write_lac(self, ledger: int, master_key: bytes, body: bytes, token: object) -> Status | None:
        """EOK and None as for `add`."""
        ...

    def force(self, ledger: int, token: object) -> Status:
        """
        EOK: the token comes back after a sync of what was acknowledged before, or by `refused` where none can be made.
        """
        ...

    def read(self, ledger: int, entry: int, alone: bool = False) -> bytes | Status | Deferred[bytes | Status]:
        """`alone`: it is all that its connection waits for."""
        ...

    def read_run(
        self, ledger: int, first: int, count_max: int, bytes_max: int
    ) -> list[bytes] | Status | Deferred[list[bytes] | Status]: ...

    def entries(self, ledger: int) -> Status | Deferred[bytes | Status]:
        """Returns the ids of its entries as `availability` encodes them."""
        ...

    def lac(self, ledger: int) -> int | Deferred[int]: ...

    def explicit_lac(self, ledger: int) -> bytes | None: ...

    def ledger(self, ledger: int) -> LedgerView | None: ...

    def disk_usage(self) -> tuple[int, int]:
        """Returns the total and free bytes of the disks below the ledger directories."""
        ...

    def disks(self) -> Mapping[str, tuple[int, int]]:
        """Returns both for the disks of the ledger directories, the journals, and the indexes where they are apart."""
        ...
