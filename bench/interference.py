"""
The effect of flushes, compaction and catch-up reads on the latency of appends: one bookie that only appends; one that
flushes all the time and compacts, while another process reads an old ledger of it from the disk as fast as it can; in
turn, in one run.

    python -m bench.interference                       # 9 pairs of 4 s, 10,000 entries/s of 1 KiB
    python -m bench.interference --rate 50000 --size 100 --pairs 3 --seconds 2

The old ledger is in logs among others, one of which is deleted before each turn, so that all these logs are worth
compacting then.  Open loop: every millisecond its share of entries is sent, whether the last ones were answered or not,
and an append's latency counts from that tick to its answer.  Prints one JSON line: both sides' p50 and p99 of each
pair, the median of the ratios, and their interval; MB/s that were read and MB that compaction moved beside.  The
median is to be within the goal (p50 1.2, p99 1.5).  Where other work shares the machine, `chrt -r 5` before the command
keeps it out of the figures.
"""

import contextlib
import json
import pathlib
import selectors
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Self

from bench.ratios import Comparison
from bench.restart import ACK_BYTES, DIGEST, HOST, take
from bench.scripts import by_turns, folder, hidden, words
from quire.bookie.admin.gate import TOKEN_NAME
from quire.client import Client, connect
from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.messages import BatchRead
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster

# SPDX-License-Identifier: Apache-2.0

TICK = 0.001
OLD_ENTRIES, BATCH, DOOMED_BATCH = 200_000, 1000, 20
ROUND_S_MAX = 60.0
QUIET = {"flushInterval": "3600000", "dbStorage_writeCacheMaxSizeMb": "4096"}
BUSY = {
    "flushInterval": "250",
    "dbStorage_readAheadCacheMaxSizeMb": "1",
    "logSizeLimit": "33554432",
    "majorCompactionThreshold": "0.999",
}
GOALS = {"p50_ms": 1.2, "p99_ms": 1.5}


def frames(ledger: int, first: int, count: int, size: int) -> bytes:
    return AddBatch(DIGEST, ledger, first, first - 1, 0, [b"x" * size] * count).frames()


def new_ledger(client: Client) -> int:
    """In the metadata, which garbage collection asks; its entries come by plain frames."""
    return client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1).id


def fill(port: int, old: int, doomed: list[int]) -> None:
    """The old ledger, and a little of each doomed one wherever a log of it may be."""
    with socket.create_connection((HOST, port)) as link:
        for number, first in enumerate(range(0, OLD_ENTRIES, BATCH)):
            link.sendall(frames(old, first, BATCH, 1024))
            for ledger in doomed:
                link.sendall(frames(ledger, number * DOOMED_BATCH, DOOMED_BATCH, 1024))
            take(link, BATCH + DOOMED_BATCH * len(doomed))


def read_on(port: int, old: int) -> None:
    """Batch reads of the old ledger, again and again, until standard input ends; prints its begin and the bytes."""
    received = 0
    with (
        socket.create_connection((HOST, port)) as link,
        link.makefile("rb") as replies,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("reading", flush=True)
        while not selector.select(0):
            for first in range(0, OLD_ENTRIES, BATCH):
                link.sendall(v2.pack_batch_read(BatchRead(old, first, 1, BATCH, 1 << 20)))
                received += len(replies.read(int.from_bytes(replies.read(4), "big")))
                if selector.select(0):
                    break
    print(received)


class Reader:
    """`read_on` in a process of its own."""

    def __init__(self, port: int, old: int) -> None:
        self.mb = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.interference", "--read-on", str(port), str(old)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        # Python's start takes a CPU for tenths of a second, which is none of what is measured
        self._process.stdout.readline()
        return self

    def __exit__(self, *raised: object) -> None:
        self.mb = int(self._process.communicate("", timeout=ROUND_S_MAX)[0]) >> 20


class Side:
    """One bookie with its old ledger."""

    def __init__(self, bookie: LocalBookie, client: Client, pairs: int) -> None:
        self.port = bookie.port
        self.client = client
        self.old = new_ledger(client)
        self.doomed = [new_ledger(client) for _ in range(pairs)]
        self._gc = bookie.said.split()[-1].removesuffix("/metrics") + "/api/v1/bookie/gc"
        token = (bookie.directory / "journal" / TOKEN_NAME).read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}"}
        fill(self.port, self.old, self.doomed)

    def disturb(self) -> None:
        """A doomed ledger goes, and compaction of every log that held it begins."""
        self.client.delete_ledger(self.doomed.pop())
        urllib.request.urlopen(
            urllib.request.Request(self._gc, b'{"forceMajor": true, "forceMinor": false}', self._headers, method="PUT"),
            timeout=ROUND_S_MAX,
        ).close()

    def status(self) -> dict[str, Any]:
        request = urllib.request.Request(self._gc, headers=self._headers)
        with urllib.request.urlopen(request, timeout=ROUND_S_MAX) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def rest(self) -> None:
        """Until compaction has ended."""
        deadline = time.monotonic() + ROUND_S_MAX
        while self.status()["is_in_force_gc"] == "true":
            if time.monotonic() > deadline:
                raise TimeoutError(f"compaction did not end in {ROUND_S_MAX} s")
            time.sleep(0.05)


