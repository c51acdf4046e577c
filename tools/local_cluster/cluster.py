"""
A cluster on this machine: a metadata store and bookies as processes of their own, in one directory.

    DIR/cluster.json        which metadata store, and the ports: what a restart needs
    DIR/metadata.db         the embedded metadata store, or
    DIR/zookeeper/          a real ZooKeeper's data, or
    DIR/etcd/               a real etcd's
    DIR/bookie-N/           bookie.conf, bookie.log, journal/, ledgers/
    DIR/autorecovery/       autorecovery.conf, autorecovery.log, admin.token, where it is asked for
    DIR/console/            console.conf, console.log, admin.token, where it is asked for
    DIR/tls/, client.conf   with TLS: the certificates, and the options of a client

Knows: how to start, kill, restart and stop the processes, and that a second start finds the same ports and data.
Does not know: ledgers.  Used by `quire local`, `quire demo`, the benchmarks and the tests; it blocks, and needs no
reactor.

Safety: only processes that this object started are ever signalled, by their own handle (`process`), and none outlives
us, however we end.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from quire.conf.extras import installs
from quire.security.tokens import ensure_token_file
from quire.tools.local_cluster.process import LocalProcess, NotStarted
from quire.tools.terminal.options import Usage

if TYPE_CHECKING:
    from quire.tools.local_cluster.authority import LocalAuthority
    from quire.tools.local_cluster.guarded import GuardedServer

# SPDX-License-Identifier: Apache-2.0

HOST = "127.0.0.1"
PORTS = (20_000, 32_000)
PORT_TAKEN = "can't be listened on: Address already in use"
READY_S = 60.0  # replaying a journal takes seconds; a busy machine takes more
TOGETHER_MAX = 8  # bookies that start at the same time: of many on few cores none would be ready in time
STOP_S = 30.0  # a clean stop writes a checkpoint
# Of a fresh file system, and of a first start that came no further; logs may be there, too.
LEFT_BY_OTHERS = {"lost+found", "zookeeper", "etcd"}

Store = Literal["sqlite", "zookeeper", "etcd"]
STORES: dict[str, Store] = {"sqlite": "sqlite", "zookeeper": "zookeeper", "etcd": "etcd"}


def store_kind(option: str | None) -> Store | None:
    """Checks --metadata of the commands that start a cluster."""
    if option is None or option in STORES:
        return STORES.get(option or "")
    raise Usage(
        f"--metadata is sqlite, zookeeper or etcd here, not {option!r}: this command starts a cluster of its own"
    )


class Saved(TypedDict):
    """The content of cluster.json."""

    metadata: Store
    ports: list[int]
    zookeeper_port: int  # or etcd's
    tls: NotRequired[bool]


class LocalBookie(LocalProcess):
    """One bookie's directory, and its process while it runs."""

    module = "quire.tools.daemons.bookie"

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, f"{HOST}:{port}", "bookie")
        self.port = port

    @property
    def is_new(self) -> bool:
        """True if it has never had its port: no cookie is there, and no entry."""
        return not (self.directory / "journal" / "current").exists()

    def move(self, port: int) -> None:
        """Gives it another port: somebody else was faster."""
        self.port, self.id = port, f"{HOST}:{port}"

    def write_conf(self, uri: str, options: Mapping[str, str]) -> None:
        """Writes the configuration; BookKeeper's keys, `options` last."""
        self.write_bookie_keys(uri, HOST, self.port, options)


class LocalRecovery(LocalProcess):
    """AutoRecovery's directory, and its process while it runs."""

    module = "quire.tools.daemons.autorecovery"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "autorecovery", "autorecovery")

    def write_conf(self, uri: str, options: Mapping[str, str]) -> None:
        """Writes the configuration, also over an older one: a ZooKeeper's port may be another; `options` last."""
        self.directory.mkdir(parents=True, exist_ok=True)
        token = str(self.directory / "admin.token")
        ensure_token_file(token)
        keys = {"metadataServiceUri": uri, "bookieId": self.id, "listeningInterface": HOST, "allowLoopback": "true"}
        self.write_keys({**keys, "adminTokenFile": token, **options})


