"""
The contenders: each is started once, measured many times, and stopped.

    Bare           three bare bookies and a bare client in Python: the ceiling of this machine
    Quire          quire's client on quire's bookies, by `quire bench` and `bench.loads`; also those of another checkout
    Java           Apache's Java client on Apache's bookies, by `Peer.java`
    JavaOnQuire    the same Java client on quire's bookies
    flushes        the flushes of one storage without client and bookie, by `bench.flush`

Quire and Java may have TLS, each with an authority of its own and certificates on both sides.

All take the same verbs (append, read, random, tail, recoveries, ledgers, many, memory) with the same words.

Knows: how to drive each, and what its bookies spent meanwhile (CPU, syncs, bytes written).  Does not know: what is
compared with what (`bench.rows`).
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from bench.yardstick import BareCluster
from quire.tools.local_cluster.authority import LocalAuthority
from quire.tools.local_cluster.cluster import HOST

# SPDX-License-Identifier: Apache-2.0

Run = dict[str, Any]
Words = Mapping[str, int | str]

SYNC_EVENTS = ("syscalls:sys_enter_fdatasync", "syscalls:sys_enter_fsync", "syscalls:sys_enter_sync_file_range")
# RWF_DSYNC: a journal writes and syncs a small group in one call
WRITE_EVENT, SYNCS_ITSELF = "syscalls:sys_enter_pwritev2", "flags & 2"
ROOT = pathlib.Path(__file__).resolve().parents[1]
RUN_SECONDS_MAX = 600
PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of Linux: of all threads, to the nanosecond
# Below this the Java side still gets faster from run to run: entries of 1 KiB, then as many of 100 B.
WARM_UP_ENTRIES = 600_000
COUNTED = ("entries", "count", "rounds")  # words that say what CPU is divided by; the first that a verb has


class Spent:
    """
    Counts what some processes used while a run went on: CPU seconds, bytes sent to the disk, syncs where perf can count
    them.

    The kernel counts the bytes of whole page-cache folios: an overwrite in a preallocated file may count a hundred
    times its size.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = pids
        self.syncs: int | None = None

    def __enter__(self) -> "Spent":
        self.before = [(cpu_seconds(pid), written_bytes(pid)) for pid in self.pids]
        self.perf = None
        if shutil.which("perf"):
            events = ["-e", ",".join(SYNC_EVENTS), "-e", WRITE_EVENT, "--filter", SYNCS_ITSELF]
            command = ["perf", "stat", "-x", ",", *events, "-p", ",".join(map(str, self.pids))]
            self.perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.1)  # perf does not say when it has begun
        return self

    def __exit__(self, *_: object) -> None:
        if self.perf is not None:
            self.perf.send_signal(signal.SIGINT)
            counts = re.findall(r"^(\d+),,syscalls", self.perf.communicate()[1], re.MULTILINE)
            self.syncs = sum(map(int, counts)) if counts else None
        after = [(cpu_seconds(pid), written_bytes(pid)) for pid in self.pids]
        self.cpu = [new[0] - old[0] for new, old in zip(after, self.before, strict=True)]
        self.written = sum(new[1] - old[1] for new, old in zip(after, self.before, strict=True))

    def figures(self, entries: int) -> Run:
        return {
            "bookies_cpu_us_per_entry": round(sum(self.cpu) / entries * 1e6, 2),
            "each_bookie_cpu_us_per_entry": [round(cpu / entries * 1e6, 2) for cpu in self.cpu],
            "bookies_written_mb": round(self.written / 1e6, 1),
            "bookies_syncs": self.syncs,
        }


