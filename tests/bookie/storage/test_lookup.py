"""Where reads look: what was read ahead and is old by now, and whose turn it is beside adds."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from quire.bookie.storage.read_ahead import RESTS
from quire.bookie.storage.workers import InlineWorkers
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import Bookie, HeldWorkers, body_of, run_of

# SPDX-License-Identifier: Apache-2.0


def stored(workers: InlineWorkers | None = None) -> Bookie:
    """Entries 0 to 9 of ledger 1 on the disk, and nothing of them in memory."""
    first = Bookie()
    first.storage.add(run_of(1, 0, 10), "a")
    first.commit()
    first.now(first.storage.flush())
    return Bookie(first.disk.crashed(None), workers=workers)


def test_what_was_read_ahead_is_old_once_it_is_written_again() -> None:
    """Also when the newer copy has left the write cache."""
    bookie = stored()
    assert [bookie.read(1, entry) for entry in (0, 1, 2)] == [body_of(1, entry) for entry in (0, 1, 2)]
    assert bookie.storage.counters.reads_cached == 1, "the third was read ahead"
    assert bookie.storage.add(run_of(1, 3, size=50, recovery=True), "b") is Status.EOK
    bookie.commit()
    bookie.now(bookie.storage.flush())
    assert [bookie.read(1, entry) for entry in (2, 3, 4)] == [body_of(1, 2), body_of(1, 3, 50), body_of(1, 4)]


class LateWorkers(InlineWorkers):
    """Jobs are done at once, and what comes of them is told when the test says so."""

    def __init__(self) -> None:
        self.untold: list[tuple[Deferred[Any], Deferred[Any]]] = []

    def run(self, job: Callable[..., Any], *args: Any) -> Deferred[Any]:
        self.untold.append((Deferred(), maybeDeferred(job, *args)))
        return self.untold[-1][0]

    def tell(self, number: int) -> None:
        waiting, done = self.untold.pop(number)
        done.chainDeferred(waiting)


def test_what_is_being_read_ahead_is_old_once_it_is_written_again() -> None:
    """The newer copy came and was flushed between the read of the disk and the reactor's hearing of it."""
    workers = LateWorkers()
    bookie = stored(workers)
    found: list[object] = []
    for entry in (0, 1):
        asked = bookie.storage.read(1, entry)
        assert isinstance(asked, Deferred)
        asked.addCallback(found.append)
        if not entry:
            workers.tell(0)
    assert bookie.storage.add(run_of(1, 3, size=50, recovery=True), "b") is Status.EOK
    bookie.commit()
    bookie.storage.flush()
    workers.tell(1)
    workers.tell(0)
    assert found == [body_of(1, 0), body_of(1, 1)]
    asked = bookie.storage.read(1, 3)
    if isinstance(asked, Deferred):
        asked.addCallback(found.append)
        workers.tell(0)
    assert found[-1] == body_of(1, 3, 50)


@pytest.mark.parametrize("batch", [False, True])
def test_big_reads_rest_beside_adds(batch: bool) -> None:
    """Batches, and what a sequential reader makes be read ahead; one entry for itself is read at once."""
    workers = HeldWorkers()
    bookie = stored(workers)
    bookie.storage.read(1, 0)
    workers.release()
    bookie.storage.read_run(1, 0, 0, 1 << 20)
    bookie.storage.add(run_of(2, 0), "a")
    bookie.clock.advance(0.001)
    workers.release()
    if batch:
        bookie.storage.read_run(1, 5, 0, 1 << 20)
    else:
        bookie.storage.read(1, 1)
    assert workers.held == 0
    bookie.storage.read(1, 7)
    assert workers.held == (1 if batch else 0), "it waits for what is read ahead, if it is near"
    workers.release()
    bookie.clock.advance(RESTS * 0.001 + 0.0001)
    assert workers.held == 1
