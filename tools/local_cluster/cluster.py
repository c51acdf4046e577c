"""
A cluster on this machine: a metadata store and bookies as processes of their own, in one directory.

    DIR/cluster.json        which metadata store, and the ports: what a restart needs
    DIR/metadata.db         the embedded metadata store, or
    DIR/zookeeper/          a real ZooKeeper's data
    DIR/bookie-N/           bookie.conf, bookie.log, journal/, ledgers/

Knows: how to start, kill, restart and stop the processes, and that a second start finds the same ports and data.
Does not know: ledgers.  Used by `quire local`, `quire demo`, the benchmarks and the tests; it blocks, and needs no
reactor.

Safety: only processes that this object started are ever signalled, by their own handle.  A bookie stays in our process
group and stops when the pipe to its standard input closes, so none outlives us, however we end.
"""

import json
import os
import random
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypedDict

from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.tools.local_cluster.zookeeper import ZooKeeper

# SPDX-License-Identifier: Apache-2.0

HOST = "127.0.0.1"
PORTS = (20_000, 32_000)
READY_S = 60.0  # replaying a journal takes seconds; a busy machine takes more
STOP_S = 30.0  # a clean stop writes a checkpoint
LOG_LINES_TOLD = 5

Store = Literal["sqlite", "zookeeper"]
STORES: dict[str, Store] = {"sqlite": "sqlite", "zookeeper": "zookeeper"}


def store_kind(option: str | None) -> Store | None:
    """Checks --metadata of the commands that start a cluster."""
    if option is None or option in STORES:
        return STORES.get(option or "")
    raise Usage(f"--metadata is sqlite or zookeeper here, not {option!r}: this command starts a cluster of its own")


class Saved(TypedDict):
    """What cluster.json holds."""

    metadata: Store
    ports: list[int]
    zookeeper_port: int


class NotStarted(OSError):
    """A process of the cluster ended before it was ready, or was not ready in time; the text has the end of its log."""