def cpu_seconds(pid: int) -> float:
    """By the clock of the process, as clock_getcpuclockid(3) names it: /proc counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


def written_bytes(pid: int) -> int:
    return int(re.findall(r"^write_bytes: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[0])


def resident_mb(pid: int) -> float:
    return int(re.findall(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0]) / 1024


class Side(ABC):
    """One contender; `with` starts it and ends what it started."""

    pids: Sequence[int]
    uri: str  # of its metadata

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self._kept: dict[tuple[object, object], int] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            starting.push(self.stack)
            self.start()
            starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None:
        """Starts it; what has to end with it is on `stack`."""

    @abstractmethod
    def drive(self, verb: str, words: Words) -> Run:
        """One run, as this side's own client measured it."""

    def run(self, verb: str, **words: int | str) -> Run:
        """One run and what the bookies spent on it; CPU per entry is that of the client and all bookies."""
        if verb == "memory":
            if words["entries"]:
                self.drive("append", words)
            return {"resident_mb": round(max(map(resident_mb, self.pids)), 1)}
        if verb in ("read", "random"):
            # A read right after its write would count the flush of that write: each side keeps one ledger.
            words["ledger"] = self.kept(words)
        with Spent(self.pids) as spent:
            found = self.drive(verb, words)
        found |= spent.figures(next(int(words[name]) for name in COUNTED if name in words))
        if "client_cpu_us_per_entry" in found:
            found["cpu_us_per_entry"] = round(found["client_cpu_us_per_entry"] + found["bookies_cpu_us_per_entry"], 2)
        return found

    def kept(self, words: Words) -> int:
        """The id of a ledger with `written` entries of `size` bytes."""
        key = words["size"], words["written"]
        if key not in self._kept:
            load = {"size": words["size"], "entries": words["written"], "window": 1000, "batch": 50, "keep": "yes"}
            self._kept[key] = int(self.drive("append", load)["ledger"])
        return self._kept[key]


class Bare(Side):
    def __init__(self, directory: str | None) -> None:
        super().__init__()
        self.cluster = BareCluster(directory)

    def start(self) -> None:
        self.stack.enter_context(self.cluster)
        self.pids = self.cluster.pids

    def drive(self, verb: str, words: Words) -> Run:
        if verb != "append":
            raise ValueError(f"a bare bookie takes appends only, not {verb}")
        return dict(self.cluster.run(**words))


def arguments(words: Words) -> list[str]:
    return [f"--{name}={value}" for name, value in words.items()]


def environment_of(checkout: pathlib.Path | None) -> dict[str, str]:
    """In which `quire` is imported from that folder; None: from this checkout."""
    if checkout is None:
        return dict(os.environ)
    if not (checkout / ".types" / "quire").is_dir():
        raise SystemExit(f"{checkout} is no checkout of quire: it has no folder .types/quire")
    return os.environ | {"PYTHONPATH": str((checkout / ".types").resolve())}


def flushes(checkout: pathlib.Path | None, directory: str | None, words: Words) -> Run:
    """Runs `bench.flush` for the storage of that checkout."""
    where = [f"--dir={directory}"] if directory else []
    return reported(environment_of(checkout), "bench.flush", *arguments(words), *where)


