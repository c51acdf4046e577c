"""Locked files that say who lives."""

import os
import subprocess
import sys

import pytest

from quire.metadata.sqlite.session_file import SessionFile, forget, is_alive

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "sessions")


def test_a_session_lives_while_its_owner_beats(directory):
    """The lock is held, and the heartbeat is young enough on the clock that everybody shares."""
    now = [100.0]
    session = SessionFile(directory, lambda: now[0])
    assert is_alive(session.path, 100.0, 10)
    assert is_alive(session.path, 110.0, 10)
    assert not is_alive(session.path, 110.1, 10)
    now[0] = 120.0
    session.beat()
    assert is_alive(session.path, 129.0, 10)
    session.close()
    assert not is_alive(session.path, 120.0, 10)
    assert not os.path.exists(session.path)


def test_names_are_never_used_twice_at_a_time(directory):
    """Each session has a file of its own."""
    sessions = [SessionFile(directory, lambda: 0.0) for _ in range(5)]
    assert len({session.name for session in sessions}) == 5
    for session in sessions:
        session.close()
        session.close()


def test_looking_does_not_hurt(directory):
    """A look at a dead session's file lets go of it again, so that the next look finds it dead too."""
    session = SessionFile(directory, lambda: 0.0)
    copy = session.path + "-dead"
    with open(copy, "wb") as dead:
        dead.write(bytes(8))
    assert [is_alive(copy, 0.0, 10) for _ in range(3)] == [False] * 3
    assert is_alive(session.path, 0.0, 10)
    session.close()


def test_a_process_that_dies_drops_its_lock(directory):
    """Killed without a chance to clean up: the file stays, the lock doesn't."""
    text = (
        "import os, signal, sys; from quire.metadata.sqlite.session_file import SessionFile\n"
        "session = SessionFile(sys.argv[1], lambda: 5.0); print(session.path, flush=True); os.kill(os.getpid(), "
        "signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", text, directory], capture_output=True, text=True, check=False)
    path = done.stdout.strip()
    assert os.path.exists(path)
    assert not is_alive(path, 5.0, 1000)
    forget(path)
    forget(path)
    assert not os.path.exists(path)


def test_the_lock_does_not_pass_to_programs(directory):
    """A program that the owner has started and that outlives it does not keep the session alive."""
    text = (
        "import os, signal, subprocess, sys; from quire.metadata.sqlite.session_file import SessionFile\n"
        "session = SessionFile(sys.argv[1], lambda: 5.0)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=int(sys.argv[2]), "
        "stdout=subprocess.DEVNULL, close_fds=False)\n"
        "print(session.path, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", text, directory, str(reading)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            pass_fds=[reading],
        )
        assert not is_alive(done.stdout.strip(), 5.0, 1000)
    finally:
        os.close(reading)
        os.close(writing)
