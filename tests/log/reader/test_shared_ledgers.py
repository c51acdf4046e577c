"""Many readers of one ledger: what each is given, and what the bookies are asked for."""

import gc

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.counters import LogCounters
from quire.log.core.values import Segment
from quire.log.reader import shared_ledgers
from quire.log.reader.shared_ledgers import SharedLedgers
from quire.protocol.errors import ClientClosed, NoSuchLedger, Read
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import collect, written

# SPDX-License-Identifier: Apache-2.0


worlds = []


@pytest.fixture(autouse=True)
def _ended():
    """What still follows a ledger at the end of a test ends."""
    yield
    while worlds:
        world = worlds.pop()
        world.cluster.succeed(world.client.close())


class World:
    """A ledger of small entries, and the readers of one process; `asked` are the entries that bookies gave it."""

    def __init__(self, count: int = 500, close: bool = True, leased: bool = False, lac_ms: int = 10, **options) -> None:
        self.cluster = FakeCluster()
        self.writing, self.writer = written(self.cluster, count, close=close, explicit_lac_interval_ms=lac_ms)
        self.segment = Segment(0, self.writer.id, 1, 0, 0, *((count, count, count) if close else ()), leased=leased)
        self.client = self.cluster.client(read_ahead_entries_max=20)
        self.ledgers = SharedLedgers(self.client, LogOptions(**options))
        self.counters = LogCounters()
        self.cluster.pools[-1].asked.clear()
        worlds.append(self)

    def open(self, segment=None):
        return self.cluster.succeed(self.ledgers.open(segment or self.segment, self.counters))

    @property
    def asked(self) -> int:
        return sum(each.last + 1 - each.entry for each in self.cluster.pools[-1].asked if each.op in ("read", "batch"))

    def scan(self, reader, first=0, last=499):
        return self.cluster.outcome(collect(reader.stream(first, last)))

    def append(self, *values: bytes) -> None:
        self.cluster.succeed(self.writer.append_many(list(values)))
        self.cluster.spin(0.3)


def numbers(entries):
    assert all(entry.data == b"%d" % entry.entry_id for entry in entries)
    return [entry.entry_id for entry in entries]


def following(reader, timeout=60.0, first=0, **how):
    """The entries so far, and what became of it."""
    got = []

    async def run():
        async for some in reader.tail(timeout, first, **how):
            got.extend(some)

    done = Deferred.fromCoroutine(run())
    done.addErrback(lambda failure: failure.trap(ClientClosed) and failure.value)
    return got, done


def test_many_at_one_cold_place_ask_for_each_entry_once():
    """All begin at the same time, and are given all of it."""
    world = World()
    readers = [world.open() for _ in range(50)]
    world.cluster.pools[-1].asked.clear()
    scans = [world.scan(reader) for reader in readers]
    world.cluster.spin(5)
    for each in scans:
        assert numbers(each.result()) == list(range(500))
    assert world.asked <= 520, "what was read ahead of the end counts"
    assert world.counters.cache_hits == 49 * 500
    assert world.counters.cache_misses == 500


def test_one_that_comes_a_little_later_goes_on_with_the_others():
    """What they had is cached, so it catches up."""
    world = World()
    first, late = world.open(), world.open()
    world.cluster.pools[-1].asked.clear()
    scans = [world.scan(first)]
    world.cluster.spin(0.01)
    scans.append(world.scan(late))
    world.cluster.spin(5)
    assert [numbers(each.result()) for each in scans] == [list(range(500))] * 2
    assert world.asked <= 520


def test_who_is_slow_holds_nobody_and_loses_nothing():
    """It takes one list at a time, long after the others are through, of which the cache has few entries by then."""
    world = World(cache_bytes=8 * 20 * 300)
    slow, fast = world.open(), world.open()
    lists = slow.stream(0, 499)
    got = world.cluster.succeed(anext(lists))
    scan = world.scan(fast)
    world.cluster.spin(5)
    assert numbers(scan.result()) == list(range(500))
    got += world.cluster.succeed(collect(lists))
    assert numbers(got) == list(range(500))


