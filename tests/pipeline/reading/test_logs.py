"""Records of named logs as Arrow batches, from real bookies."""

from collections.abc import AsyncGenerator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.api import Reader
from quire.conf.pipeline import LogReading
from quire.log.api import LogBatch, Segment
from quire.log.core.batch import Batch, Records, encode_body
from quire.log.reader.batches import RawBatch
from quire.pipeline import columns
from quire.pipeline.clients import Cluster
from quire.pipeline.core.ranges import Range, grouped
from quire.pipeline.reading.logs import (
    FEW,
    SCHEMA,
    TYPES,
    arrow,
    batches,
    behind_lost,
    divided,
    limited,
    located,
    marks,
    place,
    planned,
)
from quire.protocol.log_errors import LogDamaged, LogTrimmed, SegmentLost
from tests.client.fakes.cluster import FakeCluster
from tests.pipeline.reading.virtual import only_first_learns, process
from tests.pipeline.written import log

# SPDX-License-Identifier: Apache-2.0

NUMBERS = {"stamp": pa.int64(), "time": pa.int64()}  # Python's times have fewer years
VALUES = [b"value %d" % number for number in range(42)]


def reading(ours: Cluster, name: str, **options: Any) -> LogReading:
    given = {option: str(value) for option, value in options.items()}
    return LogReading.of({"metadata": ours.uri, "log": name, **given})


def rows(ours: Cluster, ranges: list[Range], options: LogReading, names: list[str]) -> list[dict[str, Any]]:
    id_ = ours.wait(lambda: ours.logs.info(options.log)).id
    return [row for batch in batches(ours, id_, ranges, names, options) for row in batch.to_pylist()]


def still_written(appends: int) -> Cluster:
    """Its log `a` has an open segment, with ten records of 1,000 bytes of each append."""
    fake = FakeCluster()
    fake.spin(5)
    ours = process(fake)
    fake.succeed(ours.logs.create("a"))
    owner = fake.succeed(ours.logs.own("a"))
    for _each in range(appends):
        fake.succeed(owner.append_many([b"x" * 1000] * 10))
    fake.spin(5)
    return ours


def test_every_column(ours: Cluster) -> None:
    """Over segments' borders, and from the middle of an entry on."""
    keys: list[bytes | None] = [b"k%d" % number if number % 2 else None for number in range(42)]
    times = [number * 1000 if number % 3 else None for number in range(42)]
    headers = [[("n", b"%d" % number)] * (number % 3) for number in range(42)]
    name = log(ours, VALUES, keys=keys, times_ms=times, headers=headers)
    given = rows(ours, [Range(0, 3, 39)], reading(ours, name, batchBytes=1), list(SCHEMA))
    assert [row["index"] for row in given] == list(range(3, 40))
    assert [row["value"] for row in given] == VALUES[3:40]
    assert [row["key"] for row in given] == keys[3:40]
    assert [None if row["time"] is None else row["time"].timestamp() * 1000 for row in given] == times[3:40]
    assert [[(each["key"], each["value"]) for each in row["headers"]] for row in given] == headers[3:40]
    assert all(row["stamp"].year >= 2026 for row in given)


NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@st.composite
def log_batches(draw: st.DrawFn) -> list[LogBatch]:
    """Batches that follow each other, each with any of the columns; the first perhaps not from its begin on."""
    found, ordinal, offset = list[LogBatch](), 0, 0
    segment = Segment(0, 7, 100, 0, 0, 1000, 1 << 30, 1000)
    for start in draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)):
        count = draw(st.integers(3, 5))

        def column(members: st.SearchStrategy[Any], count: int = count) -> Any:
            return draw(st.none() | st.lists(members, min_size=count, max_size=count))

        records = Records(
            draw(st.lists(st.binary(max_size=4), min_size=count, max_size=count)),
            column(st.none() | st.binary(max_size=3)),
            column(st.none() | st.integers(-(1 << 62), 1 << 62)),
            column(st.lists(st.tuples(NAME, st.binary(max_size=3)), max_size=2)),
        )
        batch = Batch(encode_body(records), ordinal, offset, draw(st.integers(0, 1 << 42)), count, records.size)
        if draw(st.booleans()):
            found.append(LogBatch(segment, batch, 0, start))
        else:
            found.append(LogBatch(segment, RawBatch(list(records.values), ordinal, offset), 0, start))
        ordinal, offset = ordinal + count, offset + records.size
    return found


