"""
`python -m bench.logs`: what named logs cost beside plain ledgers on the same bookies, at the same time; rows of
`make bench` whose names begin with "log".

    python -m bench.logs                                  three bookies of its own, all rows
    python -m bench.logs --metadata URI --only 'log tail' on bookies that run; rows whose name contains the words
    python -m bench.logs --quick --pairs 2                a tenth of the work: shows that it runs, not how fast

Every row is pairs of runs by turns in one process: its ratio is the median over the pairs.  Where a figure is bound by
itself, what is beside it is the bound.
"""

import argparse
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet import task
from twisted.internet.defer import Deferred, ensureDeferred

from bench.codecs import microseconds
from bench.log_loads import Loads
from bench.ratios import Comparison
from bench.scripts import Pair, PairRows, Timed, asked, hidden, report, row_options
from bench.sides import Quire
from quire.log.core.batch import Records
from quire.log.core.values import Segment
from quire.log.owner.appending.encoder import Encoder

# SPDX-License-Identifier: Apache-2.0

KIB, MIB = 1 << 10, 1 << 20
T = TypeVar("T")


class Rows(PairRows):
    """The rows of named logs."""

    def __init__(self, loads: Loads, pairs: int, share: float, wanted: Callable[[str], bool]) -> None:
        super().__init__(pairs, share, wanted)
        self._loads = loads

    async def _row(
        self, name: str, goal: float, unit: str, pair: Callable[[], Awaitable[Pair]], at_most: bool = False
    ) -> None:
        """Pairs of a figure; of two runs `turns` makes them."""
        found: list[Pair] = []
        for _ in range(self.pairs if self.wanted(name) else 0):
            found.append(await pair())
            self.say(name, found, unit)
        if found:
            self.add(name, found, goal, unit, at_most)

    def _turns(
        self, ours: Callable[[], Awaitable[T]], theirs: Callable[[], Awaitable[T]]
    ) -> Callable[[], Awaitable[tuple[T, T]]]:
        """Makes one run of each, the other first each time."""
        turn = iter(range(1 << 30))

        async def pair() -> tuple[T, T]:
            if next(turn) % 2:
                after = await theirs()
                return await ours(), after
            return await ours(), await theirs()

        return pair

    async def all(self) -> None:
        """Every row."""
        await self.appends()
        await self.reads()
        await self.small_segments()
        await self.tails()
        await self.neighbours()
        await self.proofs()
        await self.publishing()
        await self.many_segments()
        await self.memory()
        await self.encoding()

    # -- appends and reads -----------------------------------------------------------------------------------------

    async def appends(self) -> None:
        """Batches of records, and records one by one, beside what a plain ledger takes."""
        loads = self._loads
        for kib, entries in ((1, 20_000), (16, 8_000), (64, 2_000)):
            count, size = self.some(entries), kib * KIB
            await self._pair_of_runs(
                f"log append, entries of {kib} KiB of batched records / plain",
                0.9,
                count * size / MIB,
                "MiB/s",
                lambda size=size, count=count: loads.owner_entries(size, count, 256),
                lambda size=size, count=count: loads.writer_entries(size, count),
            )
        for size, records, floor in ((100, 200_000, 3.0), (KIB, 60_000, 1.2)):
            count = self.some(records, 1000)
            await self._pair_of_runs(
                f"log append, records of {size} B in batches / plain entries",
                floor,
                count,
                "records/s",
                lambda size=size, count=count: loads.owner_records(size, count, 250),
                lambda size=size, count=count: loads.writer_lists(size, count, 250),
            )
        count = self.some(20_000)
        await self._pair_of_runs(
            "log append, one record in an entry / plain",
            0.85,
            count,
            "records/s",
            lambda: loads.owner_single(KIB, count),
            lambda: loads.writer_entries(KIB, count),
        )

        name = "log append beside a compaction by the same process / alone"
        count = self.some(400_000, 1_000)
        await self._row(name, 0.8, "records/s", lambda: loads.beside_upkeep(count, 250))

    async def _pair_of_runs(
        self,
        name: str,
        goal: float,
        work: float,
        unit: str,
        ours: Callable[[], Awaitable[Timed]],
        theirs: Callable[[], Awaitable[Timed]],
    ) -> None:
        """Work in a second; what each side spent of its process's CPU is printed beside it."""
        runs = self._turns(ours, theirs)

        async def pair() -> Pair:
            mine, other = await runs()
            spent = [1e6 * run.cpu / work for run in (mine, other)]
            one = unit.removesuffix("/s").removesuffix("s")
            print(f"  {name}   {spent[0]:,.2f} beside {spent[1]:,.2f} us of CPU a {one}", file=sys.stderr)
            return work / mine.seconds, work / other.seconds

        await self._row(name, goal, unit, pair)

    async def reads(self) -> None:
        """Over the borders of many segments, beside the same entries in one ledger."""
        loads, name = self._loads, "log read, batches over 100 segments / plain"
        rate = "log read, values of 100 B / 1,000,000 a second"
        if not self.wanted(name) and not self.wanted(rate):
            return
        segments, entries = self.some(100), 100
        log, ledger = await loads.written(segments, entries, 250, 100)

        async def batches() -> Timed:
            return (await loads.read_log(log, values=False))[0]

        async def values() -> Pair:
            run, count = await loads.read_log(log, values=True)
            return count / run.seconds, 1e6

        work = segments * entries * 250
        await self._pair_of_runs(name, 0.9, work, "records/s", batches, lambda: loads.read_ledger(ledger))
        await self._row(rate, 1.0, "records/s", values)

    async def small_segments(self) -> None:
        """Reads what streams with short batches leave, before it is merged and after."""
        loads, batches, parts, records = self._loads, self.some(300), 4, 50
        before = f"log read, {batches} x {parts} small segments / the plain client over their ledgers"
        after = f"log read, {batches} x {parts} small segments once merged / the plain client over their ledgers"
        decoded = f"{after}, decoded"
        if not any(map(self.wanted, (before, after, decoded))):
            return
        work = batches * parts * records
        log, ledgers = await loads.published(batches, parts, records, 100)

        async def read(name: str = log) -> Timed:
            return (await loads.read_log(name, values=False))[0]

        await self._pair_of_runs(before, 1 / 1.5, work, "records/s", read, lambda: loads.read_ledgers(ledgers))
        if self.wanted(after) or self.wanted(decoded):
            merging = await loads.merged(log)
            print(f"merged {len(ledgers):,} segments in {merging.seconds:.1f} s", file=sys.stderr, flush=True)
            large = await loads.ledgers_of(log)
            for name, decode in ((after, False), (decoded, True)):
                await self._pair_of_runs(
                    name, 1 / 1.1, work, "records/s", read, lambda decode=decode: loads.read_ledgers(large, decode)
                )

    async def tails(self) -> None:
        """From an append to its delivery in another process."""
        loads, entries = self._loads, self.some(500, 20)

        async def median(of_log: bool) -> float:
            found = sorted(await loads.tail(of_log, entries, 0.005))
            return found[len(found) // 2]

        await self._row(
            "log tail, append to delivery / plain",
            1.1,
            "ms",
            self._turns(lambda: median(True), lambda: median(False)),
            at_most=True,
        )

    async def neighbours(self) -> None:
        """Appends beside others of their process that take their time."""
        loads, records = self._loads, self.some(2_000, 20)
        for kind in ("reader", "cursor"):
            await self._row(
                f"log append p99 beside a slow {kind} / alone",
                1.2,
                "ms",
                self._turns(
                    lambda kind=kind: loads.latency(records, 0.002, kind), lambda: loads.latency(records, 0.002)
                ),
                at_most=True,
            )

    # -- publishing, metadata, memory ------------------------------------------------------------------------------

    async def proofs(self) -> None:
        """Linearizable reads of a replica, beside the round trips of which each consists and a millisecond."""
        names = {
            "lease": "log read of a replica by lease / 1 ms",
            "index at the owner": "log read of a replica by index, at the owner / two metadata round trips and 1 ms",
            "index elsewhere": "log read of a replica by index, elsewhere / these, one to a bookie and 1 ms",
            "barrier": "log read of a replica by barrier / one append and 1 ms",
        }
        for way, name in names.items():

            async def pair(way: str = way) -> Pair:
                return (await self._loads.proofs(self.some(200)))[way]

            await self._row(name, 1.0, "ms", pair, at_most=True)

    async def publishing(self) -> None:
        """A commit of many ledgers, and one of a few parts."""
        loads, store = self._loads, self._loads.uri.partition(":")[0].partition("+")[0]
        ledgers = self.some(250, 10)
        found: list[dict[str, float]] = []

        async def multi() -> Pair:
            found.append(await loads.publish(4, ledgers))
            return found[-1]["multi"], 50.0 * ledgers / 250

        async def check() -> Pair:
            if not found:
                await multi()
            return found.pop()["check"], 250.0 * ledgers / 250

        many = f"log publish of {4 * ledgers} ledgers"
        await self._row(f"{many}, the step itself / 50 ms of 1,000", 1.0, "ms", multi, at_most=True)
        await self._row(f"{many}, the look at each / 250 ms of 1,000", 1.0, "ms", check, at_most=True)
        most = 30.0 if store == "zk" else 20.0

        async def commit() -> Pair:
            return (await loads.publish(4, 1))["whole"], most

        await self._row(f"log commit of 4 parts, {store} / {most:g} ms", 1.0, "ms", commit, at_most=True)

    async def many_segments(self) -> None:
        """Opening and changing logs that are long."""
        loads = self._loads
        open_row, edit_row = "log open at 10,000 segments / 1 s", "log edit at 100,000 segments / 20 ms + a write"
        if self.wanted(open_row):
            short = await loads.with_segments(10_000)

            async def opened() -> Pair:
                return await loads.opened(short), 1000.0

            await self._row(open_row, 1.0, "ms", opened, at_most=True)
        if self.wanted(edit_row):
            long = await loads.with_segments(100_000)
            turn = iter(range(1000, 1 << 30))

            async def edited() -> Pair:
                edit, write = await loads.edited(long, next(turn))
                return edit, 20.0 + write

            await self._row(edit_row, 1.0, "ms", edited, at_most=True)

    async def memory(self) -> None:
        """Measures the memory of idle handles."""
        loads = self._loads
        for name, kind, most, count in (
            ("log memory of an idle view / 100 KB", "reader", 100e3, 50),
            ("log memory of an idle owner / 8 MiB", "owner", 8.0 * MIB, 20),
        ):

            async def kept(kind: str = kind, count: int = count, most: float = most) -> Pair:
                return await loads.kept(count, kind), most

            await self._row(name, 1.0, "bytes", kept, at_most=True)
        name = "log memory of a view at 100,000 segments / 4 MB"
        if self.wanted(name):
            long = await loads.with_segments(100_000)

            async def of_long() -> Pair:
                return await loads.kept(1, "reader", long), 4e6

            await self._row(name, 1.0, "bytes", of_long, at_most=True)

        count = self.some(5_000, 500)

        async def of_producers() -> Pair:
            return await loads.kept_of_producers(count), 300.0

        await self._row("log memory of an idle producer / 300 B", 1.0, "bytes", of_producers, at_most=True)

    async def encoding(self) -> None:
        """CPU of 256 records of 100 bytes, from values to an entry with the place of each."""
        values = [bytes(100)] * 256
        for name, keys, most in (
            ("log encoding, a record of 100 B / 0.25 us", None, 0.25),
            ("log encoding, a record of 100 B with key / 0.5 us", [b"key-%04d" % number for number in range(256)], 0.5),
        ):

            async def cost(keys: list[bytes] | None = keys, most: float = most) -> Pair:
                encoder = Encoder(Segment(0, 0, 0, 0, 0), 0, MIB, "none")
                return microseconds(lambda: encoder.encode(Records(values, keys), 1), 256), most

            await self._row(name, 1.0, "us", cost, at_most=True)


def main() -> int:
    options = row_options(
        __doc__,
        "three of its own, over SQLite",
        follow=hidden(),  # the process that a tail is delivered to
        kind=hidden(),
    )
    if options.metadata is not None:
        return run(options, options.metadata)
    with Quire(None) as bookies:
        return run(options, bookies.uri)


def run(options: argparse.Namespace, uri: str) -> int:
    """Measures all that is wanted on these bookies; returns the exit status."""
    rows: list[Comparison] = []

    async def work(reactor: Any) -> None:
        loads = Loads(reactor, uri)
        if options.follow:
            print(json.dumps(await loads.follow(options.kind, options.follow)), flush=True)
            return
        found = Rows(loads, *asked(options))
        await found.all()
        rows.extend(found.rows)

    def begin(reactor: Any) -> "Deferred[None]":
        return ensureDeferred(work(reactor))

    try:
        task.react(begin)
    except SystemExit as end:
        if end.code:
            return int(end.code)
    return 0 if options.follow else report(rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
