"""
Becoming a daemon, and ending one by its pid file.

Knows: how a command replaces itself by a daemon's process, and how it waits for one to be gone.
Does not know: what the daemon does.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from quire.tools.daemons.process import KINDS, DaemonKind, is_running
from quire.tools.terminal import output
from quire.tools.terminal.options import refused

# SPDX-License-Identifier: Apache-2.0

# Options of the commands that start and stop a daemon.
Override = Annotated[str | None, typer.Option("--metadata", metavar="URI", help="overrides metadataServiceUri")]
Pidfile = Annotated[
    Path | None, typer.Option("--pidfile", metavar="F", help="the process id is kept there while it runs")
]
StopWithStdin = Annotated[
    bool, typer.Option("--stop-with-stdin", help="stop when standard input closes: when the parent has gone")
]
StartedPidfile = Annotated[Path, typer.Option("--pidfile", metavar="F", help="what `start` was given")]

STOP_LOOK_S = 0.05  # between two looks at whether a process is gone


def become(kind: DaemonKind, values: Mapping[str, object], flags: Mapping[str, bool]) -> NoReturn:
    """Goes on as the daemon in the same process, without typer and what else the command line needed."""
    arguments: list[str] = []
    for name, value in values.items():
        if value is not None:
            arguments += [name, str(value)]
    arguments += [name for name, wanted in flags.items() if wanted]
    optimized = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    os.execv(sys.executable, [sys.executable, *optimized, "-m", kind.module, *arguments])


def end(kind: DaemonKind, pidfile: Path, timeout: float, json_wanted: bool) -> None:
    """SIGTERM to the daemon that a pid file names; returns when it is gone.  `typer.Exit` where none runs under it."""
    try:
        text = pidfile.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise refused(f"{pidfile} does not exist: no {kind.name} runs under it") from None
    running = next((each for each in KINDS if text.isdecimal() and is_running(int(text), each)), None)
    if running is None:
        raise refused(f"{pidfile} names process {text!r}, which is no running {kind.name}; remove the file")
    if running != kind:
        raise refused(
            f"{pidfile} is that of a running {running.name}; `{running.command} stop --pidfile {pidfile}` stops it"
        )
    pid = int(text)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while is_running(pid, kind):
        if time.monotonic() > deadline:
            raise refused(f"process {pid} still runs after {timeout:.0f} s; its log says what it does")
        time.sleep(STOP_LOOK_S)
    output.document(json_wanted, {"pid": pid, "stopped": True}, f"stopped (process {pid})")
