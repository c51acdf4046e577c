"""What an owner's window takes, and when of it the next entry goes: rates, holds, who waits for room."""

import math
from random import Random

import pytest
from twisted.internet.defer import gatherResults
from twisted.internet.task import Clock

from quire.conf.log import LogOptions, LogSettings
from quire.log.api import Logs
from quire.log.core.streams.rates import Together
from quire.log.owner.appending.window import LOOK_S, Window
from quire.protocol.errors import TooManyRequests
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.cluster import cluster, values
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


DICE = Random(7)


class Sender:
    """Always wants to send entries of so many records, a byte each."""

    def __init__(self, clock, process=None, records=1, options=None, **settings):
        self.clock, self.size = clock, records
        self.settings = LogSettings(**settings)
        self.sent = 0
        self.window = Window(
            LogOptions(**(options or {})), clock, DICE, lambda: self.settings, process or Together(1 << 40), self.go_on
        )

    def go_on(self):
        for _ in range(10_000):
            if not self.window.may_go():
                return
            self.window.went(self.size, self.size)
            self.sent += self.size

    def run(self, seconds, step=0.01):
        before = self.sent
        self.go_on()
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
        return self.sent - before


def test_a_rate_of_records_and_of_bytes():
    """Within 5 % over ten seconds, whichever is the lower; entries larger than the bucket make debt."""
    for settings, records in (
        ({"rate_records": 1000}, 7),
        ({"rate_bytes": 1000}, 7),
        ({"rate_records": 1000, "rate_bytes": 10**6}, 1),
        ({"rate_records": 20}, 50),
    ):
        sender = Sender(Clock(), records=records, **settings)
        rate = min(each for each in settings.values())
        sender.run(3)
        assert math.isclose(sender.run(10), 10 * rate, rel_tol=0.05, abs_tol=0 if records < rate else records)


def test_all_owners_of_a_process_have_a_rate_together():
    """Each gets some of it."""
    clock, process, options = Clock(), Together(1 << 20), {"rate_records": 1000}
    one, two = (Sender(clock, process, records=5, options=options) for _ in range(2))
    two.go_on()
    one.run(10)
    assert math.isclose(one.sent + two.sent, 10_000, rel_tol=0.05)
    assert min(one.sent, two.sent) > 1000


def test_other_settings_act_within_a_second():
    """However long the wait was to be."""
    clock = Clock()
    sender = Sender(clock, records=1000, rate_records=1)
    assert sender.run(1) == 1000
    sender.settings = LogSettings(rate_records=10_000)
    sender.run(2 * LOOK_S)
    assert sender.sent > 1000
    sender.settings = LogSettings(rate_records=0)
    assert sender.run(100, 0.5) <= 10_000
    before = sender.sent
    assert sender.run(100, 0.5) == 0
    sender.settings = LogSettings()
    clock.advance(2 * LOOK_S)
    assert sender.sent > before


def test_a_hold():
    """Nothing goes until it is over, and then it goes by itself."""
    sender = Sender(Clock(), rate_records=1000)
    sender.window.hold(True)
    assert sender.run(10) == 0
    sender.window.hold(False)
    assert sender.sent
    assert sender.window.waited


def test_entries_are_small_where_a_rate_is():
    """So many records or bytes as a fiftieth of a second brings, one at least; without a rate there is no limit."""
    assert Sender(Clock()).window.entry_most is None
    assert Sender(Clock(), rate_records=1000).window.entry_most == (20, 1 << 30)
    assert Sender(Clock(), rate_bytes=10).window.entry_most == (1 << 30, 1)
    both = Sender(Clock(), options={"rate_records": 500}, rate_records=1000)
    assert both.window.entry_most == (10, 1 << 30)


def test_an_end():
    """Who waits for room is told, and no timer is left."""
    clock = Clock()
    sender = Sender(clock, rate_records=1, records=100, options={"window_records": 1})
    sender.go_on()
    sender.window.take(1, 1)
    ready = sender.window.ready(1, 1)
    assert not ready.called
    sender.window.end()
    assert ready.called
    assert not clock.getDelayedCalls()


