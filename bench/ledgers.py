"""
`python -m bench.ledgers`: what very many ledgers on one bookie cost, beside the same bookie with few.

    python -m bench.ledgers                          10^6 ledgers beside 10^3: about half an hour
    python -m bench.ledgers --many 100000            a reduced form, a few minutes
    python -m bench.ledgers --many 3000 --few 100 --delete 500 --samples 200 --rounds 2      whether it works at all

Two bookies in processes of their own, metadata in SQLite, one entry of 100 bytes in each ledger at first.  Then, by turns: a burst of single adds to ledgers
drawn at random (CPU per entry) and adds one at a time (p50, p99).  Then the big one is stopped and killed and started again, and 10^4 of its ledgers are
deleted.  It prints a JSON document with every figure; the exit status is 1 when a bound is missed that the figures were long enough to judge.
"""

import argparse
import json
import pathlib
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from bench.sides import cpu_seconds, resident_mb
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
PAYLOAD = bytes(100)
READY_S = 120
AT_ONCE = 500  # frames on the way
RESIDENT_MB_MAX, RESTART_S_MAX, DELETE_CPU_S_MAX, CPU_RATIO_MAX, P50_RATIO_MAX, P99_RATIO_MAX = 200.0, 10.0, 2.0, 1.1, 1.1, 1.5


def frame(ledger: int, entry: int) -> bytes:
    return AddBatch(DIGEST, ledger, entry, entry - 1, entry * len(PAYLOAD), [PAYLOAD]).frames()


class Metadata:
    """A SQLite store with as many closed ledgers as wanted; the commands of `quire` and a helper process fill it."""

    def __init__(self, directory: pathlib.Path, ledgers: int) -> None:
        self.uri = f"sqlite://{directory}/metadata.db"
        quire("metadata", "init", "--metadata", self.uri)
        self._run(f"await create(store, range({ledgers}))")

    def delete(self, ledgers: Sequence[int]) -> None:
        self._run(f"await delete(store, range({ledgers[0]}, {ledgers[-1] + 1}))")

    def _run(self, story: str) -> None:
        subprocess.run([sys.executable, "-m", "bench.ledgers", "--story", story, "--metadata", self.uri], check=True)


async def create(store: Any, ledgers: Sequence[int]) -> None:
    """Metadata of ledgers that one bookie holds."""
    from twisted.internet.defer import gatherResults

    from quire.metadata.ledger import LedgerMetadata

    made = LedgerMetadata.new(1, 1, 1, ["one"], digest=DigestType.CRC32C, password=b"")
    for start in range(0, len(ledgers), 1000):
        await gatherResults([store.create_ledger(ledger, made) for ledger in ledgers[start : start + 1000]])


async def delete(store: Any, ledgers: Sequence[int]) -> None:
    for ledger in ledgers:
        await store.delete_ledger(ledger)


def run_story(uri: str, story: str) -> None:
    """One of the two above, in a process of its own."""
    from quire.tools.running import with_store

    async def begun(store: Any) -> None:
        name, wanted = re.fullmatch(r"await (\w+)\(store, range\((.*)\)\)", story).groups()  # type: ignore[union-attr]  # as `_run` wrote it
        await {"create": create, "delete": delete}[name](store, range(*map(int, wanted.split(", "))))

    with_store(uri, begun)


def quire(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "quire.tools", *words], check=True, capture_output=True, text=True).stdout


