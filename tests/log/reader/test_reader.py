"""Readers where something is trimmed, lost, damaged or ended."""

from contextlib import aclosing
from dataclasses import replace

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.log.core.manifest import Manifest
from quire.log.core.upkeep_edits import GiveUp, Terminate, Trim
from quire.log.store.editing import LogRecords
from quire.protocol.errors import NoSuchLedgerExists
from quire.protocol.log_errors import LogDamaged, LogTrimmed, NoSuchLog, SegmentLost
from tests.log.fakes.cluster import cluster, values
from tests.metadata.stories import Heard, failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

WANTED = [b"%d" % number for number in range(12)]


async def filled(world):
    """A log of segments of three records each, and its records for edits by hand."""
    logs = await world.logs(batch_bytes=1)
    await logs.create("a", roll_records=3)
    owner = await logs.own("a")
    for value in WANTED:
        await owner.append(value)
    await owner.close()
    id_ = (await logs.info("a")).id
    records = LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, id_, "a")
    await records.read()
    return logs, records


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


def test_what_was_trimmed(tmp_path):
    """An error that says where the log begins, or passed over; also for a reader that is on its way."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, records = await filled(world)
            reader, skipping = await logs.read("a", 1), await logs.read("a", 1, on_trim="skip")
            await records.edit(Trim(2, 7, 8, 1, {}))
            error = await failing(story_of(values(reader)), LogTrimmed)
            assert error.begin == 7
            assert [value async for batch in skipping.batches() for value in batch.values] == WANTED[7:]
            assert await values(await logs.read("a")) == WANTED[7:]

    run(story)


@pytest.mark.parametrize("on_trim", ["raise", "skip"])
def test_a_trim_while_a_segment_is_read(tmp_path, on_trim):
    """Its ledger goes in the middle: `LogTrimmed`, or on from the new begin; never an error of a bookie."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, records = await filled(world)
            other = await world.logs()
            first, real = records.known.value.segments[0].ledger, other.bk.open_ledger

            def breaking(ledger):
                stream = ledger.stream

                async def broken(begin, end):
                    async for some in stream(begin, end):
                        yield some[:1]
                        break
                    await records.edit(Trim(2, 7, 8, 1, {}))
                    await logs.bk.delete_ledger(first)
                    raise NoSuchLedgerExists("a bookie has deleted it")

                if ledger.id == first:
                    ledger.stream = broken
                return ledger

            other.bk.open_ledger = lambda *given, **more: real(*given, **more).addCallback(breaking)
            reader = await other.read("a", 0, on_trim=on_trim)
            found = []
            reading = story_of(given_out(reader, found))
            if on_trim == "raise":
                assert (await failing(reading, LogTrimmed)).begin == 7
                assert found == WANTED[:1]
            else:
                await reading
                assert found == WANTED[:1] + WANTED[7:]

    run(story)


async def given_out(reader, found):
    async for batch in reader.batches():
        found += batch.values


def test_a_segment_whose_ledger_is_gone(tmp_path):
    """`SegmentLost` with the command that goes on; after that, passed over where the reader wants it so."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, records = await filled(world)
            segment = records.known.value.segments[1]
            await logs.bk.delete_ledger(segment.ledger)
            error = await failing(story_of(values(await logs.read("a"))), SegmentLost)
            assert "quire log give-up a 1" in str(error)
            reader = await logs.read("a", 4, on_loss="skip")
            assert [value async for batch in reader.batches() for value in batch.values] == WANTED[6:]
            assert reader.lost == [range(4, 6)]
            await records.edit(GiveUp(segment, 3, 1, "operator"))
            await failing(story_of(values(await logs.read("a"))), SegmentLost)
            reader = await logs.read("a", on_loss="skip")
            found = [value async for batch in reader.batches() for value in batch.values]
            assert found == WANTED[:3] + WANTED[6:]
            assert reader.lost == [range(3, 6)]

    run(story)


def test_counts_that_contradict_the_ledger(tmp_path):
    """A manifest that says more or fewer entries than the ledger has is damage that names both."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, records = await filled(world)
            manifest, version = records.known
            last = manifest.segments[-1]
            for change in ({"entries": last.entries + 1}, {"records": last.records + 1}, {"bytes": last.bytes + 5}):
                wrong = replace(manifest, segments=(*manifest.segments[:-1], replace(last, **change)))
                version = await records.records.write(records.path, wrong.encode(), version)
                error = await failing(story_of(values(await logs.read("a", last.first))), LogDamaged)
                assert f"ledger {last.ledger}" in str(error)

    run(story)


