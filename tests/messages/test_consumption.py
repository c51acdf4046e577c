"""The log of consumers' offsets goes from master to master, and back to the same one when it was lost alone."""

from copy import copy

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.conf.messages import MessageOptions
from quire.messages import consumption
from quire.messages.api import Message, Stores
from quire.messages.consumption import Consumption
from quire.messages.descriptor import USE
from quire.messages.progress import LONG, Consumed, offset_key
from quire.protocol.errors import NotEnoughBookies
from quire.protocol.log_errors import LogFenced, LogTrimmed, NotOwner
from tests.log.fakes.cluster import cluster
from tests.messages.test_store import created, master
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

KEY = offset_key(Consumed("g", "T", 0))
NEVER_MS = 600_000  # nothing is stored but at a close


class Batch:
    """Consumer offsets as a reader gives them."""

    def __init__(self, **offsets):
        self.keys = [offset_key(Consumed(group, "T", 0)) for group in offsets]
        self.values = list(map(LONG.pack, offsets.values()))


class Progress:
    """
    A log of offsets without bookies: each reader gives the batches of its turns, one a turn, or raises them; each
    append ends when a test says so.
    """

    def __init__(self, *readers):
        self.bk, self.reactor = self, Clock()
        self.readers, self.closed = list(readers), 0
        self.appends = []
        self.lost, self.on_lost = False, None

    async def read(self, _name, compacted):
        assert compacted
        return Reading(self, self.readers.pop(0) if self.readers else [])

    async def own(self, _name, use):
        assert use == USE
        return copy(self)  # with the same appends

    def append_many(self, values, keys, atomic):
        ended = Deferred()
        self.appends.append((ended, [LONG.unpack(each)[0] for each in values]))
        return ended

    async def close(self):
        for ended, _values in self.appends:
            if not ended.called:
                ended.callback(None)


class Reading:
    def __init__(self, log, turns):
        self._log, self._turns = log, turns

    async def batches(self):
        found = self._turns.pop(0) if self._turns else Batch()
        if isinstance(found, Exception):
            raise found
        yield found

    async def close(self):
        self._log.closed += 1


def now(coroutine):
    """The result of what waits for nothing."""
    results = []
    Deferred.fromCoroutine(coroutine).addBoth(results.append)
    (found,) = results
    return found


def test_a_failed_store_does_not_bring_an_older_offset_back():
    """A newer offset waits for the store before it, and what failed is not stored behind what is newer."""
    log, consumed = Progress(), Consumed("g", "T", 0)
    consumption = Consumption(log, "p", 1.0)
    consumption.lead()
    for position in (7, 9):
        consumption.commit(consumed, position, 10, reset=False)
        log.reactor.advance(1.0)
    log.appends[0][0].errback(NotEnoughBookies("no"))
    log.reactor.advance(1.0)
    for ended, _values in log.appends[1:]:
        ended.callback(None)
    log.reactor.advance(1.0)
    assert log.appends[-1][1] == [9]
    consumption.commit(consumed, 3, 10, reset=True)
    closed = consumption.follow()
    assert log.appends[-1][1] == [3]
    log.appends[-1][0].callback(None)
    assert closed.called
    assert [values for _ended, values in log.appends] == [[7], [9], [3]]


def test_a_reader_that_the_log_was_trimmed_before_begins_anew():
    """Once: the new one gives what a compaction left, and an error of that one is told."""
    log = Progress([Batch(g=7), LogTrimmed("gone")], [Batch(g=9), LogTrimmed("gone")], [LogTrimmed("again")])
    consumption, consumed = Consumption(log, "p", 1.0), Consumed("g", "T", 0)
    assert now(consumption.committed(consumed)) == 7
    assert now(consumption.committed(consumed)) == 9
    assert now(consumption.documents()).check(LogTrimmed) is LogTrimmed
    assert log.closed == 3
    assert now(consumption.documents()) == {}


