"""Seeking by time and by byte position: the right record of any kind of segment, in few reads."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.api import Entry
from quire.log.core.batch import Records, encode_body
from quire.log.core.edits import Publish, Published
from quire.log.core.frame import Kind, pack_entries
from quire.log.core.upkeep_edits import GiveUp, Trim
from quire.log.core.values import Segment
from quire.log.owner.appending.encoder import Prepared
from quire.log.reader.one_segment import SegmentReader
from quire.log.reader.views import stamp_of
from quire.log.store.editing import LogRecords
from quire.protocol.log_errors import LogTrimmed, NoSuchLog, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.log.publish.test_sink import written
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

HOUR_MS = 3_600_000


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


async def records_of(logs, name):
    """For edits by hand."""
    id_ = (await logs.info(name)).id
    records = LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, id_, name)
    await records.read()
    return records


async def taken_in(logs, name, payloads, stamp):
    """A closed ledger of another program becomes a raw segment."""
    writer = await logs.bk.create_ledger()
    await writer.append_many(payloads)
    await writer.close()
    size = sum(map(len, payloads))
    found = Published(writer.id, len(payloads), size, len(payloads))
    await (await records_of(logs, name)).edit(Publish([found], stamp, raw=True))


class Times:
    """A time of day that a test sets, in ms."""

    def __init__(self, ms):
        self.ms = ms

    def __call__(self):
        return self.ms / 1000


async def mixed(world):
    """
    A log whose owner's clock steps, stops, and jumps back by an hour; with published and raw segments, and a second
    owner whose clock is behind.
    """
    times, random = Times(10 * HOUR_MS), Random(5)

    def hook(index, _at, _stamp, given):
        return Prepared(given, [index % 3 for _ in given])

    logs, behind = await world.logs(now=times, part_bytes=100), await world.logs(now=Times(5 * HOUR_MS))
    await logs.create("a", roll_records=25)
    owner = await logs.own("a", before_append=hook)
    for number in range(120):
        times.ms += random.choice([0, 0, 1, 7, 1000, 60_000])
        if number == 60:
            times.ms -= HOUR_MS
        await owner.append_many([bytes(random.choice([0, 1, 9, 150])) for _ in range(random.randint(1, 3))])
        if number % 10 == 3:
            await owner.barrier()
    sink = await logs.sink("a", "facts", "run")
    times.ms += HOUR_MS
    await sink.commit(0, [await written(sink, 0, part, [b"published"] * 3) for part in range(2)])
    times.ms += HOUR_MS
    await taken_in(logs, "a", [bytes(number % 4) for number in range(40)], times.ms)
    await owner.append(b"again")
    await owner.close()
    owner = await behind.own("a")
    for _ in range(30):
        await owner.append(b"behind")
    await owner.barrier()  # all before it are confirmed
    return logs, owner


async def all_records(logs, name):
    return [each async for batch in (await logs.read(name)).batches() for each in batch.records()]


def test_a_thousand_times(tmp_path):
    """The first record whose stamp is not below: before all, behind all, in gaps, among equal stamps."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, _owner = await mixed(world)
            records = await all_records(logs, "a")
            stamps = [record.stamp_ms for record in records]
            assert stamps == sorted(stamps)
            assert len(set(stamps)) > 40
            assert [record.index for record in records] == list(range(len(records)))
            random = Random(7)
            chosen = [0, stamps[0], stamps[-1], stamps[-1] + 1, 1 << 60, *stamps]
            while len(chosen) < 1000:
                chosen.append(random.choice([random.randint(stamps[0], stamps[-1]), random.choice(stamps) + 1]))
            for time_ms in chosen:
                assert await logs.seek("a", time_ms) == (bisect_left(stamps, time_ms), False), time_ms

    run(story)


