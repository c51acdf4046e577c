"""
`python -m bench.spark`: Spark's tables of ledgers and logs beside plain client processes on the same bookies; rows of
`make bench` whose names begin with "spark".

    python -m bench.spark                                  three bookies with ZooKeeper of its own, all rows
    python -m bench.spark --only 'spark read' --pairs 7    rows whose name contains the words
    python -m bench.spark --quick --pairs 2                a tenth of the work: shows that it runs, not how fast

One session on two cores, warmed up by a first run of each row that is not counted.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench import small_ledgers
from bench.scripts import Pair, PairRows, Timed, asked, hidden, report, row_options
from bench.sides import Quire
from quire.client.api import Client
from quire.client.handles.ledger_record import LedgerRecord
from quire.log.api import Logs
from quire.metadata.store import at_once
from quire.pipeline import session
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.jobs.repair import repair
from quire.pipeline.jobs.running import in_tasks
from quire.pipeline.jobs.scrub import Each, scrub
from quire.pipeline.sources.ledger import LedgerSource
from quire.pipeline.spark import SparkSession
from quire.replication.copier import FragmentCopier, Sources
from quire.replication.core.fragments import HeldFragment
from quire.replication.mending import Mending
from quire.replication.scrub.whole import Scrubbing

# SPDX-License-Identifier: Apache-2.0

ENTRY = 1024
SMALL = 100
LISTS = 250  # entries of one call of a plain client
CALLS_UNDER_WAY = 4
AHEAD = 2 << 20  # as the source's `batchBytes`
COPIES = 3
READERS = 2  # plain client processes


class Rows(PairRows):
    """The rows of Spark's tables."""

    def __init__(self, uri: str, pairs: int, share: float, wanted: Callable[[str], bool]) -> None:
        super().__init__(pairs, share, wanted)
        self._uri = uri
        self._ours: Cluster = cluster(uri)
        self._names = iter(f"bench-spark-{time.time_ns()}-{number}" for number in range(1 << 30))
        self._session: SparkSession | None = None

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            self._session = session("local[2]", config={"spark.sql.shuffle.partitions": "2"})
        return self._session

    def _table(self, kind: str, schema: str | None = None, **options: object) -> Any:
        reader = self._spark.read.format(kind).options(metadata=self._uri, **options)
        return (reader if schema is None else reader.schema(schema)).load()

    def _row(self, name: str, goal: float, unit: str, pair: Callable[[], Pair], at_most: bool = False) -> None:
        found = []
        pair()  # the first run of a session pays for workers and code that the next ones have
        for _ in range(self.pairs):
            found.append(pair())
            self.say(name, found, unit)
        self.add(name, found, goal, unit, at_most)

    def all(self) -> None:
        """Every row that is wanted."""
        self.reads()
        self.record_reads()
        self.small_ledgers()
        self.writes()
        self.small_writes()
        self.micro_batches()
        self.plan()
        self.scrubs()
        self.repairs()
        if self._session is not None:
            self._session.stop()

    def reads(self) -> None:
        """All columns of closed ledgers, into nothing."""
        name = f"spark read, entries of 1 KiB / {READERS} plain clients"
        if not self.wanted(name):
            return
        entries = self.some(250_000)
        ledgers = [self._ours.wait(lambda: written(self._ours.client, entries)) for _ in range(2 * READERS)]
        total = entries * len(ledgers)

        def pair() -> Pair:
            with Timed() as spark:
                table = self._table("ledger", ledgers=",".join(map(str, ledgers)))
                table.write.format("noop").mode("overwrite").save()
            groups = [ledgers[number::READERS] for number in range(READERS)]
            return total / spark.seconds, total / plain(self._uri, [["--read", *map(str, each)] for each in groups])

        self._row(name, 0.9, "entries/s", pair)

    def writes(self) -> None:
        """Rows into a log exactly once, beside as many appends of one plain client."""
        rows = self.some(100_000)
        name = f"spark write, {rows:,} rows of 1 KiB in one batch / plain client"
        if not self.wanted(name):
            return
        frame = self._spark.range(0, rows, 1, 2).selectExpr(f"cast(repeat('x', {ENTRY}) as binary) as value").cache()
        frame.count()

        def pair() -> Pair:
            with Timed() as spark:
                frame.write.format("log").mode("append").options(
                    metadata=self._uri, log=next(self._names), create=True
                ).save()
            return rows / spark.seconds, rows / plain(self._uri, [["--append", str(rows)]])

        self._row(name, 0.8, "rows/s", pair)

    def record_reads(self) -> None:
        """Records of a log, of which all columns are wanted, the values, or how many there are."""
        for each, size, records, of_all, of_values in (
            (f"{SMALL} B", SMALL, 5_000_000, 0.5, 0.7),
            ("1 KiB", ENTRY, 1_000_000, 0.8, 0.9),
        ):
            name = f"records of {each}"
            names = {
                f"spark read, {name}, all columns / plain client": (of_all, None),
                f"spark read, {name}, values alone / plain client": (of_values, "value binary"),
                f"spark count, {name}, by index / spark read": (1.5, "index bigint"),
            }
            if any(map(self.wanted, names)):
                self._record_reads(names, size, self.some(records))

    def _record_reads(self, names: Mapping[str, tuple[float, str | None]], size: int, records: int) -> None:
        log = next(self._names)
        self._ours.wait(lambda: self._appended(log, records, size))
        for name, (goal, schema) in names.items():
            if self.wanted(name):
                self._row(name, goal, "records/s", partial(self._record_read, log, records, schema))

    def _record_read(self, log: str, records: int, schema: str | None) -> Pair:
        counted = schema is not None and schema.startswith("index")
        with Timed() as spark:
            table = self._table("log", schema, log=log)
            if counted:
                assert table.count() == records
            else:
                table.write.format("noop").mode("overwrite").save()
        if not counted:
            return records / spark.seconds, records / plain(self._uri, [["--read-log", log]])
        with Timed() as read:
            self._table("log", log=log).write.format("noop").mode("overwrite").save()
        return records / spark.seconds, records / read.seconds

    def small_ledgers(self) -> None:
        """Many ledgers of a few entries, by a query, and by its tasks' reader alone."""
        count = self.some(10_000)
        name = f"spark read, {count:,} small ledgers / asyncio client"
        reader = f"spark read, {count:,} small ledgers, CPU of the reader alone / of the asyncio client"
        if not self.wanted(name) and not self.wanted(reader):
            return
        ledgers = self._ours.wait(lambda: small_ledgers.written(self._ours.client, count))

        def pair() -> Pair:
            with Timed() as spark:
                table = self._table("ledger", ledgers=",".join(map(str, ledgers)))
                table.write.format("noop").mode("overwrite").save()
            return count / spark.seconds, count / small_ledgers.by_asyncio(self._uri, ledgers).seconds

        def readers() -> Pair:
            ours, theirs = (way(self._uri, ledgers) for way in (small_ledgers.by_tasks, small_ledgers.by_asyncio))
            return ours.cpu / count * 1e6, theirs.cpu / count * 1e6

        if self.wanted(reader):
            self._row(reader, 1.0, "us/ledger", readers, at_most=True)
        if self.wanted(name):
            self._row(name, 1.0, "ledgers/s", pair)

    def small_writes(self) -> None:
        """Rows of 100 B into a log exactly once, beside appends of 1,000 records each of one plain client."""
        rows = self.some(2_000_000)
        name = f"spark write, {rows:,} rows of {SMALL} B in one batch / plain client"
        if not self.wanted(name):
            return
        frame = self._spark.range(0, rows, 1, 2).selectExpr(f"cast(repeat('x', {SMALL}) as binary) as value").cache()
        frame.count()

        def pair() -> Pair:
            with Timed() as spark:
                frame.write.format("log").mode("append").options(
                    metadata=self._uri, log=next(self._names), create=True
                ).save()
            return rows / spark.seconds, rows / plain(self._uri, [["--append-log", next(self._names), str(rows)]])

        self._row(name, 0.5, "rows/s", pair)

    def micro_batches(self) -> None:
        """A stream from a log into a log."""
        name = "spark micro-batch of 1,000 rows, log to log / 400 ms"
        if not self.wanted(name):
            return
        source, batches = next(self._names), self.some(30, 6)
        self._ours.wait(lambda: self._appended(source, 1000 * batches))

        def pair() -> Pair:
            with tempfile.TemporaryDirectory() as checkpoint:
                stream = self._spark.readStream.format("log").options(
                    metadata=self._uri, log=source, maxRecordsPerTrigger=1000
                )
                query = (
                    stream.load()
                    .select("value")
                    .writeStream.format("log")
                    .options(metadata=self._uri, log=next(self._names), create=True, checkpointLocation=checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                took = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
            assert len(took) == batches
            return statistics.median(took[2:]), 400.0

        self._row(name, 1.0, "ms", pair, at_most=True)

    async def _appended(self, log: str, rows: int, size: int = SMALL) -> None:
        await appended(self._ours.logs, log, rows, size)

    def plan(self) -> None:
        """The driver's part of a query over many ledgers."""
        count = self.some(100_000)
        name = f"spark plan of {count:,} ledgers / 30 s of 100,000"
        if not self.wanted(name):
            return
        first, last = self._ours.wait(lambda: many_ledgers(self._ours.client, count))
        source = LedgerSource({"metadata": self._uri, "ledgers": f"{first}-{last}"})

        def pair() -> Pair:
            with Timed() as plan:
                tasks = source.reader(source_schema()).partitions()
            assert len({each.ledger for task in tasks for each in task.pieces}) == count
            return plan.seconds, 30.0 * count / 100_000

        self._row(name, 1.0, "s", pair, at_most=True)

    def scrubs(self) -> None:
        """Every copy looked at, beside as many entries that are only read."""
        name = f"spark scrub, seconds, three copies of 1 KiB / {READERS} plain clients"
        if not self.wanted(name):
            return
        entries = self.some(100_000)
        ledgers = [self._ours.wait(lambda: written(self._ours.client, entries)) for _ in range(2 * READERS)]

        def pair() -> Pair:
            with Timed() as spark:
                found = scrub(self._each(), self._uri, ",".join(map(str, ledgers)), Scrubbing())
            assert (found.findings, found.summary.copies) == ([], COPIES * entries * len(ledgers))
            groups = [ledgers[number::READERS] * COPIES for number in range(READERS)]
            return spark.seconds, plain(self._uri, [["--read", *map(str, each)] for each in groups])

        self._row(name, 1.2, "s", pair, at_most=True)

    def repairs(self) -> None:
        """One copy of each entry made again, beside as many that are only read and sent."""
        name = f"spark repair, one copy of 1 KiB / {READERS} plain copiers"
        if not self.wanted(name):
            return
        entries = self.some(50_000)
        total = entries * 2 * READERS

        def pair() -> Pair:
            ours, theirs = (
                [self._ours.wait(lambda: short_of_a_copy(self._ours.client, entries)) for _ in range(2 * READERS)]
                for _ in range(2)
            )
            lists = Scrubbing("presence")
            found = scrub(self._each(), self._uri, ",".join(map(str, ours)), lists).findings
            with Timed() as spark:
                done = repair(self._each(), self._uri, found, Mending())
            assert (sum(each.entries for each in done), [each.left for each in done]) == (total, [[]] * len(ours))
            groups = [theirs[number::READERS] for number in range(READERS)]
            return total / spark.seconds, total / plain(self._uri, [["--copy", *map(str, each)] for each in groups])

        self._row(name, 0.7, "entries/s", pair)

    def _each(self) -> Each:
        return in_tasks(self._spark, lambda _done, _known: None)


def source_schema() -> Any:
    """All columns of `format("ledger")`."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    made = StructType()
    for name in ("ledger_id", "entry_id", "length"):
        made = made.add(name, LongType())
    return made.add("payload", BinaryType())


# -- what runs in plain client processes -------------------------------------------------------------------------------


def plain(uri: str, works: Sequence[Sequence[str]]) -> float:
    """Seconds until all these processes, which connected before, have done their work."""
    with started(uri, works) as children:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", "a plain client did not start"
        with Timed() as took:
            for child in children:
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "done\n", "a plain client failed"
    return took.seconds


@contextmanager
def started(uri: str, works: Sequence[Sequence[str]]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes of this module; they have ended when the block has."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.spark", "--metadata", uri, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for words in works
    ]
    try:
        yield children
    finally:
        for child in children:
            child.communicate()


def client_process(uri: str, work: Callable[[Cluster], None]) -> None:
    """Connects, waits for the word, works, and says so."""
    ours = cluster(uri)
    print("ready", flush=True)
    sys.stdin.readline()
    work(ours)
    print("done", flush=True)


async def written(client: Client, entries: int, copies: int = COPIES) -> int:
    """The id of a closed ledger with so many entries of 1 KiB, each on so many bookies."""
    writer = await client.create_ledger(ensemble_size=copies, write_quorum=copies)
    under_way = []
    for _ in range(entries // LISTS):
        if len(under_way) == CALLS_UNDER_WAY:
            await under_way.pop(0)
        under_way.append(writer.append_many([bytes(ENTRY)] * LISTS))
    for each in under_way:
        await each
    await writer.close()
    return writer.id


async def appended(logs: Logs, log: str, rows: int, size: int = SMALL) -> None:
    """A new log with so many records of a size, 1,000 in each append."""
    await logs.create(log)
    owner = await logs.own(log)
    under_way = []
    for _ in range(rows // 1000):
        if len(under_way) == CALLS_UNDER_WAY:
            await under_way.pop(0)
        under_way.append(owner.append_many([bytes(size)] * 1000))
    for each in under_way:
        await each
    await owner.close()


async def read_log(logs: Logs, log: str) -> None:
    """All values of a log."""
    reader = await logs.read(log)
    async for batch in reader.batches():
        _ = batch.values
    await reader.close()


async def read(client: Client, ledgers: Sequence[int]) -> None:
    """All entries of these, one ledger after the other."""
    for ledger in ledgers:
        reader = await client.open_ledger(ledger, b"", recover=False)
        reader.read_ahead(AHEAD)
        async for _run in reader.runs(0, reader.last_entry_id):
            pass
        await reader.close()


async def short_of_a_copy(client: Client, entries: int) -> int:
    """The id of a closed ledger whose metadata names, as its second bookie, one that has nothing of it."""
    ledger = await written(client, entries, COPIES - 1)
    stored = await client.store.read_ledger(ledger)
    first, second = stored.value.fragments[0].bookies
    (third,) = set((await client.store.bookies()).writable) - {first, second}
    await client.store.write_ledger(ledger, stored.value.replace_bookies(0, (first, third)), stored.version)
    return ledger


async def copy(client: Client, ledgers: Sequence[int]) -> None:
    """Fills the second bookie of each from the first; looks at nothing before or after."""
    for ledger in ledgers:
        record = LedgerRecord(client.store, ledger, await client.store.read_ledger(ledger))
        bookies = record.metadata.fragments[0].bookies
        part = HeldFragment(0, record.metadata.last_entry, bookies, (1,))
        copier = FragmentCopier(client.pool, record, part, Sources({bookies[1]}), lambda _step: None)
        await copier.copy(1, bookies[1])


async def many_ledgers(client: Client, count: int) -> tuple[int, int]:
    """The ids of so many closed ledgers: metadata alone."""
    metadata = await client.metadata(await written(client, LISTS))
    first = 1 << 32
    for start in range(first, first + count, 500):
        some = range(start, min(start + 500, first + count))
        await at_once([created(client, ledger, metadata) for ledger in some])
    return first, first + count - 1


async def created(client: Client, ledger: int, metadata: Any) -> None:
    """One more name for the same metadata."""
    await client.store.create_ledger(ledger, metadata)


def main() -> int:
    options = row_options(
        __doc__,
        "three of its own, with ZooKeeper",
        read=hidden(type=int, nargs="+"),  # what a plain client does
        copy=hidden(type=int, nargs="+"),
        append=hidden(type=int),
        read_log=hidden(),
        append_log=hidden(nargs=2),
    )
    if options.read:
        client_process(options.metadata, lambda ours: ours.wait(lambda: read(ours.client, options.read)))
        return 0
    if options.copy:
        client_process(options.metadata, lambda ours: ours.wait(lambda: copy(ours.client, options.copy)))
        return 0
    if options.append:
        client_process(options.metadata, lambda ours: ours.wait(lambda: written(ours.client, options.append)) and None)
        return 0
    if options.read_log:
        client_process(options.metadata, lambda ours: ours.wait(lambda: read_log(ours.logs, options.read_log)))
        return 0
    if options.append_log:
        log, rows = options.append_log
        client_process(options.metadata, lambda ours: ours.wait(lambda: appended(ours.logs, log, int(rows))))
        return 0
    if options.metadata is not None:
        return run(options, options.metadata)
    with Quire(None, "zookeeper") as bookies:
        return run(options, bookies.uri)


def run(options: argparse.Namespace, uri: str) -> int:
    """Measures all that is wanted on these bookies; returns the exit status."""
    found = Rows(uri, *asked(options))
    found.all()
    return report(found.rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
