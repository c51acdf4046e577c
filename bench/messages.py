"""
`python -m bench.messages`: what message stores cost beside what they stand on; rows of `make bench` whose names begin
with "messages".

    python -m bench.messages                              three bookies of its own, all rows
    python -m bench.messages --metadata URI --only plan   on bookies that run; rows whose name contains the words
    python -m bench.messages --quick --pairs 2            a tenth of the work: shows that it runs, not how fast

Every row is pairs of runs by turns in one process: its ratio is the median over the pairs.  Where a figure is bound by
itself, what is beside it is the bound.  The directory that is planned, imported and exported has files of 64 MiB with
bodies of 4 KiB.  A plan takes some 1.3 us a record beside its sums, so with bodies of 1 KiB it is twice as far from
sha1sum, 1.0 in CPU time with an optimised Python.  What is put has tags and a key; beside it are values of the size of
its body.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, ensureDeferred

from bench import log_loads
from bench.codecs import microseconds
from bench.message_loads import MIB, PULLED, Loads, coding, write_store
from bench.ratios import Comparison
from bench.scripts import Pair, PairRows, asked, folder, report, row_options
from bench.sides import Quire

# SPDX-License-Identifier: Apache-2.0

BATCH, CODED = 250, 256
PUT_EACH_S, PULL_EACH_S = 0.002, 0.001
LATER_MS = 15.0  # a pull behind the acknowledgement


class Rows(PairRows):
    """The rows of message stores.  `directory`: where stores can be made."""

    def __init__(
        self, reactor: Any, uri: str, directory: Path, pairs: int, share: float, wanted: Callable[[str], bool]
    ) -> None:
        super().__init__(pairs, share, wanted)
        self._loads = Loads(reactor, uri, directory)
        self._logs = log_loads.Loads(reactor, uri)
        self._root = directory / "store"
        self._turn = 0

    async def all(self) -> None:
        """Every row."""
        await self.directories()
        await self.coding()
        await self.puts()
        await self.rows_made()
        await self.reads()

    async def _row(
        self, name: str, goal: float, unit: str, pair: Callable[[], Awaitable[Pair]], at_most: bool = False
    ) -> None:
        found: list[Pair] = []
        for _ in range(self.pairs if self.wanted(name) else 0):
            found.append(await pair())
            self.say(name, found, unit)
        if found:
            self.add(name, found, goal, unit, at_most)

    async def _by_turns(self, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]]) -> Pair:
        """One run of each, the other first each time."""
        self._turn += 1
        if self._turn % 2:
            mine = await ours()
            return mine, await theirs()
        other = await theirs()
        return await ours(), other

    # -- directories -----------------------------------------------------------------------------------------------

    async def directories(self) -> None:
        """Plan, import and export."""
        loads = self._loads
        plan = "messages plan, bodies of 4 KiB / sha1sum"
        imported = "messages import / copying the files to a ledger"
        exported = "messages export / copying a ledger to a file"
        if not any(map(self.wanted, (plan, imported, exported))):
            return
        files = write_store(self._root, self.some(256 * MIB, 1))

        async def planned() -> Pair:
            theirs = loads.sums(files)
            return loads.plan(self._root).seconds, theirs.seconds

        async def copied_in() -> Pair:
            return (await loads.imported(self._root))[:2]

        await self._row(plan, 1.5, "s", planned, at_most=True)
        await self._row(imported, 0.6, "MiB/s", copied_in)
        if self.wanted(exported):
            name = (await loads.imported(self._root))[2]
            ledger = await loads.copied(self._root)
            await self._row(exported, 0.6, "MiB/s", lambda: loads.exported(name, ledger))

    # -- puts ------------------------------------------------------------------------------------------------------

    async def coding(self) -> None:
        """CPU of one message before it is sent, and in the hook of the log's owner."""
        work = coding(CODED, 100)
        for name, call, most in (("encoding", work.encode, 3.0), ("hook", work.hook, 1.5)):

            async def cost(call: Callable[[], object] = call, most: float = most) -> Pair:
                return microseconds(call, CODED), most

            await self._row(f"messages {name}, a message of 100 B / {most:g} us", 1.0, "us", cost, at_most=True)

    async def puts(self) -> None:
        """In batches, one by one, and while rows are made."""
        loads, logs = self._loads, self._logs
        for size, total, floor in ((100, 100_000, 0.4), (1024, 50_000, 0.6)):
            count = self.some(total, BATCH) // BATCH * BATCH

            async def rates(size: int = size, count: int = count) -> Pair:
                async def ours() -> float:
                    return count / (await loads.puts(size, count, BATCH)).seconds

                async def theirs() -> float:
                    return count / (await logs.owner_records(size, count, BATCH)).seconds

                return await self._by_turns(ours, theirs)

            await self._row(f"messages put, bodies of {size} B in batches / log append", floor, "messages/s", rates)
        count = self.some(2_000)

        async def single() -> Pair:
            return await self._by_turns(lambda: loads.put_p50(1024, count), lambda: loads.append_p50(1024, count))

        await self._row("messages put, p50 / log append", 1.15, "ms", single, at_most=True)

    async def rows_made(self) -> None:
        """Dispatch, and puts beside it."""
        loads = self._loads
        count = self.some(100_000, BATCH) // BATCH * BATCH
        await self._row("messages dispatch / put", 1.5, "messages/s", lambda: loads.dispatch(100, count, BATCH))
        name = "messages put p99 while rows are made / without"
        if self.wanted(name):
            store = await loads.full(100, self.some(400_000, 20 * BATCH), BATCH)
            puts = self.some(2_000)

            async def beside() -> Pair:
                return await self._by_turns(
                    lambda: loads.put_p99(store, puts, PUT_EACH_S, True),
                    lambda: loads.put_p99(store, puts, PUT_EACH_S, False),
                )

            await self._row(name, 1.2, "ms", beside, at_most=True)

    # -- reads -----------------------------------------------------------------------------------------------------

    async def reads(self) -> None:
        """Pulls and gets."""
        loads = self._loads

        async def delivered() -> Pair:
            pulled, acknowledged = await loads.put_to_pull(self.some(5_000), PULL_EACH_S)
            return pulled, acknowledged + LATER_MS

        await self._row(
            f"messages put to pull at 1,000/s, p50 / put + {LATER_MS:g} ms", 1.0, "ms", delivered, at_most=True
        )
        await self._row(
            f"messages pull by {PULLED} / records of a log's reader",
            0.5,
            "messages/s",
            lambda: loads.pulls(self.some(20_000, PULLED)),
        )
        await self._row(
            "messages get by offset, p50 / read of an entry",
            1.3,
            "ms",
            lambda: loads.gets(self.some(2_000), 1024),
            at_most=True,
        )


def main() -> int:
    options = row_options(__doc__, "three of its own, over SQLite")
    if options.metadata is not None:
        return run(options, options.metadata)
    with Quire(None) as bookies:
        return run(options, bookies.uri)


def run(options: argparse.Namespace, uri: str) -> int:
    """Measures all that is wanted on these bookies; returns the exit status."""
    rows: list[Comparison] = []

    async def work(reactor: Any) -> None:
        with folder(None, "messages") as directory:
            found = Rows(reactor, uri, Path(directory), *asked(options))
            await found.all()
            rows.extend(found.rows)

    def begin(reactor: Any) -> "Deferred[None]":
        return ensureDeferred(work(reactor))

    try:
        task.react(begin)
    except SystemExit as end:
        if end.code:
            return int(end.code)
    return report(rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