def appended(port: int, ledger: int, seconds: float, rate: int, size: int) -> list[float]:
    """Latencies of all entries, in seconds, ascending."""
    share = max(1, int(rate * TICK))
    latencies: list[float] = []
    with socket.create_connection((HOST, port)) as link, selectors.DefaultSelector() as selector:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        selector.register(link, selectors.EVENT_READ)
        waiting = bytearray()
        ticks: list[float] = []  # when each share was to be sent
        answered = received = 0
        began = time.perf_counter()
        wanted = int(seconds / TICK)
        while answered < wanted * share:
            now = time.perf_counter() - began
            while len(ticks) < wanted and now >= len(ticks) * TICK:
                waiting += frames(ledger, len(ticks) * share, share, size)
                ticks.append(len(ticks) * TICK)
            if waiting:
                with contextlib.suppress(BlockingIOError):
                    del waiting[: link.send(waiting)]
            pause = (
                0.0
                if waiting
                else max(0.0, len(ticks) * TICK - (time.perf_counter() - began))
                if len(ticks) < wanted
                else 1.0
            )
            if selector.select(pause):
                more = link.recv(1 << 20)
                if not more:
                    raise ConnectionResetError("the bookie closed the connection")
                received += len(more)
                now = time.perf_counter() - began
                while (answered + 1) * ACK_BYTES <= received:
                    latencies.append(now - ticks[answered // share])
                    answered += 1
    return sorted(latencies)


@contextlib.contextmanager
def side(folder: str, options: Mapping[str, str], pairs: int) -> Iterator[Side]:
    with LocalCluster(pathlib.Path(folder), bookies=1, options=options) as cluster, connect(cluster.uri) as client:
        yield Side(cluster.bookies[0], client, pairs)


def main() -> None:
    options = words(
        __doc__,
        pairs=9,
        seconds=4.0,
        rate=10_000,
        size=1024,
        directory=None,
        read_on=hidden(type=int, nargs=2),
    )
    if options.read_on:
        read_on(*options.read_on)
        return
    found: dict[str, list[dict[str, float]]] = {"alone": [], "busy": []}
    with (
        folder(options.directory, "interference") as place,
        side(f"{place}/quiet", QUIET, options.pairs) as quiet,
        side(f"{place}/busy", BUSY, options.pairs) as busy,
    ):

        def turn(one: Side) -> list[float]:
            return appended(one.port, new_ledger(one.client), options.seconds, options.rate, options.size)

        for one in (quiet, busy):
            turn(one)  # warm
        for name, one in by_turns(options.pairs, (("busy", busy), ("alone", quiet))):
            run: dict[str, float] = {}
            if one is busy:
                with Reader(busy.port, busy.old) as reader:
                    began = time.perf_counter()
                    busy.disturb()
                    times = turn(busy)
                run["read_mb_per_second"] = round(reader.mb / (time.perf_counter() - began))
                busy.rest()
            else:
                times = turn(quiet)
            for part, share in (("p50_ms", 0.5), ("p99_ms", 0.99)):
                run[part] = round(times[int(len(times) * share)] * 1000, 3)
            found[name].append(run)
        moved = busy.status()["bytes_moved"] >> 20
    lines = []
    for part, goal in GOALS.items():
        busy_times, alone_times = ([run[part] for run in found[name]] for name in ("busy", "alone"))
        lines.append(Comparison(part, busy_times, alone_times, goal, at_most=True, unit="ms").as_json())
    shape = {"rate": options.rate, "size": options.size, "seconds": options.seconds}
    print(json.dumps({**shape, "compacted_mb": moved, "lines": lines, "runs": found}))


if __name__ == "__main__":
    main()
