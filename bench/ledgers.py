"""
`python -m bench.ledgers`: what very many ledgers on one bookie cost, beside the same bookie with few.

    python -m bench.ledgers                          10^6 ledgers beside 10^3: about five minutes
    python -m bench.ledgers --many 100000            a reduced form, about two minutes
    python -m bench.ledgers --many 3000 --few 100 --delete 500 --adds 2000 --samples 200     whether it works at all

Two bookies in processes of their own, metadata in SQLite.  At first the big one gets an entry of 100 bytes in each
ledger, the small one as many entries in its few.  Then three things are measured:

`active`    The small bookie holds some of the big one's ledgers, drawn at random, and on both these get adds: the two
            do the same work, and only the number
            of ledgers that they hold differs.  Short bursts by turns, then adds one at a time, some on each side by
            turns, so that whatever else the machine does hits both.  The bounds on CPU per entry, p50 (the median of
            the ratios of neighbouring turns) and p99 are judged on this.
`spread`    Adds to ledgers drawn from all that the big bookie holds.  A bookie with 10^3 ledgers has no such load:
            20,000 adds to 10^3 ledgers are 10^3 runs in a flush, 20,000 adds to 10^6 ledgers are 20,000 runs, each with
            its own row, and nearly each needs its ledger's row read first.  It is printed and not judged.
the rest    Resident memory, restarts after a kill and after a stop, the deletion of 10^4 ledgers; of the big bookie.

CPU is that of the whole process from the first add until it is idle again, so flushes and RocksDB's compactions count.
It prints a JSON document with every figure; the exit status is 1 when a bound is missed.
"""

import argparse
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from bench.scripts import by_turns, hidden, words
from bench.sides import cpu_seconds, resident_mb
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.tools.local_cluster.cluster import HOST, quire
from quire.tools.local_cluster.process import LocalProcess

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
PAYLOAD = bytes(100)
READY_S = 120
AT_ONCE = 500  # frames on the way
AT_ONCE_METADATA = 5_000  # ledgers
BURST = 1000  # adds at once on one side, then on the other
BY_TURNS = 50  # the same of adds one at a time
IDLE_S, IDLE_PART, IDLE_S_MAX = 0.5, 0.05, 60.0  # idle: less than this part of a CPU in this time
RESIDENT_MB_MAX, RESTART_S_MAX, DELETE_CPU_S_MAX, CPU_RATIO_MAX, P50_RATIO_MAX, P99_RATIO_MAX = (
    200.0,
    10.0,
    2.0,
    1.1,
    1.1,
    1.5,
)


def frame(ledger: int, entry: int) -> bytes:
    return AddBatch(DIGEST, ledger, entry, entry - 1, entry * len(PAYLOAD), [PAYLOAD]).frames()


