"""
`python -m bench.long_ledger`: what a read of one entry costs in a very long ledger, beside shorter ones.

    python -m bench.long_ledger                      10^4, 10^6 and 10^8 entries: about eight minutes and 5 GB
    python -m bench.long_ledger --entries 10000 1000000          without the longest
    python -m bench.long_ledger --entries 1000 100000 --reads 50 --rounds 2 --cold 5      whether it works at all

One bookie in a process of its own for each length, metadata in SQLite.  Each store is written by the bookie's own
entry-log and index writers, not over the wire: entries of 40 bytes as a client makes them (empty payloads would be 36),
256 to a run.  Then, by turns, single random reads one at a time (p50, p99, CPU of the bookie), first with all files in
the page cache (warm), then with none of them there before each read (cold).  It prints a JSON document; the exit status
is 1 when a bound is missed: p99 of the longest at most 1.5 times that of the shortest, warm (the median over the
rounds), and 4.3 bytes of index for an entry, sums included, from 10^6 entries on.  Cold figures have no bound: a short
ledger's index stays in the bookie's own memory even then, so that a read of it costs one read of the disk, and one in a
long ledger two.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from crc32c import crc32c

from bench import scripts
from bench.ledgers import BookieProcess, percentile
from bench.ratios import interval
from bench.scripts import words
from bench.sides import cpu_seconds, resident_mb
from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.rocks import open_rows
from quire.bookie.index.run import RUN_ENTRIES_MAX, encode_run
from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.messages import Read
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
PAYLOAD = b"long"
LEDGER, ANOTHER = 0, 1  # a bookie keeps what it has when the metadata has no ledger at all
LOG_BYTES_MAX = 1 << 30
SYNC_RUNS = 1 << 14  # runs between two syncs while a store is made
P99_RATIO_MAX, INDEX_BYTES_MAX, JUDGED_FROM = 1.5, 4.3, 1_000_000
PAGE_BYTES = 4096


def runs(entries: int) -> Iterator[tuple[int, list[bytes]]]:
    """(first entry, bodies) of all runs."""
    for first in range(0, entries, RUN_ENTRIES_MAX):
        count = min(RUN_ENTRIES_MAX, entries - first)
        yield first, AddBatch(DIGEST, LEDGER, first, first - 1, first * len(PAYLOAD), [PAYLOAD] * count).bodies()


def write_store(ledgers: str, entries: int) -> float:
    """Fills the ledger directory of a stopped bookie; returns seconds."""
    began = time.perf_counter()
    directory = LedgerDirectory(Files(), open_rows, ledgers, ledgers, LOG_BYTES_MAX, lambda: None)
    try:
        for number, (first, bodies) in enumerate(runs(entries), 1):
            size = len(bodies[0])
            field = size.to_bytes(4, "big")
            log, offset = directory.logs.append(LEDGER, field + field.join(bodies))
            if directory.index.append(
                LEDGER, first, len(bodies), encode_run(log, offset, [size] * len(bodies), list(map(crc32c, bodies)))
            ):
                directory.index.commit()
            if number % SYNC_RUNS == 0:
                directory.sync()
        directory.store_rows({LEDGER: LedgerRow(DIGEST.master_key)})
        directory.sync()
    finally:
        directory.close()
    return time.perf_counter() - began


class LongLedger(BookieProcess):
    """A bookie with one ledger of so many entries."""

    def __init__(self, directory: pathlib.Path, entries: int) -> None:
        super().__init__(directory, [LEDGER, ANOTHER])
        self.stop()
        self.entries = entries
        self.burst_cpu = 0.0  # seconds, of what `by_turns` had it do
        self.made_s = write_store(str(self.stored), entries)
        self.start()

    def files(self) -> list[pathlib.Path]:
        return [path for path in self.stored.rglob("*") if path.is_file()]

    def index_bytes(self) -> int:
        """Counts the bytes of the index alone: its tables and its log of writes, as they are on the disk."""
        return sum(
            path.stat().st_size
            for path in (self.stored / "current" / "runs").iterdir()
            if path.suffix in (".sst", ".log")
        )

    def warm(self) -> None:
        """All files come into the page cache."""
        for path in self.files():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass

    def chill(self) -> None:
        """None of them is there any more; the index's own cache of blocks stays."""
        for path in self.files():
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)

    def read(self, entry: int) -> float:
        """Milliseconds of one read; `RuntimeError` unless the right entry comes back."""
        request = v2.pack_read(Read(LEDGER, entry))
        began = time.perf_counter()
        self._peer.sendall(request)
        answer = self._answers.read(int.from_bytes(self._answers.read(4), "big"))
        spent = time.perf_counter() - began
        if answer[4:8] != bytes(4) or DIGEST.open(LEDGER, entry, answer[24:]) != PAYLOAD:
            raise RuntimeError(f"a read of entry {entry} was answered with {answer.hex()}")
        return spent * 1e3

    def device_bytes(self) -> int:
        """Returns the bytes that this process has read from the disk."""
        for line in pathlib.Path(f"/proc/{self.running}/io").read_text().splitlines():
            name, number = line.split(": ")
            if name == "read_bytes":
                return int(number)
        return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every figure, by number of entries."""
    rng = random.Random(1)
    sides: dict[int, LongLedger] = {}
    figures: dict[int, dict[str, Any]] = {count: {} for count in options.entries}
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="quire-long-ledger-") as folder:
        try:
            for count in options.entries:
                side = sides[count] = LongLedger(pathlib.Path(folder, str(count)), count)
                figures[count] |= {
                    "made_s": round(side.made_s, 1),
                    "index_bytes_per_entry": round(side.index_bytes() / count, 3),
                }
                figures[count]["resident_mb_at_the_start"] = round(resident_mb(side.running), 1)
                side.warm()
            warm = by_turns(
                sides,
                options.rounds,
                lambda side: [side.read(rng.randrange(side.entries)) for _ in range(options.reads)],
            )
            for count, side in sides.items():
                figures[count]["cpu_us_per_read"] = round(side.burst_cpu / (options.reads * options.rounds) * 1e6, 1)
                figures[count]["resident_mb"] = round(resident_mb(side.running), 1)
            touched = {count: side.device_bytes() for count, side in sides.items()}
            cold = by_turns(sides, options.rounds, lambda side: list(cold_reads(side, options.cold, rng)))
            for count, side in sides.items():
                pages = (side.device_bytes() - touched[count]) / PAGE_BYTES
                figures[count]["cold_pages_per_read"] = round(pages / max(options.cold * options.rounds, 1), 1)
        finally:
            for side in sides.values():
                side.kill()
    shortest, longest = min(options.entries), max(options.entries)
    ratios = {}
    for name, found in (("warm", warm), ("cold", cold)):
        for count in options.entries:
            pooled = [spent for some in found[count] for spent in some]
            figures[count] |= {
                f"{name}_p50_ms": round(percentile(pooled, 0.5), 3),
                f"{name}_p99_ms": round(percentile(pooled, 0.99), 3),
            }
        pairs = [
            percentile(long, 0.99) / percentile(short, 0.99)
            for long, short in zip(found[longest], found[shortest], strict=True)
        ]
        ratios[name] = {
            "p99": round(statistics.median(pairs), 3),
            "interval": [round(value, 3) for value in interval(pairs)],
        }
    return {"entries": {str(count): row for count, row in figures.items()}, "ratios": ratios}


def by_turns(sides: dict[int, LongLedger], rounds: int, work: Any) -> dict[int, list[list[float]]]:
    """Does the same work on every side, `rounds` times, every other time in reverse order."""
    found: dict[int, list[list[float]]] = {count: [] for count in sides}
    for count in scripts.by_turns(rounds, sorted(sides)):
        side = sides[count]
        before = cpu_seconds(side.running)
        found[count].append(work(side))
        side.burst_cpu += cpu_seconds(side.running) - before
    return found


def cold_reads(side: LongLedger, count: int, rng: random.Random) -> Iterator[float]:
    for _ in range(count):
        side.chill()
        yield side.read(rng.randrange(side.entries))


def missed(found: dict[str, Any]) -> list[str]:
    """The bounds that the figures do not keep."""
    ratio = found["ratios"]["warm"]["p99"]
    said = [f"p99 warm, ratio: {ratio:.2f}, at most {P99_RATIO_MAX}"] if ratio > P99_RATIO_MAX else []
    for count, row in found["entries"].items():
        if int(count) >= JUDGED_FROM and row["index_bytes_per_entry"] > INDEX_BYTES_MAX:
            said.append(
                f"index bytes per entry of {count}: {row['index_bytes_per_entry']:.2f}, at most {INDEX_BYTES_MAX}"
            )
    return said


def main(argv: Sequence[str] | None = None) -> int:
    options = words(
        "Single reads in a very long ledger.",
        argv,
        entries={"type": int, "nargs": "+", "default": [10_000, 1_000_000, 100_000_000]},
        rounds=45,
        reads=(200, "warm reads, each round"),
        cold=(20, "cold reads, each round"),
        dir=(None, "where the bookies' directories are"),
    )
    found = measure(options)
    found["missed"] = missed(found)
    print(json.dumps(found))
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
