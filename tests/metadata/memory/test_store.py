"""What only the store in memory has: faults that a test decides, virtual time, and the same run from the same calls."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import BookieRegistered, ServiceInfo
from quire.protocol.errors import LedgerExist, MetadataVersion, MetaStore
from tests.metadata.made import ledger

# SPDX-License-Identifier: Apache-2.0

HERE = ServiceInfo.of("127.0.0.1", 3181)


def result(deferred: Deferred):
    """The result of a Deferred that has fired; raises its error."""
    found = []
    deferred.addBoth(found.append)
    assert found, "it has not fired"
    if hasattr(found[0], "raiseException"):
        found[0].raiseException()
    return found[0]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cluster():
    return MemoryCluster("c")


@pytest.fixture
def store(clock, cluster):
    made = MemoryStore(clock, cluster)
    result(made.init_cluster())
    return made


def test_answers_are_ready_at_once(store):
    """Without faults no time passes: an operation is done when its call returns."""
    ledger_id = result(store.new_ledger_id())
    made = result(store.create_ledger(ledger_id, ledger()))
    assert result(store.read_ledger(ledger_id)) == made


def test_the_same_calls_give_the_same_run(clock):
    """Instance id, ledger ids and tokens come from the cluster's seed."""

    def play(seed):
        store = MemoryStore(clock, MemoryCluster("c", seed=seed))
        instance = result(store.init_cluster())
        return instance, [result(store.create_ledger(result(store.new_ledger_id()), ledger())) for _ in range(3)]

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_a_watch_is_never_called_from_inside_a_call(store, clock):
    """Changes are reported in the reactor's next turn, and several changes of one turn may be reported as one."""
    heard = []
    made = result(store.create_ledger(1, ledger()))
    store.watch_ledger(1, heard.append)
    assert heard == []
    clock.advance(0)
    assert heard == [made]
    made = result(store.write_ledger(1, made.value.recovering(), made.version))
    made = result(store.write_ledger(1, made.value.closed(1, 1), made.version))
    assert len(heard) == 1
    clock.advance(0)
    assert heard[1:] == [made]


def test_failing_before_the_effect(store):
    """An error without `applied` leaves everything as it was."""
    store.faults = lambda name, arguments: Fault(error=MetaStore("down")) if name == "create_ledger" else None
    with pytest.raises(MetaStore, match="down"):
        result(store.create_ledger(1, ledger()))
    store.faults = None
    assert result(store.ledger_ids()) == []


def test_a_lost_answer(store):
    """With `applied` it is done, and only the answer is an error: the caller must read again."""
    made = result(store.create_ledger(1, ledger()))
    store.faults = lambda name, arguments: Fault(error=MetaStore("lost"), applied=True)
    with pytest.raises(MetaStore, match="lost"):
        result(store.write_ledger(1, made.value.recovering(), made.version))
    store.faults = None
    with pytest.raises(MetadataVersion):
        result(store.write_ledger(1, made.value.recovering(), made.version))
    assert result(store.read_ledger(1)).version == 1


def test_delays(store, clock):
    """`before` puts the effect off, `after` the answer; the order of effects is the order of their times."""
    delays = {1: Fault(before=3, after=1), 2: Fault(before=1, after=5)}
    store.faults = lambda name, arguments: delays.get(arguments[0]) if name == "create_ledger" and arguments else None
    first, second = store.create_ledger(1, ledger()), store.create_ledger(2, ledger())
    assert result(store.ledger_ids()) == []
    clock.advance(1)
    assert result(store.ledger_ids()) == [2]
    clock.advance(2)
    assert result(store.ledger_ids()) == [1, 2]
    assert not first.called
    clock.advance(1)
    assert result(first).version == 0
    assert not second.called
    clock.advance(2)
    assert result(second).version == 0


def test_a_late_create_meets_an_earlier_one(store, clock):
    """An operation is judged when it takes effect, not when it was called."""
    store.faults = lambda name, arguments: Fault(before=1) if arguments and arguments[-1] is late else None
    late = ledger(password=b"late")
    waiting = store.create_ledger(1, late)
    result(store.create_ledger(1, ledger()))
    clock.advance(1)
    with pytest.raises(LedgerExist):
        result(waiting)


def test_faults_see_the_arguments(store):
    """The hook gets the operation's name and its arguments."""
    seen = []
    store.faults = lambda name, arguments: seen.append((name, arguments))
    result(store.ledger_ids(5, 7))
    result(store.register_bookie("a:1", HERE, read_only=True))
    assert seen == [("ledger_ids", (5, 7)), ("register_bookie", ("a:1", HERE, True))]


def test_a_closed_store_never_applies_a_delayed_operation(store, cluster, clock):
    """What was under way when the handle closed fails, and has no effect."""
    other = MemoryStore(clock, cluster)
    other.faults = lambda name, arguments: Fault(before=1)
    waiting = other.create_ledger(1, ledger())
    other.close()
    clock.advance(1)
    with pytest.raises(MetaStore):
        result(waiting)
    assert result(store.ledger_ids()) == []


def test_the_wait_for_an_id_is_virtual(store, cluster, clock):
    """Eleven seconds of waiting for another's registration pass on the clock that was given."""
    other = MemoryStore(clock, cluster)
    result(store.register_bookie("a:1", HERE))
    waiting = other.register_bookie("a:1", HERE)
    clock.advance(10.9)
    assert not waiting.called
    clock.advance(0.2)
    with pytest.raises(BookieRegistered):
        result(waiting)


def test_expiry_is_a_call(store, cluster, clock):
    """The registrations go at once; the listeners hear of it in the next turn, when a new session is there."""
    other = MemoryStore(clock, cluster)
    lost = []

    def again():
        lost.append(result(other.bookies()))
        result(store.register_bookie("a:1", HERE))

    store.on_session_lost(again)
    result(store.register_bookie("a:1", HERE))
    store.expire_session()
    assert dict(result(other.bookies()).writable) == {}
    assert lost == []
    clock.advance(0)
    assert len(lost) == 1
    assert "a:1" in result(other.bookies()).writable


class LateStore(MemoryStore):
    """A handle that hears of each change as many seconds late as is said, the others at once."""

    def __init__(self, clock, cluster) -> None:
        super().__init__(clock, cluster)
        self.paces = []
        self._inner.pace = lambda: self.paces.pop(0) if self.paces else 0.0


@pytest.mark.parametrize("read_only", [True, False])
def test_a_bookie_that_changes_its_list_is_in_one_whatever_is_heard_first(clock, cluster, store, read_only):
    """Though it is heard first that it has left the other one, as from etcd, whose watches go at their own pace."""
    other, heard = LateStore(clock, cluster), []
    result(store.register_bookie("b:1", HERE, read_only=not read_only))
    other.watch_bookies(heard.append)
    clock.pump([0.0] * 9)
    other.paces = [1.0]
    result(store.register_bookie("b:1", HERE, read_only=read_only))
    clock.pump([0.0] * 9)
    clock.pump([1.0] * 3)
    assert len(heard) > 1
    assert all(seen.find("b:1") == HERE for seen in heard)
    assert heard[-1].read_only == ({"b:1": HERE} if read_only else {})
    result(store.unregister_bookie("b:1", read_only))
    clock.pump([0.0] * 9)
    assert heard[-1].find("b:1") is None
