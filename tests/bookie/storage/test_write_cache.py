"""The write cache and the windows read ahead, against plain dicts."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.bookie.index.run import RUN_BYTES_MAX, RUN_ENTRIES_MAX
from quire.bookie.storage.write_cache import ENTRY_OVERHEAD, LEDGER_OVERHEAD, ReadAhead, Runs, WriteCache, pieces

PUTS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=30)


def bodies_of(stamp: int, first: int, count: int) -> list[bytes]:
    return [b"%d of %d" % (entry, stamp) for entry in range(first, first + count)]


def check_disjoint(runs: Runs) -> None:
    end = -1
    for first, run in zip(runs.firsts, runs.bodies, strict=True):
        assert run
        assert first >= end
        assert len(run) <= RUN_ENTRIES_MAX
        end = first + len(run)
    assert end == runs.end


@settings(max_examples=300)
@given(PUTS)
def test_runs_behave_as_a_dict(puts: list[tuple[int, int]]) -> None:
    """Any order, overlaps, gaps: the last copy wins, the runs stay disjoint and ascending."""
    runs = Runs()
    model: dict[int, bytes] = {}
    for stamp, (first, count) in enumerate(puts):
        bodies = bodies_of(stamp, first, count)
        given_bodies = list(bodies)
        runs.put(first, bodies, 10 * count)
        assert bodies == given_bodies, "the caller's list is not touched"
        model.update(zip(range(first, first + count), bodies, strict=True))
        check_disjoint(runs)
    for entry in range(-1, 90):
        assert runs.get(entry) == model.get(entry)
        following = runs.following(entry)
        assert following == [model[entry + step] for step in range(len(following))]
        assert bool(following) == (entry in model)
        later = [known for known in model if known >= entry]
        if later:
            assert runs.next_from(entry) == min(later)
    assert {entry for first, count in runs.ranges(0, 1000)[0] for entry in range(first, first + count)} == set(model)


@settings(max_examples=200)
@given(PUTS, PUTS)
def test_two_halves_behave_as_one_dict(older: list[tuple[int, int]], newer: list[tuple[int, int]]) -> None:
    """What was put after the swap wins; last, ranges and free_of see both halves; dropping leaves the newer."""
    cache = WriteCache(1 << 20)
    model: dict[int, bytes] = {}
    recent: dict[int, bytes] = {}
    for stamp, (first, count) in enumerate(older):
        cache.put(5, first, bodies_of(stamp, first, count), 1)
        model.update(zip(range(first, first + count), bodies_of(stamp, first, count), strict=True))
    cache.swap()
    for stamp, (first, count) in enumerate(newer, 100):
        cache.put(5, first, bodies_of(stamp, first, count), 1)
        recent.update(zip(range(first, first + count), bodies_of(stamp, first, count), strict=True))
    model.update(recent)
    assert cache.last(5) == max(model, default=-1)
    assert cache.holds(5) == bool(model)
    for entry in range(90):
        assert cache.get(5, entry) == model.get(entry)
        following = cache.following(5, entry)
        assert following == [model[entry + step] for step in range(len(following))]
        assert bool(following) == (entry in model)
        free = cache.free_of(5, entry, 10)
        assert free == next((step for step in range(10) if entry + step in model), 10)
    assert {entry for first, count in cache.ranges(5)[0] for entry in range(first, first + count)} == set(model)
    cache.drop()
    assert [cache.get(5, entry) for entry in range(90)] == [recent.get(entry) for entry in range(90)]


def test_runs_are_bounded() -> None:
    """A run has at most 256 entries and about a mebibyte, however the entries come."""
    runs = Runs()
    for first in range(0, 1000, 10):
        runs.put(first, bodies_of(0, first, 10), 100)
    check_disjoint(runs)
    assert len(runs.firsts) == 4
    runs = Runs()
    runs.put(0, bodies_of(0, 0, 1000), 10_000)
    check_disjoint(runs)
    assert len(runs.firsts) == 4
    big = [bytes(300_000)] * 10
    runs = Runs()
    runs.put(0, big, 3_000_000)
    assert all(sum(map(len, run)) <= RUN_BYTES_MAX for run in runs.bodies)
    assert runs.get(9) == big[9]
    one = Runs()
    one.put(0, [bytes(5_000_000), b"small"], 5_000_005)
    assert [len(run) for run in one.bodies] == [1, 1]
    assert [start for start, _part, _size in pieces([b"x"] * 600)] == [0, 256, 512]


def test_a_half_is_full_at_its_share() -> None:
    """
    Half of the configured bytes but for a reserve, which recovery may use up; the swap makes room; forgetting a ledger
    takes it from both halves.
    """
    cache = WriteCache(2 * (LEDGER_OVERHEAD + 600))
    cache.put(1, 0, [b"x"], (LEDGER_OVERHEAD + 600) * 7 // 8 - LEDGER_OVERHEAD - 1)
    assert not cache.full
    cache.put(1, 1, [b"y"], 1)
    assert (cache.full, cache.reserve_full) == (True, False)
    cache.put(1, 1, [b"y"], (LEDGER_OVERHEAD + 600) // 8)
    assert cache.reserve_full
    half = cache.swap()
    assert not cache.full
    assert half.entries == 3
    cache.put(1, 2, [b"z"], 1)
    cache.put(2, 0, [b"z"], 1)
    cache.forget(1)
    assert [cache.get(1, entry) for entry in range(3)] == [None] * 3
    assert cache.get(2, 0) == b"z"
    assert cache.last(1) == -1
    assert cache.ranges(1) == ([], None)


def test_read_ahead_has_a_bound() -> None:
    """
    The ledger that was read ahead longest ago goes first; a window that can't fit is not kept; a ledger has few
    windows.
    """
    ahead = ReadAhead(1000)
    ahead.put(1, 10, [bytes(100), bytes(101)])
    assert ahead.get(1, 11) == bytes(101)
    assert ahead.get(1, 12) is None
    assert ahead.get(1, 9) is None
    assert ahead.get(2, 10) is None
    size = ahead.bytes
    assert size == 201 + 2 * ENTRY_OVERHEAD
    ahead.put(2, 0, [bytes(300)])
    ahead.put(3, 0, [bytes(900)])
    assert ahead.get(1, 10) is None
    assert ahead.get(2, 0) is None
    assert ahead.get(3, 0) == bytes(900)
    ahead.put(4, 0, [bytes(5000)])
    ahead.put(4, 0, [])
    assert ahead.get(4, 0) is None
    ahead.forget(3)
    ahead.forget(3)
    assert ahead.bytes == 0
    for first in range(10):
        ahead.put(5, first, [b"x"])
    assert [ahead.get(5, entry) for entry in range(10)] == [None] * 6 + [b"x"] * 4
    assert ahead.bytes == 4 * (1 + ENTRY_OVERHEAD)