def test_positions(tmp_path):
    """The record that holds the byte; the one behind where it was skipped; the end behind all."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, _owner = await mixed(world)
            records = await all_records(logs, "a")
            ends = [record.at + len(record.value) for record in records]
            at = [record.at for record in records]
            chosen = {0, ends[-1] - 1, ends[-1], ends[-1] + 9, *Random(7).sample([*at, *ends], 200)}
            for position in sorted({*chosen, *(end - 1 for end in chosen if end)}):
                wanted = next((number for number, end in enumerate(ends) if end > position), None)
                index, at = (len(records), ends[-1]) if wanted is None else (wanted, records[wanted].at)
                assert await logs.find("a", position) == (index, at), position

    run(story)


def test_a_reader_from_a_time(tmp_path):
    """A datetime with a zone, rounded up to a ms; one without is refused; a number is an index always."""

    async def story():
        async with cluster(tmp_path) as world:
            times = Times(10 * HOUR_MS)
            logs = await world.logs(now=times)
            await logs.create("a")
            owner = await logs.own("a")
            for number in range(5):
                times.ms += 1000
                await owner.append(b"%d" % number)
            await owner.barrier()
            ten = datetime(1970, 1, 1, 10, tzinfo=UTC)
            for delay, wanted in ((-1, 0), (0, 0), (1, 0), (1.001, 1), (1.0001, 1), (5, 4), (5.1, 5)):
                reader = await logs.read("a", ten + timedelta(seconds=delay))
                assert reader.index == wanted, delay
            reader = await logs.read("a", datetime(1970, 1, 1, 12, 0, 3, tzinfo=timezone(timedelta(hours=2))))
            assert await values(reader) == [b"2", b"3", b"4"]
            for start in (ten.replace(tzinfo=None), -1, True, 2.5, "now"):
                await failing(story_of(logs.read("a", start)), ValueError)

    run(story)


def test_a_time_in_ms():
    """Exact to the microsecond, rounded up."""
    assert stamp_of(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)) == 1_700_000_000_000
    assert stamp_of(datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)) == 1_700_000_000_001
    assert stamp_of(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == 0


def test_a_datetime_is_no_time_in_ms(tmp_path):
    """A reader takes one; a search says what to give."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            error = await failing(story_of(logs.seek("a", datetime.now(UTC))), TypeError)
            assert "timestamp" in str(error)

    run(story)


def test_what_was_trimmed(tmp_path):
    """A time of it gives the begin, flagged; a position of it is `LogTrimmed`; later ones are not touched by it."""

    async def story():
        async with cluster(tmp_path) as world:
            times = Times(1000)
            logs = await world.logs(now=times)
            await logs.create("a", roll_records=3)
            owner = await logs.own("a")
            for _ in range(12):
                times.ms += 10
                await owner.append(b"ab")
            await owner.close()
            await (await records_of(logs, "a")).edit(Trim(2, 7, 14, 1, {}))
            found = [await logs.seek("a", time_ms) for time_ms in (0, 1060, 1061, 1070, 1071, 1081, 1120, 1121)]
            assert found == [(7, True)] * 4 + [(7, False), (8, False), (11, False), (12, False)]
            error = await failing(story_of(logs.find("a", 13)), LogTrimmed)
            assert error.begin == 7
            assert await logs.find("a", 14) == (7, 14)
            for segment in (await records_of(logs, "a")).known.value.segments[:1]:
                await logs.bk.delete_ledger(segment.ledger)
            await failing(story_of(logs.find("a", 15)), SegmentLost)
            await logs.delete("a")
            await failing(story_of(logs.seek("a", 15)), NoSuchLog)

    run(story)


def test_a_segment_that_was_given_up(tmp_path):
    """A time in it gives its first record; a position in it is `SegmentLost`."""

    async def story():
        async with cluster(tmp_path) as world:
            times = Times(1000)
            logs = await world.logs(now=times)
            await logs.create("a", roll_records=3)
            owner = await logs.own("a")
            for _ in range(9):
                times.ms += 10
                await owner.append(b"ab")
            await owner.close()
            records = await records_of(logs, "a")
            await records.edit(GiveUp(records.known.value.segments[1], 3, 1, "operator"))
            assert await logs.seek("a", 1055) == (3, False)
            assert await logs.seek("a", 1065) == (6, False)
            assert await logs.find("a", 12) == (6, 12)
            error = await failing(story_of(logs.find("a", 11)), SegmentLost)
            assert "quire log give-up a 1" in str(error)

    run(story)


