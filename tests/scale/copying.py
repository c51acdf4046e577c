"""
The copier of the model, in place of the one that reads entries: the bytes of a fragment go over links in virtual time.

Knows: where `FragmentCopier` would read from and in which order, that a bookie that is down gives nothing and takes
nothing, and how a pace of bytes a second is kept.
Does not know: bodies, digests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.client.connections.pool import BookiePool
from quire.client.handles.ledger_record import LedgerRecord
from quire.conf.client import ClientOptions
from quire.metadata.clock import pause
from quire.protocol.errors import BookieHandleNotAvailable
from quire.replication.concurrently import Pace, Share
from quire.replication.copier import Copied, NoCopy, Sources, TargetFailed
from quire.replication.core.fragments import HeldFragment, count_on, entry_bytes
from tests.scale.network import MB
from tests.scale.store import ModelStore
from tests.simulation.timeline import Process

if TYPE_CHECKING:
    from tests.scale.fleet import Fleet

# SPDX-License-Identifier: Apache-2.0

PIECE_BYTES = 1024 * MB  # of one reservation of the links


class ModelPool(BookiePool):
    """A client's way to the bookies of a fleet; `host`: the machine that the client is on."""

    def __init__(self, fleet: "Fleet", process: Process, store: ModelStore, options: ClientOptions, host: str) -> None:
        super().__init__(process, store, options)  # type: ignore[arg-type]  # a process of the simulator is a reactor
        self.fleet = fleet
        self.host = host


@dataclass
class ModelCopier:
    """As `FragmentCopier`, made by `replication/freeing` in its place."""

    pool: ModelPool
    record: LedgerRecord
    fragment: HeldFragment
    sources: Sources
    moved: Callable[[Copied], None]
    pace: Pace | None = None
    memory: Share | None = None

    def __post_init__(self) -> None:
        assert self.fragment.last is not None
        self.last = self.fragment.last

    def entries_on(self, index: int) -> int:
        return count_on(self.record.quorums, index, self.fragment.first, self.last)

    def end_at(self, last: int) -> None:
        self.last = last

    async def copy(self, index: int, bookie: str) -> None:
        """Takes the time that the copy of all ledgers of a group takes."""
        fleet = self.pool.fleet
        entries = self.entries_on(index)
        bookies = self.fragment.bookies
        order = self.record.quorums.write_set(self.fragment.first)
        having = [bookies[at] for at in order if bookies[at] not in self.sources.lost and fleet.up(bookies[at])]
        if not having:
            raise NoCopy(f"ledger {self.record.ledger}: no bookie that has it is up", self.fragment.first)
        if not fleet.up(bookie):
            raise TargetFailed(bookie, BookieHandleNotAvailable.code)
        size = entries * entry_bytes(self.record.metadata) * fleet.group
        left = size
        while left > 0:
            piece = min(PIECE_BYTES, left)
            if self.pace is not None:
                await self.pace.turn()
                self.pace.read(piece)
            over = fleet.copied(piece, having[0], self.pool.host, bookie)
            await pause(fleet.clock_of(self.pool.host), over - fleet.timeline.now)
            left -= piece
        if not fleet.up(bookie):
            raise TargetFailed(bookie, BookieHandleNotAvailable.code)
        self.moved(Copied(entries, size))

    async def verify(self, index: int, bookie: str) -> None:
        """Reads everything back that was just copied."""
        fleet = self.pool.fleet
        size = self.entries_on(index) * entry_bytes(self.record.metadata) * fleet.group
        over = fleet.read_back(size, bookie, self.pool.host)
        await pause(fleet.clock_of(self.pool.host), over - fleet.timeline.now)

    async def keep(self, index: int, bookie: str) -> None:
        """The metadata names the bookie now; the group has its copies again with the last part."""
        if self.last < self.record.metadata.last_entry:
            return
        self.pool.fleet.named(self.record.ledger, index, self.fragment.bookies[index], bookie)
