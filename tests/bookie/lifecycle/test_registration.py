"""
Being listed: which list, again after a lost session; a bookie that can't be listed says so (metadata-rules.md 5.1).
"""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.lifecycle.registration import Listed, Registration
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import BookieRegistered, ServiceInfo
from quire.protocol.errors import MetaStore
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0

INFO = ServiceInfo.of("127.0.0.1", 3181, http=("127.0.0.1", 8000))


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.shared = MemoryCluster("registration")
        self.store = MemoryStore(self.clock, self.shared, session_timeout_ms=4000)
        self.store.init_cluster()
        self.failures: list[str] = []
        self.registration = Registration(self.store, "b:1", self.failures.append)

    def start(self, read_only: bool = False) -> list[object]:
        """What came of it: empty while it waits, [None] when it succeeded, [Failure] otherwise."""
        found: list[object] = []
        Deferred.fromCoroutine(self.registration.start(INFO, read_only)).addBoth(found.append)
        return found

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        return list(stored.registrations(self.shared)), list(stored.registrations(self.shared, True))


def test_registers_in_the_wanted_list() -> None:
    """A start registers the bookie, with its info, as writable or as read-only."""
    for read_only, lists in ((False, (["b:1"], [])), (True, ([], ["b:1"]))):
        scene = Scene()
        assert scene.start(read_only) == [None]
        assert scene.lists == lists
        assert stored.registered(scene.shared, "b:1") == INFO


def test_switches_back_and_forth() -> None:
    """A switch moves the bookie from one list to the other, without a failure."""
    scene = Scene()
    scene.start()
    scene.registration.switch(read_only=True)
    assert (scene.lists, scene.registration.listed) == (([], ["b:1"]), Listed.READ_ONLY)
    scene.registration.switch(read_only=False)
    assert (scene.lists, scene.registration.listed) == ((["b:1"], []), Listed.WRITABLE)
    assert scene.failures == []


def test_only_the_last_wish_counts() -> None:
    """One change at a time; what was wished meanwhile is carried out behind it."""
    scene = Scene()
    scene.start()
    scene.store.faults = lambda name, _: Fault(after=1.0) if name == "register_bookie" else None
    scene.registration.switch(read_only=True)
    scene.registration.switch(read_only=False)
    scene.registration.switch(read_only=True)
    scene.registration.switch(read_only=False)
    assert scene.lists == ([], ["b:1"])
    scene.clock.pump([0.5] * 6)
    assert (scene.lists, scene.registration.listed) == ((["b:1"], []), Listed.WRITABLE)


@pytest.mark.parametrize("read_only", [False, True])
def test_registers_again_after_a_lost_session(read_only: bool) -> None:
    """In the mode it is in."""
    scene = Scene()
    scene.start(read_only)
    for _ in range(3):
        scene.store.expire_session()
        assert scene.lists == ([], [])
        scene.clock.advance(0)
        assert scene.lists == (([], ["b:1"]) if read_only else (["b:1"], []))
    assert scene.failures == []


def test_a_session_lost_while_registering_is_no_failure() -> None:
    """The answer belongs to a session that is gone: it is done again, whatever it said."""
    for fault in (Fault(after=1.0), Fault(after=1.0, error=MetaStore("session expired"))):
        scene = Scene()
        scene.start()
        faults = [fault]
        scene.store.faults = lambda name, _, faults=faults: (
            faults.pop() if name == "register_bookie" and faults else None
        )  # type: ignore[misc]
        scene.registration.switch(read_only=True)
        scene.store.expire_session()
        scene.clock.pump([0.1] * 20)
        assert scene.lists == ([], ["b:1"])
        assert scene.failures == []


def test_a_session_lost_during_the_first_registration() -> None:
    """A registration whose session expires is repeated, and the start ends well."""
    scene = Scene()
    faults = [Fault(after=1.0)]
    scene.store.faults = lambda name, _: faults.pop() if name == "register_bookie" and faults else None
    found = scene.start()
    scene.store.expire_session()
    scene.clock.pump([0.5] * 4)
    assert found == [None]
    assert scene.lists == (["b:1"], [])


def test_a_bookie_that_cannot_be_listed_says_so() -> None:
    """It must not linger: clients would count on it, or never find it."""
    scene = Scene()
    scene.start()
    scene.store.faults = lambda name, _: (
        Fault(error=MetaStore("memory://registration: gone")) if name == "register_bookie" else None
    )
    scene.registration.switch(read_only=True)
    assert scene.failures == ["b:1 can't be registered as read-only: memory://registration: gone"]


