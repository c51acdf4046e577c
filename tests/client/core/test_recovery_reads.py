"""The reads of a recovery: what is asked of whom, what a piece brings, and what it never says."""

import pytest

from quire.client.core.quorum import Quorums
from quire.client.core.recovery_messages import ReadAnswer, RecoveryRead, RecoveryRun, RunAnswer
from quire.client.core.recovery_reads import PIECE_ENTRIES_MAX, READ_BYTES_MAX, READS_MAX, RecoveryReads, Verdict
from quire.protocol.digest import Digest, DigestType
from tests.client.fakes.cluster import NO_ENTRY, TIMED_OUT, UNREACHABLE

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")


def body(entry, size=3):
    return DIGEST.entry(1, entry, -1, (entry + 1) * size, b"x" * size)


def reads_of(highest, shape=(3, 3, 2), first=0, pieces=True):
    """The reads of a ledger whose bookies said that they reach so far, and what they ask first."""
    bookies = tuple(f"b{index}" for index in range(shape[0]))
    reads = RecoveryReads(1, Quorums(*shape), DIGEST, bookies, first, dict(highest), set(), pieces)
    return reads, reads.ask_on()


def taken(reads, first):
    """How many consecutive entries can be taken from `first` on."""
    count = 0
    while reads.pop(first + count) is not None:
        count += 1
    return count


def test_what_bookies_hold_is_asked_in_pieces_of_each_in_turn():
    """Four pieces cover what three bookies said they hold; each bookie is asked for some."""
    reads, asked = reads_of({0: 999, 1: 999, 2: 999})
    pieces = [ask for ask in asked if isinstance(ask, RecoveryRun)]
    assert [(piece.first, piece.count) for piece in pieces] == [(0, 256), (256, 256), (512, 256), (768, 232)]
    assert {piece.index for piece in pieces} == {0, 1, 2}
    for piece in reversed(pieces):
        bodies = [body(entry) for entry in range(piece.first, piece.first + piece.count)]
        reads.brought(RunAnswer(piece.first, 0, bodies))
    assert taken(reads, 0) == 1000


def test_only_a_bookie_that_reaches_so_far_is_asked_for_a_piece():
    """What one bookie alone holds is asked of that one."""
    _reads, asked = reads_of({0: -1, 1: 99, 2: 49})
    pieces = [ask for ask in asked if isinstance(ask, RecoveryRun)]
    assert sum(piece.count for piece in pieces) == 100
    assert all(piece.index == 1 for piece in pieces if piece.first >= 50)


def test_above_all_they_hold_one_entry_is_asked_of_all():
    """The end is probably there: one entry, its whole write set at once; the next ones once it was found after all."""
    reads, asked = reads_of({0: 4, 1: 4})
    singles = [(ask.entry, ask.index) for ask in asked if isinstance(ask, RecoveryRead)]
    assert singles == [(5, 2), (5, 0), (5, 1)]
    reads.answered(ReadAnswer(5, 2, 0, body(5)))
    assert [ask.entry for ask in reads.ask_on()] == [6, 6, 6, 7, 7, 7], "there is more: two at a time, then four"


@pytest.mark.parametrize("code", [NO_ENTRY, TIMED_OUT, UNREACHABLE])
def test_a_piece_that_fails_proves_nothing(code):
    """Its entries are read one by one, and only what their own write sets say counts."""
    reads, asked = reads_of({0: 9})
    reads.brought(RunAnswer(asked[0].first, code, []))
    assert reads.ended is None
    again = reads.ask_on()
    assert sorted({ask.entry for ask in again}) == list(range(10))
    for index in (0, 1):
        assert reads.ended is None
        reads.answered(ReadAnswer(3, index, NO_ENTRY, None))
    assert (reads.ended.entry, reads.ended.verdict) == (3, Verdict.ABSENT)


