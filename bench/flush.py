"""
`python -m bench.flush`: what a flush costs a bookie, in CPU alone: the write cache goes to the entry log and the index.

    python -m bench.flush                            100 B in 10 ledgers, runs of 50
    python -m bench.flush --ledgers 100000 --run 1   each entry is a run of its own
    PYTHONPATH=../before/.types python -m bench.flush               of another checkout

A storage of the `quire` that Python imports is opened over a temporary directory; entries are added, and when all are
durable in the journal it is flushed: the CPU of the process from there to the end of the flush is counted, that of all
its threads, RocksDB's included.  The first flush is not: it creates files and rows.  It prints a JSON document.

Knows: the constructor of a storage, `start`, `add`, `flush`, `close`; and the two names under which checkouts have it.
Does not know: what is compared with what (`bench.__main__`).
"""

import argparse
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from bench.scripts import words
from quire.conf.bookie import BookieOptions
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
HOUR_MS = 3_600_000  # no flush but ours
CACHE_BYTES = 1 << 30
BURST = 1000  # entries on their way to the journal


class Durable:
    """A storage's events: fires `all` when as many tokens came back as were awaited."""

    def __init__(self) -> None:
        self.missing = 0
        self.all: Deferred[None] = Deferred()

    def await_tokens(self, count: int) -> "Deferred[None]":
        self.missing, self.all = count, Deferred()
        return self.all

    def durable(self, tokens: list[object]) -> None:
        self.missing -= len(tokens)
        if not self.missing:
            self.all.callback(None)

    def refused(self, token: object, error: object) -> None: ...

    def relieved(self) -> None: ...

    def failed(self, reason: str) -> None:
        self.all.errback(RuntimeError(f"the storage failed: {reason}"))

    def read_only(self, reason: str | None) -> None: ...


def open_storage(options: BookieOptions, reactor: Any, durable: Durable) -> Any:
    """The storage of the imported checkout, started; older ones have it as a module and assign each callback."""
    try:
        module = importlib.import_module("quire.bookie.storage.storage")
    except ModuleNotFoundError:
        module = importlib.import_module("quire.bookie.storage")
    storage = module.Storage(options, reactor)
    if hasattr(storage, "listen"):
        storage.listen(durable)
    else:
        storage.durable, storage.failed = durable.durable, durable.failed
    storage.start()
    return storage


class Flushes:
    """One storage: entries are added and flushed, round after round; `figures` are those of the rounds so far."""

    def __init__(self, storage: Any, durable: Durable, options: argparse.Namespace) -> None:
        self.storage, self.durable, self.options = storage, durable, options
        self.payload = bytes(options.size)
        self.next = dict.fromkeys(range(options.ledgers), 0)
        self.cpu: list[float] = []  # microseconds per entry
        self.seconds: list[float] = []

    async def round(self) -> None:
        """Adds the entries, waits until the journal has them, flushes; `RuntimeError` when an add is refused."""
        await self.add()
        began, cpu = time.perf_counter(), time.process_time()
        await self.storage.flush()
        self.cpu.append((time.process_time() - cpu) / self.options.entries * 1e6)
        self.seconds.append(time.perf_counter() - began)

    async def add(self) -> None:
        runs = self.options.entries // self.options.run
        at_once = max(1, BURST // self.options.run)
        for start in range(0, runs, at_once):
            count = min(at_once, runs - start)
            synced = self.durable.await_tokens(count)
            for number in range(start, start + count):
                status = self.storage.add(self.run_of(number % self.options.ledgers), number)
                if status is not Status.EOK:
                    raise RuntimeError(f"an add was refused: {status}")
            await synced

    def run_of(self, ledger: int) -> AddRun:
        """The ledger's next run, as it comes from a V2 client."""
        first = self.next[ledger]
        self.next[ledger] += self.options.run
        batch = AddBatch(DIGEST, ledger, first, first - 1, first * len(self.payload), [self.payload] * self.options.run)
        return AddRun(ledger, first, batch.bodies(), DIGEST.master_key, frames=batch.frames())

    def figures(self) -> dict[str, Any]:
        """Returns the figures of all rounds but the first; CPU is their median: one disturbed round is not counted."""
        entries, seconds = self.options.entries * (len(self.cpu) - 1), self.seconds[1:]
        return {
            "entries": entries,
            "entries_per_second": round(entries / sum(seconds)),
            "p50_ms": round(statistics.median(seconds) * 1e3, 3),
            "cpu_us_per_entry": round(statistics.median(self.cpu[1:]), 4),
        }


async def measure(reactor: Any, options: argparse.Namespace) -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="quire-flush-") as folder:
        durable = Durable()
        bookie = BookieOptions(
            metadata_uri="memory://bench",
            journal_directories=(f"{folder}/journal",),
            ledger_directories=(f"{folder}/ledgers",),
            flush_interval_ms=HOUR_MS,
            write_cache_bytes_max=CACHE_BYTES,
        )
        storage = open_storage(bookie, reactor, durable)
        try:
            flushes = Flushes(storage, durable, options)
            for _ in range(options.flushes + 1):
                await flushes.round()
        finally:
            await storage.close()
    print(json.dumps(flushes.figures()))


def main(argv: Sequence[str] | None = None) -> None:
    options = words(
        "CPU per entry of a bookie's flush.",
        argv,
        entries=(100_000, "of each flush"),
        size=100,
        ledgers=(10, "that the entries belong to, run by run in turn"),
        run=(50, "entries of a ledger that arrive together"),
        flushes=(11, "that are counted"),
        dir=(None, "where the storage is"),
    )
    react(lambda reactor: Deferred.fromCoroutine(measure(reactor, options)))


if __name__ == "__main__":
    main()