def test_a_failure_that_nobody_foresaw_is_said_too() -> None:
    """After a lost session: the bookie is on no list, and ends."""
    scene = Scene()
    scene.start()
    scene.store.faults = lambda name, _: (
        Fault(error=ZeroDivisionError("odd")) if name == "register_bookie" else None  # type: ignore[arg-type]  # no LedgerError
    )
    scene.store.expire_session()
    scene.clock.advance(0)
    assert scene.failures == ["b:1 can't be registered as writable: odd"]


def test_another_live_process_under_the_id() -> None:
    """Waited for as long as its session may last, then an error; its end lets us in."""
    scene = Scene()
    other = MemoryStore(scene.clock, scene.shared)
    other.register_bookie("b:1", INFO)
    found = scene.start()
    scene.clock.advance(4.9)
    assert found == []
    scene.clock.advance(0.2)
    assert found[0].check(BookieRegistered)  # type: ignore[attr-defined]
    found = scene.start()
    other.close()
    scene.clock.advance(0)
    assert found == [None]


def test_stop_leaves_the_list() -> None:
    """So that clients turn elsewhere before the port closes; nothing registers it again."""
    scene = Scene()
    scene.start()
    Deferred.fromCoroutine(scene.registration.stop())
    assert scene.lists == ([], [])
    scene.store.expire_session()
    scene.registration.switch(read_only=True)
    scene.clock.advance(1)
    assert scene.lists == ([], [])


def test_stop_waits_for_a_change_under_way() -> None:
    """A stop ends after the change in progress, and the bookie is in no list then."""
    scene = Scene()
    scene.start()
    scene.store.faults = lambda name, _: Fault(after=1.0) if name == "register_bookie" else None
    scene.registration.switch(read_only=True)
    stopped = Deferred.fromCoroutine(scene.registration.stop())
    assert not stopped.called
    scene.clock.advance(1)
    assert stopped.called
    assert scene.lists == ([], [])


def test_a_store_that_is_gone_does_not_keep_the_bookie_from_stopping() -> None:
    """A stop completes although the store refuses to remove the registration."""
    scene = Scene()
    scene.start()
    scene.store.faults = lambda name, _: Fault(error=MetaStore("gone")) if name == "unregister_bookie" else None
    assert Deferred.fromCoroutine(scene.registration.stop()).called


@pytest.mark.parametrize("read_only", [False, True])
def test_a_registration_that_was_removed_is_made_again(read_only: bool) -> None:
    """In the mode it is in, while the session goes on."""
    scene = Scene()
    scene.start()
    scene.registration.switch(read_only)
    for _ in range(3):
        stored.unlist(scene.shared)
        scene.clock.advance(0)
        assert scene.lists == (([], ["b:1"]) if read_only else (["b:1"], []))
    assert scene.failures == []


def test_a_change_of_mode_is_no_loss() -> None:
    """The node that is left behind goes by our own hand: nothing is registered twice."""
    scene = Scene()
    scene.start()
    calls: list[str] = []
    scene.store.faults = lambda name, _: calls.append(name)  # type: ignore[func-returns-value]
    scene.registration.switch(read_only=True)
    scene.registration.switch(read_only=False)
    scene.clock.pump([0.1] * 5)
    assert calls == ["register_bookie", "register_bookie"]


def test_two_processes_with_one_id_do_not_take_turns() -> None:
    """
    Who lost its place to another waits as at a start and then says so and stops; the other one keeps the place and
    hears nothing.
    """
    scene = Scene()
    scene.start()
    other = MemoryStore(scene.clock, scene.shared)
    failures: list[str] = []
    second = Registration(other, "b:1", failures.append)
    stored.unlist(scene.shared)  # by an operator, say
    Deferred.fromCoroutine(second.start(INFO, False))
    held = stored.registrations(scene.shared)["b:1"]
    scene.clock.advance(0)
    assert scene.registration.listed is Listed.NOT
    scene.clock.advance(4.9)
    assert scene.failures == []
    scene.clock.advance(0.2)
    assert scene.failures == [
        "b:1 can't be registered as writable: memory://registration: another live process is registered as b:1"
    ]
    Deferred.fromCoroutine(scene.registration.stop())
    scene.clock.pump([1.0] * 5)
    assert stored.registrations(scene.shared)["b:1"] == held
    assert (second.listed, failures) == (Listed.WRITABLE, [])
