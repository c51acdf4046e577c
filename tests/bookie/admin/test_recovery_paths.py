"""The paths of AutoRecovery: BookKeeper's names, texts and statuses, and what the metadata store says."""

import json
from typing import Any

from twisted.internet.task import Clock

from quire.bookie.admin.gate import Gate
from quire.bookie.admin.http import Answer
from quire.bookie.admin.recovery_paths import (
    AUDITOR,
    DECOMMISSION,
    DELAY,
    LIST,
    RECOVER,
    STATUS,
    TRIGGER,
    RecoveryPaths,
)
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetaStore
from tests.bookie.fakes.asking import OPEN, asking
from tests.metadata.stored import init, meaning

# SPDX-License-Identifier: Apache-2.0


class Repairing:
    """A process's part that notes what is asked of it."""

    def __init__(self) -> None:
        self.emptied: list[tuple[str, bool]] = []
        self.refusal: str | None = None
        self.said: dict[str, Any] | None = None

    def status(self) -> dict[str, Any] | None:
        return self.said

    def empty(self, bookie: str, forget: bool) -> str | None:
        if self.refusal is None:
            self.emptied.append((bookie, forget))
        return self.refusal


class Scene:
    """A cluster in memory and the paths of one process."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.clock = Clock()
        cluster = MemoryCluster("test")
        init(cluster)
        self.faults: dict[str, Fault] = {}
        self.store = MemoryStore(self.clock, cluster, faults=lambda *asked: self.faults.pop(meaning(*asked)[0], None))
        self.repairing = Repairing()
        paths = RecoveryPaths(lambda: self.store if is_open else None, self.repairing)
        self.gate = Gate([paths.routes], OPEN)

    def ask(self, method: str, path: str, body: bytes = b"", **query: str) -> Answer:
        found = asking(self.gate, method, path, body, **query)
        return found if isinstance(found, Answer) else self.done(found)

    def done(self, deferred: Any) -> Any:
        answers: list[Any] = []
        deferred.addCallback(answers.append)
        self.clock.pump([0.1] * 50)
        return answers[0]

    def mark(self, ledger: int, *missing: str) -> None:
        marked = self.store.repairs.mark(ledger, missing, 1)
        marked.addCallback(lambda _: True)
        assert self.done(marked)


def test_the_switch() -> None:
    """It is shown and set as BookKeeper does; our own part of the answer is there where the process takes part."""
    scene = Scene()
    assert json.loads(scene.ask("GET", STATUS).body) == {"enabled": True}
    assert scene.ask("PUT", STATUS).status == 400
    assert json.loads(scene.ask("PUT", STATUS, enabled="false").body) == {"enabled": False}
    scene.repairing.said = {"auditor": True}
    assert json.loads(scene.ask("GET", STATUS).body) == {"enabled": False, "here": {"auditor": True}}


def test_the_queue_is_listed() -> None:
    """Ids, or ids with their bookies; chosen by a bookie that is missing and by one that is not; 404 for none."""
    scene = Scene()
    assert scene.ask("GET", LIST).status == 404
    scene.mark(3, "a:1", "b:1")
    scene.mark(1, "a:1")
    assert json.loads(scene.ask("GET", LIST).body) == [1, 3]
    assert json.loads(scene.ask("GET", LIST, printmissingreplica="true").body) == {"1": ["a:1"], "3": ["a:1", "b:1"]}
    assert json.loads(scene.ask("GET", LIST, missingreplica="b:1").body) == [3]
    assert json.loads(scene.ask("GET", LIST, missingreplica="a:1", excludingmissingreplica="b:1").body) == [1]
    assert scene.ask("GET", LIST, missingreplica="c:1").status == 404


def test_who_audits() -> None:
    """The bookie of the lowest vote, in BookKeeper's words; 404 without one."""
    scene = Scene()
    assert scene.ask("GET", AUDITOR).status == 404
    scene.done(scene.store.auditing.vote("a:1"))
    found = scene.ask("GET", AUDITOR)
    assert (found.status, found.body) == (200, b"Auditor: a:1")


def test_the_delay_and_the_audit_that_is_asked_for() -> None:
    """The delay is the store's; setting it again to the same value is how an audit is asked for."""
    scene = Scene()
    assert scene.ask("PUT", TRIGGER).body == b"Success trigger audit."
    assert scene.done(scene.store.auditing.delay().addCallback(lambda seconds: (seconds,))) == (None,)
    assert scene.ask("GET", DELAY).body == b"lostBookieRecoveryDelay value: 0"
    assert scene.ask("PUT", DELAY, b'{"delay_seconds": 60}').body == b"Success set lostBookieRecoveryDelay to 60"
    assert scene.ask("GET", DELAY).body == b"lostBookieRecoveryDelay value: 60"
    for bad in (b"", b"[]", b'{"delay_seconds": "1"}', b'{"delay_seconds": true}', b'{"delay_seconds": -1}'):
        assert scene.ask("PUT", DELAY, bad).status == 400, bad
    seen: list[int | None] = []
    scene.store.auditing.watch_delay(seen.append)
    scene.clock.advance(1)
    assert scene.ask("PUT", TRIGGER).body == b"Success trigger audit."
    scene.clock.advance(1)
    assert seen == [60, 60]


def test_a_bookie_is_emptied() -> None:
    """Both of BookKeeper's ways to ask, with or without its cookie; refusals have their status."""
    scene = Scene()
    asked = scene.ask("PUT", DECOMMISSION, b'{"bookie_src": "a:1", "delete_cookie": "true"}')
    assert asked.body == b"Success send decommission Bookie command a:1"
    asked = scene.ask("PUT", RECOVER, b'{"bookie_src": ["b:1", "c:1"], "delete_cookie": false}')
    assert asked.body == b"Success send recovery request command."
    assert scene.repairing.emptied == [("a:1", True), ("b:1", False)]
    scene.repairing.refusal = "later"
    assert scene.ask("PUT", RECOVER, b'{"bookie_src": ["b:1"]}').status == 409
    for path in (DECOMMISSION, RECOVER):
        for bad in (b"", b"{}", b'{"bookie_src": []}', b'{"bookie_src": 1}', b'{"bookie_src": "a/b"}'):
            assert scene.ask("PUT", path, bad).status == 400, (path, bad)


def test_other_methods_mean_nothing() -> None:
    """Each path has its own."""
    scene = Scene()
    for method, path in (("GET", TRIGGER), ("POST", STATUS), ("PUT", LIST), ("DELETE", DELAY)):
        assert scene.ask(method, path).status == 405


def test_a_store_that_is_away_is_said() -> None:
    """503 while it is not open, and when it does not answer."""
    assert Scene(is_open=False).ask("GET", STATUS).status == 503
    scene = Scene()
    scene.faults["repair_enabled"] = Fault(error=MetaStore("no answer"))
    assert scene.ask("GET", STATUS).status == 503
