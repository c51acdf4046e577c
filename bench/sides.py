"""
The contenders: each can be started once, measured many times, and stopped.

    Yardstick      three bare bookies and a bare client in Python: the ceiling of this machine
    Quire          quire's client on quire's bookies, through `quire bench`; also those of another checkout
    flushes        the flushes of one storage without client and bookie, through `bench.flush`; likewise
    Java           Apache's Java client on Apache's bookies; `on=` any metadata URI runs the same client on other
                   bookies

Knows: how to drive each, and what its bookies spent meanwhile (CPU, syncs, bytes written).  Does not know: what is
compared with what.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.ratios import Comparison
from bench.yardstick import BareCluster

SYNC_EVENTS = ("syscalls:sys_enter_fdatasync", "syscalls:sys_enter_fsync", "syscalls:sys_enter_sync_file_range")
RUN_SECONDS_MAX = 600
# below this the Java side still gets faster from run to run
WARM_UP = {"size": 1024, "entries": 600_000, "window": 1000}


@dataclass(frozen=True)
class Load:
    """What one run appends.  `batch` entries are handed over together where the side has such a call."""

    size: int
    entries: int
    window: int
    batch: int

    def words(self) -> dict[str, int]:
        return {"size": self.size, "entries": self.entries, "window": self.window, "batch": self.batch}


class Spent:
    """
    What some processes used while a run went on: CPU seconds, bytes sent to the disk, syncs where perf can count them.

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
            command = ["perf", "stat", "-x", ",", "-e", ",".join(SYNC_EVENTS), "-p", ",".join(map(str, self.pids))]
            self.perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.1)  # perf does not say when it has begun
        return self

    def __exit__(self, *_: object) -> None:
        if self.perf is not None:
            self.perf.send_signal(signal.SIGINT)
            counts = re.findall(r"^(\d+),,syscalls", self.perf.communicate()[1], re.MULTILINE)
            self.syncs = sum(map(int, counts)) if counts else None
        after = [(cpu_seconds(pid), written_bytes(pid)) for pid in self.pids]
        self.cpu = sum(new[0] - old[0] for new, old in zip(after, self.before, strict=True))
        self.written = sum(new[1] - old[1] for new, old in zip(after, self.before, strict=True))

    def figures(self, entries: int) -> dict[str, Any]:
        return {
            "bookies_cpu_us_per_entry": round(self.cpu / entries * 1e6, 2),
            "bookies_written_mb": round(self.written / 1e6, 1),
            "bookies_syncs": self.syncs,
        }


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written_bytes(pid: int) -> int:
    return int(re.findall(r"^write_bytes: (\d+)", pathlib.Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[0])


def resident_mb(pid: int) -> float:
    return int(re.findall(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0]) / 1024


class Yardstick:
    name = "yardstick"

    def __init__(self, directory: str | None) -> None:
        self.cluster = BareCluster(directory)

    def __enter__(self) -> "Yardstick":
        self.cluster.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__(*error)

    def run(self, load: Load) -> dict[str, Any]:
        with Spent(self.cluster.pids) as spent:
            found = self.cluster.run(**load.words())
        return found | spent.figures(load.entries)


def environment_of(checkout: pathlib.Path | None) -> dict[str, str]:
    """In which `quire` is imported from that folder; None: from this checkout."""
    if checkout is None:
        return dict(os.environ)
    if not (checkout / ".types" / "quire").is_dir():
        raise SystemExit(f"{checkout} is no checkout of quire: it has no folder .types/quire")
    return os.environ | {"PYTHONPATH": str((checkout / ".types").resolve())}


def flushes(checkout: pathlib.Path | None, directory: str | None, words: Sequence[str]) -> dict[str, Any]:
    """What `bench.flush` reports of the storage of that checkout, in a process of its own."""
    command = [sys.executable, "-m", "bench.flush", *words, *([f"--dir={directory}"] if directory else [])]
    done = subprocess.run(
        command,
        env=environment_of(checkout),
        cwd=pathlib.Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"`python -m bench.flush` ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Quire:
    """
    Three quire bookies over SQLite or ZooKeeper, and quire's client: `quire local` and `quire bench` of this checkout,
    or of another one whose folder is given.  Both sides run with the libraries of this one.
    """

    name = "quire"

    def __init__(self, directory: str | None, store: str = "sqlite", checkout: pathlib.Path | None = None) -> None:
        self.store = store
        self.environment = environment_of(checkout)
        self.folder = tempfile.TemporaryDirectory(dir=directory, prefix="quire-bench-", ignore_cleanup_errors=True)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "quire.tools", *words]

    def __enter__(self) -> "Quire":
        started = self.command(
            "local", "--json", "--bookies=3", f"--metadata={self.store}", f"--dir={self.folder.name}"
        )
        self.log = open(pathlib.Path(self.folder.name) / "local.log", "wb")
        self.local = subprocess.Popen(started, env=self.environment, stdout=subprocess.PIPE, stderr=self.log)
        assert self.local.stdout is not None
        line = self.local.stdout.readline()
        if not line:
            text = pathlib.Path(self.log.name).read_text(encoding="utf-8")[-1000:]
            self.__exit__()
            raise RuntimeError(f"`quire local` did not start: {text}")
        found = json.loads(line)
        self.uri: str = found["metadata"]
        self.pids: list[int] = found["pids"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self.local.stdout is not None
        self.local.terminate()
        self.local.wait()
        self.local.stdout.close()
        self.log.close()
        self.folder.cleanup()

    def run(self, load: Load, protocol: str = "v2") -> dict[str, Any]:
        words = [f"--{name}={value}" for name, value in load.words().items()]
        with Spent(self.pids) as spent:
            found = self.bench("write", *words, f"--protocol={protocol}")
        return found | spent.figures(load.entries)

    def bench(self, *words: str) -> dict[str, Any]:
        """What `quire bench` of that checkout reports of its own bookies."""
        pids = ",".join(map(str, self.pids))
        command = self.command(
            "bench",
            *words,
            "--ensemble=3",
            "--write=3",
            "--ack=2",
            "--json",
            f"--metadata={self.uri}",
            f"--pids={pids}",
        )
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
        if done.returncode:
            raise RuntimeError(f"`quire bench {words[0]}` ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def short_ledgers(self, count: int) -> dict[str, Any]:
        """What `bench.short_ledgers` reports of these bookies, in a process of its own."""
        command = [sys.executable, "-m", "bench.short_ledgers", f"--metadata={self.uri}", f"--count={count}"]
        done = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, text=True, timeout=RUN_SECONDS_MAX, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


class Java:
    """Three Java bookies and one long-lived Java client, warmed up; needs Maven and a JDK."""

    name = "java"

    def __init__(self, directory: str | None) -> None:
        from tests.interop import peer

        self.cluster = peer.Cluster(
            3, heap="512m", direct="768m", directory=tempfile.mkdtemp(dir=directory, prefix="quire-peer-")
        )
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> "Java":
        self.stack.callback(shutil.rmtree, self.cluster.directory, ignore_errors=True)
        self.stack.enter_context(self.cluster)
        self.client = self.stack.enter_context(self.cluster.client())
        self.client.call("bookies", count=3)
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    @property
    def pids(self) -> list[int]:
        return [bookie.process.child.pid for bookie in self.cluster.bookies]

    def warm_up(self, on: str | None = None, share: float = 1.0) -> None:
        """Appends until the just-in-time compilers of client and bookies have settled."""
        load = WARM_UP | {"entries": int(WARM_UP["entries"] * share)}
        self.client.call("write", seconds=RUN_SECONDS_MAX, metadata=on or self.cluster.metadata, keep="no", **load)

    def short_ledgers(self, count: int) -> dict[str, Any]:
        """The same rates, of Apache's client on its own bookies."""
        return self.client.call("ledgers", seconds=RUN_SECONDS_MAX, count=count, size=1)

    def run(
        self, load: Load, on: str | None = None, pids: Sequence[int] | None = None, protocol: str = "v2"
    ) -> dict[str, Any]:
        """`on` names other bookies' metadata, `pids` their processes."""
        words = {
            "size": load.size,
            "entries": load.entries,
            "window": load.window,
            "protocol": protocol,
            "metadata": on or self.cluster.metadata,
        }
        with Spent(pids or self.pids) as spent:
            found = self.client.call("write", seconds=RUN_SECONDS_MAX, keep="no", **words)
        return found | spent.figures(load.entries)


def rounds(count: int, *runs: Callable[[], dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Runs of all sides in turn, `count` times, every other time in reverse order, so that none always comes first."""
    for number in range(count):
        order = list(range(len(runs))) if number % 2 == 0 else list(reversed(range(len(runs))))
        found = {index: runs[index]() for index in order}
        yield [found[index] for index in range(len(runs))]


def measured(module: str, *words: str) -> Iterator[Comparison]:
    """The rows of `bench.logs` or `bench.spark`, measured in a process of its own."""
    command = [sys.executable, "-m", f"bench.{module}", "--json", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for row in json.loads(done.stdout):
        keys = ("name", "ours", "theirs", "goal", "at_most", "unit")
        yield Comparison(**{key: row[key] for key in keys})
