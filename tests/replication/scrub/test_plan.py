"""Plans: every copy is in exactly one share, whatever is cut where; a bookie has no more lanes than it may have."""

from hypothesis import given
from hypothesis import strategies as st

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import Fragment, LedgerMetadata
from quire.replication.core.fragments import runs_on
from quire.replication.scrub.plan import CHUNK, Share, lanes, sampled, shares_of

# SPDX-License-Identifier: Apache-2.0


def metadata(starts: list[int], last: int, ensemble: int, write: int, length: int) -> LedgerMetadata:
    """A closed ledger."""
    made = LedgerMetadata.new(ensemble, write, 1, [f"b{index}" for index in range(ensemble)])
    fragments = [Fragment(first, tuple(f"b{index + first % 3}" for index in range(ensemble))) for first in starts]
    return LedgerMetadata(
        *(made.ensemble_size, made.write_quorum, made.ack_quorum),
        *(made.state, -1, 0, tuple(fragments), made.digest, made.password),
    ).closed(last, length)


@given(st.sets(st.integers(1, 60_000), max_size=4), st.integers(-1, 50_000), st.sampled_from([(3, 3), (3, 2), (2, 1)]))
def test_every_copy_is_in_one_share(starts: set[int], last: int, quorums: tuple[int, int]) -> None:
    """In order, and cut at the same entries on all bookies of a fragment, inside of which only at the grid."""
    made = metadata(sorted({0, *starts}), last, *quorums, length=(last + 1) * 1500)
    shares = shares_of(5, made, last)
    found = [
        (entry, share.bookie)
        for share in shares
        for first, count in runs_on(Quorums.of(made), share.index, share.first, share.last)
        for entry in range(first, first + count)
    ]
    expected = [
        (entry, bookies[(entry + step) % quorums[0]])
        for first, end, bookies in made.fragment_ranges()
        for entry in range(first, (end if end is not None else -1) + 1)
        for step in range(quorums[1])
    ]
    assert sorted(found) == sorted(expected)
    borders = {each for first, end, _bookies in made.fragment_ranges() for each in (first - 1, end)}
    assert all(share.last in borders or (share.last + 1) % CHUNK == 0 for share in shares)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1 << 30)), max_size=40), st.integers(1, 4))
def test_lanes(given_shares: list[tuple[int, int]], per_bookie: int) -> None:
    """Of one bookie each, at most so many; every share once; none empty."""
    shares = [Share(number, 0, 0, f"b{of}", 0, 9, size) for number, (of, size) in enumerate(given_shares)]
    made = lanes(shares, per_bookie)
    assert sorted(share.ledger for lane in made for share in lane) == list(range(len(shares)))
    owners = [{share.bookie for share in lane} for lane in made]
    assert all(len(each) == 1 for each in owners)
    assert all(owners.count(each) <= per_bookie for each in owners)


def test_lanes_are_about_equal() -> None:
    """A bookie with much to read has all its lanes, as long as each other."""
    made = lanes([Share(number, 0, 0, "b0", 0, 9, 100_000) for number in range(40)], 4)
    assert [len(lane) for lane in made] == [10] * 4


def test_a_sample() -> None:
    """The same chunks of all replicas; others with another seed; all and none."""
    made = metadata([0], CHUNK * 1000 - 1, 3, 3, length=CHUNK * 1000 * 100)
    some = shares_of(5, made, made.last_entry, sampled(10))
    by_bookie = [[(each.first, each.last) for each in some if each.bookie == bookie] for bookie in ("b0", "b1", "b2")]
    assert by_bookie[0] == by_bookie[1] == by_bookie[2]
    chunks = sum((last - first + 1) // CHUNK for first, last in by_bookie[0])
    assert 50 < chunks < 150
    assert some != shares_of(5, made, made.last_entry, sampled(10, seed=1))
    for seed in (0, 1, 77, 1_606_663_600_123):  # of small ledgers, too, whose ids are neighbours
        assert 3 <= sum(sampled(20, seed)(ledger, 0) for ledger in range(60)) <= 25
    assert shares_of(5, made, made.last_entry, sampled(0)) == []
    assert shares_of(5, made, made.last_entry, sampled(100)) == shares_of(5, made, made.last_entry)
