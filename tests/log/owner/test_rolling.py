"""When segments end: the reasons, one end for each segment, and that the order is kept."""

from random import Random

import pytest
from twisted.internet.task import Clock

from quire.conf.log import LogOptions
from quire.log.core.counters import LogCounters
from quire.log.core.manifest import new_manifest
from quire.log.core.values import Counts
from quire.log.owner.timers import OwnerTimers, Rolling
from quire.metadata.store import Versioned
from quire.protocol.digest import DigestType
from tests.log.fakes.cluster import cluster, values
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class Records:
    """A log's records of which the settings are known."""

    def __init__(self, **settings):
        self.counters = LogCounters()
        self.set(**settings)

    def set(self, **settings):
        self.known = Versioned(new_manifest("a", "id", "e", settings), 0)


def scene(**settings):
    """An open segment of a log with these settings; what was asked for is in the list."""
    clock, asked, records = Clock(), [], Records(**settings)
    rolling = Rolling(records, OwnerTimers(clock, Random(1), LogOptions()), lambda: asked.append(clock.seconds()))
    rolling.making()
    rolling.begun()
    return clock, asked, records, rolling


def test_a_segment_ends_once():
    """By records, bytes, age or request, whichever comes first; the reason is counted when it has ended."""
    for settings, counts, why in (
        ({"roll_records": 5}, Counts(5, 10, 1, 0), "records"),
        ({"roll_bytes": 10}, Counts(4, 10, 1, 0), "bytes"),
    ):
        _clock, asked, records, rolling = scene(**settings)
        rolling.filled(Counts(4, 9, 1, 0))
        assert asked == []
        rolling.filled(counts)
        rolling.filled(counts)
        rolling.roll("request")
        assert (asked, records.counters.rolls) == ([0.0], {})
        rolling.ended()
        rolling.ended()
        assert records.counters.rolls == {(why,): 1}
    clock, asked, records, rolling = scene(roll_age_ms=1000)
    clock.advance(1.05)
    assert len(asked) == 1
    rolling.ended()
    rolling.roll("request")
    clock.advance(5)
    assert len(asked) == 1
    assert records.counters.rolls == {("age",): 1}


def test_changed_settings():
    """What no open segment can change ends it; an age counts from its beginning; limits count at once."""
    for changed in ({"ensemble": 5}, {"write": 2}, {"ack": 3}, {"digest": "MAC"}, {"compression": "zlib"}):
        _clock, asked, records, rolling = scene()
        records.set(**changed)
        rolling.look()
        assert len(asked) == 1
        rolling.ended()
        assert records.counters.rolls == {("settings",): 1}
    clock, asked, records, rolling = scene(roll_age_ms=100_000)
    records.set(roll_age_ms=100_000, retention_ms=5)
    rolling.look()
    clock.advance(10)
    records.set(roll_age_ms=11_000, roll_records=7)
    rolling.look()
    assert asked == []
    clock.advance(1.6)
    assert len(asked) == 1
    _clock, asked, records, rolling = scene()
    records.set(roll_records=7)
    rolling.filled(Counts(7, 0, 1, 0))
    assert len(asked) == 1


def test_a_ledger_of_older_settings_does_not_stay():
    """Settings that change between the making of a ledger and its segment's beginning end that segment."""
    _clock, asked, records, rolling = scene()
    rolling.ended()
    rolling.look()
    rolling.making()
    records.set(ensemble=5)
    rolling.look()
    assert asked == []
    rolling.begun()
    rolling.look()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("why", "settings"),
    [
        ("records", {"roll_records": 20}),
        ("bytes", {"roll_bytes": 200}),
        ("age", {"roll_age_ms": 100}),
        ("request", {}),
        ("settings", {}),
    ],
)
def test_rollovers_under_load_keep_the_order(tmp_path, why, settings):
    """Every append is acknowledged at its index, over segments that end for that reason."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(batch_bytes=64), await world.logs()
            await logs.create("a", **settings)
            owner = await logs.own("a")
            counters = logs.metrics.of("a")
            count = 0
            while counters.rolls.get((why,), 0) < 4:
                done = [owner.append(b"%07d" % number) for number in range(count, count + 40)]
                if why == "request":
                    owner.roll()
                elif why == "settings":
                    await other.update("a", compression="zlib" if count % 80 else "none")
                assert [(await each).index for each in done] == list(range(count, count + 40))
                count += 40
            assert list(counters.rolls) == [(why,)]
            assert await values(await other.read("a"), count) == [b"%07d" % number for number in range(count)]

    run(story)


def test_storage_settings_are_in_force_with_the_next_segment(tmp_path):
    """Within a second of the request the open segment is one with the new settings; no append fails."""

    async def story():
        async with cluster(tmp_path, bookies=4) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("a", ensemble=3, write=3, ack=2)
            owner = await logs.own("a")
            await owner.append(b"0")
            await other.update("a", ensemble=4, digest="CRC32")
            for number in range(1, 10_000):
                assert (await owner.append(b"x")).index == number
                ledger = (await other.info("a")).ledger
                if ledger is not None and (await other.bk.metadata(ledger)).ensemble_size == 4:
                    break
            assert (await other.bk.metadata(ledger)).digest is DigestType.CRC32
            assert (await other.info("a")).segments == 2

    run(story)