def test_a_hundred_tails_ask_as_one():
    """Of what is written entry by entry, the bookies are asked for one in a hundred that are given out."""
    world = World(count=0, close=False)
    tails = [following(world.open()) for _ in range(100)]
    world.cluster.spin(0.5)
    world.cluster.pools[-1].asked.clear()
    for number in range(40):
        world.append(b"%d" % number)
    world.cluster.spin(2)
    for got, _done in tails:
        assert numbers(got) == list(range(40))
    assert 40 <= world.asked <= 42
    assert world.counters.cache_hits >= 99 * 40


def test_a_scan_leaves_the_tail_what_it_has():
    """Ten times the cache of another ledger goes by; a tail that looks a second time asks for nothing."""
    world = World(count=100, close=False, cache_bytes=150 * 205)
    (got, done), reader = following(world.open(), 30.0), world.open()
    world.cluster.spin(0.3)
    for number in range(100, 200, 10):
        world.append(*(b"%d" % entry for entry in range(number, number + 10)))
    assert numbers(got) == list(range(200))
    _client, other = written(world.cluster, 1500)
    scanned = world.open(Segment(1, other.id, 1, 0, 0, 1500, 1500, 1500))
    numbers(world.cluster.succeed(collect(scanned.stream(0, 1499))))
    world.cluster.pools[-1].asked.clear()
    assert numbers(world.cluster.succeed(collect(reader.stream(110, 199)))) == list(range(110, 200))
    assert world.asked == 0
    assert not done.called


def test_the_close_of_one_ends_only_its_own():
    """What it waits for fails; the others go on, and the ledger is closed with the last of them."""
    world = World(count=3, close=False)
    one, other = world.open(), world.open()
    (got_one, done), (got, left) = following(one), following(other)
    world.cluster.spin(0.3)
    world.cluster.succeed(one.close())
    world.cluster.succeed(one.close())
    assert isinstance(world.cluster.succeed(done), ClientClosed)
    assert isinstance(world.cluster.fails(collect(one.stream(0, 2))), ClientClosed)
    assert isinstance(world.cluster.fails(one.read(0, 0)), ClientClosed)
    world.append(b"3")
    assert (numbers(got_one), numbers(got)) == ([0, 1, 2], [0, 1, 2, 3])
    assert not left.called
    world.cluster.succeed(other.close())
    assert isinstance(world.cluster.succeed(left), ClientClosed)
    assert world.counters.cache_bytes == 0
    again = world.open()
    assert again.last_entry_id == 3
    world.cluster.succeed(again.close())


@pytest.mark.parametrize("how", ["stream", "tail"])
def test_one_that_was_closed_is_given_nothing_more(how):
    """Also between two lists, while others have the ledger open and the cache has what comes next."""
    world = World()
    keeps, leaves = world.open(), world.open()
    lists = leaves.stream(0, 499) if how == "stream" else leaves.tail(10.0, 0)
    assert world.cluster.succeed(anext(lists))[0].entry_id == 0
    assert len(world.cluster.succeed(collect(keeps.stream(0, 499)))) == 500
    world.cluster.succeed(leaves.close())
    assert isinstance(world.cluster.fails(anext(lists)), ClientClosed)


def test_each_waits_for_as_long_as_it_wants():
    """In silence; what is there is given without any."""
    world = World(count=3, close=False)
    clock = world.cluster.clock
    (got, short), (_got, long) = following(world.open(), 1.0), following(world.open(), 5.0)
    began, ends = clock.seconds(), []
    for each in (short, long):
        each.addCallback(lambda _: ends.append(clock.seconds() - began))
    world.cluster.spin(10)
    assert numbers(got) == [0, 1, 2]
    assert ends == pytest.approx([1.0, 5.0], abs=0.2)
    got, none = following(world.open(), 0.0)
    world.cluster.spin(0.2)
    assert numbers(got) == [0, 1, 2]
    assert none.called