def test_all_owners_of_a_process_have_so_many_bytes_together():
    """Who waits goes on when those of another log are answered, the longest first, or when its owner ends."""
    process = Together(100)
    one, two, three = (Sender(Clock(), process).window for _ in range(3))
    for window in (one, two, three):
        window.take(1, 20)
    assert two.fits(1, 40)
    assert not two.fits(1, 41)
    longest, other = two.ready(1, 60), three.ready(1, 50)
    longest.addCallback(lambda _: two.take(1, 60))
    one.take(-1, -20)
    one.over()
    assert longest.called
    assert not other.called
    two.end()
    assert other.called
    two.take(-2, -80)  # an answer that comes late
    three.end()
    assert (process.bytes, process.waiting) == (0, {})


def test_a_log_that_is_held_stops_no_other():
    """Where nothing of a log is under way it takes an append, however large, whatever the others have."""
    process = Together(100)
    held, other = (Sender(Clock(), process).window for _ in range(2))
    held.take(1, 100)
    assert other.ready(1, 1000).called
    other.take(1, 1000)
    assert not other.ready(1, 1).called
    other.take(-1, -1000)
    other.over()
    assert (process.bytes, process.waiting) == (100, {})


def test_a_log_with_many_that_wait_does_not_come_first_each_time():
    """What it has under way comes back, and then another one's turn is first."""
    process, order = Together(100), []
    one, two, full = (Sender(Clock(), process).window for _ in range(3))
    for window in (one, two):
        window.take(1, 1)
    full.take(1, 98)

    def go_on(_none, window):
        order.append(window)
        window.take(1, 90)

    for window in (one, one, one, two):
        window.ready(1, 90).addCallback(go_on, window)
    full.take(-1, -98)
    full.over()
    for _ in range(2):
        order[-1].take(-1, -90)
        order[-1].over()
    assert order == [one, two, one]


def test_who_waits_for_room_of_its_own_log_is_not_among_those_who_wait_for_others():
    """So it is not asked each time that bytes of others come back."""
    process = Together(100)
    one, two = (Sender(Clock(), process, options={"window_records": 1}).window for _ in range(2))
    one.take(1, 1)
    two.take(1, 99)
    waiting = one.ready(1, 1)
    assert process.waiting == {}
    two.take(-1, -99)
    two.over()
    assert not waiting.called
    one.take(-1, -1)
    one.over()
    assert waiting.called


class Appending:
    """An owner on virtual time that always has so many calls of a size under way; `stored` are records."""

    def __init__(self, cluster, logs, name, size, calls=4, **settings):
        self.size, self.stored, self.entries = size, 0, 0
        cluster.succeed(logs.create(name, **settings))
        self.owner = cluster.succeed(logs.own(name))
        for _ in range(calls):
            self.append()

    def append(self, _done=None):
        if _done is not None:
            self.stored += self.size
            self.entries += 1
        self.owner.append_many([b"0123456789"] * self.size).addCallback(self.append)


def virtual(**options):
    """A cluster on virtual time, and a process's logs on it."""
    world = FakeCluster()
    return world, Logs(world.client(placement="random"), LogOptions(**options), now=world.clock.seconds)


@pytest.mark.parametrize("size", [1, 30, 450])
@pytest.mark.parametrize("settings", [{"rate_records": 500}, {"rate_bytes": 5000}])
def test_an_owner_keeps_its_rate(size, settings):
    """Within 5 % over ten seconds of virtual time, however large the calls are."""
    world, logs = virtual()
    appending = Appending(world, logs, "a", size, calls=100 if size < 450 else 4, **settings)
    world.spin(3)
    before = appending.stored
    world.spin(10)
    assert math.isclose(appending.stored - before, 5000, rel_tol=0.05, abs_tol=size if size == 450 else 0)


def test_batches_larger_than_the_bucket_do_not_starve():
    """Nor do the small ones of another log that have the same rate together with it."""
    world, logs = virtual(rate_records=500)
    large = Appending(world, logs, "large", 2000)
    small = Appending(world, logs, "small", 1)
    for _ in range(4):
        before = large.entries, small.entries
        world.spin(60)
        assert large.entries - before[0] >= 3
        assert small.entries - before[1] >= 10
    assert math.isclose(large.stored + small.stored, 240 * 500, rel_tol=0.05)


