"""How fast readers and cursors give out: kept over time, changed while they read, and nothing is lost by it."""

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0

RECORDS = 400  # in entries of ten


class World:
    """A log on virtual time."""

    def __init__(self, **options) -> None:
        self.cluster = FakeCluster()
        client = self.cluster.client(explicit_lac_interval_ms=10)
        self.logs = Logs(client, LogOptions(**options), now=self.cluster.clock.seconds)
        self.run = self.cluster.succeed
        self.run(self.logs.create("a"))
        self.owner = self.run(self.logs.own("a"))
        for number in range(0, RECORDS, 10):
            self.run(self.owner.append_many([b"%d" % (number + each) for each in range(10)]))
        self.run(self.owner.close())

    def seconds(self) -> float:
        return self.cluster.clock.seconds()


async def _read(reader, count=RECORDS, follow=False):
    found = []
    async for batch in reader.tail(60) if follow else reader.batches():
        found += batch.values
        if len(found) >= count:
            break
    return found


@pytest.mark.parametrize(("what", "rate"), [("records", 100), ("bytes", 290)])
@pytest.mark.parametrize("follow", [False, True])
def test_a_rate_is_kept(what, rate, follow):
    """Of records, of bytes: what is there takes as long as the rate says, less what the bucket had."""
    world = World()
    reader = world.run(world.logs.read("a"))
    setattr(reader.rates, what, rate)
    began = world.seconds()
    found = world.run(_read(reader, follow=follow))
    assert found == [b"%d" % number for number in range(RECORDS)]
    total = RECORDS if what == "records" else sum(map(len, found))
    assert world.seconds() - began == pytest.approx(total / rate, rel=0.1)


def test_a_change_acts_while_it_waits():
    """Within a second; 0 gives out nothing."""
    world = World()
    reader = world.run(world.logs.read("a"))
    reader.rates.records = 0
    reading = world.cluster.outcome(_read(reader))
    world.cluster.spin(100)
    assert not reading.done
    assert reader.index == 0
    reader.rates.records = -1
    world.cluster.spin(1.0)
    assert len(reading.result()) == RECORDS


def test_the_close_ends_the_waiting():
    """At once, as it ends everything else; what was not given out was not counted as given."""
    world = World()
    reader = world.run(world.logs.read("a"))
    reader.rates.records = 0
    reading = world.cluster.outcome(_read(reader))
    world.cluster.spin(10)
    world.run(reader.close())
    assert reading.result() == []
    assert reader.index == 0


def test_a_cursor_gives_what_it_has_before_it_waits():
    """A call gives one batch at that rate, and the calls together keep it."""
    world = World()
    cursor = world.run(world.logs.cursor("a", "c", start="begin"))
    cursor.rates.records = 20
    began, found = world.seconds(), []
    while len(found) < 100:
        some = world.run(cursor.read(1000))
        assert 0 < len(some) <= 20
        found += [record.value for record in some]
    assert found == [b"%d" % number for number in range(len(found))]
    assert world.seconds() - began == pytest.approx(len(found) / 20, rel=0.2)
    cursor.rates.records = -1
    rest = world.run(cursor.read(1000))
    assert [record.value for record in rest] == [b"%d" % number for number in range(len(found), RECORDS)]


def test_compacted_ledgers_are_given_out_at_the_rate_too():
    """Each record that is left counts, whatever lies between them."""
    world = World(batch_bytes=20)
    world.run(world.logs.update("a", compaction=True))
    owner = world.run(world.logs.own("a"))
    for number in range(300):
        world.run(owner.append(b"%d" % number, key=b"%d" % (number % 100)))
    owner.roll()
    world.run(owner.append(b"behind the horizon"))
    world.run(owner.close())
    world.run(world.logs.compact("a"), 600)
    reader = world.run(world.logs.read("a", compacted=True))
    reader.rates.records = 100
    began = world.seconds()
    found = world.run(_read(reader, 10_000))
    assert len(found) == RECORDS + 100 + 1
    assert world.seconds() - began == pytest.approx(len(found) / 100, rel=0.1)
