"""
The processes of a soak, each in a rack: members of a ZooKeeper ensemble, bookies, AutoRecoveries and workers.

Knows: how each is configured, started, killed, waited for and asked to end; its lives.
Does not know: what befalls it, and why.

Safety: only processes that these objects started are signalled; all end with this program.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from quire.security.tokens import ensure_token_file
from quire.tools.local_cluster.cluster import LocalBookie, LocalRecovery, free_ports
from quire.tools.local_cluster.guarded import GuardedServer
from quire.tools.local_cluster.zookeeper import HEAP, ZooKeeperFailed, jars, java
from tests.soak.racks import Racks

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
TICK_MS = 1000
READY_S = 120.0  # of what starts while everything else does, or while the store is away
END_S = 60.0
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ANSWER_S = 2.0
ZNODES, EPHEMERALS = "zk_znode_count", "zk_ephemerals_count"  # of all, the same at each member
WATCHES, CONNECTIONS = "zk_watch_count", "zk_num_alive_connections"  # of one member


class Member(Protocol):
    """A process with a rack that may be killed and started again."""

    kind: str
    name: str
    rack: int

    @property
    def pid(self) -> int | None:
        """While it runs."""

    def begin(self) -> None:
        """Starts it; returns before it serves."""

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""


class Store:
    """One ZooKeeper of an ensemble.  `ports`: of clients, of followers and of elections."""

    kind = "store"

    def __init__(self, directory: Path, number: int, rack: int, racks: Racks, ports: Sequence[int]) -> None:
        self.name, self.number, self.rack = f"store{number}", number, rack
        self.host, self.ports = racks.address(rack), ports
        self._prefix = racks.prefix(rack)
        self._server = GuardedServer(directory, "ZooKeeper", ZooKeeperFailed)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.ports[0]}"

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server.running else None

    def configure(self, ensemble: Sequence["Store"]) -> None:
        """Writes the configuration."""
        data = self._server.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        lines = {
            "clientPortAddress": self.host,
            "clientPort": self.ports[0],
            "dataDir": data,
            "tickTime": TICK_MS,
            "initLimit": 20,
            "syncLimit": 5,
            "forceSync": "no",  # only processes are killed, and the disk is everybody's
            "snapCount": 20000,
            "autopurge.purgeInterval": 1,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "mntr",
        }
        for each in ensemble if len(ensemble) > 1 else ():
            lines[f"server.{each.number}"] = ":".join(map(str, (each.host, *each.ports[1:])))
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        self._configuration.write_text(text)

    @property
    def _configuration(self) -> Path:
        return self._server.directory / "zookeeper.cfg"

    def begin(self) -> None:
        options = [HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options += ["-Dzookeeper.preAllocSize=4096", "-Dzookeeper.admin.enableServer=false"]
        command = [*self._prefix, java(), *options, "-cp", os.pathsep.join(map(str, jars())), MAIN]
        self._server.launch([*command, str(self._configuration)])

    def ready(self) -> None:
        self._server.wait(lambda: ZNODES in self.counts(), READY_S, f"at {self.address}")

    def kill(self) -> None:
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
        self._server.stop()

    def counts(self) -> dict[str, int]:
        """How much of what it has, by ZooKeeper's names; nothing while it does not serve."""
        try:
            with socket.create_connection((self.host, self.ports[0]), timeout=ANSWER_S) as connection:
                connection.sendall(b"mntr")
                words = [line.split() for line in connection.makefile("r", encoding="utf-8")]
        except OSError:
            return {}
        return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isdigit()}


class Daemon:
    """What bookies and AutoRecoveries have alike."""

    kind: str

    def __init__(self, process: LocalBookie | LocalRecovery, name: str, rack: int, racks: Racks) -> None:
        self.process, self.name, self.rack = process, name, rack
        process.prefix = racks.prefix(rack)
        self.host = racks.address(rack)

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def begin(self) -> None:
        self.process.begin()

    def ready(self) -> None:
        self.process.ready(time.monotonic() + READY_S)

    def kill(self) -> None:
        self.process.end_now()

    def end(self) -> bool:
        """Asks it to end; True if it did."""
        self.process.ask_to_end()
        return self.process.wait_for_end(time.monotonic() + END_S)


class Bookie(Daemon):
    kind = "bookie"

    def __init__(self, directory: Path, number: int, rack: int, racks: Racks) -> None:
        (port,) = free_ports(1)
        super().__init__(LocalBookie(directory, port), f"bookie{number}", rack, racks)
        self.id = self.process.id = f"{self.host}:{port}"
        self.port = port

    @property
    def token_file(self) -> Path:
        return self.process.directory / "admin.token"

    def configure(self, uri: str, options: Mapping[str, str]) -> None:
        keys = {"adminTokenFile": str(self.token_file), "prometheusStatsHttpAddress": self.host}
        self.process.write_bookie_keys(uri, self.host, self.port, {**keys, **options})
        ensure_token_file(str(self.token_file))


class Recovery(Daemon):
    kind = "autorecovery"

    def __init__(self, directory: Path, number: int, rack: int, racks: Racks) -> None:
        super().__init__(LocalRecovery(directory), f"autorecovery{number}", rack, racks)
        self.process.id = self.name

    def configure(self, uri: str, options: Mapping[str, str]) -> None:
        assert isinstance(self.process, LocalRecovery)
        self.process.write_conf(uri, {"listeningInterface": self.host, **options})


class Worker:
    """A process with many logs (`worker`), in one life after the other."""

    kind = "worker"

    def __init__(self, directory: Path, number: int, rack: int, racks: Racks, job: Mapping[str, Any]) -> None:
        self.name, self.rack = f"worker{number}", rack
        self.file = directory / f"{self.name}.jsonl"
        self.errors = directory / f"{self.name}.err"
        self.life = 0
        self._job = {**job, "who": self.name, "file": str(self.file)}
        self._prefix = racks.prefix(rack)
        self._process: subprocess.Popen[bytes] | None = None
        self.file.touch()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def status(self) -> int | None:
        """How it ended by itself."""
        return self._process.poll() if self._process is not None else None

    def begin(self) -> None:
        self.life += 1
        job = json.dumps({**self._job, "life": self.life})
        command = [*self._prefix, sys.executable, "-m", "tests.soak.worker", job]
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors)

    def say(self, word: str) -> None:
        """`quiet`: append no more; the end of all comes by `end`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._gone()
        with self.file.open("rb+") as file:  # a line that was cut would swallow the next one
            file.truncate(file.read().rfind(b"\n") + 1)

    def end(self) -> bool:
        """Asks it to end; True if it did, well."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(END_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            return False
        finally:
            self._gone()

    def _gone(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