@pytest.mark.parametrize("ends", ["late", "cancelled"])
def test_a_wait_that_is_over_is_not_kept(ends):
    """Of a tail that came to its time, or was cancelled, nothing stays while the ledger is silent."""
    world = World(10, close=False)
    reader, keeps = world.open(), world.open()
    _got, kept = following(keeps)
    world.cluster.spin(0.5)
    gc.collect()
    before = sum(type(each) is Deferred for each in gc.get_objects())
    for _ in range(20):
        _got, done = following(reader, 0.1 if ends == "late" else 60.0, first=10)
        if ends == "cancelled":
            done.addErrback(lambda failure: failure.trap(CancelledError) and None)
            done.cancel()
        else:
            world.cluster.spin(0.2)
        assert done.called
    del done
    gc.collect()
    assert sum(type(each) is Deferred for each in gc.get_objects()) < before + 10
    assert not kept.called


def test_short_tails_one_after_the_other_wait_with_one_poll():
    """What the one before has asked for serves the next, while another reader has the ledger open."""
    world = World(count=3, close=False)
    keeps, polls = world.open(), world.open()

    def tail():
        got, done = following(polls, 0.1, 3)
        world.cluster.spin(0.2)
        assert done.called
        return numbers(got)

    assert tail() == []
    timers = len(world.cluster.clock.getDelayedCalls())
    assert [tail() for _ in range(50)] == [[]] * 50
    assert len(world.cluster.clock.getDelayedCalls()) <= timers + 1
    world.append(b"3")
    assert tail() == [3]
    assert world.counters.cache_hits == 1
    world.cluster.succeed(keeps.close())


def test_a_tail_ends_at_the_close():
    """Of the ledger, with all that it confirms; where the segment is leased, with what was confirmed before."""
    for leased, ends in ((False, [0, 1, 2, 3]), (True, [0, 1, 2])):
        world = World(count=3, close=False, leased=leased)
        got, done = following(world.open(), past_close=not leased)
        world.cluster.spin(0.3)
        before = len(got)
        world.cluster.succeed(
            world.cluster.client().open_ledger(world.writer.id)
        )  # fences it, and closes it at its end
        world.cluster.spin(1.0)
        assert done.called
        assert before <= len(got) <= 3
        assert numbers(got) == ends[: len(got)]


def test_an_error_is_everybodys_and_the_next_try_asks_again():
    """Nothing of it stays."""
    world = World()
    readers = [world.open() for _ in range(3)]
    world.cluster.judge = lambda request: -13 if request.op in ("read", "batch") else "pass"
    scans = [world.scan(reader) for reader in readers]
    world.cluster.spin(60)
    for each in scans:
        assert each.done
        with pytest.raises(Exception, match="does not have it"):
            each.result()
    world.cluster.judge = lambda _request: "pass"
    for reader in readers:
        assert numbers(world.cluster.succeed(collect(reader.stream(0, 499)))) == list(range(500))


def test_who_comes_to_an_open_ledger_knows_its_end_as_of_then():
    """Also where others have it open who have not looked for long, and where it was closed meanwhile."""
    world = World(count=3, close=False)
    first = world.open()
    assert first.last_entry_id == 2
    world.append(b"3", b"4")
    second = world.open()
    assert second.last_entry_id == 4
    world.append(b"5")
    world.cluster.succeed(world.writer.close())
    third = world.open()
    assert third.last_entry_id == 5
    assert numbers(world.cluster.succeed(collect(third.stream(0, 5)))) == list(range(6))
    for each in (first, second, third):
        world.cluster.succeed(each.close())
    world.cluster.succeed(world.writing.delete_ledger(world.writer.id))
    assert isinstance(world.cluster.fails(world.ledgers.open(world.segment, world.counters)), NoSuchLedger)


def test_an_end_that_only_the_close_confirmed():
    """Who comes after it knows it, though others have the ledger open as it was."""
    world = World(count=3, close=False, lac_ms=0)
    before = world.open()
    assert before.last_entry_id < 2
    world.cluster.succeed(world.cluster.client().open_ledger(world.writer.id))  # recovers and closes it
    world.cluster.judge = lambda request: -8 if request.op == "lac" else "pass"  # the metadata says it
    after = world.open()
    assert after.last_entry_id == 2
    assert numbers(world.cluster.succeed(collect(after.stream(0, 2)))) == [0, 1, 2]