def test_a_piece_that_ends_early_is_asked_on_until_it_brings_nothing():
    """A bookie that misses an entry ends its answer there, and begins the next with it; that is no "no"."""
    reads, _asked = reads_of({0: 9})
    reads.brought(RunAnswer(0, 0, [body(0), body(1)]))
    (rest,) = reads.ask_on()
    reads.brought(RunAnswer(rest.first, NO_ENTRY, []))
    assert taken(reads, 0) == 2
    assert [ask.entry for ask in reads.ask_on()] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert reads.ended is None


@pytest.mark.parametrize("sizes", [[100_000] * 9, [10, 10], [50_000]])
def test_an_answer_that_was_full_goes_on_with_the_same_bookie(sizes):
    """
    Some entries fit into an answer, and the rest is a piece again: also where little fits, before a large entry or into
    a small frame.
    """
    reads, _asked = reads_of({0: 19})
    reads.brought(RunAnswer(0, 0, [body(entry, size) for entry, size in enumerate(sizes)]))
    assert [(ask.first, ask.count, ask.index) for ask in reads.ask_on()] == [(len(sizes), 20 - len(sizes), 0)]


def test_what_waits_for_a_piece_that_is_late_is_bounded():
    """However large the entries of those above it are; once it is there it goes on, though the next one never comes."""
    reads, (late, _silent, *asked) = reads_of({0: 9999, 1: 9999})
    size, held, last = 210_000, 0, -1

    def bring(piece):
        """Five of its entries fit into an answer."""
        count = min(piece.count, 5)
        reads.brought(RunAnswer(piece.first, 0, [body(piece.first + place, size) for place in range(count)]))
        return count

    while asked:
        held += bring(asked.pop())
        asked += reads.ask_on()
    assert held * size <= READ_BYTES_MAX
    asked.append(late)
    while last < PIECE_ENTRIES_MAX - 1:
        bring(asked.pop())
        while reads.pop(last + 1) is not None:
            last += 1
        asked += reads.ask_on()


def test_damaged_bytes_in_a_piece_are_not_found():
    """What stands before the damage counts; the damaged entry and what follows is read by itself."""
    reads, _asked = reads_of({0: 4})
    bodies = [bytearray(body(entry)) for entry in range(5)]
    bodies[2][-1] ^= 1
    reads.brought(RunAnswer(0, 0, list(map(bytes, bodies))))
    assert taken(reads, 0) == 2
    assert {ask.entry for ask in reads.ask_on()} == {2, 3, 4}


def test_a_bookie_that_closes_connections_for_pieces_is_not_asked_for_them_again():
    """It may know no batch read."""
    reads, asked = reads_of({0: 10 * PIECE_ENTRIES_MAX})
    reads.brought(RunAnswer(asked[0].first, UNREACHABLE, []))
    assert not any(isinstance(ask, RecoveryRun) for ask in reads.ask_on())


@pytest.mark.parametrize(("shape", "pieces"), [((3, 3, 2), False), ((4, 3, 2), True)])
def test_without_pieces_entries_are_asked_of_one_replica_first(shape, pieces):
    """Where the option is off, and where stripes leave no bookie with everything: a window of single reads."""
    reads, asked = reads_of({0: 999, 2: 999}, shape, pieces=pieces)
    assert [ask.entry for ask in asked] == list(range(min(READS_MAX, len(asked))))
    assert len(asked) > 1
    more = reads.answered(ReadAnswer(0, asked[0].index, NO_ENTRY, None))
    assert len(more) == shape[1] - 1, "now all others of its write set"


def test_one_large_entry_after_the_other_when_they_are_huge():
    """What is under way and what waits for a lower entry is bounded by bytes; the lowest entry is always asked for."""
    reads, asked = reads_of({0: 99, 1: 99}, pieces=False)
    size = 5 << 20
    reads.answered(ReadAnswer(1, asked[1].index, 0, body(1, size)))
    for ask in asked:
        if ask.entry > 1:
            reads.answered(ReadAnswer(ask.entry, ask.index, 0, body(ask.entry)))
    assert reads.ask_on() == []
    reads.answered(ReadAnswer(0, asked[0].index, 0, body(0, size)))
    assert [ask.entry for ask in reads.ask_on()] == [asked[-1].entry + 1]
