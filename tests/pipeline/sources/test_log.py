"""`format("log")` as Spark calls it, without Spark."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import LessThan

from quire.log import partition_for
from quire.pipeline.clients import Cluster
from quire.pipeline.reading import logs as reading
from quire.pipeline.sources import log as module
from quire.pipeline.sources.log import LogSource
from quire.pipeline.sources.table import Task, ddl
from quire.pipeline.spark import InputPartition, ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from quire.protocol.log_errors import BatchGap, LogFenced, NoSuchLog
from tests.pipeline.sources.test_schema import structure
from tests.pipeline.written import NAMES, log, values_of

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"value %02d" % number for number in range(42)]
SOME = structure(index="bigint", value="binary")
TASKS = count()


def source(ours: Cluster, name: str, **options: Any) -> LogSource:
    return LogSource({"metadata": ours.uri, "log": name, **{key: str(value) for key, value in options.items()}})


def batch(*values: bytes) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def rows(reader: Any, tasks: list[Task[Any]]) -> list[bytes]:
    return [row["value"] for task in tasks for found in reader.read(task) for row in found.to_pylist()]


class Context:
    """A task as Spark describes it."""

    def __init__(self, query: str, run: str, number: int, part: int) -> None:
        self._said = {
            "sql.streaming.queryId": query,
            "spark.jobGroup.id": run,
            "streaming.sql.batchId": str(number),
        }
        self._part, self._attempt = part, next(TASKS)

    def getLocalProperty(self, name: str) -> str | None:
        return self._said.get(name)

    def partitionId(self) -> int:
        return self._part

    def taskAttemptId(self) -> int:
        return self._attempt


def test_a_batch_query(ours: Cluster) -> None:
    """All of it, or from one place to another; what is planned and read goes between processes."""
    name = log(ours, VALUES)
    assert LogSource.name() == "log"
    assert "`headers` array<struct<key:string,value:binary>>" in ddl(reading.SCHEMA) == source(ours, name).schema()
    for options, values in (
        ({"splitBytes": 4500}, VALUES),
        ({"start": 5, "end": 40}, VALUES[5:40]),
        ({"start": "end"}, []),
        ({"end": 42}, VALUES),
        ({"start": 42}, []),
        ({"end": 1000, "failOnDataLoss": "false"}, VALUES),
        ({"start": "2000-01-01T00:00:00+00:00"}, VALUES),
    ):
        reader = source(ours, name, **options).reader(SOME)
        assert rows(pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(reader.partitions()))) == values
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize("option", ["start", "end"])
def test_an_index_that_the_log_does_not_reach(ours: Cluster, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """It is an error that shows the time which milliseconds may have meant; nothing came of it, for ever."""
    monkeypatch.setattr(reading, "NEWS_S", 0.0)
    name = log(ours, VALUES)
    wrong = source(ours, name, **{option: 1795875664123})
    with pytest.raises(ValueError, match=rf"option '{option}': .*, 42: .* {option}=2026-11-28T14:21:04.123000\+00:00,"):
        wrong.reader(SOME).partitions()
    if option == "start":
        with pytest.raises(
            ValueError, match=r"option 'start': 43 is above .*, 42: .* start=2026-01-31T08:00:00\+00:00,"
        ):
            source(ours, name, start=43).streamReader(SOME).initialOffset()
        later = source(ours, name, start=43, failOnDataLoss="false").streamReader(SOME)
        assert later.latestOffset(later.initialOffset(), ReadAllAvailable())["index"] == 43


def test_an_index_that_is_news_to_bookies(ours: Cluster) -> None:
    """What was appended a moment ago is waited for, and then read from there on."""
    name = log(ours, VALUES)
    stream = source(ours, name, start=43).streamReader(SOME)

    async def append() -> None:
        owner = await ours.logs.own(name)
        await owner.append_many([b"42", b"43"])
        await owner.close()

    with ThreadPoolExecutor() as pool:
        begun = pool.submit(stream.initialOffset)
        ours.wait(append)
        start = begun.result()
    assert start["index"] == 43
    assert rows(stream, stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))) == [b"43"]


def test_many_segments_have_one_reader(ours: Cluster) -> None:
    """Each of its own cost ten times as much as the records; those around a lost segment have two."""
    name = log(ours, VALUES)
    (task,) = source(ours, name).reader(SOME).partitions()
    assert [each[1:] for each in task.pieces] == [(0, 41)]
    lost = list(ours.each(lambda: ours.logs.segments(name)))[1]
    ours.wait(lambda: ours.client.delete_ledger(lost.ledger))
    ours.wait(lambda: ours.logs.give_up(name, lost.n))
    reader = source(ours, name, failOnDataLoss="false").reader(SOME)
    (task,) = reader.partitions()
    assert [each[1:] for each in task.pieces] == [(0, 9), (20, 41)]
    assert rows(reader, [task]) == VALUES[:10] + VALUES[20:]


def test_conditions_reach_the_plan(ours: Cluster) -> None:
    """As Spark sends them; the reader goes between processes with them."""
    reader = pickle.loads(pickle.dumps(source(ours, log(ours, VALUES)).reader(SOME)))
    assert len(list(reader.pushFilters([LessThan(("index",), 7)]))) == 1
    assert rows(reader, reader.partitions()) == VALUES[:7]


def test_a_stream(ours: Cluster) -> None:
    """From offset to offset, limited by records or by bytes, and to a frozen end when only that is wanted."""
    name = log(ours, VALUES)
    stream = source(ours, name, maxRecordsPerTrigger=15).streamReader(SOME)
    assert stream.getDefaultReadLimit() == ReadMaxRows(15)
    assert isinstance(source(ours, name).streamReader(SOME).getDefaultReadLimit(), ReadAllAvailable)
    limit = source(ours, name, maxBytesPerTrigger=90).streamReader(SOME).getDefaultReadLimit()
    assert limit == ReadMaxBytes(90)
    start = stream.initialOffset()
    assert start == {"index": 0, "log": ours.wait(lambda: ours.logs.info(name)).id}
    assert stream.latestOffset(start, ReadMaxRows(15)) == {**start, "index": 15}
    assert stream.latestOffset(start, limit) == {**start, "index": 11}
    for records, index in ((15, 11), (5, 5)):
        both = source(ours, name, maxRecordsPerTrigger=records, maxBytesPerTrigger=90).streamReader(SOME)
        assert both.latestOffset(start, both.getDefaultReadLimit()) == {**start, "index": index}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == stream.reportLatestOffset() == {**start, "index": 42}
    assert rows(stream, stream.partitions({**start, "index": 7}, {**start, "index": 23})) == VALUES[7:23]
    assert stream.partitions(end, end) == []
    stream.prepareForTriggerAvailableNow()
    stream.commit(end)
    stream.stop()
    assert stream.latestOffset(start, ReadAllAvailable()) == end
    assert stream.latestOffset({**start, "index": 50}, ReadAllAvailable()) == {**start, "index": 50}


def test_limits_count_what_is_there(ours: Cluster) -> None:
    """Not what was trimmed and is passed over: a stream far behind had batches without rows, one for each limit."""
    name = log(ours, VALUES)
    ours.wait(lambda: ours.logs.trim(name, 20))
    for limit in ({"maxRecordsPerTrigger": 5}, {"maxBytesPerTrigger": 40}):
        stream = source(ours, name, failOnDataLoss="false", **limit).streamReader(SOME)
        start = {**stream.reportLatestOffset(), "index": 3}
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert rows(stream, stream.partitions(start, end)) == VALUES[20:25]


def test_limits_count_no_lost_records(ours: Cluster) -> None:
    """A stream that may pass over them had as many batches without rows as they filled."""
    name = log(ours, VALUES)
    lost = list(ours.each(lambda: ours.logs.segments(name)))[1]
    ours.wait(lambda: ours.client.delete_ledger(lost.ledger))
    ours.wait(lambda: ours.logs.give_up(name, lost.n))
    for limit in ({"maxRecordsPerTrigger": 5}, {"maxBytesPerTrigger": 40}):
        stream = source(ours, name, failOnDataLoss="false", **limit).streamReader(SOME)
        start = {**stream.reportLatestOffset(), "index": 13}
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert rows(stream, stream.partitions(start, end)) == VALUES[20:25]


def test_a_stream_of_another_log(ours: Cluster) -> None:
    """Which has the name by now: its first records were passed over.  A renamed log goes on under its new name."""
    name, new = log(ours, VALUES), next(NAMES)
    stream = source(ours, name).streamReader(SOME)
    at = stream.latestOffset(stream.initialOffset(), ReadMaxRows(7))
    ours.wait(lambda: ours.logs.rename(name, new))
    renamed = source(ours, new).streamReader(SOME)
    assert rows(renamed, renamed.partitions(at, renamed.latestOffset(at, ReadMaxRows(7)))) == VALUES[7:14]
    ours.wait(lambda: ours.logs.create(name))
    other = source(ours, name).streamReader(SOME)
    with pytest.raises(NoSuchLog, match="is another one than that of the checkpoint"):
        other.latestOffset(at, ReadAllAvailable())
    with pytest.raises(NoSuchLog, match="give the log's new name, or begin with a new checkpoint"):
        other.partitions(at, {**at, "index": 42})


def test_a_log_that_was_made_anew_after_the_plan(ours: Cluster) -> None:
    """Its records are others: the task fails, of a batch query and of a stream."""
    name = log(ours, VALUES)
    reader, stream = source(ours, name).reader(SOME), source(ours, name).streamReader(SOME)
    start = stream.initialOffset()
    middle = stream.partitions({**start, "index": 7}, {**start, "index": 23})
    planned = [(reader, reader.partitions()), (stream, middle)]
    other = log(ours, [b"another"] * 42)
    ours.wait(lambda: ours.logs.delete(name))
    ours.wait(lambda: ours.logs.rename(other, name))
    for each, tasks in planned:
        with pytest.raises(NoSuchLog, match=r"is another one than when its tasks were planned.* start the query again"):
            rows(each, tasks)


def test_a_batch_query_writes_one_batch(ours: Cluster) -> None:
    """Tasks and commit have the same writer; an abort after the commit changes nothing."""
    name = next(NAMES)
    writer = source(ours, name, create="true").writer(SOME, overwrite=False)
    messages = [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter([batch(b"a"), batch(b"b")]))))]
    assert values_of(ours, name) == []
    writer.commit([*messages, None])
    writer.abort([*messages, None])
    assert values_of(ours, name) == [b"a", b"b"]


def test_a_named_writer_writes_each_batch_once(ours: Cluster) -> None:
    """
    As in `foreachBatch` by a driver that dies before its commit or behind it, and does its last batch again; batches
    may be left out.  What the dead driver's tasks still do comes to nothing.
    """
    name = next(NAMES)

    def begun(version: int) -> Any:
        return source(ours, name, create="true", txnAppId="billing", txnVersion=version).writer(SOME, overwrite=False)

    def write(version: int, *values: bytes) -> None:
        writer = begun(version)
        writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([batch(*values)]))])

    before = len(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)))
    write(0, b"0")
    dead = begun(3)
    parts = [dead.write(iter([batch(b"dead")]))]
    write(3, b"3a", b"3b")
    with pytest.raises(LogFenced):
        dead.write(iter([batch(b"late")]))
    with pytest.raises(LogFenced):
        dead.commit(parts)
    for version in (3, 2, 0):
        write(version, b"again")
    writer = begun(3)
    writer.abort([None])
    empty = begun(4)
    empty.commit([])
    write(4, b"again")
    write(17, b"17")
    assert values_of(ours, name) == [b"0", b"3a", b"3b", b"17"]
    assert len(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))) == before + 3
    unpublished = list(ours.each(lambda: ours.logs.unpublished(name)))
    assert unpublished == []


def test_a_named_writer_that_is_aborted(ours: Cluster) -> None:
    """Its batch is written by the next one; an abort of a run that has written nothing is no error."""
    name = log(ours, [])
    for rows in ([b"a"], []):
        writer = source(ours, name, txnAppId="billing", txnVersion=0).writer(SOME, overwrite=False)
        writer.abort([writer.write(iter([batch(each)])) for each in rows])
    writer = source(ours, name, txnAppId="billing", txnVersion=0).writer(SOME, overwrite=False)
    writer.commit([writer.write(iter([batch(b"b")]))])
    assert values_of(ours, name) == [b"b"]


def test_names_of_writers_that_can_not_be(ours: Cluster) -> None:
    """Half of the two options; a stream, which has its own."""
    name = log(ours, [])
    for options in ({"txnAppId": "billing"}, {"txnVersion": 1}):
        with pytest.raises(ValueError, match="txnAppId and txnVersion go together"):
            source(ours, name, **options).writer(SOME, overwrite=False)
        with pytest.raises(ValueError, match="are for batch writes"):
            source(ours, name, **options).streamWriter(SOME, overwrite=False)


def test_a_stream_writes_each_batch_once(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written again and committed again by a new run, as after a driver that died between."""
    name = log(ours, [])

    def written(run: str, number: int, *values: bytes) -> Any:
        monkeypatch.setattr(module.spark.TaskContext, "get", lambda: Context("query", run, number, 0))
        return source(ours, name).streamWriter(SOME, overwrite=False).write(iter([batch(*values)]))

    def committed(number: int, message: Any) -> None:
        source(ours, name).streamWriter(SOME, overwrite=False).commit([message], number)

    committed(0, written("run 1", 0, b"a"))
    lost = written("run 1", 1, b"b")
    committed(1, lost)
    committed(1, written("run 2", 1, b"b"))
    aborted = written("run 2", 2, b"c")
    source(ours, name).streamWriter(SOME, overwrite=False).abort([aborted, None], 2)
    committed(2, written("run 3", 2, b"c"))
    assert values_of(ours, name) == [b"a", b"b", b"c"]


