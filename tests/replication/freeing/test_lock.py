"""The repair lock is given back however the block under it ends."""

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore, Replication
from quire.replication.freeing.lock import repair_lock
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0


async def block(cluster: FakeCluster, ledger: int, inside: "Deferred[None] | None" = None) -> bool:
    async with repair_lock(cluster.store.repairs, ledger) as ours:
        if inside is not None:
            await inside
        return ours is not None


def test_it_is_held_while_the_block_runs() -> None:
    """Another block on the same ledger is not entered, and the lock is released at the end."""
    cluster = FakeCluster(1)
    inside: Deferred[None] = Deferred()
    first = Deferred.fromCoroutine(block(cluster, 7, inside))
    assert list(stored.locks(cluster.shared)) == [7]
    assert cluster.succeed(Deferred.fromCoroutine(block(cluster, 7))) is False
    inside.callback(None)
    assert cluster.succeed(first) is True
    assert stored.locks(cluster.shared) == {}


def test_it_goes_with_a_failure() -> None:
    """An error in the block releases the lock."""
    cluster = FakeCluster(1)
    inside: Deferred[None] = Deferred()
    first = Deferred.fromCoroutine(block(cluster, 7, inside))
    inside.errback(Replication("a bookie is away"))
    assert isinstance(cluster.fails(first), Replication)
    assert stored.locks(cluster.shared) == {}


def test_what_was_done_under_it_remains_though_it_can_not_be_given_back() -> None:
    """The store is away at the end: the lock goes with the session."""
    cluster = FakeCluster(1)
    asked: list[tuple[object, ...]] = []

    def away(name: str, arguments: tuple[object, ...]) -> Fault | None:
        if name != "release_repair":
            return None
        asked.append(arguments)
        return Fault(error=MetaStore("the store is away"))

    cluster.store_fault = away
    assert cluster.succeed(Deferred.fromCoroutine(block(cluster, 7))) is True
    assert asked == [(7,)]
    assert list(stored.locks(cluster.shared)) == [7]


def test_it_goes_when_it_comes_to_a_caller_that_was_cancelled() -> None:
    """A lock that is granted after a cancel is released."""
    cluster = FakeCluster(1)
    cluster.store_fault = lambda name, _arguments: Fault(after=1.0) if name == "lock_repair" else None
    asking = Deferred.fromCoroutine(block(cluster, 7))
    ended: list[Failure] = []
    asking.addErrback(ended.append)
    asking.cancel()
    assert ended[0].check(CancelledError)
    assert list(stored.locks(cluster.shared)) == [7]
    cluster.spin(2)
    assert stored.locks(cluster.shared) == {}


def test_a_store_that_is_away_says_so() -> None:
    """Its error is raised to the caller."""
    cluster = FakeCluster(1)
    cluster.store_fault = lambda name, _arguments: (
        Fault(error=MetaStore("the store is away")) if name == "lock_repair" else None
    )
    with pytest.raises(MetaStore, match="is away"):
        raise cluster.fails(Deferred.fromCoroutine(block(cluster, 7)))


def test_who_has_it_keeps_it() -> None:
    """A block under a lock that its caller has neither asks for one nor gives it back."""
    cluster = FakeCluster(1)
    held = cluster.succeed(cluster.store.repairs.lock(7))
    asked: list[str] = []
    cluster.store_fault = lambda name, _arguments: asked.append(name)

    async def inner() -> bool:
        async with repair_lock(cluster.store.repairs, 7, held) as ours:
            return ours is held

    assert cluster.succeed(Deferred.fromCoroutine(inner())) is True
    assert asked == []
    assert list(stored.locks(cluster.shared)) == [7]
