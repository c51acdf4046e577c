"""
A connection as the parts of the service see it, as a type (`listener.Connection` is the real one, tests have others);
and the numbers of what was served, as plain integers that /metrics reads.

Knows: what a part may ask of a connection, names.  Does not know: how anything is sent, when each is counted.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol, final

from twisted.internet.defer import Deferred

from quire.protocol.messages import AddRun, BatchRead, ListEntries, Read, ReadLac, WriteLac

# SPDX-License-Identifier: Apache-2.0


WriteRequest = AddRun | WriteLac  # what may have to wait for room
ReadRequest = Read | BatchRead | ReadLac | ListEntries  # what may have to wait for the disk


@final
class Own:
    """In place of connection and request: something that the bookie itself stored; the code comes by `done`."""

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
    held: deque[tuple[float, ReadRequest]]  # reads that wait for their turn, each with since when
    reads_under_way: int
    settled: bool  # something that it asked for was given to it
    is_ours: bool  # it asked which bookie answers, as quire's clients do
    lone: bool  # what came last was one request, and no read was answered since
    answer_bytes: int  # of the last answer with a body, or of one to come
    parked: deque[tuple[float, WriteRequest]]  # what found no room, in order, each with since when
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


@dataclass(slots=True)
class ServiceCounters:
    """Counts since the bookie started; each only rises."""

    add_runs: int = 0  # adds that arrived together count once
    add_entries: int = 0
    adds_refused: int = 0  # entries
    reads: int = 0
    batch_reads: int = 0
    read_entries: int = 0
    read_bytes: int = 0
    reads_again: int = 0  # read, dropped because the peer took no answers or a turn had too many, to be read again
    reads_rejected: int = 0  # too many requests
    reads_refused: int = 0  # answered with another status than EOK
    fences: int = 0
    lac_reads: int = 0
    lac_writes: int = 0
    long_polls: int = 0
    forces: int = 0
    lists: int = 0
    refusals: int = 0  # answers other than EOK, adds left out