class Metadata:
    """A SQLite store; a process of its own fills it with as many ledgers as wanted."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.uri = f"sqlite://{directory}/metadata.db"
        quire(["metadata", "init", "--metadata", self.uri])

    def create(self, ledgers: Sequence[int]) -> None:
        self._change("create", ledgers)

    def delete(self, ledgers: Sequence[int]) -> None:
        self._change("delete", ledgers)

    def _change(self, what: str, ledgers: Sequence[int]) -> None:
        words = [sys.executable, "-m", "bench.ledgers", "--change", what, "--metadata", self.uri]
        subprocess.run(words, check=True, input=json.dumps(list(ledgers)), text=True)


def change(uri: str, what: str, ledgers: Sequence[int]) -> None:
    """Creates or deletes ledgers, many at once."""
    from twisted.internet.defer import gatherResults

    from quire.metadata.ledger import LedgerMetadata
    from quire.tools.terminal.running import with_store

    made = LedgerMetadata.new(1, 1, 1, ["one"], digest=DigestType.CRC32C, password=b"", ctoken=1)

    async def all_of_them(store: Any) -> None:
        for start in range(0, len(ledgers), AT_ONCE_METADATA):
            some = ledgers[start : start + AT_ONCE_METADATA]
            await gatherResults(
                [store.create_ledger(each, made) if what == "create" else store.delete_ledger(each) for each in some]
            )

    with_store(uri, all_of_them)


class BookieProcess(LocalProcess):
    """A bookie in a directory, started and stopped at will, with one connection that adds."""

    module = "quire.tools.daemons.bookie"

    def __init__(self, directory: pathlib.Path, ledgers: Sequence[int]) -> None:
        super().__init__(directory, "one", "bookie")
        directory.mkdir(parents=True)
        self.ledgers = ledgers
        self.metadata = Metadata(directory)
        self.stored = directory / "ledgers"
        thresholds = dict.fromkeys(("diskUsageThreshold", "diskUsageWarnThreshold"), "0.99")
        # all connections of a curve are of one address
        connections = dict.fromkeys(("connectionsMax", "connectionsPerAddressMax"), "20000")
        self.write_bookie_keys(self.metadata.uri, HOST, 0, {"bookieId": self.id, **thresholds, **connections})
        self._next = dict.fromkeys(ledgers, 0)
        self.start()
        self.metadata.create(ledgers)  # they name the bookie, so a first start behind them would be refused

    def start(self) -> float:
        """Seconds until it serves."""
        began = time.perf_counter()
        self.begin("--json")
        self.ready(time.monotonic() + READY_S)
        ready = json.loads(self.said)
        spent = time.perf_counter() - began
        host, port = ready["address"].split(":")
        self.address = host, int(port)
        self._peer = socket.create_connection(self.address, READY_S)
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._peer.makefile("rb")
        self._http = ready["metrics"].removesuffix("/metrics")
        self._headers = token_headers(ready.get("token_file"))
        return spent

    def stop(self) -> None:
        self._part()
        self.ask_to_end()
        self.wait_for_end(time.monotonic() + READY_S)

    def kill(self) -> None:
        """SIGKILL; does nothing where it does not run."""
        if self.pid is not None:
            self._part()
            self.end_now()

    def _part(self) -> None:
        self._answers.close()
        self._peer.close()

    @property
    def running(self) -> int:
        """The number of its process."""
        assert self.pid is not None
        return self.pid

    def frames(self, ledgers: Sequence[int]) -> list[bytes]:
        made = []
        for ledger in ledgers:
            made.append(frame(ledger, self._next[ledger]))
            self._next[ledger] += 1
        return made

    def add(self, frames: Sequence[bytes]) -> None:
        """Adds, `AT_ONCE` on the way at most; `RuntimeError` unless all are acknowledged."""
        for start in range(0, len(frames), AT_ONCE):
            some = frames[start : start + AT_ONCE]
            self._peer.sendall(b"".join(some))
            for _ in some:
                answer = self._answers.read(int.from_bytes(self._answers.read(4), "big"))
                if answer[4:8] != bytes(4):
                    raise RuntimeError(f"an add was refused: {answer.hex()}")

    @property
    def cpu(self) -> float:
        """Seconds."""
        return cpu_seconds(self.running)

    @property
    def resident_mb(self) -> float:
        return resident_mb(self.running)

    def settle(self) -> None:
        """Waits until flushes and compactions are over."""
        end = time.monotonic() + IDLE_S_MAX
        while time.monotonic() < end:
            before = self.cpu
            time.sleep(IDLE_S)
            if self.cpu - before < IDLE_PART * IDLE_S:
                return

    def latencies(self, ledgers: Sequence[int]) -> list[float]:
        """Milliseconds of adds one at a time."""
        found = []
        for one in self.frames(ledgers):
            began = time.perf_counter()
            self.add([one])
            found.append((time.perf_counter() - began) * 1e3)
        return found

    def collect(self) -> tuple[float, float, int]:
        """A forced round of garbage collection: CPU seconds, seconds, ledgers deleted."""
        url = f"{self._http}/api/v1/bookie/gc"
        before, began, cpu = self._status(url), time.perf_counter(), self.cpu
        urllib.request.urlopen(
            urllib.request.Request(url, b'{"forceMinor": false, "forceMajor": false}', self._headers, method="PUT"),
            timeout=READY_S,
        ).close()
        while self._status(url)["is_in_force_gc"] == "true":
            time.sleep(1)  # each look costs the bookie a millisecond
        return (
            self.cpu - cpu,
            time.perf_counter() - began,
            self._status(url)["ledgers_deleted"] - before["ledgers_deleted"],
        )

    def _status(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(urllib.request.Request(url, headers=self._headers), timeout=READY_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def token_headers(path: str | None) -> dict[str, str]:
    """Returns the headers that open a bookie's HTTP port; no file: an older one, which needs none."""
    return {} if path is None else {"Authorization": f"Bearer {pathlib.Path(path).read_text().strip()}"}


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def settle(sides: dict[str, BookieProcess], options: argparse.Namespace) -> None:
    """Waits until memory is flushed, and what follows from that is over."""
    time.sleep(options.flush_s)
    for side in sides.values():
        side.settle()