@pytest.mark.parametrize("rate", [0, 1, 500])
def test_a_throttled_log_does_not_slow_another(rate):
    """Of the same client: on virtual time it is answered as often as alone, within a tenth."""

    def stored(beside):
        world, logs = virtual()
        if beside:
            Appending(world, logs, "slow", 100, calls=50, rate_records=rate)
        other = Appending(world, logs, "other", 3, calls=1)
        world.spin(3)
        return other.stored

    assert math.isclose(stored(True), stored(False), rel_tol=0.1)


def test_logs_have_so_many_bytes_together():
    """What does not fit beside those of another log is refused with its name, and goes once those are answered."""
    world, logs = virtual(process_bytes=1000)
    full, other = (world.succeed(logs.create(name)) and world.succeed(logs.own(name)) for name in ("full", "other"))
    stored = [other.append(b"1"), full.append(bytes(900))]
    refused = world.fails(other.append(bytes(200)))
    assert isinstance(refused, TooManyRequests)
    assert "1 records of 1 bytes are under way in the log 'other', 901 bytes of all logs" in str(refused)
    room = other.ready(1, 200)
    assert not room.called
    assert [each.index for each in map(world.succeed, stored)] == [0, 0]
    assert room.called
    assert world.succeed(other.append(bytes(200))).index == 1


def test_a_log_among_busy_ones_gets_its_share():
    """Though the others take what comes back, and ask before it does."""
    world, logs = virtual(process_bytes=4000, window_bytes=1000)
    busy = [Appending(world, logs, f"busy {number}", 100, calls=2) for number in range(4)]
    late = Appending(world, logs, "late", 100, calls=1)
    before = [each.stored for each in (*busy, late)]
    world.spin(3)
    grown = [each.stored - was for each, was in zip((*busy, late), before, strict=True)]
    assert grown[-1] > min(grown[:-1]) / 10


def test_room_that_comes_back_with_what_failed_wakes_who_waits():
    """A producer's appends that wait for a rate fail with the one before them, and nothing else is under way."""
    world, logs = virtual(window_records=10)

    def hook(_index, _at, _stamp, given):
        if b"bad" in given:
            raise ValueError("refused")
        return given

    world.succeed(logs.create("a", dedup=True, rate_records=2))
    owner = world.succeed(logs.own("a", before_append=hook))
    first = owner.append(b"good")
    values = [b"bad", *[b"good"] * 8]
    appends = [owner.append(value, producer="p", sequence=number) for number, value in enumerate(values)]
    assert world.succeed(first).index == 0
    waiting = owner.ready(5)
    assert not waiting.called
    assert {type(world.fails(each)) for each in appends} == {ValueError}
    world.spin(60)
    assert waiting.called
    assert owner.under_way == (0, 0)


def test_a_throttled_log(tmp_path):
    """Nothing is dropped or changes its place, another log of the client goes on, and settings let it go."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(append_ms=500)
            for name in ("slow", "other"):
                await logs.create(name, rate_records=100 if name == "slow" else -1)
            slow, other = await logs.own("slow"), await logs.own("other")
            begun = reactor.seconds()
            first = gatherResults([slow.append(b"%d" % number) for number in range(50)])
            many = slow.append_many([b"many"] * 150)
            last = slow.append(b"last")
            for number in range(20):
                await gatherResults([other.append(b"%d" % number) for _ in range(50)])
            assert [each.index for each in await first] == list(range(50))
            assert reactor.seconds() - begun > 0.4
            assert (await many).indexes == range(50, 200)
            assert not last.called
            await logs.update("slow", rate_records=-1)
            assert (await last).index == 200
            assert (await values(await logs.read("slow"), 201))[:50] == [b"%d" % number for number in range(50)]

    run(story)


def test_a_close_stores_what_waits(tmp_path):
    """At any rate."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a", rate_records=0)
            owner = await logs.own("a")
            waiting = [owner.append(b"x") for _ in range(10)]
            await owner.close()
            assert [(await each).index for each in waiting] == list(range(10))

    run(story)
