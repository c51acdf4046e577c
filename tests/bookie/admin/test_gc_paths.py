"""The paths of garbage collection: BookKeeper's names and answers."""

import json

import pytest

from quire.bookie.admin.bookie_paths import DETAILS, GC, RESUME, SUSPEND, GcPaths, flags
from quire.bookie.admin.http import Answer
from quire.bookie.upkeep.space import DirectorySpace
from tests.bookie.fakes import asking
from tests.bookie.upkeep.test_garbage import Scene

# SPDX-License-Identifier: Apache-2.0


def ask(scene: Scene, method: str, path: str, body: bytes = b"") -> Answer:
    return asking.ask([GcPaths(scene.garbage, "b:1")], method, path, body)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"", 0.8),
        (b"{}", 0.8),
        (b'{"forceMajor": true, "forceMinor": false}', 0.8),
        (b'{"forceMinor": true}', 0.2),
        (b'{"forceMajor": false}', 0.0),
    ],
)
def test_a_round_is_forced(body: bytes, wanted: float) -> None:
    """Both kinds unless the body says otherwise; the answer is BookKeeper's; the status shows the end of the round."""
    scene = Scene([1, 2], 1)
    assert ask(scene, "PUT", GC, body).body == b'"Triggered GC on BookieServer: b:1"\n'
    assert json.loads(ask(scene, "GET", GC).body)["is_in_force_gc"] == "true"
    for _ in range(5):
        scene.clock.advance(0.1)
    status = json.loads(ask(scene, "GET", GC).body)
    assert status["is_in_force_gc"] == "false"
    assert (status["rounds"], status["ledgers_deleted"]) == (1, 1)
    assert scene.passes == [wanted]


def test_what_is_refused() -> None:
    """Malformed bodies and wrong methods."""
    scene = Scene([1], 1)
    for path in (GC, SUSPEND, RESUME):
        for bad in (b"x", b"[]", b'{"forceMajor": 1, "suspendMajor": 1, "resumeMajor": 1}', b"\xff"):
            assert ask(scene, "PUT", path, bad).status == 400, (path, bad)
    for method, path in (("PUT", DETAILS), ("POST", GC), ("DELETE", SUSPEND), ("GET", RESUME)):
        assert ask(scene, method, path).status == 405
    assert scene.passes == []


def test_compaction_is_suspended_and_resumed() -> None:
    """Major and minor compaction have a switch each; GET returns the state of both."""
    scene = Scene([1], 1)
    assert json.loads(ask(scene, "PUT", SUSPEND, b'{"suspendMajor": true}').body) == {
        "isMajorGcSuspended": "true",
        "isMinorGcSuspended": "false",
    }
    ask(scene, "PUT", SUSPEND, b'{"suspendMinor": true}')
    ask(scene, "PUT", RESUME, b'{"resumeMajor": true}')
    assert json.loads(ask(scene, "GET", SUSPEND).body) == {"isMajorGcSuspended": "false", "isMinorGcSuspended": "true"}


def test_details_by_directory() -> None:
    """Each ledger directory is listed with its path and its compaction counters."""
    scene = Scene([1], 1)
    scene.space.directories.append(DirectorySpace("/ledgers"))
    (found,) = json.loads(ask(scene, "GET", DETAILS).body)
    assert found["majorCompactionCounter"] == found["minorCompactionCounter"] == 0
    assert (found["path"], found["forceCompacting"]) == ("/ledgers", False)


def test_flags() -> None:
    """An empty body sets all flags, a body sets those that are JSON true, any other value is malformed."""
    assert flags(b" ", ("a", "b"), True) == (True, True)
    assert flags(b'{"a": true}', ("a", "b"), True) == (True, False)
    assert flags(b'{"b": "true"}', ("a", "b"), True) is None
