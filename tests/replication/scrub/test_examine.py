"""Sums of copies: equal for equal copies, however they were read, and another for any other copy."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.core.quorum import Quorums
from quire.protocol.digest import Digest, DigestType
from quire.replication.scrub.examine import Sums
from quire.replication.scrub.plan import CHUNK

# SPDX-License-Identifier: Apache-2.0

QUORUMS = Quorums(3, 3, 2)


def bodies(digest: Digest, first: int, count: int) -> list[bytes]:
    return [
        digest.entry(7, entry, entry - 1, 100 * entry + 9, b"%09d" % entry) for entry in range(first, first + count)
    ]


@given(st.integers(0, 3 * CHUNK), st.integers(1, 500), st.lists(st.integers(1, 400)), st.booleans())
def test_however_they_come(first: int, count: int, cuts: list[int], striped: bool) -> None:
    """In pieces of any size and order."""
    digest, quorums = Digest(DigestType.CRC32C, b""), Quorums(4, 2, 1) if striped else QUORUMS
    whole, parts = Sums(quorums, digest), Sums(quorums, digest)
    made = bodies(digest, first, count)
    whole.add(first, made)
    borders = sorted({0, count, *(cut for cut in cuts if cut < count)})
    pieces = list(pairwise(borders))
    random.Random(count).shuffle(pieces)
    for start, stop in pieces:
        parts.add(first + start, made[start:stop])
    assert whole.found == parts.found
    assert sum(each.entries for each in whole.found.values()) == count
    assert sum(each.payload_bytes for each in whole.found.values()) == 9 * count
    assert not whole.wrong


@pytest.mark.parametrize("kind", list(DigestType))
def test_another_copy_has_another_sum(kind: DigestType) -> None:
    """Any bit of any digest's entries."""
    digest = Digest(kind, b"secret")
    one = Sums(QUORUMS, digest)
    one.add(5, bodies(digest, 5, 3))
    for entry, payload, lac in ((5, b"000000004", 4), (6, b"000000006", 3), (7, b"00000000", 6)):
        made = bodies(digest, 5, 3)
        made[entry - 5] = digest.entry(7, entry, lac, 100 * entry + 9, payload)
        other = Sums(QUORUMS, digest)
        other.add(5, made)
        assert other.found != one.found


def test_heads_that_cannot_be() -> None:
    """A last add confirmed not below the entry or below -1; fewer bytes in the ledger than in the payload."""
    digest = Digest(DigestType.CRC32C, b"")
    sums = Sums(QUORUMS, digest)
    heads = [(4, 900), (6, 900), (-2, 900), (7, 8), (-1, 9)]
    sums.add(5, [digest.entry(7, entry, lac, length, b"123456789") for entry, (lac, length) in enumerate(heads, 5)])
    assert sums.wrong == [6, 7, 8]


def test_a_copy_that_apache_made_is_no_finding() -> None:
    """Its repairs write the last add confirmed of their own time; above the ledger's end there is none."""
    digest = Digest(DigestType.CRC32C, b"")
    made = [digest.entry(7, entry, lac, 100, b"x") for entry, lac in enumerate((9, 9, 10, 1))]
    sums = Sums(QUORUMS, digest, 10, 9)
    sums.add(0, made)
    assert sums.wrong == [2]
    written = Sums(QUORUMS, digest, 1, 9)
    written.add(0, made)
    assert written.wrong == [1, 2]
