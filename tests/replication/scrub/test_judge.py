"""What looks add up to: runs that belong together, entries without any copy, lengths."""

from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.replication.scrub.examine import Missing, Sum
from quire.replication.scrub.judge import Seen, findings_of, joined, kind_of, lost_runs, payload_bytes, suspicions
from quire.replication.scrub.plan import CHUNK, Share

# SPDX-License-Identifier: Apache-2.0

PLAIN, STRIPED = Quorums(3, 3, 2), Quorums(4, 2, 1)


def seen(index: int, sums: dict[tuple[int, int], Sum], missing: tuple[Missing, ...] = (), moved: bool = False) -> Seen:
    return Seen(Share(7, 0, index, f"b{index}", 0, 9, 0), list(missing), sums, 0, moved)


def test_kinds() -> None:
    """Of each sort of code."""
    assert [kind_of(code) for code in (-13, -7, -5, -1, -108, -8, -23, 1, 2, 3)] == [
        *("missing", "missing", "damaged", "damaged", "restoring", "unreachable", "unreachable"),
        *("head", "differs", "stale"),
    ]


def test_runs_between_which_a_bookie_holds_nothing_are_one() -> None:
    """Of a striped ledger: one row, with its number of entries."""
    parts = [Missing("b0", 3, 2, -13), Missing("b0", 7, 2, -13), Missing("b0", 15, 2, -13), Missing("b0", 19, 2, -5)]
    assert joined(STRIPED, 0, parts) == [
        (Missing("b0", 3, 4, -13), 8),
        (Missing("b0", 15, 2, -13), 16),
        (Missing("b0", 19, 2, -5), 20),
    ]


def test_what_is_lost() -> None:
    """Where as many bookies lack an entry as should have it; silence and difference are no loss."""
    parts = [[Missing("b0", 0, 10, -13)], [Missing("b1", 5, 10, -5)], [Missing("b2", 8, 9, -7)]]
    assert lost_runs(PLAIN, parts) == [(8, 10)]
    assert lost_runs(PLAIN, [*parts[:2], [Missing("b2", 8, 9, -8)]]) == []
    metadata = LedgerMetadata.new(3, 3, 2, ["b0", "b1", "b2"])
    found = findings_of(7, metadata, {(0, index): part for index, part in enumerate(parts)})
    assert [(each.kind, each.bookie, each.first, each.last) for each in found] == [
        *[("lost", "b0", 8, 9), ("missing", "b0", 0, 7)],
        *[("lost", "b1", 8, 9), ("damaged", "b1", 5, 7), ("damaged", "b1", 10, 14)],
        *[("lost", "b2", 8, 9), ("missing", "b2", 10, 16)],
    ]


def test_sums_that_are_not_equal_are_suspected() -> None:
    """Chunk by chunk; a bookie that did not answer at all has no sums, and what others have is compared."""
    same, other = Sum(10, 5, 90), Sum(10, 6, 90)
    assert suspicions({7: (PLAIN, 9)}, [seen(index, {(0, 0): same, (1, 0): same}) for index in range(3)]) == []
    parts = [seen(0, {(0, 0): same, (1, 0): same}), seen(1, {(0, 0): same, (1, 0): other})]
    (found,) = suspicions({7: (PLAIN, 9)}, [*parts, seen(2, {}, (Missing("b2", 0, 10, -8),))])
    assert (found.differing, found.copies) == ({(CHUNK, 2 * CHUNK - 1)}, [(2, 0, 9)])


def test_a_share_whose_bookie_was_replaced_is_looked_at_again() -> None:
    """As the metadata says by then."""
    (found,) = suspicions({7: (PLAIN, 9)}, [seen(1, {}, moved=True)])
    assert found.copies == [(1, 0, 9)]


def test_payload_bytes() -> None:
    """From any bookie that has a class whole; unknown when none has."""
    whole = [seen(0, {(0, 0): Sum(4, 1, 40), (1, 0): Sum(6, 1, 60)}), seen(1, {(0, 0): Sum(3, 1, 30)})]
    assert payload_bytes(9, whole) == 100
    assert payload_bytes(9, whole[1:]) is None