OLDER = "the checkpoint is older than the log '{}': that has batch {} of the query .* now batch {} comes again"


def test_a_stream_whose_checkpoint_is_older(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As from a copy: what it does again has other rows, which were dropped as if they were there.  It is refused, with
    rows or without, and leaves nothing; the last batch is done again, as ever.
    """
    name = log(ours, [])

    def done(run: str, number: int, *values: bytes) -> None:
        monkeypatch.setattr(module.spark.TaskContext, "get", lambda: Context("query", run, number, 0))
        written = source(ours, name).streamWriter(SOME, overwrite=False).write(iter([batch(*values)] if values else []))
        source(ours, name).streamWriter(SOME, overwrite=False).commit([written], number)

    for number in range(4):
        done("run 1", number, b"%d" % number)
    ledgers = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    for values in ([b"other"], []):
        with pytest.raises(BatchGap, match=OLDER.format(name, 3, 2)):
            done("run 2", 2, *values)
    assert ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)) == ledgers
    done("run 3", 3, b"3")
    done("run 3", 4, b"4")
    assert values_of(ours, name) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_stream_whose_first_batch_was_mistyped(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins where the error says, also with batch 0."""
    name = log(ours, [])

    def write(run: str, **options: Any) -> None:
        monkeypatch.setattr(module.spark.TaskContext, "get", lambda: Context("query", run, 0, 0))
        writer = source(ours, name, **options).streamWriter(SOME, overwrite=False)
        writer.commit([writer.write(iter([batch(b"a")]))], 0)

    for run, options in (("run 1", {"firstBatch": 5}), ("run 2", {})):
        with pytest.raises(BatchGap, match=r"the next one is 5; .* firstBatch=0 in Spark"):
            write(run, **options)
    write("run 3", firstBatch=0)
    assert values_of(ours, name) == [b"a"]


def test_what_can_not_be_written(ours: Cluster) -> None:
    """Is named before anything is."""
    name = log(ours, [])
    for writer in (source(ours, name).writer, source(ours, name).streamWriter):
        with pytest.raises(ValueError, match="never overwritten"):
            writer(SOME, overwrite=True)
        with pytest.raises(ValueError, match="'colour' can't be written"):
            writer(structure(value="binary", colour="string"), overwrite=False)


def routed(*rows: tuple[str | None, bytes | None, bytes]) -> Any:
    topics, keys, values = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict({"topic": topics, "key": pa.array(keys, pa.binary()), "value": values})


KEYS = [b"%d" % number for number in range(20)]
ROUTED = structure(topic="string", key="binary", value="binary")


def test_rows_name_their_log(ours: Cluster) -> None:
    """By a column `topic`, unless an option names one for all; a partitioned one has them by key."""
    a, b, parted = next(NAMES), next(NAMES), next(NAMES)
    ours.wait(lambda: ours.logs.create(parted, partitions=3))
    rows = routed((a, None, b"1"), (b, None, b"2"), (parted, b"k", b"3"), (a, None, b"4"), (parted, b"k", b"5"))
    writer = LogSource({"metadata": ours.uri, "create": "true"}).writer(ROUTED, overwrite=False)
    writer.commit([pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter([rows]))))])
    assert [values_of(ours, name) for name in (a, b)] == [[b"1", b"4"], [b"2"]]
    held = [values_of(ours, f"{parted}/{number}") for number in range(3)]
    assert held[partition_for(b"k", 3)] == [b"3", b"5"]
    assert sorted(map(len, held)) == [0, 0, 2]
    writer = source(ours, a).writer(ROUTED, overwrite=False)
    writer.commit([writer.write(iter([rows]))])
    assert len(values_of(ours, a)) == 7
    with pytest.raises(ValueError, match="no log is named: give the option `log`, or each row a column `topic`"):
        LogSource({"metadata": ours.uri}).writer(SOME, overwrite=False)
    with pytest.raises(NoSuchLog, match="create=true"):
        LogSource({"metadata": ours.uri}).writer(ROUTED, overwrite=False).write(iter([routed(("no", None, b"1"))]))


