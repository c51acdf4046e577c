"""
For every test: generated examples have no deadline, since a busy machine is not a fault of the code; and commands that
tests start hear SIGINT, also where the suite runs in the background of a shell that has turned it off for what it
starts.  And bookies in processes of their own are watched: a turn of their reactor that takes too long fails the test.
"""

import gc
import os
import re
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.drawn import (  # hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_terminal_summary,
)
from tests.tools.forked import ForkedPopen

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_terminal_summary",
]

# SPDX-License-Identifier: Apache-2.0

COLLECTED_AFTER = (20_000, 20, 20)  # so many more objects, and collections of the younger ones; Python: 700, 10, 10

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half of the time a test waits, for a process, a disk or a timer: two workers for each core."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is made here goes soon, and the collector would walk through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """
    What the collection made stays for ever, and most of what tests make goes by itself: the collector leaves the one
    alone and looks at the other less often.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


@pytest.fixture(scope="session", autouse=True)
def forked(long_turns: Path) -> Iterator[None]:
    """Commands and daemons of ours that tests start begin as forks of a process that has loaded their modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        yield


@pytest.fixture(scope="session")
def long_turns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """
    Where the bookies that tests start as processes report turns of their reactor that took too long (`tests/watched/`).
    """
    report = tmp_path_factory.mktemp("turns") / "long"
    report.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNS_WATCHED", str(report))
        patch.setenv(
            "PYTHONPATH",
            os.pathsep.join(filter(None, (str(Path(__file__).parent / "watched"), os.environ.get("PYTHONPATH")))),
        )
        yield report
    no_long_turn(report)


@pytest.fixture(autouse=True)
def turns_are_short(long_turns: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """
    No turn of the reactor of a bookie's process takes more than 50 ms of its thread's CPU time, or what the test's mark
    `turns_ms_max` allows.
    """
    yield
    allowed = request.node.get_closest_marker("turns_ms_max")
    no_long_turn(long_turns, 0 if allowed is None else allowed.args[0])


def no_long_turn(report: Path, allowed_ms: int = 0) -> None:
    """Fails with the turns reported there, each reported once, unless all of them are allowed."""
    if report.stat().st_size:
        turns = report.read_text(encoding="utf-8")
        os.truncate(report, 0)
        if any(int(taken) > allowed_ms for taken in re.findall(r"reactor took (\d+) ms", turns)):
            pytest.fail(turns, pytrace=False)