class LocalBookie:
    """One bookie's directory, and its process while it runs."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.id = f"{HOST}:{port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.said = ""  # what it printed when it was ready

    @property
    def conf(self) -> Path:
        return self.directory / "bookie.conf"

    @property
    def log(self) -> Path:
        return self.directory / "bookie.log"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def write_conf(self, uri: str, options: Mapping[str, str]) -> None:
        """Writes the configuration; BookKeeper's keys, `options` last."""
        for name in ("journal", "ledgers"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        keys = {
            "metadataServiceUri": uri,
            "bookiePort": str(self.port),
            "advertisedAddress": HOST,
            "listeningInterface": HOST,
            "allowLoopback": "true",
            "journalDirectories": str(self.directory / "journal"),
            "ledgerDirectories": str(self.directory / "ledgers"),
            **options,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="utf-8")

    def begin(self, *arguments: str) -> None:
        """Starts the process, with more arguments if given; `ready` waits for it."""
        assert self.pid is None, f"{self.id} runs already"
        command = [
            sys.executable,
            "-m",
            "quire.tools.daemons.bookie",
            "--conf",
            str(self.conf),
            "--stop-with-stdin",
            *arguments,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def ready(self, deadline: float) -> None:
        """Waits until the bookie says that it serves; `NotStarted` with the end of its log otherwise."""
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
            raise NotStarted(f"bookie {self.id} {what}; {self.log} ends with:\n{self.log_end()}")
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


class LocalCluster:
    """
    Bookies and their metadata store in `directory`.  A directory that holds a cluster already is started as it was.

    `options` are keys for every new bookie's configuration, `tick_ms` a ZooKeeper's unit of time.  Raises `Usage` when
    what is asked does not fit what is there.
    """

    def __init__(
        self,
        directory: Path,
        bookies: int | None = None,
        metadata: Store | None = None,
        options: Mapping[str, str] | None = None,
        tick_ms: int = 2000,
    ) -> None:
        self.directory = directory.resolve()
        self.options = dict(options or {})
        self.tick_ms = tick_ms
        self.zookeeper: ZooKeeper | None = None
        saved = self._saved()
        held = saved["ports"] if saved else []
        kind = saved["metadata"] if saved else metadata or "sqlite"
        if metadata is not None and kind != metadata:
            raise Usage(
                f"{self.directory} holds a cluster with {kind} metadata; leave --metadata out, or give another --dir"
            )
        count = bookies if bookies is not None else len(held) or 4
        if count < max(1, len(held)):
            raise Usage(
                f"{self.directory} holds {len(held)} bookies and {count} are asked for; leave --bookies out, or "
                "give "
                "another --dir"
            )
        self.metadata: Store = kind
        self.zookeeper_port = saved["zookeeper_port"] if saved else 0
        ports = held + free_ports(count - len(held))
        self.bookies = [LocalBookie(self.directory / f"bookie-{number}", port) for number, port in enumerate(ports, 1)]
        self.uri = f"sqlite://{self.directory}/metadata.db"

    @property
    def ids(self) -> list[str]:
        return [bookie.id for bookie in self.bookies]

    def __enter__(self) -> "LocalCluster":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and returns when every bookie serves; `NotStarted`."""
        self.start_metadata()
        self.start_bookies()

    def start_metadata(self) -> None:
        """Starts the metadata store and makes the cluster in it if there is none."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.metadata == "zookeeper":
            from quire.tools.local_cluster.zookeeper import ZooKeeper

            self.zookeeper = ZooKeeper(self.directory / "zookeeper", self.zookeeper_port, tick_ms=self.tick_ms)
            self.zookeeper_port = self.zookeeper.port
            self.uri = self.zookeeper.uri
        self._save()
        quire(["metadata", "init", "--if-missing", "--metadata", self.uri])

    def start_bookies(self) -> None:
        """Starts the bookies that don't run, all at once."""
        fresh = [bookie for bookie in self.bookies if bookie.pid is None]
        for bookie in fresh:
            if not bookie.conf.exists() or self.metadata == "zookeeper":
                bookie.write_conf(self.uri, self.options)
            bookie.begin()
        deadline = time.monotonic() + READY_S
        for bookie in fresh:
            bookie.ready(deadline)

    def bookie(self, bookie_id: str) -> LocalBookie:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def kill(self, bookie_id: str) -> None:
        """SIGKILL to one bookie; returns when it is gone."""
        self.bookie(bookie_id).end_now()

    def kill_all(self) -> None:
        """SIGKILL to every bookie, in one go: none may learn of another's death before its own."""
        for bookie in self.bookies:
            if bookie.process is not None:
                bookie.process.kill()
        for bookie in self.bookies:
            bookie.end_now()

    def restart(self, bookie_id: str) -> None:
        """Starts a bookie that was killed or stopped, on its old port and data."""
        bookie = self.bookie(bookie_id)
        bookie.begin()
        bookie.ready(time.monotonic() + READY_S)

    def stop_bookie(self, bookie_id: str) -> bool:
        """SIGTERM to one bookie; True when it stopped cleanly."""
        bookie = self.bookie(bookie_id)
        bookie.ask_to_end()
        return bookie.wait_for_end(time.monotonic() + STOP_S)

    def stop(self) -> bool:
        """Stops all that runs; True when every bookie stopped cleanly."""
        for bookie in self.bookies:
            bookie.ask_to_end()
        deadline = time.monotonic() + STOP_S
        ended = [bookie.wait_for_end(deadline) for bookie in self.bookies]
        if self.zookeeper is not None:
            self.zookeeper.stop()
            self.zookeeper = None
        return all(ended)

    def ended(self) -> list[LocalBookie]:
        """Bookies whose process ended without being asked."""
        return [bookie for bookie in self.bookies if bookie.process is not None and bookie.process.poll() is not None]

    def _saved(self) -> Saved | None:
        try:
            text = (self.directory / "cluster.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            found: Saved = json.loads(text)
        except json.JSONDecodeError as error:
            raise Usage(f"{self.directory / 'cluster.json'} is damaged ({error}); give another --dir") from error
        return found

    def _save(self) -> None:
        state: Saved = {
            "metadata": self.metadata,
            "ports": [bookie.port for bookie in self.bookies],
            "zookeeper_port": self.zookeeper_port,
        }
        fresh = self.directory / "cluster.json.new"
        fresh.write_text(json.dumps(state) + "\n", encoding="utf-8")
        os.replace(fresh, self.directory / "cluster.json")


def quire(arguments: list[str], time_limit: float = READY_S) -> str:
    """Runs one `quire` command in a process of its own; its standard output, or `NotStarted` with its error."""
    done = subprocess.run(
        [sys.executable, "-m", "quire.tools", *arguments],
        capture_output=True,
        text=True,
        timeout=time_limit,
        check=False,
    )
    if done.returncode:
        raise NotStarted(f"`quire {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """
    Ports that are free, all different, below the range that outgoing connections take theirs from: a bookie
    that was killed must find its port free when it comes back.
    """
    dice = random.SystemRandom()
    probes: list[socket.socket] = []
    try:
        while len(probes) < count:
            probe = socket.socket()
            try:
                probe.bind((HOST, dice.randrange(*PORTS)))
            except OSError:
                probe.close()
                continue
            probes.append(probe)
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