def reported(environment: Mapping[str, str], module: str, *words: str) -> Run:
    """Runs a module in a process of its own; returns the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"`{module} {words[0]}` ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    found: Run = json.loads(done.stdout)
    return found


class Quire(Side):
    """
    Quire bookies over SQLite or ZooKeeper, and quire's client: `quire local`, `quire bench` and `bench.loads` with this
    checkout, or with another one whose folder is given.  Both run with the libraries of this one.
    """

    COMMANDS = {"append": ("write",), "read": ("read",), "random": ("read", "--random")}

    def __init__(
        self,
        directory: str | None,
        store: str = "sqlite",
        checkout: pathlib.Path | None = None,
        bookies: int = 3,
        tls: bool = False,
    ) -> None:
        super().__init__()
        self.directory, self.store, self.checkout, self.bookies, self.tls = directory, store, checkout, bookies, tls
        self.environment = environment_of(checkout)

    def start(self) -> None:
        if not self.bookies:
            return
        folder = self.stack.enter_context(
            tempfile.TemporaryDirectory(dir=self.directory, prefix="quire-bench-", ignore_cleanup_errors=True)
        )
        words = {"bookies": self.bookies, "metadata": self.store, "dir": folder}
        command = [sys.executable, "-m", "quire.tools", "local", "--no-console", "--json", *arguments(words)]
        if self.tls:
            command.append("--tls")
        with open(pathlib.Path(folder) / "local.log", "wb") as log:
            local = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=log)
        assert local.stdout is not None
        self.stack.callback(local.stdout.close)
        self.stack.callback(local.wait)
        self.stack.callback(local.terminate)
        line = local.stdout.readline()
        if not line:
            raise RuntimeError(f"`quire local` did not start: {pathlib.Path(log.name).read_text()[-1000:]}")
        found = json.loads(line)
        self.uri = found["metadata"]
        self.pids = found["pids"]
        if self.tls:
            self.environment["QUIRE_CONF"] = str(pathlib.Path(folder) / "client.conf")

    def run(self, verb: str, **words: int | str) -> Run:
        return flushes(self.checkout, self.directory, words) if verb == "flush" else super().run(verb, **words)

    def drive(self, verb: str, words: Words) -> Run:
        if verb not in self.COMMANDS:
            return self.report("bench.loads", verb, *arguments({"metadata": self.uri, **words}))
        flags = ["--keep"] if words.get("keep") == "yes" else []
        shape = {name: value for name, value in words.items() if name not in ("keep", "written", "how")}
        shape |= {"metadata": self.uri, "pids": ",".join(map(str, self.pids))}
        return self.report("quire.tools", "bench", *self.COMMANDS[verb], "--json", *arguments(shape), *flags)

    def report(self, module: str, *words: str) -> Run:
        """Runs a module in a process of its own; returns the JSON that it prints."""
        return reported(self.environment, module, *words)


class Java(Side):
    """Java bookies and one long-lived Java client, warmed up; needs Maven and a JDK."""

    COMMANDS = {"append": "write"}

    def __init__(
        self,
        directory: str | None,
        bookies: int = 3,
        settings: Mapping[str, object] = {},
        warm_up: float = 1.0,
        tls: bool = False,
    ) -> None:
        super().__init__()
        self.directory, self.bookies, self.settings, self.warm_up = directory, bookies, dict(settings), warm_up
        self.tls, self.client_keys = tls, dict[str, str]()

    def start(self) -> None:
        """Bookies and client; both have appended until their just-in-time compilers have settled."""
        from tests.interop import peer

        folder = tempfile.mkdtemp(dir=self.directory, prefix="quire-peer-")
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if self.tls:
            authority = LocalAuthority(pathlib.Path(folder) / "tls", HOST)
            authority.make()
            self.settings |= authority.bookie_keys()
            self.client_keys = {f"conf.{key}": value for key, value in authority.client_keys().items()}
        cluster = peer.Cluster(self.bookies, settings=self.settings, heap="512m", direct="768m", directory=folder)
        self.stack.enter_context(cluster)
        self.client = self.stack.enter_context(cluster.client())
        self.client.call("bookies", count=self.bookies)
        self.uri = cluster.metadata
        self.pids = [bookie.process.child.pid for bookie in cluster.bookies]
        for size in (1024, 100):
            self.drive("append", {"size": size, "entries": int(WARM_UP_ENTRIES * self.warm_up), "window": 1000})

    def drive(self, verb: str, words: Words) -> Run:
        return self.call(verb, {"keep": "no", "metadata": self.uri, **words})

    def call(self, verb: str, words: Words) -> Run:
        return self.client.call(self.COMMANDS.get(verb, verb), seconds=RUN_SECONDS_MAX, **words, **self.client_keys)


class JavaOnQuire(Side):
    def __init__(self, java: Java, quire: Quire) -> None:
        super().__init__()
        self.java, self.quire = java, quire

    def start(self) -> None:
        self.pids = self.quire.pids

    def drive(self, verb: str, words: Words) -> Run:
        return self.java.call(verb, {"keep": "no", "metadata": self.quire.uri, **words})


def rounds(count: int, *runs: Callable[[], Run]) -> Iterator[list[Run]]:
    """Runs of all sides in turn, `count` times, every other time in reverse order, so that none always comes first."""
    for number in range(count):
        order = list(range(len(runs))) if number % 2 == 0 else list(reversed(range(len(runs))))
        found = {index: runs[index]() for index in order}
        yield [found[index] for index in range(len(runs))]


def measured(module: str, *words: str) -> Any:
    """Runs a module of this folder that measures in a process of its own; returns the JSON that it prints."""
    command = [sys.executable, "-m", f"bench.{module}", *words]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