def test_the_next_ledger_is_opened_ahead(tmp_path):
    """While the rest of a segment is read; each once, one ahead at most, and none is left open when reading stops."""

    async def story():
        async with cluster(tmp_path) as world:
            _logs, records = await filled(world)
            ledgers = [segment.ledger for segment in records.known.value.segments]
            other = await world.logs()
            real, opened = other.bk.open_ledger, []
            other.bk.open_ledger = lambda ledger, *given, **more: (opened.append(ledger), real(ledger, *given, **more))[
                1
            ]
            reader, seen = await other.read("a"), []
            async for batch in reader.batches():
                seen += batch.values
                assert opened[-1] == ledgers[min(3, (len(seen) - 1) // 3 + 1)]
            assert (seen, opened) == (WANTED, ledgers)
            assert not other.bk.handles
            reader = await other.read("a", 4)
            batches = reader.batches()
            await anext(batches)
            assert opened[4:] == ledgers[1:3]
            await batches.aclose()
            await reader.close()
            assert not other.bk.handles

    run(story)


def test_a_read_that_is_cancelled_before_the_next_segment(tmp_path):
    """It ends then, though the next ledger is being opened; what follows comes with the next iteration."""

    async def story():
        async with cluster(tmp_path) as world:
            await filled(world)
            other = await world.logs()
            real, opened, stuck = other.bk.open_ledger, [], Deferred()

            async def stuck_once(*given, **more):
                opened.append(given)
                if len(opened) == 2:
                    await stuck
                return await real(*given, **more)

            other.bk.open_ledger = stuck_once
            reader = await other.read("a")
            batches = reader.batches()
            assert [(await anext(batches)).values for _ in range(3)] == [[each] for each in WANTED[:3]]

            async def following():
                return await anext(batches)

            reading = story_of(following())
            reading.cancel()
            await failing(reading, CancelledError)
            assert await values(reader) == WANTED[3:]
            await reader.close()
            assert not other.bk.handles

    run(story)


def test_the_end_of_a_log(tmp_path):
    """A tail ends where the log was terminated; a deleted log is an error."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, records = await filled(world)
            owner = await logs.own("a")
            await owner.append(b"last")
            reader = await logs.read("a", 12)
            following = reader.tail(60)
            assert (await anext(following)).values == [b"last"]
            owner.roll()
            end = Deferred.fromCoroutine(_end(following))
            heard = Heard()
            records.records.watch(records.path, heard)
            await heard.until(lambda found: Manifest.decode(found.value).open_segment is None)
            await records.edit(Terminate(None, 1))
            await end
            assert reader.terminated
            await logs.delete("a")
            await failing(story_of(values(reader)), NoSuchLog)

    run(story)


async def _end(following):
    async for batch in following:
        raise AssertionError(f"{batch.values} behind the end")


async def spans(reader, end):
    """What it gives, from index to index, up to one."""
    found = []
    async with aclosing(reader.spans(60.0)) as given:
        async for each in given:
            found.append((each.index, each.end))
            if each.end == end:
                break
    return found


def test_which_records_are_there(tmp_path):
    """Of closed segments at once, from any index on; of one that is written, by its batches."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, _records = await filled(world)
            owner = await logs.own("a")
            await owner.append_many([b"x"] * 2)
            reader = await logs.read("a", 4)
            assert await spans(reader, 14) == [(4, 6), (6, 9), (9, 12), (12, 13), (13, 14)]
            assert reader.index == 14
            await owner.close()

    run(story)
