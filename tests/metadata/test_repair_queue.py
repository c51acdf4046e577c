"""The repair queue: where a shortage is, and how often the queue is looked at."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.metadata.clock import pause
from quire.metadata.repair_queue import QueueWatch, directory_of, name_of
from tests.metadata.zk.guarded import told

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (0, "0000/0000/0000/0000/urL0000000000"),
        (51966, "0000/0000/0000/cafe/urL0000051966"),
        (4294967297, "0000/0001/0000/0001/urL4294967297"),
        ((1 << 63) - 1, "7fff/ffff/ffff/ffff/urL9223372036854775807"),
    ],
)
def test_where_a_shortage_is(ledger: int, path: str) -> None:
    """The id in hex, in four directories, and in decimal, of ten digits or more."""
    assert f"{directory_of(ledger)}/{name_of(ledger)}" == path


def test_a_watch_of_a_long_queue_rests():
    """However often it changes: all of it is asked for a tenth of the time at most, and now and then."""
    clock, armed, calls = Clock(), [], []

    async def arm(wake):
        armed.append(clock.seconds())
        await pause(clock, 0.3)
        wake()

    watcher = QueueWatch(clock, arm, lambda: calls.append(clock.seconds()), lambda _watcher: None)
    run = Deferred.fromCoroutine(watcher.run())
    clock.pump([0.1] * 600)
    assert 15 <= len(armed) <= 20
    assert len(calls) >= len(armed) - 1
    watcher.watch.cancel()
    clock.pump([0.1] * 60)
    assert run.called


def test_a_watch_outlives_an_error_that_nobody_foresaw():
    """The log says so, once, and the queue is watched again after a moment."""
    clock, calls, troubles = Clock(), [], [ZeroDivisionError("odd")] * 2

    async def arm(_wake):
        if troubles:
            raise troubles.pop()

    watcher = QueueWatch(clock, arm, lambda: calls.append(clock.seconds()), lambda _watcher: None)
    with told() as lines:
        Deferred.fromCoroutine(watcher.run())
        clock.pump([0.1] * 20)
    assert len(calls) == 1
    assert len(lines) == 1
    watcher.watch.cancel()
    clock.pump([0.1] * 20)