@pytest.mark.parametrize(("cache_bytes", "times"), [(1 << 20, 1), (0, 3)])
def test_the_readers_of_a_process_share(cache_bytes, times):
    """As its logs give them; without a cache each asks for itself."""
    cluster = FakeCluster()
    logs = Logs(cluster.client(), LogOptions(cache_bytes=cache_bytes))
    cluster.succeed(logs.create("a"))
    owner = cluster.succeed(logs.own("a"))
    for number in range(40):
        cluster.succeed(owner.append(b"%d" % number))
    cluster.succeed(owner.close())
    readers = [cluster.succeed(logs.read("a")) for _ in range(3)]
    cluster.pools[-1].asked.clear()

    async def values(reader):
        return [value async for batch in reader.batches() for value in batch.values]

    found = [cluster.outcome(values(reader)) for reader in readers]
    cluster.spin(2)
    assert [each.result() for each in found] == [[b"%d" % number for number in range(40)]] * 3
    asked = [each for each in cluster.pools[-1].asked if each.op == "batch"]
    assert sum(min(each.last, 39) + 1 - each.entry for each in asked) == times * 40
    assert logs.metrics.of("a").cache_hits == (2 * 40 if cache_bytes else 0)
    cluster.succeed(logs.close())


def test_one_entry_is_read_once_for_all_who_look_for_it():
    """As a search for an index does; past the end is an error."""
    world = World()
    readers = [world.open() for _ in range(20)]
    world.cluster.pools[-1].asked.clear()
    looks = [world.cluster.outcome(reader.read(250, 250)) for reader in readers]
    world.cluster.spin(1)
    assert [numbers(each.result()) for each in looks] == [[250]] * 20
    assert world.asked == 1
    assert numbers(world.cluster.succeed(readers[0].read(250, 250))) == [250]
    assert world.asked == 1
    assert numbers(world.cluster.succeed(readers[0].read(10, 12))) == [10, 11, 12]
    assert isinstance(world.cluster.fails(readers[0].read(500, 500)), Read)


def few(world, reader, first, last=None, readable=499):
    """Reads a few entries by their places."""
    return world.cluster.outcome(collect(reader.stream(first, first if last is None else last, readable)))


def test_few_entries_after_each_other_come_ahead():
    """Whoever reads on one by one asks for ever more at once, for each entry once, and for none above the readable."""
    world = World()
    reader = world.open()
    pool = world.cluster.pools[-1]
    pool.asked.clear()
    for entry in range(300):
        assert numbers(world.cluster.succeed(collect(reader.stream(entry, entry, 299)))) == [entry]
    asked = [each for each in pool.asked if each.op in ("read", "batch")]
    assert [each.last + 1 - each.entry for each in asked[:4]] == [1, 2, 4, 8]
    assert (world.asked, max(each.last for each in asked)) == (300, 299)
    assert len(asked) < 30, "a bookie is asked for twenty entries at most"
    assert world.counters.cache_misses == 300
    assert world.counters.cache_hits >= 290


def test_entries_here_and_there_come_alone():
    """Nothing is read ahead of the first, nor where the one before was not read."""
    world = World()
    reader = world.open()
    world.cluster.pools[-1].asked.clear()
    for entry in range(0, 500, 10):
        assert numbers(world.cluster.succeed(collect(reader.stream(entry, entry + 1, 499)))) == [entry, entry + 1]
    assert world.asked == 100


def test_all_who_want_of_a_block_wait_for_it():
    """Two ask for later entries of what is under way, and no bookie is asked for these again."""
    world = World()
    first, second, third = (world.open() for _ in range(3))
    for entry in range(7):
        world.cluster.succeed(collect(first.stream(entry, entry, 499)))
    world.cluster.pools[-1].asked.clear()
    reads = [few(world, first, 7), few(world, second, 9, 10), few(world, third, 14)]
    world.cluster.spin(1)
    assert [numbers(each.result()) for each in reads] == [[7], [9, 10], [14]]
    assert [(each.entry, each.last) for each in world.cluster.pools[-1].asked] == [(7, 14)]


