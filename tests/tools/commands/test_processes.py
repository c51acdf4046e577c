"""Becoming a daemon: which process takes a command's place.  The tests of each daemon start and stop whole ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from quire.tools.commands.processes import end
from quire.tools.daemons.process import BOOKIE, HOST
from tests.tools.bookie_process import WAIT_S
from tests.tools.command import COMMAND, environment

# SPDX-License-Identifier: Apache-2.0

PRINTS = "import os, sys\nprint(os.getpid(), sys.argv[1:])\n"
BECOMES = """
from quire.tools.commands.processes import become
from quire.tools.daemons.process import DaemonKind
become(DaemonKind("sum", "prints", "none"), {"--conf": None, "-x": 7}, {"--daemon": False, "--json": True})
"""


def test_the_process_is_replaced(tmp_path: Path) -> None:
    """It goes on as the module's, under its own number, with what was given and without what was not."""
    (tmp_path / "prints.py").write_text(PRINTS)
    command = [sys.executable, "-c", BECOMES]
    there = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=there) as process:
        said, _ = process.communicate(timeout=WAIT_S)
    assert said.decode() == f"{process.pid} {['-x', '7', '--json']}\n"


def test_an_end_waits_until_the_process_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that takes its time is waited for; one that takes too long or is of another kind is named, not killed."""
    path = tmp_path / "pid"
    program = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: None); print(1, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, BOOKIE.module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        path.write_text(f"{process.pid}\n")
        with pytest.raises(typer.Exit):
            end(BOOKIE, path, 0.0, False)
        assert "still runs after 0 s" in capsys.readouterr().err
        assert process.poll() is None
        with pytest.raises(typer.Exit):
            end(HOST, path, 0.0, False)
        assert f"a running bookie; `quire bookie stop --pidfile {path}` stops it" in capsys.readouterr().err
        process.communicate(timeout=WAIT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_an_end_can_be_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """By either signal, with the status of an interruption; the daemon goes on with its end."""
    path = tmp_path / "pid"
    program = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: print(2, flush=True)); print(1, flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, BOOKIE.module]
    stop = [*COMMAND, "bookie", "stop", "--pidfile", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        path.write_text(f"{process.pid}\n")
        with subprocess.Popen(stop, stderr=subprocess.PIPE, env=environment()) as waiting:
            assert process.stdout.readline() == b"2\n"
            waiting.send_signal(number)
            _, said = waiting.communicate(timeout=WAIT_S)
        assert (waiting.returncode, said) == (130, b"quire: interrupted\n")
        process.communicate(timeout=WAIT_S)