@given(log_batches())
def test_columns_are_those_of_the_records(given_: list[LogBatch]) -> None:
    """However batches are joined: the slow way is to make each record."""
    made = arrow(given_, list(SCHEMA))
    made.validate(full=True)
    of_spark = range(columns.STAMP_MS_MIN, columns.STAMP_MS_MAX + 1)
    assert made.cast(pa.schema([(name, NUMBERS.get(name, kind)) for name, kind in TYPES.items()])).to_pylist() == [
        {
            "index": each.index,
            "stamp": each.stamp_ms * 1000,
            "key": each.key,
            "time": None if each.time_ms is None or each.time_ms not in of_spark else each.time_ms * 1000,
            "headers": [{"key": name, "value": value} for name, value in each.headers],
            "value": each.value,
        }
        for batch in given_
        for each in batch.records()
    ]


def test_indexes_alone(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are known by a look at the last entry of each segment; and the same as with the values."""
    name = log(ours, VALUES)
    both = rows(ours, [Range(0, 3, 39)], reading(ours, name, batchBytes=64), ["index", "value"])
    counts: list[int] = []
    one = Reader.read

    def counted(reader: Reader, first: int, last: int) -> Any:
        counts.append(last + 1 - first)
        return one(reader, first, last)

    monkeypatch.setattr(Reader, "read", counted)
    monkeypatch.delattr(Reader, "stream")
    found = rows(ours, [Range(0, 3, 39)], reading(ours, name, batchBytes=64), ["index"])
    assert found == [{"index": row["index"]} for row in both]
    assert sum(counts) < 15, "two entries of each of five segments at most, and where the first index is"


def test_any_division_gives_each_record_once(ours: Cluster) -> None:
    """In order within a task."""
    name = log(ours, VALUES)
    options = reading(ours, name)
    extents = ours.wait(lambda: planned(ours.logs, options, 2, 41))
    for split in (1, 5000, 8000, 1 << 20):
        groups = grouped(extents, split, 100)
        assert [row["value"] for group in groups for row in rows(ours, group, options, ["value"])] == VALUES[2:41]


def test_places(ours: Cluster) -> None:
    """An index, the begin, the end, a time."""
    name = log(ours, VALUES)
    for text, index in (("begin", 0), ("end", 42), ("7", 7), ("2000-01-01T00:00:00+00:00", 0)):
        found = ours.wait(lambda text=text: located(ours.logs, name, place(text, "start")))  # type: ignore[misc]
        assert found == (index, ours.wait(lambda: ours.logs.info(name)).id, 0)
    with pytest.raises(ValueError, match=r"option 'start': 'soon' is no index"):
        place("soon", "start")


def test_marks_lie_around_every_index(ours: Cluster) -> None:
    """Also around one that is past the closed segments."""
    name = log(ours, VALUES)
    size = sum(map(len, VALUES))
    found = ours.wait(lambda: marks(ours.logs, name, 0, 42))
    assert (found[0], found[-1]) == ((0, 0), (42, size))
    assert ours.wait(lambda: marks(ours.logs, name, 0, 50))[-1][0] == 50


def test_bytes_of_an_open_segment() -> None:
    """Are those that it has, also of a log's first one: its records counted as a byte each."""
    ours = still_written(10)
    assert ours.wait(lambda: marks(ours.logs, "a", 0, 90)) == [(0, 0), (100, 100_000)]
    assert ours.wait(lambda: limited(ours.logs, "a", 20, 90, 5_000)) == 25


def test_an_open_segment_is_divided() -> None:
    """By its bytes, as a closed one is: however large it was, one task read it."""
    ours = still_written(1 + FEW // 10)
    options = reading(ours, "a", splitBytes=300_000)
    extents = ours.wait(lambda: planned(ours.logs, options, 5, FEW + 8))
    groups = divided(extents, options)
    assert [len(group) for group in groups] == [1, 1, 1, 1]
    assert [row["index"] for group in groups for row in rows(ours, group, options, ["index"])] == [*range(5, FEW + 8)]


def test_segments_that_are_looked_at(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are those of the batch and the one behind: a log may have a hundred thousand others."""
    name = log(ours, [b"x" * 10] * 100)
    segments, looked = ours.logs.segments, list[int]()

    async def noted(name: str, index: int = 0) -> AsyncGenerator[Segment, None]:
        async for segment in segments(name, index):
            looked.append(segment.n)
            yield segment

    monkeypatch.setattr(ours.logs, "segments", noted)
    extents = ours.wait(lambda: planned(ours.logs, reading(ours, name), 35, 52))
    assert [(each.first, each.last) for each in extents] == [(35, 39), (40, 49), (50, 51)]
    assert looked == [3, 4, 5, 6]
    looked.clear()
    assert [ours.wait(lambda most=most: limited(ours.logs, name, 35, 90, most)) for most in (1, 50, 120, 9999)] == [
        *(36, 40, 47, 90)  # type: ignore[misc]  # binds this turn's
    ]
    assert looked == [*(3,), *(3, 4), *(3, 4), *range(3, 9)]


def test_lost_segments(ours: Cluster) -> None:
    """Fail the plan, or are not in it: one may name four billion records, and each limit gave a batch without any."""
    name = log(ours, VALUES)
    third = list(ours.each(lambda: ours.logs.segments(name)))[2]
    ours.wait(lambda: ours.client.delete_ledger(third.ledger))
    ours.wait(lambda: ours.logs.give_up(name, third.n))
    with pytest.raises(SegmentLost, match=r"lost, and with it the records 20 to 24; failOnDataLoss=false passes over"):
        ours.wait(lambda: planned(ours.logs, reading(ours, name), 5, 25))
    options = reading(ours, name, failOnDataLoss="false")
    extents = ours.wait(lambda: planned(ours.logs, options, 5, 42))
    assert [(each.first, each.last) for each in extents] == [(5, 9), (10, 19), (30, 39), (40, 41)]
    given = [row["value"] for group in divided(extents, options) for row in rows(ours, group, options, ["value"])]
    assert given == VALUES[5:20] + VALUES[30:]
    for index, behind in ((19, 19), (20, 30), (29, 30), (30, 30), (42, 42)):
        assert ours.wait(lambda index=index: behind_lost(ours.logs, name, index)) == behind  # type: ignore[misc]


def test_trimmed_records(ours: Cluster) -> None:
    """Are an error, or passed over."""
    name = log(ours, VALUES)
    ours.wait(lambda: ours.logs.trim(name, 20))
    with pytest.raises(LogTrimmed):
        rows(ours, [Range(0, 3, 25)], reading(ours, name), ["index"])
    with pytest.raises(LogTrimmed, match=r"begins at index 20: records from 3 on were trimmed; failOnDataLoss=false"):
        ours.wait(lambda: planned(ours.logs, reading(ours, name), 3, 42))
    options = reading(ours, name, failOnDataLoss="false")
    assert ours.wait(lambda: planned(ours.logs, options, 3, 42))[0].first == 20
    given = rows(ours, [Range(0, 3, 25)], options, ["index"])
    assert [row["index"] for row in given] == list(range(20, 26))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_plan_leaves_out_no_record(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trim takes while it is made, and what no segment has yet, are for tasks to find out about."""
    fake = FakeCluster()
    fake.spin(5)
    ours = process(fake)
    fake.succeed(ours.logs.create("a", roll_records=10))
    owner = fake.succeed(ours.logs.own("a"))
    for start in range(0, 40, 5):
        fake.succeed(owner.append_many(VALUES[start : start + 5]))
    fake.succeed(owner.close())
    segments = ours.logs.segments

    async def trimmed(name: str, index: int) -> AsyncGenerator[Segment, None]:
        await ours.logs.trim(name, 20)
        async for segment in segments(name, index):
            yield segment

    monkeypatch.setattr(ours.logs, "segments", trimmed)
    options = reading(ours, "a", failOnDataLoss=fails)
    extents = ours.wait(lambda: planned(ours.logs, options, 3, 44))
    assert [(each.first, each.last) for each in extents] == [(3, 19), (20, 29), (30, 39), (40, 43)]
    gone, *there, coming = [[Range(each.ledger, each.first, each.last)] for each in extents]
    assert [row["index"] for group in there for row in rows(ours, group, options, ["index"])] == list(range(20, 40))
    if fails == "false":
        assert rows(ours, gone, options, ["index"]) == []
    else:
        with pytest.raises(LogTrimmed):
            rows(ours, gone, options, ["index"])
    with pytest.raises(LogDamaged, match=r"'a': the records 40 to 43 are missing"):
        rows(ours, coming, options, ["index"])


@pytest.mark.parametrize("its_end", ["slow", "dead"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_that_a_task_does_not_see_yet(fails: str, its_end: str) -> None:
    """
    Of a segment that is still written, for the bookies that answer know less than those that the plan asked: it waits
    for news, and without any it fails, also where data loss is passed over.
    """
    fake = FakeCluster()
    fake.spin(5)
    writer, driver, task = process(fake), process(fake), process(fake)
    fake.succeed(writer.logs.create("a"))
    owner = fake.succeed(writer.logs.own("a"))
    fake.judge = lambda request: "drop" if request.op == "write lac" else "pass"
    fake.succeed(owner.append_many([b"first"]))
    fake.succeed(owner.append_many([b"second"]))
    (segment,) = driver.each(lambda: driver.logs.segments("a"))
    knows, other = only_first_learns(fake, segment.ledger)
    fake.outcome(owner.append_many([b"third"]))  # which carries that the second is confirmed
    fake.spin(0.1)
    options = reading(driver, "a", failOnDataLoss=fails)
    fake.slow = {other: 0.05}
    end = driver.wait(lambda: located(driver.logs, "a", "end")).index
    assert end == 2
    extents = driver.wait(lambda: planned(driver.logs, options, 0, end))
    fake.slow = {knows: 0.05}
    if its_end == "slow":
        found = [row for group in grouped(extents, 1 << 20, 9) for row in rows(task, group, options, ["value"])]
        assert [row["value"] for row in found] == [b"first", b"second"]
    else:
        fake.kill(knows)
        fake.judge = lambda request: "drop" if request.client == 1 else "pass"  # the writer is dead, too
        with pytest.raises(LogDamaged, match=r"'a': the records 1 to 1 are missing"):
            rows(task, [Range(0, 0, 1)], options, ["value"])


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_past_the_end_are_an_error(fails: str) -> None:
    """That names them: a task never gives fewer rows than were planned."""
    fake = FakeCluster()
    fake.spin(5)
    ours = process(fake)
    fake.succeed(ours.logs.create("a"))
    owner = fake.succeed(ours.logs.own("a"))
    fake.succeed(owner.append_many(VALUES))
    fake.succeed(owner.close())
    with pytest.raises(LogDamaged, match=r"'a': the records 42 to 50 are missing"):
        rows(ours, [Range(0, 40, 50)], reading(ours, "a", failOnDataLoss=fails), ["index"])
