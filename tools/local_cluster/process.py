"""
One process of a cluster on this machine: a daemon with its configuration and its log in one directory.

Knows: how it is started, waited for, killed and stopped.  Does not know: what its configuration says.

Safety: only the process that this object started is ever signalled, by its own handle.  It stays in our process group
and stops when the pipe to its standard input closes, so it does not outlive us, however we end.
"""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

# SPDX-License-Identifier: Apache-2.0

LOG_LINES_TOLD = 5


class NotStarted(OSError):
    """A process of the cluster ended before it was ready, or was not ready in time; the text has the end of its log."""


class LocalProcess:
    """A daemon's directory, and its process while it runs.  `kind`: the stem of its files' names."""

    module: ClassVar[str]

    def __init__(self, directory: Path, name: str, kind: str) -> None:
        self.directory = directory
        self.id = name
        self.kind = kind
        self.environment: dict[str, str] | None = None  # besides ours
        self.prefix: Sequence[str] = ()  # a command that runs the one behind it, as `ip netns exec` does
        self.process: subprocess.Popen[bytes] | None = None
        self.said = ""  # what it printed when it was ready

    @property
    def conf(self) -> Path:
        return self.directory / f"{self.kind}.conf"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.kind}.log"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def write_bookie_keys(self, uri: str, host: str, port: int, options: Mapping[str, str]) -> None:
        """Writes the configuration of what keeps entries below the directory, on one address; `options` last."""
        journal, ledgers = self.directory / "journal", self.directory / "ledgers"
        keys = {"metadataServiceUri": uri, "bookiePort": str(port), "allowLoopback": "true"}
        keys |= {"advertisedAddress": host, "listeningInterface": host}
        keys |= {"journalDirectories": str(journal), "ledgerDirectories": str(ledgers), **options}
        for directory in (journal, ledgers):
            directory.mkdir(parents=True, exist_ok=True)
        self.write_keys(keys)

    def write_keys(self, keys: Mapping[str, str]) -> None:
        """Writes the configuration."""
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="utf-8")

    def begin(self, *arguments: str) -> None:
        """Starts the process, with more arguments if given; `ready` waits for it."""
        assert self.pid is None, f"{self.id} runs already"
        command = [
            *self.prefix,
            sys.executable,
            "-m",
            self.module,
            "--conf",
            str(self.conf),
            "--stop-with-stdin",
            *arguments,
        ]
        given = None if self.environment is None else {**os.environ, **self.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=given
            )

    def ready(self, deadline: float) -> None:
        """Waits until it says that it is ready; `NotStarted` with the end of its log otherwise."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            in_time = selector.select(max(0.0, deadline - time.monotonic()))
        line = process.stdout.readline().decode() if in_time else ""
        if not line:
            what = "did not serve in time" if not in_time else f"ended with status {process.wait()}"
            self.end_now()
            raise NotStarted(f"{self.kind} {self.id} {what}; {self.log} ends with:\n{self.log_end()}")
        self.said = line.strip()

    def log_end(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join(lines[-LOG_LINES_TOLD:])

    def end_now(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self.process is not None:
            self.process.kill()
            self._gone()

    def ask_to_end(self) -> None:
        if self.pid is not None:
            assert self.process is not None
            self.process.terminate()

    def wait_for_end(self, deadline: float) -> bool:
        """Waits for a clean end, kills after the deadline; True when it ended by itself with status 0."""
        if self.process is None:
            return True
        try:
            clean = self.process.wait(max(0.0, deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            clean = False
        self._gone()
        return clean

    def _gone(self) -> None:
        assert self.process is not None
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process = None