class LocalConsole(LocalProcess):
    """The console's directory, and its process while it runs."""

    module = "quire.console.daemon"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "console", "console")
        self.token_file = directory / "admin.token"

    @property
    def url(self) -> str:
        """The address, once it is ready."""
        return str(json.loads(self.said)["ready"])

    def write_conf(self, uri: str, client_conf: Path | None) -> None:
        """Writes the configuration.  `client_conf`: how bookies are reached, where that needs any."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ensure_token_file(str(self.token_file))
        self.write_keys({"metadataServiceUri": uri, "adminTokenFile": str(self.token_file)})
        # and no configuration of this user's clients, for it may be another cluster's; nor its variables
        self.environment = {"QUIRE_CONF": str(client_conf or os.devnull), "QUIRE_METADATA": uri, "QUIRE_TOKEN_FILE": ""}


class LocalCluster:
    """
    Bookies and their metadata store in `directory`, which is new or empty.  One that holds a cluster already is started
    as it was.

    `options` are keys for every new bookie's configuration, `tick_ms` a ZooKeeper's unit of time; `autorecovery` and
    `console` run one process of each beside them; `tls` gives all of them certificates.  Raises `Usage` when what is
    asked does not fit what is there.
    """

    def __init__(
        self,
        directory: Path,
        bookies: int | None = None,
        metadata: Store | None = None,
        options: Mapping[str, str] | None = None,
        tick_ms: int = 2000,
        autorecovery: bool = False,
        tls: bool = False,
        console: bool = False,
    ) -> None:
        self.directory = directory.resolve()
        self.options = dict(options or {})
        self.client_conf: Path | None = None  # with TLS
        self.tick_ms = tick_ms
        self.server: GuardedServer | None = None  # that keeps the metadata, where one does
        saved = self._saved()
        there = list(self.directory.iterdir()) if saved is None and self.directory.is_dir() else []
        if any(each.name not in LEFT_BY_OTHERS and each.suffix != ".log" for each in there):
            raise Usage(f"{self.directory} is not empty and holds no cluster; give another --dir")
        held = saved["ports"] if saved else []
        kind = saved["metadata"] if saved else metadata or "sqlite"
        if metadata is not None and kind != metadata:
            raise Usage(
                f"{self.directory} holds a cluster with {kind} metadata; leave --metadata out, or give another --dir"
            )
        count = bookies if bookies is not None else len(held) or 4
        if count < max(1, len(held)):
            raise Usage(
                f"{self.directory} holds {len(held)} bookies and {count} are asked for; leave --bookies out, or give "
                "another --dir"
            )
        if saved and tls and not saved.get("tls"):
            raise Usage(f"{self.directory} holds a cluster without TLS; leave --tls out, or give another --dir")
        self.tls = tls or bool(saved and saved.get("tls"))
        self.metadata: Store = kind
        self.server_port = saved["zookeeper_port"] if saved else 0
        ports = held + free_ports(count - len(held))
        self.bookies = [LocalBookie(self.directory / f"bookie-{number}", port) for number, port in enumerate(ports, 1)]
        self.uri = f"sqlite://{self.directory}/metadata.db"
        self.recovery = LocalRecovery(self.directory / "autorecovery") if autorecovery else None
        self.console = LocalConsole(self.directory / "console") if console else None

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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and returns when every bookie serves and AutoRecovery takes part; `NotStarted`."""
        self.start_metadata()
        self.start_bookies()
        if self.recovery is not None and self.recovery.pid is None:
            self.recovery.write_conf(self.uri, self._authority().client_keys() if self.tls else {})
            self.recovery.begin()
            self.recovery.ready(time.monotonic() + READY_S)
        if self.console is not None and self.console.pid is None:
            self.console.write_conf(self.uri, self.client_conf)
            self.console.begin("--port", "0", "--json")
            self.console.ready(time.monotonic() + READY_S)

    def start_metadata(self) -> None:
        """Starts the metadata store and makes the cluster in it if there is none."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.metadata == "zookeeper":
            from quire.tools.local_cluster.zookeeper import ZooKeeper

            zookeeper = ZooKeeper(self.directory / "zookeeper", self.server_port, tick_ms=self.tick_ms)
            self.server, self.server_port, self.uri = zookeeper, zookeeper.port, zookeeper.uri
        elif self.metadata == "etcd":
            from quire.tools.local_cluster.etcd import Etcd

            etcd = Etcd(self.directory / "etcd", self.server_port)
            self.server, self.server_port, self.uri = etcd, etcd.port, etcd.uri
            etcd.wait_until_healthy()
        self._save()
        quire(["metadata", "init", "--if-missing", "--metadata", self.uri])
        if self.tls:
            self._certify()

    def _authority(self) -> "LocalAuthority":
        try:
            from quire.tools.local_cluster.authority import LocalAuthority
        except ImportError as missing:
            raise Usage(
                f"--tls needs a library that is missing ({missing.name}): {installs('tls')}, or start without"
            ) from None

        return LocalAuthority(self.directory / "tls", HOST)

    def _certify(self) -> None:
        """Certificates for all, and the options of a client."""
        authority = self._authority()
        authority.make()
        self.options = {**authority.bookie_keys(), **self.options}
        self.client_conf = self.directory / "client.conf"
        keys = {"metadataServiceUri": self.uri, **authority.client_keys()}
        self.client_conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()), encoding="utf-8")

    def add(self) -> LocalBookie:
        """Starts one more bookie."""
        added = LocalBookie(self.directory / f"bookie-{len(self.bookies) + 1}", *free_ports(1))
        self.bookies.append(added)
        self._save()
        self.start_bookies([added])
        return added

    def start_bookies(self, bookies: Sequence[LocalBookie] | None = None) -> None:
        """Starts those of these bookies that don't run, some at a time; without `bookies`, of all."""
        fresh = [bookie for bookie in (self.bookies if bookies is None else bookies) if bookie.pid is None]
        for start in range(0, len(fresh), TOGETHER_MAX):
            self._start_together(fresh[start : start + TOGETHER_MAX])

    def _start_together(self, fresh: Sequence[LocalBookie]) -> None:
        for bookie in fresh:
            if not bookie.conf.exists() or self.metadata != "sqlite":
                bookie.write_conf(self.uri, self.options)
            bookie.begin()
        deadline = time.monotonic() + READY_S
        for bookie in fresh:
            while True:
                try:
                    bookie.ready(deadline)
                    break
                except NotStarted as failure:
                    if PORT_TAKEN not in str(failure) or not bookie.is_new:
                        raise
                    bookie.move(*free_ports(1))
                    bookie.write_conf(self.uri, self.options)
                    bookie.begin()
                    self._save()

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
        """Stops all that runs, the console and AutoRecovery first; True when every process stopped cleanly."""
        ended = []
        for each in (self.console, self.recovery):
            if each is not None:
                each.ask_to_end()
                ended.append(each.wait_for_end(time.monotonic() + STOP_S))
        for bookie in self.bookies:
            bookie.ask_to_end()
        deadline = time.monotonic() + STOP_S
        ended += [bookie.wait_for_end(deadline) for bookie in self.bookies]
        if self.server is not None:
            self.server.stop()
            self.server = None
        return all(ended)

    def ended(self) -> list[LocalProcess]:
        """Bookies, AutoRecovery and the console, whose process ended without being asked."""
        every: list[LocalProcess | None] = [*self.bookies, self.recovery, self.console]
        return [each for each in every if each and each.process is not None and each.process.poll() is not None]

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
            "zookeeper_port": self.server_port,
            "tls": self.tls,
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
    """Different free ports, below those of outgoing connections: a killed bookie must find its port free again."""
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