class BookieProcess:
    """A bookie in a directory, started and stopped at will, with one connection that adds."""

    def __init__(self, directory: pathlib.Path, ledgers: int) -> None:
        directory.mkdir(parents=True)
        self.ledgers = ledgers
        self.metadata = Metadata(directory, ledgers)
        self._conf = directory / "bookie.conf"
        self._conf.write_text(
            f"metadataServiceUri={self.metadata.uri}\nbookiePort=0\nbookieId=one\nadvertisedAddress=127.0.0.1\nlisteningInterface=127.0.0.1\nallowLoopback=true\n"
            f"journalDirectories={directory}/journal\nledgerDirectories={directory}/ledgers\ndiskUsageThreshold=0.99\ndiskUsageWarnThreshold=0.99\n"
        )
        self._log = open(directory / "log", "ab")  # noqa: SIM115  # closed with the process
        self._next = [0] * ledgers
        self.start()

    def start(self) -> float:
        """Seconds until it serves."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quire.tools.bookie_daemon", "--conf", str(self._conf), "--json"], stdout=subprocess.PIPE, stderr=self._log
        )
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(READY_S):
                raise RuntimeError(f"the bookie was not ready in {READY_S} s")
        ready = json.loads(self.process.stdout.readline())
        spent = time.perf_counter() - began
        host, port = ready["address"].split(":")
        self._peer = socket.create_connection((host, int(port)), READY_S)
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._peer.makefile("rb")
        self._http = ready["metrics"].removesuffix("/metrics")
        return spent

    def stop(self, number: int = signal.SIGTERM) -> None:
        self._answers.close()
        self._peer.close()
        self.process.send_signal(number)
        self.process.wait(READY_S)

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

    def cpu_per_entry(self, ledgers: Sequence[int]) -> float:
        """Microseconds."""
        frames = self.frames(ledgers)
        before = cpu_seconds(self.process.pid)
        self.add(frames)
        return (cpu_seconds(self.process.pid) - before) / len(ledgers) * 1e6

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
        before, began, cpu = self._status(url), time.perf_counter(), cpu_seconds(self.process.pid)
        urllib.request.urlopen(urllib.request.Request(url, b'{"forceMinor": false, "forceMajor": false}', method="PUT"), timeout=READY_S).close()
        while self._status(url)["is_in_force_gc"] == "true":
            time.sleep(0.2)
        return cpu_seconds(self.process.pid) - cpu, time.perf_counter() - began, self._status(url)["ledgers_deleted"] - before["ledgers_deleted"]

    def _status(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=READY_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every figure."""
    rng = random.Random(1)
    figures: dict[str, Any] = {"many": options.many, "few": options.few}
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="quire-ledgers-") as folder:
        sides = {name: BookieProcess(pathlib.Path(folder, name), count) for name, count in (("few", options.few), ("many", options.many))}
        try:
            for name, side in sides.items():
                began = time.perf_counter()
                side.add(side.frames(range(side.ledgers)))
                figures[f"{name}_fill_s"] = round(time.perf_counter() - began, 2)
            cpu: dict[str, list[float]] = {name: [] for name in sides}
            waits: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(options.rounds):
                for name in sorted(sides, reverse=number % 2 == 1):
                    side = sides[name]
                    cpu[name].append(side.cpu_per_entry([rng.randrange(side.ledgers) for _ in range(options.burst)]))
                    waits[name] += side.latencies([rng.randrange(side.ledgers) for _ in range(options.samples)])
            for name in sides:
                figures[f"{name}_cpu_us_per_entry"] = round(statistics.median(cpu[name]), 2)
                figures[f"{name}_p50_ms"] = round(percentile(waits[name], 0.5), 3)
                figures[f"{name}_p99_ms"] = round(percentile(waits[name], 0.99), 3)
            many = sides["many"]
            figures["many_resident_mb"] = round(resident_mb(many.process.pid), 1)
            many.stop(signal.SIGKILL)
            figures["restart_after_kill_s"] = round(many.start(), 2)
            many.stop()
            figures["restart_s"] = round(many.start(), 2)
            many.collect()  # a first look at everything
            many.metadata.delete(range(options.delete))
            spent, seconds, deleted = many.collect()
            figures |= {"deleted": deleted, "delete_cpu_s": round(spent, 2), "delete_s": round(seconds, 2)}
            figures["many_resident_mb_at_the_end"] = round(resident_mb(many.process.pid), 1)
        finally:
            for side in sides.values():
                if side.process.poll() is None:
                    side.stop(signal.SIGKILL)
    return figures


def missed(figures: dict[str, Any]) -> list[str]:
    """The bounds that the figures do not keep."""
    found = []
    for name, value, most in (
        ("resident memory, MB", max(figures["many_resident_mb"], figures["many_resident_mb_at_the_end"]), RESIDENT_MB_MAX),
        ("restart, s", max(figures["restart_s"], figures["restart_after_kill_s"]), RESTART_S_MAX),
        ("CPU of deleting 10^4 ledgers, s", figures["delete_cpu_s"] * 10_000 / max(figures["deleted"], 1), DELETE_CPU_S_MAX),
        ("CPU per entry, ratio", figures["many_cpu_us_per_entry"] / max(figures["few_cpu_us_per_entry"], 0.01), CPU_RATIO_MAX),
        ("p50, ratio", figures["many_p50_ms"] / figures["few_p50_ms"], P50_RATIO_MAX),
        ("p99, ratio", figures["many_p99_ms"] / figures["few_p99_ms"], P99_RATIO_MAX),
    ):
        if value > most:
            found.append(f"{name}: {value:.2f}, at most {most}")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ledgers", description="Very many ledgers on one bookie.")
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--delete", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=int, default=20_000, help="adds for one figure of CPU")
    parser.add_argument("--samples", type=int, default=1_000, help="adds one at a time, each round")
    parser.add_argument("--dir", help="where the bookies' directories lie")
    parser.add_argument("--story", help=argparse.SUPPRESS)
    parser.add_argument("--metadata", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.story:
        run_story(options.metadata, options.story)
        return 0
    figures = measure(options)
    figures["missed"] = missed(figures)
    print(json.dumps(figures))
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
