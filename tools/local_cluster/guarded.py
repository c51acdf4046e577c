"""
A server of somebody else's as a child process on the loopback address.

Knows: how to start it, to wait until it answers, and to end it; that its data and its log are in one directory.
Does not know: which server.

The server ends with this process, however that ends: a small shell holds a pipe from here and stops the server when it
closes.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

# SPDX-License-Identifier: Apache-2.0

STOP_S = 10.0
POLL_S = 0.05

# $@ is the server's command line.  Its output goes to the log (descriptor 2); descriptor 1 shows us its process id.
SHELL = """
exec 3<&0
"$@" </dev/null >&2 3<&- &
server=$!
echo $server
exec >&2
( read -r never <&3; kill -TERM $server ) &
guard=$!
wait $server
status=$?
kill $guard 2>/dev/null
exit $status
"""


class ServerFailed(Exception):
    """The server did not come up; the text shows the end of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class GuardedServer:
    """A server whose data are in `directory`; `name` is its own, for errors and its log."""

    def __init__(self, directory: str | os.PathLike[str], name: str, failure: type[ServerFailed]) -> None:
        self.directory = Path(directory)
        self.log = self.directory / f"{name.lower()}.log"
        self.pid = 0
        self._name = name
        self._failure = failure
        self._shell: subprocess.Popen[bytes] | None = None
        self.directory.mkdir(parents=True, exist_ok=True)

    def launch(self, command: Sequence[str]) -> None:
        """Starts the process."""
        with self.log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SHELL, self._name.lower(), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        assert self._shell.stdout is not None
        self.pid = int(self._shell.stdout.readline())

    @property
    def running(self) -> bool:
        return self._shell is not None and self._shell.poll() is None

    def wait(self, serves: Callable[[], bool], seconds: float, where: str) -> None:
        """Returns when it serves; `failure`."""
        deadline = time.monotonic() + seconds
        while not serves():
            if not self.running or time.monotonic() > deadline:
                raise self._failure(f"{self._name} {where} did not come up; the end of {self.log}:\n{self._tail()}")
            time.sleep(POLL_S)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> None:
        """Ends the server (its data stay) and waits for that."""
        if self._shell is None:
            return
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._shell.wait(STOP_S)
        except subprocess.TimeoutExpired:
            if self.pid:
                os.kill(self.pid, 9)  # the shell waits for it, so the id is still the server's
            self._shell.wait(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