def test_one_that_waits_for_a_block_which_lacks_it_asks_itself():
    """The cache has no room for the block, so that what it brought is gone."""
    world = World(cache_bytes=0)
    first, second = world.open(), world.open()
    world.cluster.pools[-1].asked.clear()
    reads = [few(world, first, 7, 9), few(world, second, 8, 9)]
    world.cluster.spin(1)
    assert [numbers(each.result()) for each in reads] == [[7, 8, 9], [8, 9]]


def test_an_entry_that_nobody_has_hides_none_before_it():
    """Which came ahead of it, and fails only who asks for it, though others wait for the same block."""
    world = World()
    first, second = world.open(), world.open()
    world.cluster.judge = lambda request: (
        -13 if request.op in ("read", "batch") and request.entry <= 40 <= max(request.entry, request.last) else "pass"
    )
    for entry in range(39):
        assert numbers(world.cluster.succeed(collect(first.stream(entry, entry, 499)))) == [entry]
    both = [few(world, first, 39), few(world, second, 39)]
    world.cluster.spin(60)
    assert [numbers(each.result()) for each in both] == [[39], [39]]
    lost = few(world, first, 40)
    world.cluster.spin(60)
    with pytest.raises(Exception, match="does not have it"):
        lost.result()


def test_two_places_of_one_reader():
    """A large record's last part is looked at while its first one is given out."""
    world = World()
    reader = world.open()

    async def both():
        found = []
        async for some in reader.stream(0, 99):
            found += some
            found += await reader.read(400, 400)
        return found

    found = numbers(world.cluster.succeed(both()))
    assert [each for each in found if each != 400] == list(range(100))


def test_what_came_for_one_that_has_left_misleads_nobody():
    """One that comes just there is given all the same."""
    world = World()
    keeps, leaves = world.open(), world.open()
    scan = world.scan(leaves)
    world.cluster.succeed(leaves.close())
    assert isinstance(scan.error, ClientClosed)
    world.cluster.spin(1)
    for first in (20, 40, 60, 0):
        assert numbers(world.cluster.succeed(collect(keeps.stream(first, 499)))) == list(range(first, 500))


def test_nothing_is_fetched_for_nobody():
    """What was read ahead for a reader that left ends with it."""
    world = World(count=2000)
    keeps, leaves = world.open(), world.open()
    segment = Segment(0, world.writer.id, 1, 0, 0, 2000, 2000, 2000)
    lists = leaves.stream(0, segment.records - 1)
    world.cluster.succeed(anext(lists))
    world.cluster.succeed(lists.aclose())
    world.cluster.succeed(leaves.close())
    world.cluster.spin(2)
    asked = world.asked
    world.cluster.spin(60)
    assert world.asked == asked
    assert asked < 2000
    world.cluster.succeed(keeps.close())


@pytest.mark.parametrize("leased", [False, True])
def test_a_tail_outlasts_the_silence_of_its_follower(monkeypatch, leased):
    """After any silence it gets what comes, until its own time is over; a deletion of the ledger ends it."""
    monkeypatch.setattr(shared_ledgers, "FOLLOW_S", 50.0)
    world = World(10, close=False, leased=leased)
    readers = [world.open() for _ in range(2)]
    (got, done), (short, over) = following(readers[0], 1e6, past_close=not leased), following(readers[1], 130.0)
    world.cluster.spin(120)
    assert not done.called
    world.append(b"10")
    assert numbers(got) == numbers(short) == list(range(11))
    world.cluster.spin(120)
    assert not over.called
    world.cluster.spin(20)
    assert over.called
    assert not done.called
    world.append(b"11")
    assert numbers(got) == list(range(12))
    world.cluster.succeed(world.client.delete_ledger(world.writer.id))
    world.cluster.spin(120)
    assert done.called
