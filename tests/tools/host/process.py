"""A host's process over a store, for tests: its directory, its configuration, what it said."""

import json
import selectors
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.tools.command import environment
from tests.tools.conftest import SMALL
from tests.tools.http import get

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 120.0  # only what hangs takes so long


class HostProcess:
    """`name` is its bookies' id; every port is a free one."""

    def __init__(self, directory: Path, uri: str, name: str, **keys: str) -> None:
        self.directory = directory
        self.conf = directory / "host.conf"
        directory.mkdir(parents=True, exist_ok=True)
        self.keys = {
            "metadataServiceUri": uri,
            "bookieId": name,
            "bookiePort": "0",
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "127.0.0.1",
            "allowLoopback": "true",
            "journalDirectories": str(directory / "journal"),
            "ledgerDirectories": str(directory / "ledgers"),
            "hostBookies": "2",
            **SMALL,
            **keys,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.keys.items()), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None
        self.said: dict[str, Any] = {}
        self.log = directory / "host.log"

    def begin(self, *more: str, **variables: str) -> "HostProcess":
        command = [sys.executable, "-m", "quire.tools", "host", "start", "--conf", str(self.conf), "--json", *more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--stop-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment() | variables,
            )
        return self

    def ready(self) -> dict[str, Any]:
        """What its ready line says."""
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(WAIT_S), "no ready line"
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.said = json.loads(line)
        return self.said

    def pids(self) -> list[int]:
        """Of its bookies, as they were when it was ready."""
        return [int(each["pid"]) for each in self.said["bookies"]]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a path of its page."""
        url = str(self.said["metrics"]).removesuffix("/metrics") + path
        try:
            return 200, get(url, self.directory / "journal" / "bookie-0" / "admin.token").decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def ended(self) -> int:
        """Its exit status, when it has ended by itself."""
        assert self.process is not None
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.end()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.ended()

    def end(self) -> None:
        """Whatever state it is in: its bookies end with its standard input."""
        if self.process is None:
            return
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None


def is_gone(pid: int) -> bool:
    """Whether a bookie's process has ended; one that nobody has reaped yet counts, too."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
