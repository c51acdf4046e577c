"""`format("log")` of several logs, by Kafka's names, and with a cursor, as Spark calls it, without Spark."""

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from quire.pipeline.clients import Cluster
from quire.pipeline.reading import kafka
from quire.pipeline.sources import log_reading as module
from quire.pipeline.sources.log import LogSource
from quire.pipeline.sources.table import ddl
from quire.pipeline.spark import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from quire.protocol.log_errors import LogFenced, LogTrimmed, NoSuchLog
from tests.client.fakes.cluster import FakeCluster
from tests.pipeline.reading.virtual import only_first_learns, process
from tests.pipeline.sources.test_schema import structure
from tests.pipeline.written import NAMES, log

# SPDX-License-Identifier: Apache-2.0

A, B = [b"a%02d" % number for number in range(42)], [b"b%02d" % number for number in range(20)]
FOUR = structure(topic="string", partition="integer", offset="bigint", value="binary")


def source(ours: Cluster, **options: Any) -> LogSource:
    return LogSource({"metadata": ours.uri, **{key: str(value) for key, value in options.items()}})


def rows(reader: Any, tasks: list[Any]) -> list[tuple[Any, ...]]:
    """As they come from other processes."""
    reader, tasks = pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(tasks))
    return [tuple(row.values()) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def expected(name: str, values: list[bytes], first: int = 0) -> list[tuple[Any, ...]]:
    return [(name, 0, index, value) for index, value in enumerate(values[first:], first)]


def append(ours: Cluster, name: str, *values: bytes) -> None:
    async def story() -> None:
        owner = await ours.logs.own(name)
        await owner.append_many(values)
        await owner.close()

    ours.wait(story)


def two(ours: Cluster) -> tuple[str, str]:
    return log(ours, A), log(ours, B)


def test_a_list_of_logs(ours: Cluster) -> None:
    """With the columns that Kafka's source has; each row says of which log it is."""
    a, b = two(ours)
    made = source(ours, subscribe=f" {b} ,{a},{b}")
    assert made.schema() == ddl({name: type_ for name, type_ in kafka.SCHEMA.items() if name != "headers"})
    reader = made.reader(FOUR)
    assert rows(reader, reader.partitions()) == sorted(expected(a, A) + expected(b, B))
    with pytest.raises(NoSuchLog):
        source(ours, subscribe="nothing").reader(FOUR).partitions()
    with pytest.raises(ValueError, match="'subscribe' names no log"):
        source(ours, subscribe=" , ").reader(FOUR).partitions()


def test_a_pattern(ours: Cluster) -> None:
    """Of whole names; none may match."""
    a, b = two(ours)
    made = source(ours, subscribePattern=f"{a}|{b}|lo")
    reader = made.reader(FOUR)
    assert rows(reader, reader.partitions()) == sorted(expected(a, A) + expected(b, B))
    nothing = source(ours, subscribePattern="nothing.*")
    assert rows(nothing.reader(FOUR), nothing.reader(FOUR).partitions()) == []
    with pytest.raises(ValueError, match=r"'subscribePattern': '\(' is no regular expression of Python's"):
        source(ours, subscribePattern="(").reader(FOUR).partitions()


def test_assigned_partitions(ours: Cluster) -> None:
    """A log that is not partitioned is its own partition 0."""
    a, _b = two(ours)
    reader = source(ours, assign=json.dumps({a: [0]})).reader(FOUR)
    assert rows(reader, reader.partitions()) == expected(a, A)
    with pytest.raises(ValueError, match=f"'assign': the log '{a}' has no partition 1, but 0 to 0"):
        source(ours, assign=json.dumps({a: [1]})).reader(FOUR).partitions()


def test_places_of_each_log(ours: Cluster) -> None:
    """Where a batch query begins and ends; times, of which a start has to have a record behind it."""
    a, b = two(ours)
    starts, ends = json.dumps({a: {"0": 40}, b: {"0": -2}}), json.dumps({a: {"0": -1}, b: {"0": 3}})
    reader = source(ours, subscribe=f"{a},{b}", startingOffsets=starts, endingOffsets=ends).reader(FOUR)
    assert rows(reader, reader.partitions()) == sorted(expected(a, A, 40) + expected(b, B[:3]))
    reader = source(ours, subscribe=a, startingTimestamp=1, endingTimestamp=2).reader(FOUR)
    assert rows(reader, reader.partitions()) == []
    reader = source(ours, subscribe=a, startingTimestamp=1, endingTimestamp=10**13).reader(FOUR)
    assert rows(reader, reader.partitions()) == expected(a, A)
    late = {"subscribe": a, "startingTimestamp": 10**13}
    with pytest.raises(ValueError, match=r"'startingTimestamp': .* no record at 2286-.*Strategy=latest"):
        source(ours, **late).reader(FOUR).partitions()
    reader = source(ours, **late, startingOffsetsByTimestampStrategy="latest").reader(FOUR)
    assert rows(reader, reader.partitions()) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_end_that_is_news(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that waited for it has all records up to it; one that takes it as it is has what is there."""
    fake = FakeCluster()
    fake.spin(5)
    ours = process(fake)
    monkeypatch.setattr(module, "cluster", lambda uri: ours)
    fake.succeed(ours.logs.create("a"))
    owner = fake.succeed(ours.logs.own("a"))
    fake.succeed(owner.append_many(A[:2]))
    fake.spin(5)
    fake.clock.callLater(0.7, owner.append_many, A[2:5])
    for options in ({"log": "a", "end": 4}, {"subscribe": "a", "endingOffsets": json.dumps({"a": {"0": 4}})}):
        tasks = source(ours, **options, failOnDataLoss=fails).reader(FOUR).partitions()
        assert [[each[1:] for each in task.pieces] for task in tasks] == [[(0, 3 if fails == "true" else 1)]]


def test_conditions_on_kafkas_columns(ours: Cluster) -> None:
    """Spare reading, as those on ours do."""
    a, _b = two(ours)
    reader = source(ours, subscribe=a).reader(FOUR)
    assert isinstance(list(reader.pushFilters([GreaterThanOrEqual(("offset",), 40)])), list)
    assert rows(reader, reader.partitions()) == expected(a, A, 40)
    reader = source(ours, subscribe=a).reader(FOUR)
    list(reader.pushFilters([EqualTo(("partition",), 1)]))
    assert rows(reader, reader.partitions()) == []


def test_a_users_schema_mixes_names(ours: Cluster) -> None:
    """Whichever columns the source has by itself."""
    a, _b = two(ours)
    reader = source(ours, log=a).reader(structure(topic="string", index="bigint", timestampType="integer"))
    assert rows(reader, reader.partitions())[:2] == [(a, 0, 1), (a, 1, 1)]


def test_a_stream_of_several_logs(ours: Cluster) -> None:
    """Each at its own place, less at a time of all of them, to the ends that there are."""
    a, b = two(ours)
    made = source(ours, subscribe=f"{a},{b}", startingOffsets="earliest", maxOffsetsPerTrigger=31)
    stream = made.streamReader(FOUR)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(31)
    at, found = stream.initialOffset(), list[Any]()
    ids = {name: ours.wait(lambda name=name: ours.logs.info(name)).id for name in (a, b)}  # type: ignore[misc]
    assert at == {name: {"0": {"index": 0, "log": ids[name]}} for name in (a, b)}
    stream.prepareForTriggerAvailableNow()
    append(ours, a, b"later")
    batches = 0
    while (end := stream.latestOffset(at, limit)) != at:
        found += rows(stream, stream.partitions(at, end))
        at, batches = end, batches + 1
    assert batches == 2
    assert sorted(found) == sorted(expected(a, A) + expected(b, B))
    again = made.streamReader(FOUR)
    assert rows(again, again.partitions(at, again.latestOffset(at, limit))) == [(a, 0, 42, b"later")]


def test_an_offset_of_a_stream_is_a_start(ours: Cluster) -> None:
    """As its progress shows it, of one log or of several."""
    a, b = two(ours)
    for options in ({"log": a}, {"subscribe": f"{a},{b}"}):
        stream = source(ours, **options, startingOffsets="earliest").streamReader(FOUR)
        at = stream.latestOffset(stream.initialOffset(), ReadMaxRows(31))
        again = source(ours, **options, startingOffsets=json.dumps(at)).streamReader(FOUR)
        assert again.initialOffset() == at


def test_bytes_of_several_logs(ours: Cluster) -> None:
    """Are shared by those that have news."""
    a, b = two(ours)
    stream = source(ours, subscribe=f"{a},{b}", startingOffsets="earliest", maxBytesPerTrigger=60).streamReader(FOUR)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxBytes(60)
    start = stream.initialOffset()
    end = stream.latestOffset(start, limit)
    assert [end[name]["0"]["index"] for name in (a, b)] == [10, 10]
    caught_up = {**start, b: stream.reportLatestOffset()[b]}
    assert stream.latestOffset(caught_up, limit)[a]["0"]["index"] == 20


def test_a_stream_begins_at_the_end(ours: Cluster) -> None:
    """As Kafka's, where nothing is said."""
    a, b = two(ours)
    stream = source(ours, subscribe=f"{a},{b}").streamReader(FOUR)
    assert stream.initialOffset() == stream.reportLatestOffset()


def test_logs_that_match_later(ours: Cluster) -> None:
    """Are found between two batches, and read from their begin; what was trimmed of them before is data lost."""
    prefix = next(NAMES)
    stream = source(ours, subscribePattern=f"{prefix}/.*").streamReader(FOUR)
    start = stream.initialOffset()
    assert start == {}
    assert stream.latestOffset(start, ReadAllAvailable()) == {}
    made = log(ours, A)
    ours.wait(lambda: ours.logs.rename(made, f"{prefix}/new"))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert rows(stream, stream.partitions(start, end)) == expected(f"{prefix}/new", A)
    ours.wait(lambda: ours.logs.trim(f"{prefix}/new", 20))
    with pytest.raises(LogTrimmed, match=r"records from 0 on were trimmed; failOnDataLoss=false"):
        stream.partitions(start, end)
    stream = source(ours, subscribePattern=f"{prefix}/.*", failOnDataLoss="false").streamReader(FOUR)
    assert rows(stream, stream.partitions(start, end)) == expected(f"{prefix}/new", A, 20)


def test_a_log_that_is_gone(ours: Cluster) -> None:
    """From a stream's list, too: it fails, or goes on without it."""
    a, b = two(ours)
    at = source(ours, subscribe=f"{a},{b}").streamReader(FOUR).initialOffset()
    fewer = source(ours, subscribe=a).streamReader(FOUR)
    with pytest.raises(NoSuchLog, match=f"the log '{b}' is another one .*failOnDataLoss=false"):
        fewer.latestOffset(at, ReadAllAvailable())
    with pytest.raises(NoSuchLog, match=f"the log '{b}' is another one"):
        fewer.partitions(at, at)
    without = source(ours, subscribe=a, failOnDataLoss="false").streamReader(FOUR)
    assert without.latestOffset(at, ReadAllAvailable()) == {a: at[a]}


def test_a_checkpoint_of_one_log_goes_on_with_several(ours: Cluster) -> None:
    """And under Kafka's names: the ids of logs decide."""
    a, b = two(ours)
    short = source(ours, log=a).streamReader(FOUR)
    at = short.latestOffset(short.initialOffset(), ReadMaxRows(7))
    assert at["index"] == 7
    both = source(ours, subscribe=f"{a},{b}").streamReader(FOUR)
    found = rows(both, both.partitions(at, both.latestOffset(at, ReadAllAvailable())))
    assert found == sorted(expected(a, A, 7) + expected(b, B))


def test_a_batch_that_is_worth_its_begin(ours: Cluster) -> None:
    """Fewer records wait for more, but the first ones, and as long as they may; the last ones of all do not."""
    a = log(ours, A)

    def begun(delay: str) -> tuple[Any, Any]:
        options = {"subscribe": a, "startingOffsets": "earliest", "minOffsetsPerTrigger": 50, "maxTriggerDelay": delay}
        stream = source(ours, **options).streamReader(FOUR)
        return stream, stream.initialOffset()

    stream, start = begun("1d")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    end = stream.latestOffset(start, limit)
    assert end[a]["0"]["index"] == 42
    append(ours, a, b"one")
    assert stream.latestOffset(end, limit) == end
    assert stream.latestOffset(end, ReadAllAvailable())[a]["0"]["index"] == 43
    append(ours, a, *[b"more"] * 49)
    assert stream.latestOffset(end, limit)[a]["0"]["index"] == 92
    stream, start = begun("0s")
    end = stream.latestOffset(start, limit)
    append(ours, a, b"one")
    assert stream.latestOffset(end, limit)[a]["0"]["index"] == 93
    stream, start = begun("1d")
    stream.latestOffset(start, limit)
    stream.prepareForTriggerAvailableNow()
    end = {a: {"0": {**start[a]["0"], "index": 92}}}
    assert stream.latestOffset(end, limit)[a]["0"]["index"] == 93


def mark_of(ours: Cluster, name: str, cursor: str) -> int | None:
    """As `quire log cursors` shows it."""
    return next((each.mark for each in ours.each(lambda: ours.logs.cursors(name)) if each.name == cursor), None)


def test_a_place_that_is_a_cursor(ours: Cluster) -> None:
    """
    It is made where the stream begins, follows what is done, keeps the log from being trimmed, and another checkpoint
    begins at it.
    """
    a, b = two(ours)
    options = {"subscribe": f"{a},{b}", "startingOffsets": "earliest", "cursor": "spark"}
    stream = source(ours, **options).streamReader(FOUR)
    start = stream.initialOffset()
    assert [mark_of(ours, name, "spark") for name in (a, b)] == [0, 0]
    end = stream.latestOffset(start, ReadMaxRows(31))
    assert rows(stream, stream.partitions(start, end))
    assert [mark_of(ours, name, "spark") for name in (a, b)] == [0, 0]
    with pytest.raises(ValueError, match="spark"):
        ours.wait(lambda: ours.logs.trim(a, 20))
    stream.commit(end)
    assert [mark_of(ours, name, "spark") for name in (a, b)] == [21, 10]
    assert ours.wait(lambda: ours.logs.trim(a, 20)) == 20
    last = stream.latestOffset(end, ReadAllAvailable())
    stream.latestOffset(last, ReadAllAvailable())  # Spark looks for more: what came before is done
    assert [mark_of(ours, name, "spark") for name in (a, b)] == [42, 20]
    stream.commit(end)  # a cursor does not go back
    assert mark_of(ours, a, "spark") == 42
    stream.stop()
    append(ours, a, b"more")
    other = source(ours, **options).streamReader(FOUR)
    start = other.initialOffset()
    assert rows(other, other.partitions(start, other.latestOffset(start, ReadAllAvailable()))) == [(a, 0, 42, b"more")]


def test_a_cursor_of_a_log_that_is_found(ours: Cluster) -> None:
    """Is made at once, before a first batch has it; so does one of a stream that had none."""
    prefix = next(NAMES)
    stream = source(ours, subscribePattern=f"{prefix}/.*", cursor="spark").streamReader(FOUR)
    start = stream.initialOffset()
    made = log(ours, A)
    ours.wait(lambda: ours.logs.rename(made, f"{prefix}/new"))
    end = stream.latestOffset(start, ReadMaxRows(7))
    assert mark_of(ours, f"{prefix}/new", "spark") == 0
    later = source(ours, subscribePattern=f"{prefix}/.*", cursor="later").streamReader(FOUR)
    later.latestOffset(end, ReadAllAvailable())
    assert mark_of(ours, f"{prefix}/new", "later") == 7


def test_a_cursor_that_another_stream_took(ours: Cluster) -> None:
    """The earlier one fails, as with two drivers on one checkpoint."""
    a = log(ours, A)
    earlier, later = (source(ours, log=a, cursor="spark").streamReader(FOUR) for _ in range(2))
    start = earlier.initialOffset()
    end = earlier.latestOffset(start, ReadMaxRows(7))
    assert later.initialOffset() == start
    with pytest.raises(LogFenced, match="spark"):
        earlier.commit(end)
    earlier.stop()


def test_a_cursor_when_bookies_know_less_than_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stays where it is, or is not made yet, and follows once they know again how far the log is."""
    fake = FakeCluster()
    fake.spin(5)
    writer, driver = process(fake), process(fake)
    monkeypatch.setattr(module, "cluster", lambda uri: driver)
    fake.succeed(writer.logs.create("a"))
    owner = fake.succeed(writer.logs.own("a"))
    fake.judge = lambda request: "drop" if request.op == "write lac" else "pass"
    fake.succeed(owner.append_many(A[:1]))
    fake.succeed(owner.append_many(A[1:2]))
    (segment,) = driver.each(lambda: driver.logs.segments("a"))
    knows, other = only_first_learns(fake, segment.ledger)
    fake.outcome(owner.append_many(A[2:3]))  # which carries that the second is confirmed
    fake.spin(0.1)
    stream = source(driver, log="a", cursor="spark").streamReader(FOUR)
    fake.slow = {other: 0.05}
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert (start["index"], end["index"]) == (0, 2)
    later = source(driver, log="a", cursor="later").streamReader(FOUR)
    for slow, marks in (({knows: 0.05}, [0, None]), ({other: 0.05}, [2, 2])):
        fake.slow = slow
        for each in (stream, later):
            each.commit(end)
            assert each.latestOffset(end, ReadAllAvailable()) == end
        assert [mark_of(driver, "a", name) for name in ("spark", "later")] == marks


def test_a_batch_query_has_no_cursor(ours: Cluster) -> None:
    """For nothing would move it."""
    with pytest.raises(ValueError, match="'cursor' is for streams"):
        source(ours, log=log(ours, A), cursor="spark").reader(FOUR)