def bursts(
    sides: dict[str, BookieProcess], drawn: Sequence[int], options: argparse.Namespace, rng: random.Random
) -> dict[str, float]:
    """CPU microseconds per entry of each side, over bursts by turns and what follows from them."""
    settle(sides, options)
    before = {name: side.cpu for name, side in sides.items()}
    turns = -(-options.adds // BURST)
    for name in by_turns(turns, sorted(sides)):
        sides[name].add(sides[name].frames(rng.choices(drawn, k=BURST)))
    settle(sides, options)
    return {name: (side.cpu - before[name]) / (turns * BURST) * 1e6 for name, side in sides.items()}


def waits(
    sides: dict[str, BookieProcess], drawn: Sequence[int], options: argparse.Namespace, rng: random.Random
) -> dict[str, list[list[float]]]:
    """Milliseconds of adds one at a time, a few on each side by turns: those of each turn."""
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for name in by_turns(-(-options.samples // BY_TURNS), sorted(sides)):
        found[name].append(sides[name].latencies(rng.choices(drawn, k=BY_TURNS)))
    return found


def compare(
    sides: dict[str, BookieProcess],
    drawn: Sequence[int],
    options: argparse.Namespace,
    rng: random.Random,
    kind: str = "",
) -> dict[str, float]:
    """The figures of one kind of load."""
    figures = {}
    for name, spent in bursts(sides, drawn, options, rng).items():
        figures[f"{name}{kind}_cpu_us_per_entry"] = round(spent, 2)
    turns = waits(sides, drawn, options, rng)
    for name, found in turns.items():
        together = [wait for turn in found for wait in turn]
        figures[f"{name}{kind}_p50_ms"] = round(percentile(together, 0.5), 3)
        figures[f"{name}{kind}_p99_ms"] = round(percentile(together, 0.99), 3)
    if len(sides) == 2:
        pairs = zip(turns["many"], turns["few"], strict=True)
        figures["p50_ratio"] = round(
            statistics.median(statistics.median(many) / statistics.median(few) for many, few in pairs), 3
        )
    return figures


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every figure."""
    rng = random.Random(1)
    figures: dict[str, Any] = {"many": options.many, "few": options.few}
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="quire-ledgers-") as folder:
        active, everything = sorted(rng.sample(range(options.many), options.few)), range(options.many)
        sides = {
            name: BookieProcess(pathlib.Path(folder, name), ledgers)
            for name, ledgers in (("few", active), ("many", everything))
        }
        many = sides["many"]
        try:
            for name, side in sides.items():
                began = time.perf_counter()
                for _ in range(max(1, options.many // len(side.ledgers))):
                    side.add(side.frames(side.ledgers))
                figures[f"{name}_fill_s"] = round(time.perf_counter() - began, 2)
            figures["many_resident_mb_after_fill"] = round(many.resident_mb, 1)
            figures |= compare(sides, active, options, rng)
            figures |= compare({"many": many}, everything, options, rng, "_spread")
            figures["many_resident_mb"] = round(many.resident_mb, 1)
            many.kill()
            figures["restart_after_kill_s"] = round(many.start(), 2)
            many.stop()
            figures["restart_s"] = round(many.start(), 2)
            many.collect()  # a first look at everything
            many.metadata.delete(range(options.delete))
            spent, seconds, deleted = many.collect()
            figures |= {"deleted": deleted, "delete_cpu_s": round(spent, 2), "delete_s": round(seconds, 2)}
            figures["many_resident_mb_at_the_end"] = round(many.resident_mb, 1)
        finally:
            for side in sides.values():
                side.kill()
    return figures


def missed(figures: dict[str, Any]) -> list[str]:
    """The bounds that the figures do not keep."""
    found = []
    for name, value, most in (
        (
            "resident memory, MB",
            max(value for name, value in figures.items() if name.startswith("many_resident_mb")),
            RESIDENT_MB_MAX,
        ),
        ("restart, s", max(figures["restart_s"], figures["restart_after_kill_s"]), RESTART_S_MAX),
        (
            "CPU of deleting 10^4 ledgers, s",
            figures["delete_cpu_s"] * 10_000 / max(figures["deleted"], 1),
            DELETE_CPU_S_MAX,
        ),
        (
            "CPU per entry, ratio",
            figures["many_cpu_us_per_entry"] / max(figures["few_cpu_us_per_entry"], 0.01),
            CPU_RATIO_MAX,
        ),
        ("p50, ratio", figures["p50_ratio"], P50_RATIO_MAX),
        ("p99, ratio", figures["many_p99_ms"] / figures["few_p99_ms"], P99_RATIO_MAX),
    ):
        if value > most:
            found.append(f"{name}: {value:.2f}, at most {most}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = words(
        "Very many ledgers on one bookie.",
        argv,
        many=1_000_000,
        few=1_000,
        delete=10_000,
        adds=(200_000, "adds in bursts, of each side and kind"),
        samples=(10_000, "adds one at a time, of each side and kind"),
        dir=(None, "where the bookies' directories are"),
        flush_s=(11.0, "longer than the bookies' flushInterval"),
        change=hidden(),
        metadata=hidden(),
    )
    if options.change:
        change(options.metadata, options.change, json.load(sys.stdin))
        return 0
    figures = measure(options)
    figures["missed"] = missed(figures)
    print(json.dumps(figures))
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
