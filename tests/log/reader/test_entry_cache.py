"""What the cache keeps, and what goes first."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from quire.client.api import Entry
from quire.log.core.counters import LogCounters
from quire.log.reader.entry_cache import ENTRY_BYTES, NEAR_ENTRIES, EntryCache

# SPDX-License-Identifier: Apache-2.0

PAYLOAD = 1000
EACH = PAYLOAD + ENTRY_BYTES


class Readers:
    """Of one ledger, at these entries."""

    def __init__(self, *at: int) -> None:
        self.counters = LogCounters()
        self.at = sorted(at)

    def positions(self) -> list[int]:
        return self.at


def entries(first: int, last: int, payload: bytes = bytes(PAYLOAD)) -> list[Entry]:
    return [Entry(7, entry, payload) for entry in range(first, last + 1)]


def ids(some: list[Entry]) -> list[int]:
    return [entry.entry_id for entry in some]


def test_adjacent_entries_from_any_of_them_on() -> None:
    """To the end of what was put together; of other readers nothing."""
    cache, readers = EntryCache(Clock(), 1 << 20), Readers(0)
    cache.put(readers, entries(10, 19), tail=True)
    assert ids(cache.at(readers, 10)) == list(range(10, 20))
    assert ids(cache.at(readers, 17)) == [17, 18, 19]
    assert ids(cache.at(readers, 10, 2)) == [10, 11]
    assert ids(cache.at(readers, 18, 9)) == [18, 19]
    assert cache.at(readers, 9) == cache.at(readers, 20) == cache.at(Readers(0), 10) == []
    assert cache.bytes == readers.counters.cache_bytes == 10 * EACH


def test_what_is_there_already_is_not_put_again() -> None:
    """Entries on both sides of it are, and between."""
    cache, readers = EntryCache(Clock(), 1 << 20), Readers(0)
    cache.put(readers, entries(10, 19), tail=True)
    cache.put(readers, entries(30, 39), tail=True)
    cache.put(readers, entries(5, 44), tail=False)
    assert cache.bytes == 40 * EACH
    for entry in range(5, 45):
        assert cache.at(readers, entry)[0].entry_id == entry
    assert cache.at(readers, 4) == cache.at(readers, 45) == []


def test_what_is_worth_fetching_doubles_up_to_a_part_of_a_scans_room() -> None:
    """One entry where the one before is not there; then twice as many as lie before it."""
    cache, readers = EntryCache(Clock(), 8 * 16 * 10 * EACH), Readers(0)
    assert cache.worth_fetching(readers, 0) == cache.worth_fetching(readers, 5) == 1
    cache.put(readers, entries(4, 4), tail=False)
    assert [cache.worth_fetching(readers, entry) for entry in (4, 5, 6)] == [1, 2, 1]
    cache.put(readers, entries(5, 7), tail=False)
    assert cache.worth_fetching(readers, 8) == 6
    cache.put(readers, entries(8, 16), tail=True)
    assert cache.worth_fetching(readers, 17) == 10
    assert cache.worth_fetching(Readers(0), 17) == 1
    none = EntryCache(Clock(), 0)
    none.put(readers, entries(4, 4), tail=False)
    assert none.worth_fetching(readers, 5) == 1


def test_the_oldest_go_for_new_ones() -> None:
    """Down to nine tenths of the room, so that not each one that comes has to drive out another."""
    cache, readers = EntryCache(Clock(), 80 * EACH), Readers(0)  # 70 of a tail
    for entry in range(70):
        cache.put(readers, entries(entry, entry), tail=True)
    assert cache.at(readers, 0)
    cache.put(readers, entries(70, 70), tail=True)
    assert cache.at(readers, 7) == []
    assert ids(cache.at(readers, 8)) == [8]
    assert cache.bytes == readers.counters.cache_bytes == 63 * EACH


def test_a_scan_drives_out_no_tail() -> None:
    """Ten times the room goes by; it has an eighth for itself."""
    cache, tail, scan = EntryCache(Clock(), 800 * EACH), Readers(0), Readers(0)
    cache.put(tail, entries(0, 299), tail=True)
    for first in range(0, 8000, 10):
        cache.put(scan, entries(first, first + 9), tail=False)
        assert scan.counters.cache_bytes <= 100 * EACH
    assert all(cache.at(tail, entry) for entry in range(300))
    assert cache.at(scan, 7999)
    assert cache.at(scan, 7000) == []


def test_what_takes_more_than_half_of_the_room_is_not_kept() -> None:
    """It would leave nothing of what came before."""
    cache, readers = EntryCache(Clock(), 80 * EACH), Readers(0)
    cache.put(readers, [Entry(7, 0, bytes(36 * EACH))], tail=True)
    assert cache.at(readers, 0) == []
    assert cache.bytes == 0


def test_a_long_list_goes_in_parts() -> None:
    """What is larger than the room leaves its end."""
    cache, readers = EntryCache(Clock(), 80 * EACH), Readers(0)
    cache.put(readers, entries(0, 99), tail=True)
    assert 60 * EACH <= cache.bytes <= 70 * EACH
    assert cache.at(readers, 99)
    assert cache.at(readers, 20) == []


@pytest.mark.parametrize(
    ("at", "is_kept"),
    [(0, True), (9, True), (10, False), (NEAR_ENTRIES + 20, False)],
    ids=["before", "in", "behind", "far"],
)
def test_what_nobody_is_near_to_goes_after_a_second(at: int, is_kept: bool) -> None:
    """A reader that has it before it keeps it."""
    clock, readers = Clock(), Readers(at)
    cache = EntryCache(clock, 1 << 20)
    cache.put(readers, entries(0, 9), tail=True)
    clock.advance(0.9)
    assert cache.at(readers, 0)
    clock.advance(0.2)
    assert bool(cache.at(readers, 0)) == is_kept
    assert len(clock.getDelayedCalls()) == is_kept, "nothing is looked after where nothing is"


def test_one_that_is_far_behind_keeps_nothing() -> None:
    """It reads so much before it comes there that this will have gone."""
    clock, readers = Clock(), Readers(0)
    cache = EntryCache(clock, 1 << 30)
    cache.put(readers, entries(NEAR_ENTRIES + 1, NEAR_ENTRIES + 2), tail=True)
    cache.put(readers, entries(NEAR_ENTRIES, NEAR_ENTRIES), tail=True)
    clock.advance(1.1)
    assert cache.at(readers, NEAR_ENTRIES + 1) == []
    assert cache.at(readers, NEAR_ENTRIES)


def test_nothing_is_kept_for_nobody() -> None:
    """Of other ledgers it stays, and the room is free."""
    clock, readers, others = Clock(), Readers(0), Readers(0)
    cache = EntryCache(clock, 16 << 20)
    for tail in (True, False):
        cache.put(readers, entries(0, 9) if tail else entries(10, 19), tail)
        cache.put(others, entries(0, 9) if tail else entries(10, 19), tail)
    cache.forget(readers)
    cache.forget(readers)
    assert cache.at(readers, 0) == cache.at(readers, 10) == []
    assert len(cache.at(others, 0)) == len(cache.at(others, 10)) == 10
    assert readers.counters.cache_bytes == 0
    assert cache.bytes == others.counters.cache_bytes == 20 * EACH
    assert clock.getDelayedCalls()
    cache.forget(others)
    assert not clock.getDelayedCalls(), "nor is anything waited for"


@pytest.mark.parametrize("size", [1, 100, 1000, 100_000])
def test_it_takes_no_more_memory_than_it_may(size: int) -> None:
    """Within a tenth, whatever size entries have."""
    limit = 8 << 20
    cache, readers = EntryCache(Clock(), limit), Readers(0)
    tracemalloc.start()
    try:
        before, _peak = tracemalloc.get_traced_memory()
        count = max(1, 20_000 // size)
        for number in range(2 * limit // (count * (size + ENTRY_BYTES))):
            first = number * count
            some = [Entry(7, entry, bytes(size)) for entry in range(first, first + count)]
            cache.put(readers, some, tail=number % 4 > 0)
        del some
        after, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.bytes > 0.7 * limit
    assert after - before <= 1.1 * limit


Put = st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 12), st.booleans())
Step = st.one_of(Put, st.tuples(st.integers(0, 2)), st.floats(0.1, 1.5))


@given(steps=st.lists(Step, max_size=40), room=st.integers(5, 200))
def test_whatever_was_put_or_nothing(steps: list[object], room: int) -> None:
    """Each entry that is found is the one that was put there, in order; the room is kept, and counted right."""
    clock = Clock()
    cache = EntryCache(clock, room * EACH)
    ledgers = [Readers(20), Readers(), Readers(0, 50)]
    for step in steps:
        if isinstance(step, float):
            clock.advance(step)
        elif len(step) == 1:
            cache.forget(ledgers[step[0]])
        else:
            number, first, count, tail = step
            payload = b"%d" % number + bytes(PAYLOAD - 1)
            cache.put(ledgers[number], entries(first, first + count - 1, payload), tail)
        assert cache.bytes <= room * EACH
        assert cache.bytes == sum(readers.counters.cache_bytes for readers in ledgers)
        found = 0
        for number, readers in enumerate(ledgers):
            for entry in range(75):
                some = cache.at(readers, entry)
                assert ids(some) == list(range(entry, entry + len(some)))
                assert all(each.data[:1] == b"%d" % number for each in some)
                found += bool(some)
        assert found * EACH == cache.bytes
    for readers in ledgers:
        cache.forget(readers)
    clock.advance(2.0)
    assert cache.bytes == 0
    assert not clock.getDelayedCalls()