def test_a_close_stores_what_came_while_another_store_was_under_way():
    """It waits for that one."""
    log, consumed = Progress(), Consumed("g", "T", 0)
    consumption = Consumption(log, "p", 1.0)
    consumption.lead()
    consumption.commit(consumed, 7, 10, reset=False)
    log.reactor.advance(1.0)
    consumption.commit(consumed, 9, 10, reset=False)
    closed = consumption.follow()
    log.appends[0][0].callback(None)
    assert not closed.called
    log.appends[1][0].callback(None)
    assert closed.called
    assert [values for _ended, values in log.appends] == [[7], [9]]
    assert not log.reactor.getDelayedCalls()


def test_a_term_begins_once_the_one_before_has_stored_or_forgotten():
    """What the former could not store is not committed in the next one, whose own commits stay."""
    consumed, log = Consumed("g", "T", 0), Progress([Batch(g=3)], [Batch(g=3)])
    consumption = Consumption(log, "p", 1.0)
    consumption.lead()
    consumption.commit(consumed, 7, 10, reset=False)
    log.reactor.advance(1.0)
    closed = consumption.follow()
    consumption.lead()
    owned = Deferred.fromCoroutine(consumption.owned())
    assert not owned.called
    log.appends[0][0].errback(NotOwner("deposed"))
    assert closed.called
    assert owned.called
    assert now(consumption.committed(consumed)) == 3
    consumption.commit(consumed, 5, 10, reset=False)
    log.reactor.advance(1.0)
    assert [values for _ended, values in log.appends] == [[7], [5]]
    assert now(consumption.committed(consumed)) == 5


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What was lost is owned again soon."""
    monkeypatch.setattr(consumption, "RETRY_S", 0.01)


async def committing(world, tmp_path, position):
    """A master of ten messages whose user has committed a position that is not stored yet."""
    await created(world, tmp_path)
    stores = Stores(await world.logs(), MessageOptions(derived_dir=tmp_path / "rows", progress_ms=NEVER_MS))
    store = await master(stores)
    await store.put_many([Message("T")] * 10)
    await store.owns_progress()
    store.commit_offset("g", "T", 0, position)
    return stores, store


async def committed_ever(store, owner):
    """Until the store hears that another one owns the log."""
    while True:
        store.commit_offset("g", "T", 0, 7)
        await owner.barrier()


def test_what_was_lost_alone_is_owned_again(tmp_path):
    """It is still master: what was committed is kept, unless the log has another offset, and commits go on."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 7)
            owner = await (await world.logs()).own("pay.progress", use=USE, force=True)
            await owner.append(LONG.pack(3), key=offset_key(Consumed("h", "T", 0)))
            await failing(committed_ever(store, owner), NotOwner)
            await owner.close()
            await store.owns_progress()
            store.commit_offset("i", "T", 0, 5)
            assert [await store.committed(group, "T", 0) for group in "ghi"] == [7, 3, 5]
            await store.close()
            reading = await stores.open("pay", rows=False)
            assert [await reading.committed(group, "T", 0) for group in "ghi"] == [7, 3, 5]

    run(story)


def test_a_former_master_does_not_bring_offsets_back(tmp_path):
    """What it could not store when it was deposed is not committed; its next term begins with what others stored."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 7)
            other = await world.logs()
            progress = await other.own("pay.progress", use=USE, force=True)
            owner = await other.own("pay", use=USE, force=True)
            await failing(store.put(Message("T")), NotOwner, LogFenced)
            assert await store.committed("g", "T", 0) is None
            await progress.append(LONG.pack(9), key=KEY)
            await owner.close()
            await progress.close()
            assert await store.leads(60)
            await store.owns_progress()
            assert await store.committed("g", "T", 0) == 9
            store.commit_offset("h", "T", 0, 1)
            await store.close()
            reading = await stores.open("pay", rows=False)
            assert [await reading.committed(group, "T", 0) for group in "gh"] == [9, 1]

    run(story)


def test_whoever_waits_hears_that_it_is_not_master(tmp_path):
    """Those who wait for the log are told when their process ceases to try."""

    async def story():
        async with cluster(tmp_path) as world:
            stores, store = await committing(world, tmp_path, 1)
            await store.close()
            await failing(store.owns_progress(), NotOwner)
            reading = await stores.open("pay", rows=False)
            await failing(reading.owns_progress(), NotOwner)

    run(story)