def test_a_partitioned_log_by_its_name(ours: Cluster) -> None:
    """Its partitions are written and read as one table, whose rows say which they are of."""
    name = next(NAMES)
    ours.wait(lambda: ours.logs.create(name, partitions=3))
    keys = [b"%d" % number for number in range(20)]
    schema = structure(key="binary", value="binary")
    writer = source(ours, name).writer(schema, overwrite=False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"key": keys, "value": keys})]))])
    for options in ({"log": name}, {"subscribe": name}, {"subscribePattern": f"{name}.*"}):
        made = LogSource({"metadata": ours.uri, **options})
        reader = made.reader(structure(topic="string", partition="integer", key="binary"))
        found = [row for task in reader.partitions() for each in reader.read(task) for row in each.to_pylist()]
        assert {row["topic"] for row in found} == {name}
        assert {row["key"]: row["partition"] for row in found} == {key: partition_for(key, 3) for key in keys}
    assigned = LogSource({"metadata": ours.uri, "assign": f'{{"{name}":[1]}}'}).reader(schema)
    assert {task.of.number for task in assigned.partitions()} == {1}
    stream = LogSource({"metadata": ours.uri, "subscribe": name}).streamReader(schema)
    assert set(stream.initialOffset()[name]) == {"0", "1", "2"}
    writer = source(ours, name).writer(schema, overwrite=False)
    writer.write(iter([pa.RecordBatch.from_pydict({"key": keys, "value": keys})]))
    writer.abort([None])
    assert [list(ours.each(lambda n=n: ours.logs.unpublished(f"{name}/{n}"))) for n in range(3)] == [[], [], []]  # type: ignore[misc]


