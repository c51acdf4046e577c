"""
The real `quire` command, each in a process of its own: `quire` forks it from one that has loaded the modules (`warm`),
COMMAND is what a shell would run.  PROGRAM with the text of a program runs that one.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

# What `quire` is in a script: asks the warm process at the other end of a socket, and ends as the command does.
ASKING = """
import json, os, socket, sys
asked = socket.socket(fileno=int(sys.argv[1]))
environment = {**os.environ, "WARM_CWD": os.getcwd()}
socket.send_fds(asked, [json.dumps(["quire.tools", sys.argv[2:], environment, False]).encode()], [0, 1, 2])
asked.recv(100)
sys.exit(os.waitstatus_to_exitcode(int(asked.recv(100))))
"""
WAIT_S = 120.0  # only a command that hangs takes so long
COMMAND = [sys.executable, "-m", "quire.tools"]
PROGRAM = [sys.executable, "-m", "tests.tools.program"]


class Done(NamedTuple):
    """How a command ended.  `out` and `err` are text, `raw` is standard output's bytes."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.raw)

    @property
    def rows(self) -> list[Any]:
        """The JSON documents on standard output, one a line."""
        return [json.loads(line) for line in self.raw.splitlines()]


def environment(metadata: str | None = None) -> dict[str, str]:
    """This process's environment without what would steer a command, and with a metadata store if one is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QUIRE_", "BK_"))}
    kept["QUIRE_CONF"] = os.devnull  # the developer's own configuration is not the test's
    if metadata is not None:
        kept["QUIRE_METADATA"] = metadata
    return kept


class Warm:
    """A process that forks commands and daemons, at the other end of a socket; it ends with this one."""

    def __init__(self, served: socket.socket) -> None:
        self._socket = served
        self._lock = threading.Lock()

    def run(self, arguments: list[str], stdin: bytes, environment: dict[str, str]) -> Done:
        """One command to its end.  It is killed when it hangs."""
        pipes = [os.pipe() for _ in range(3)]
        (theirs, ours), *outputs = pipes
        given = [theirs, *(end for _, end in outputs)]
        process = fork(self._socket, "quire.tools", arguments, environment, given)
        for descriptor in given:
            os.close(descriptor)
        killer = threading.Timer(WAIT_S, os.kill, (process, signal.SIGKILL))
        killer.start()
        with ThreadPoolExecutor(3) as pool:
            pool.submit(fed, ours, stdin)
            output, errors = pool.map(drained, [end for end, _ in outputs])
        code = os.waitstatus_to_exitcode(int(self._socket.recv(100)))
        killer.cancel()
        return Done(code, output, errors.decode())

    def serving_another(self) -> socket.socket:
        """A socket that a fork of the process serves."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._lock:
            socket.send_fds(self._socket, [b"-"], [theirs.fileno()])
        return ours

    def another(self) -> "Warm":
        """One more, which runs commands at the same time."""
        return Warm(self.serving_another())

    def shell(
        self, script: str, environment: dict[str, str], seconds: float = WAIT_S
    ) -> subprocess.CompletedProcess[str]:
        """A script of bash to its end, in which `quire` is the command."""
        number = self._socket.fileno()
        quire = f'quire() {{ {shlex.join([sys.executable, "-S", "-c", ASKING, str(number)])} "$@"; }}'
        return subprocess.run(
            ["bash", "-c", f"set -eo pipefail; {quire}\n{script}"],
            env=environment,
            pass_fds=[number],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def fork(
    served: socket.socket,
    module: str,
    arguments: list[str],
    environment: Mapping[str, str],
    streams: list[int],
    leads_session: bool = False,
) -> int:
    """Has a module run with these standard streams; the id of its process, whose wait status the socket has later."""
    socket.send_fds(served, [json.dumps([module, arguments, dict(environment), leads_session]).encode()], streams)
    return int(served.recv(100))


def fed(pipe: int, data: bytes) -> None:
    """Writes all of it, as far as it is read."""
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(data)


def drained(pipe: int) -> bytes:
    """What comes until the pipe's end."""
    with open(pipe, "rb") as file:
        return file.read()


@cache
def warm() -> Warm:
    """The first, which loads the modules."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.tools.warm", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[2],
        )
    return Warm(ours)


def quire(*arguments: object, metadata: str | None = None, stdin: bytes = b"") -> Done:
    """Runs one command to its end."""
    return warm().run([*map(str, arguments)], stdin, environment(metadata))


def ok(*arguments: object, metadata: str | None = None, stdin: bytes = b"") -> Done:
    """Runs one command that must succeed."""
    done = quire(*arguments, metadata=metadata, stdin=stdin)
    assert done.code == 0, f"quire {' '.join(map(str, arguments))} ended with {done.code}: {done.err}"
    return done


def refused(code: int, *arguments: object, metadata: str | None = None, stdin: bytes = b"") -> str:
    """Runs one command that must fail with this status, with one line and no traceback; the line."""
    done = quire(*arguments, metadata=metadata, stdin=stdin)
    assert done.code == code, f"quire {' '.join(map(str, arguments))} ended with {done.code}: {done.err}"
    assert "Traceback" not in done.err, done.err
    assert done.raw == b"", "a failure leaves standard output empty"
    return done.err.strip().splitlines()[-1]