def test_a_trim_during_a_search(tmp_path):
    """The ledger that it was about to read is gone: it looks at the manifest and goes on from there."""

    async def story():
        async with cluster(tmp_path) as world:
            times = Times(1000)
            logs = await world.logs(now=times)
            await logs.create("a", roll_records=3)
            owner = await logs.own("a")
            for _ in range(12):
                times.ms += 10
                await owner.append(b"ab")
            await owner.close()
            records = await records_of(logs, "a")
            real = logs.bk.stored

            async def trimmed_first(ledger):
                logs.bk.stored = real
                await records.edit(Trim(2, 6, 12, 1, {}))
                await logs.bk.delete_ledger(ledger)
                return await real(ledger)

            logs.bk.stored = lambda ledger: story_of(trimmed_first(ledger))
            assert await logs.seek("a", 1015) == (6, True)
            assert await logs.seek("a", 1060) == (6, True)  # as the last one that was trimmed
            assert await logs.seek("a", 1061) == (6, False)

    run(story)


class Generated:
    """
    A ledger of 10^8 entries that are made when they are read, and counts them: in the first half each has one record of
    ten bytes, in the other a hundred of one byte; stamps go on in steps of a second per 1000 entries, with one gap.
    """

    ENTRIES = 10**8
    HALF = ENTRIES // 2

    def __init__(self):
        self.reads = 0

    def ordinal(self, entry):
        return entry if entry <= self.HALF else self.HALF + 100 * (entry - self.HALF)

    def offset(self, entry):
        return 10 * entry if entry <= self.HALF else 10 * self.HALF + 100 * (entry - self.HALF)

    def stamp(self, entry):
        return 10**12 + entry // 1000 * 1000 + (10**10 if entry > 10**6 else 0)

    def read(self, first, last):
        assert first == last
        self.reads += 1
        records = Records([bytes(10)] if first < self.HALF else [b"x"] * 100)
        (data,) = pack_entries(
            Kind.BATCH,
            encode_body(records),
            ordinal=self.ordinal(first),
            offset=self.offset(first),
            stamp=self.stamp(first),
            records=len(records.values),
            value_bytes=records.size,
        )
        return succeed([Entry(7, first, data)])

    def offset_of(self, entry):
        self.reads += 1
        return succeed(10 * entry)

    async def stream(self, first, last):
        for entry in range(first, last + 1):
            yield await self.read(entry, entry)
            return

    async def close(self):
        pass


@pytest.mark.parametrize("is_open", [False, True])
def test_few_reads_at_many_entries(is_open):
    """At most 40 entries are read to find a time, a position or an index among 10^8 entries."""
    made = Generated()
    entries = made.ENTRIES
    counts = (made.ordinal(entries), made.offset(entries), entries, (0, made.stamp(entries - 1)))
    segment = Segment(0, 7, 1, 5, 50, *(() if is_open else counts))
    random = Random(3)
    most = 0

    async def story():
        nonlocal most
        for _ in range(200):
            entry = random.choice([random.randrange(entries), random.randrange(1 << random.randrange(1, 26))])
            for wanted in ("time", "position", "index"):
                made.reads = 0
                reader = SegmentReader(segment, made, entries)
                if wanted == "time":
                    stamp = made.stamp(entry)
                    first = 0 if entry < 1000 else entry // 1000 * 1000
                    first = 10**6 + 1 if first == 10**6 and entry > 10**6 else first
                    assert await reader.first_not_below(stamp) == 5 + made.ordinal(first)
                elif wanted == "position":
                    at = made.offset(entry)
                    assert await reader.record_at(50 + at) == (5 + made.ordinal(entry), 50 + at)
                else:
                    batch = next(iter(await anext(reader.batches(5 + made.ordinal(entry), None))))
                    assert batch.index == 5 + made.ordinal(entry)
                most = max(most, made.reads)
        assert 20 < most <= 40

    run(story)


def test_few_reads_in_a_raw_ledger():
    """A position in a plain ledger, by the length that each entry says."""

    async def story():
        made = Generated()
        segment = Segment(0, 7, 1, 5, 50, made.ENTRIES, 10 * made.ENTRIES, made.ENTRIES, (9, 9), raw=True)
        reader = SegmentReader(segment, made, made.ENTRIES)
        made.read = lambda entry, _last: succeed([Entry(7, entry, bytes(10))])
        assert await reader.record_at(50 + 123_456_789) == (5 + 12_345_678, 50 + 123_456_780)
        assert made.reads <= 40

    run(story)
