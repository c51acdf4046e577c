"""A bookie in a process of its own, with a store and a configuration."""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO

from tests.tools.command import warm
from tests.tools.http import get

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60
BY_COMMAND = ("quire.tools", "bookie", "start")  # which goes on as the daemon, of a fresh interpreter


class Cluster:
    """A directory with a SQLite store and the configuration of one bookie; every process started here is ended here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uri = f"sqlite://{path}/metadata.db"
        self.conf = path / "bookie.conf"
        self.token_file = path / "journal" / "admin.token"
        self.started: list[subprocess.Popen[bytes]] = []
        self.write_conf()
        self.quire("metadata", "init", "--metadata", self.uri)

    def write_conf(self, more: str = "") -> None:
        self.conf.write_text(
            f"metadataServiceUri={self.uri}\nbookiePort=0\nbookieId=one\nadvertisedAddress=127.0.0.1\n"
            "listeningInterface=127.0.0.1\n"
            f"journalDirectories={self.path}/journal\nledgerDirectories={self.path}/ledgers\njournalSegmentSizeMB=1\n"
            "dbStorage_writeCacheMaxSizeMb=4\n"
            f"diskUsageThreshold=0.999\ndiskUsageWarnThreshold=0.999\n{more}"
        )

    def quire(self, *arguments: str, status: int = 0, **environment: str) -> str:
        """Runs a command to its end; standard output, or standard error when it is to fail."""
        done = warm().run(list(arguments), b"", {**os.environ, "QUIRE_METADATA": self.uri, **environment})
        assert done.code == status, (arguments, done)
        return done.err if status else done.out

    def start(
        self,
        *more: str,
        module: tuple[str, ...] = ("quire.tools.daemons.bookie",),
        log: IO[bytes] | None = None,
        **environment: str,
    ) -> "Process":
        """`log`: for one that logs more than a pipe holds that nobody reads."""
        command = [sys.executable, "-m", *module, "--conf", str(self.conf), *more]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log or subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.started.append(process)
        return Process(process, self.token_file)

    def start_with_files(self, limit: int) -> "Process":
        """One that may have so many files open; its limit is lower still before it raises it."""
        program = f"""
            import resource, runpy, sys
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, {limit}))
            sys.argv = ["bookie", "--conf", {str(self.conf)!r}]
            runpy.run_module("quire.tools.daemons.bookie", run_name="__main__")
        """
        command = [sys.executable, "-c", textwrap.dedent(program)]
        self.started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return Process(self.started[-1], self.token_file)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


class Process:
    """A bookie's process and what it said."""

    def __init__(self, process: subprocess.Popen[bytes], token_file: Path) -> None:
        self.process = process
        self.token_file = token_file
        self.pid = process.pid

    def ready(self) -> re.Match[str]:
        """Its ready line: id, host, port and metrics' URL."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(WAIT_S), "no ready line"
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"ready (\S+) (\S+):(\d+) (http://\S+/metrics)\n", line)
        assert found, (line, self.failed() if not line else "")
        self.port = int(found[3])
        self.metrics = found[4]
        return found

    def get(self, path: str = "/metrics", put: bytes | None = None) -> bytes:
        """What it answers over HTTP to who has its token.  `put`: the body of a PUT."""
        return get(self.metrics.removesuffix("/metrics") + path, self.token_file, put)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Sends a signal; (exit status, what it had logged, unless to a file)."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, log = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, (log or b"").decode()

    def failed(self) -> str:
        """Its log when it ends without a signal."""
        return self.ended()[1]

    def ask(self, *frames: bytes) -> list[bytes]:
        """Sends V2 frames over a new connection; one answer for each."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S) as peer, peer.makefile("rb") as stream:
            peer.sendall(b"".join(frames))
            return [stream.read(int.from_bytes(stream.read(4), "big")) for _ in frames]