def test_an_older_checkpoint_of_several_logs(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Not each batch is in each log: one that any of them is ahead of is published in none.  Of partitions the first one
    knows, also where the rows are of one that had none for long.
    """
    a, b, parted = log(ours, []), log(ours, []), next(NAMES)
    ours.wait(lambda: ours.logs.create(parted, partitions=2))
    first, second = (next(key for key in KEYS if partition_for(key, 2) == number) for number in range(2))

    def done(run: str, number: int, *rows: tuple[str | None, bytes | None, bytes]) -> None:
        monkeypatch.setattr(module.spark.TaskContext, "get", lambda: Context("query", run, number, 0))
        made = LogSource({"metadata": ours.uri})
        written = [made.streamWriter(ROUTED, overwrite=False).write(iter([routed(row)])) for row in rows]
        made.streamWriter(ROUTED, overwrite=False).commit(written, number)

    def held() -> list[list[bytes]]:
        return [values_of(ours, name) for name in (a, b, f"{parted}/0", f"{parted}/1")]

    done("run 1", 0, (b, None, b"0"), (parted, second, b"0"))
    for number in range(1, 4):
        done("run 1", number, (a, None, b"%d" % number), (parted, first, b"%d" % number))
    every = [[b"1", b"2", b"3"], [b"0"], [b"1", b"2", b"3"], [b"0"]]
    for name, rows in ((a, [(b, None, b"new"), (a, None, b"2")]), (f"{parted}/0", [(parted, second, b"new")])):
        with pytest.raises(BatchGap, match=OLDER.format(name, 3, 2)):
            done("run 2", 2, *rows)
        assert held() == every
    ours.wait(lambda: ours.logs.update(parted, partitions=4))
    done("run 3", 3, (a, None, b"3"), (b, None, b"3"), (parted, first, b"3"))
    done("run 3", 4, (b, None, b"4"))
    assert held() == [every[0], [b"0", b"3", b"4"], *every[2:]]


def test_a_named_writer_of_several_logs(ours: Cluster) -> None:
    """One log has the write already, the other has not: the repeated write is done there alone."""
    a, b = log(ours, []), log(ours, [])

    def write(*rows: tuple[str | None, bytes | None, bytes]) -> None:
        options = {"metadata": ours.uri, "txnAppId": "billing", "txnVersion": "7"}
        writer = LogSource(options).writer(ROUTED, overwrite=False)
        writer.commit([writer.write(iter([routed(*rows)]))])

    write((a, None, b"1"))
    write((a, None, b"1"), (b, None, b"2"))
    write((a, None, b"1"), (b, None, b"2"))
    assert [values_of(ours, name) for name in (a, b)] == [[b"1"], [b"2"]]
