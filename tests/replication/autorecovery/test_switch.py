"""The switch as one process knows it: asked for again and again, off until the store said so."""

from twisted.internet.defer import CancelledError, Deferred

from quire.replication.autorecovery.running import Switch
from quire.replication.concurrently import BEGIN_AGAIN_S
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import AWAY

# SPDX-License-Identifier: Apache-2.0


def test_it_follows_the_store() -> None:
    """Within a second or so; a story begins when it is on."""
    cluster = FakeCluster(3)
    cluster.succeed(cluster.store.repairs.set_enabled(False))
    switch = Switch(cluster.client(), lambda: None)
    switch.start()
    begun: list[float] = []

    async def story() -> None:
        begun.append(cluster.clock.seconds())

    working = cluster.outcome(switch.begin(story))
    cluster.spin(10)
    assert (switch.on, begun, working.done) == (False, [], False)
    cluster.succeed(cluster.store.repairs.set_enabled(True))
    cluster.spin(1.5)
    assert (switch.on, len(begun), working.done) == (True, 1, True)
    cluster.succeed(cluster.store.repairs.set_enabled(False))
    cluster.spin(1.5)
    assert not switch.on
    switch.stop()


def test_no_answer_changes_nothing_and_is_told() -> None:
    """What was known holds; that nothing is seen of the cluster is heard each time."""
    cluster = FakeCluster(3)
    told: list[float] = []
    switch = Switch(cluster.client(), lambda: told.append(cluster.clock.seconds()))
    switch.start()
    cluster.spin(1)
    assert (switch.on, told) == (True, [])
    cluster.store_fault = lambda _name, _arguments: AWAY
    cluster.spin(10)
    assert switch.on
    assert len(told) >= 8
    switch.stop()
    assert cluster.clock.getDelayedCalls() == []


def test_what_nobody_foresaw_ends_no_look() -> None:
    """Else it would be taken for what it was for the rest of the term."""
    cluster = FakeCluster(3)
    faults = iter([KeyError("a fault of ours")])

    def fault(_name: str, _arguments: object) -> None:
        for each in faults:
            raise each

    cluster.store_fault = fault
    switch = Switch(cluster.client(), lambda: None)
    switch.start()
    cluster.spin(BEGIN_AGAIN_S - 1)
    assert not switch.on
    cluster.spin(5)
    assert switch.on
    switch.stop()
    assert cluster.clock.getDelayedCalls() == []


def test_who_waits_is_woken_by_others_too() -> None:
    """One whose story was cancelled meanwhile hurts nobody."""
    cluster = FakeCluster(3)
    switch = Switch(cluster.client(), lambda: None)
    first = Deferred.fromCoroutine(switch.changed())
    first.addErrback(lambda failure: failure.trap(CancelledError))
    second = cluster.outcome(switch.changed())
    first.cancel()
    switch.ring()
    assert (second.done, second.error) == (True, None)
