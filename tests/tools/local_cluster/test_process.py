"""One process of a local cluster: ready, ended by itself, stopped, killed."""

import time
from pathlib import Path

import pytest

from quire.tools.local_cluster.process import LocalProcess, NotStarted

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60.0
PLAYED = """
import pathlib, sys
words = dict(line.split("=") for line in pathlib.Path(sys.argv[sys.argv.index("--conf") + 1]).read_text().split())
print("why", file=sys.stderr)
if words["ready"] == "yes":
    print("ready", *sys.argv[3:], flush=True)
    sys.stdin.read()
sys.exit(int(words["status"]))
"""


class Played(LocalProcess):
    """A daemon that does what its configuration says."""

    module = "played_daemon"


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    (tmp_path / "played_daemon.py").write_text(PLAYED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Played(tmp_path, "one", "played")


def begun(played: Played, ready: str, status: int = 0) -> Played:
    played.write_keys({"ready": ready, "status": str(status)})
    played.begin("--more")
    return played


def test_ready_and_stopped(played: Played) -> None:
    """What it said when it was ready is kept; a stop that SIGTERM makes is no clean one of a process without a word."""
    assert played.wait_for_end(0), "it never ran"
    begun(played, "yes").ready(time.monotonic() + WAIT_S)
    assert played.said == "ready --stop-with-stdin --more"
    assert played.pid is not None
    assert played.process is not None
    assert played.process.stdin is not None
    played.process.stdin.close()
    assert played.wait_for_end(time.monotonic() + WAIT_S)
    assert played.pid is None
    begun(played, "yes").ready(time.monotonic() + WAIT_S)
    played.ask_to_end()
    assert not played.wait_for_end(time.monotonic() + WAIT_S)


def test_another_command_may_run_it(played: Played) -> None:
    """As one that gives it another network does."""
    played.prefix = ["env", "PLAYED_BEHIND=env"]
    begun(played, "yes").ready(time.monotonic() + WAIT_S)
    assert b"PLAYED_BEHIND=env" in Path(f"/proc/{played.pid}/environ").read_bytes()
    played.end_now()


def test_killed(played: Played) -> None:
    """At once, and for good; a second kill finds nothing."""
    begun(played, "yes").ready(time.monotonic() + WAIT_S)
    played.end_now()
    assert played.process is None
    played.end_now()


def test_one_that_is_not_ready_says_why(played: Played) -> None:
    """Its status and the end of its log, or that it took too long; nothing runs after either."""
    with pytest.raises(NotStarted, match=r"(?s)played one ended with status 3; .*played\.log ends with:\nwhy"):
        begun(played, "no", 3).ready(time.monotonic() + WAIT_S)
    with pytest.raises(NotStarted, match="played one did not serve in time"):
        begun(played, "yes").ready(0)
    assert played.process is None
