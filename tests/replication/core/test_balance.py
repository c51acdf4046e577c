"""Which holdings go from full bookies to empty ones: levels after it, bytes moved, rules kept, for any cluster."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.client.core.quorum import Domains, Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.core.balance import Disk, Fits, Holdings, Plan, bytes_on, moved

# SPDX-License-Identifier: Apache-2.0

WITHIN = 0.1
ROOM = 1 << 50


def anywhere(_metadata: LedgerMetadata, _bookies: Sequence[str], _index: int, _target: str) -> bool:
    return True


def closed(bookies: Sequence[str], write: int, entries: int, size: int, more: Sequence[str] = ()) -> LedgerMetadata:
    """A closed ledger; with a second fragment half way on the bookies of `more`."""
    metadata = LedgerMetadata.new(len(bookies), write, min(2, write), bookies)
    if more:
        metadata = metadata.with_ensemble(max(1, entries // 2), more)
    return metadata.closed(entries - 1, entries * size)


def drawn(rng: Random, bookies: Sequence[str], ledgers: int, shape: tuple[int, int], size: int) -> list[LedgerMetadata]:
    """Ledgers of all sizes up to about this one, some with two fragments."""
    made = []
    for _ in range(ledgers):
        ensemble = rng.sample(bookies, shape[0])
        more = rng.sample(bookies, shape[0]) if rng.random() < 0.2 else ()
        made.append(closed(ensemble, shape[1], rng.randint(2, 200), rng.randint(1, size), more))
    return made


def held_by(ledgers: Sequence[LedgerMetadata]) -> Holdings:
    holdings = Holdings()
    for metadata in ledgers:
        holdings.add(metadata)
    return holdings


def planned(
    ledgers: Sequence[LedgerMetadata], disks: Mapping[str, Disk], fits: Fits = anywhere, moves_max: int = 1 << 30
) -> Plan:
    plan = Plan(held_by(ledgers), disks, fits, WITHIN, moves_max)
    for thorough in (False, True):
        plan.thorough = thorough
        for number, metadata in enumerate(ledgers):
            plan.offer(number, metadata)
    return plan


def carried_out(ledgers: Sequence[LedgerMetadata], plan: Plan) -> list[LedgerMetadata]:
    after = list(ledgers)
    for number, moves in plan.moves.items():
        for each in moves:
            after[number] = moved(after[number], each.source, each.target)
    return after


def levels(ledgers: Sequence[LedgerMetadata], disks: Mapping[str, Disk]) -> dict[str, float]:
    """Counted anew, holding by holding."""
    found = dict.fromkeys(disks, 0.0)
    for metadata in ledgers:
        for bookie, size in bytes_on(metadata).items():
            found[bookie] += size / disks[bookie].capacity
    return found


def least(ledgers: Sequence[LedgerMetadata], disks: Mapping[str, Disk]) -> float:
    """
    The fewest bytes by which any way to even them out does, if bytes could be moved one by one: a naive search of the
    level that the emptiest is to reach.
    """
    before = levels(ledgers, disks)
    top = max(before.values())
    best = float("inf")
    for step in range(4_001):
        low = top * step / 4_000
        gives = sum(max(0.0, before[each] - low * (1 + WITHIN)) * disk.capacity for each, disk in disks.items())
        takes = sum(max(0.0, low - before[each]) * disk.capacity for each, disk in disks.items())
        best = min(best, max(gives, takes))
    return best


def largest(ledgers: Sequence[LedgerMetadata]) -> int:
    return max(max(bytes_on(metadata).values()) for metadata in ledgers)


def same_disks(bookies: Sequence[str]) -> dict[str, Disk]:
    return dict.fromkeys(bookies, Disk(1 << 40, ROOM))


def test_two_new_bookies_beside_four_full_ones() -> None:
    """Levels within a tenth of each other after it, at most 1.2 times the bytes that have to be moved."""
    bookies = [f"b{number}" for number in range(6)]
    ledgers = drawn(Random(1), bookies[:4], 2000, (3, 3), 1000)
    disks = same_disks(bookies)
    plan = planned(ledgers, disks)
    after = levels(carried_out(ledgers, plan), disks)
    assert max(after.values()) <= (1 + WITHIN) * min(after.values())
    assert plan.bytes <= 1.2 * least(ledgers, disks)
    assert all(plan.used[each] == pytest.approx(after[each] * disks[each].capacity) for each in bookies)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    full=st.integers(3, 8),
    new=st.integers(1, 4),
    shape=st.sampled_from([(1, 1), (2, 2), (3, 3), (3, 2)]),
    capacities=st.sampled_from([(1, 1), (1, 2), (2, 1), (1, 4)]),
)
def test_levels_come_near_with_few_bytes(
    seed: int, full: int, new: int, shape: tuple[int, int], capacities: tuple[int, int]
) -> None:
    """Any number of full and new bookies, of the same size or not, with many small ledgers."""
    rng = Random(seed)
    bookies = [f"b{number}" for number in range(full + new)]
    ledgers = drawn(rng, bookies[:full], 800, shape, 300)
    disks = {bookie: Disk(capacities[number >= full] << 30, ROOM) for number, bookie in enumerate(bookies)}
    plan = planned(ledgers, disks)
    after = carried_out(ledgers, plan)
    found = levels(after, disks)
    grain = largest(ledgers)
    assert plan.bytes <= 1.2 * least(ledgers, disks) + grain
    part = max(disk.capacity for disk in disks.values()) / sum(disk.capacity for disk in disks.values())
    if part <= 0.8 / shape[0]:  # else one would need more than what it may have: one copy of each entry
        assert max(found.values()) <= (1 + WITHIN) * min(found.values())
    for before, now in zip(ledgers, after, strict=True):
        assert [each.first for each in before.fragments] == [each.first for each in now.fragments]
        assert all(len(set(each.bookies)) == len(each.bookies) for each in now.fragments)
    again = planned(after, disks)
    assert again.bytes <= grain * len(bookies), "what is even stays where it is"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), ledgers=st.integers(1, 12), full=st.integers(3, 5), new=st.integers(1, 3))
def test_few_large_ledgers_never_make_it_worse(seed: int, ledgers: int, full: int, new: int) -> None:
    """However coarse they are; and a plan after the plan comes to an end."""
    rng = Random(seed)
    bookies = [f"b{number}" for number in range(full + new)]
    now = drawn(rng, bookies[:full], ledgers, (3, 2), 100_000)
    disks = same_disks(bookies)
    for _ in range(20):
        before = levels(now, disks)
        plan = planned(now, disks)
        if not plan.moves:
            return
        now = carried_out(now, plan)
        after = levels(now, disks)
        assert max(after.values()) <= max(before.values()) + 1e-12
        assert min(after.values()) >= min(before.values()) - 1e-12
    raise AssertionError("each plan moves something again")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 32), racks=st.integers(2, 4), write=st.sampled_from([2, 3]))
def test_no_write_set_comes_nearer_together(seed: int, racks: int, write: int) -> None:
    """What the placement promised each ledger it still has."""
    rng = Random(seed)
    bookies = [f"b{number}" for number in range(8)]
    rack = {bookie: f"/r{rng.randrange(racks)}" for bookie in bookies}
    domains = Domains(rack.__getitem__, 2)

    def fits(metadata: LedgerMetadata, ensemble: tuple[str, ...], index: int, target: str) -> bool:
        after = (*ensemble[:index], target, *ensemble[index + 1 :])
        quorums = Quorums.of(metadata)
        return domains.spread(quorums, after) >= domains.spread(quorums, ensemble)

    ledgers = drawn(rng, bookies[:6], 300, (3, write), 1000)
    plan = planned(ledgers, same_disks(bookies), fits)
    for before, after in zip(ledgers, carried_out(ledgers, plan), strict=True):
        for old, new in zip(before.fragments, after.fragments, strict=True):
            quorums = Quorums.of(before)
            assert domains.spread(quorums, new.bookies) >= domains.spread(quorums, old.bookies)


def test_the_largest_shares_go() -> None:
    """Each holding costs operations of the metadata store, whatever its size."""
    ledgers = [closed(["b0"], 1, 1, 10_000_000) for _ in range(100)] + [closed(["b0"], 1, 1, 100) for _ in range(1000)]
    plan = planned(ledgers, same_disks(["b0", "b1"]))
    assert plan.count <= 51
    assert all(number < 100 for number in plan.moves)


def test_all_that_a_bookie_has_of_a_ledger_goes_together() -> None:
    """Else the bookie could drop nothing of it; an empty fragment goes along."""
    ledger = closed(["b0", "b1"], 2, 10, 1000, ["b0", "b2"])
    empty = LedgerMetadata.new(2, 2, 2, ["b0", "b1"]).with_ensemble(10, ["b0", "b2"]).closed(9, 10_000)
    for one in (ledger, empty):
        ledgers = [one, *[closed(["b1", "b2"], 2, 10, 1000)] * 3, *[closed(["b0", "b1"], 2, 10, 1000)] * 3]
        plan = planned(ledgers, same_disks(["b0", "b1", "b2", "b3"]))
        for number, moves in plan.moves.items():
            after = moved(ledgers[number], moves[0].source, moves[0].target)
            assert moves[0].source not in after.bookies()
        assert sum(each.bytes for moves in plan.moves.values() for each in moves) == plan.bytes > 0


def test_what_takes_nothing_gets_nothing() -> None:
    """One that is read-only or has no room; it may give. A ledger that is open, and bookies left out, are untouched."""
    ledgers = [closed([f"b{number % 3}"], 1, 10, 1000) for number in range(300)]
    ledgers += [LedgerMetadata.new(1, 1, 1, ["b0"])] * 10 + [closed(["gone"], 1, 10, 100_000)] * 10
    disks = {**same_disks(["b0", "b1", "b2", "new"]), "read-only": Disk(1 << 40, 0), "tight": Disk(1 << 40, 20_000)}
    plan = planned(ledgers, disks)
    moves = [each for some in plan.moves.values() for each in some]
    assert all(number < 300 for number in plan.moves)
    assert {each.target for each in moves} == {"new", "tight"}
    assert sum(each.bytes for each in moves if each.target == "tight") <= 20_000
    giving = {**disks, "b0": Disk(1 << 40, 0)}
    assert any(each.source == "b0" for some in planned(ledgers, giving).moves.values() for each in some)


def test_a_plan_has_room_for_so_many_moves() -> None:
    """The next one goes on."""
    now = [closed(["b0"], 1, 1, 1000) for _ in range(100)]
    disks = same_disks(["b0", "b1"])
    first = planned(now, disks, moves_max=10)
    assert (first.count, first.full) == (10, True)
    assert not planned(carried_out(now, first), disks).full
