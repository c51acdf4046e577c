"""What a query for the last add confirmed needs, and which bytes it believes."""

from quire.client.core.coverage import Coverage
from quire.client.core.quorum import Quorums
from quire.protocol.digest import Digest, DigestType
from tests.client.fakes.cluster import NO_LEDGER, TIMED_OUT

DIGEST = Digest(DigestType.CRC32C, b"")


def body(entry, payload=None):
    return DIGEST.entry(7, entry, entry - 1, 0, payload if payload is not None else b"%d" % entry)


# Coverage of a LAC query.


def test_a_lac_needs_coverage_and_a_digest():
    """The last confirmed entry is complete when enough bookies answered, and "no ledger" counts as answer."""
    coverage = Coverage(7, Quorums(3, 3, 2), DIGEST)
    coverage.lac_and_entry(0, 0, DIGEST.lac_body(7, 9), body(4))
    assert (coverage.lac, coverage.complete) == (9, False)
    coverage.lac_and_entry(1, TIMED_OUT, None, None)
    assert not coverage.complete
    coverage.lac_and_entry(2, NO_LEDGER, None, None)
    assert coverage.complete
    assert coverage.exhausted


def test_unsigned_or_damaged_lacs_are_not_believed():
    """Only a value with a valid digest counts, and at least one is needed."""
    coverage = Coverage(7, Quorums(3, 3, 2), DIGEST)
    coverage.lac_and_entry(0, 0, DIGEST.lac_body(8, 99), None)
    coverage.lac_and_entry(1, 0, None, body(4)[:-1] + b"X")
    assert coverage.lac == -1
    assert not coverage.complete, "covered, but no answer was valid"
    coverage.lac_and_entry(2, 0, None, body(4))
    assert (coverage.lac, coverage.complete) == (3, True)


# How far entries are stored.


def test_the_highest_entry_needs_whole_bodies_of_a_covering_set():
    """A bookie without the ledger counts, one whose last entry is damaged does not, though its LAC is whole."""
    coverage = Coverage(7, Quorums(3, 3, 2), DIGEST)
    coverage.lac_and_entry(0, NO_LEDGER, None, None)
    assert not coverage.reaches
    coverage.lac_and_entry(1, 0, DIGEST.lac_body(7, 3), body(9)[:-1] + b"X")
    assert (coverage.complete, coverage.reaches, coverage.highest) == (True, False, -1)
    assert "b1 sent bytes whose digest is wrong of its last entry" in coverage.failure(("b0", "b1", "b2"))
    coverage.lac_and_entry(2, 0, None, body(5))
    assert (coverage.reaches, coverage.highest, coverage.lac) == (True, 5, 4)


def test_the_highest_entry_is_covered_by_write_sets():
    """Of a striped ledger those have to answer without whom no write set reaches its ack quorum."""
    coverage = Coverage(7, Quorums(4, 2, 2), DIGEST)
    coverage.lac_and_entry(0, 0, None, body(8))
    coverage.lac_and_entry(1, TIMED_OUT, None, None)
    assert not coverage.reaches, "2 and 3 may hold entry 6 or 10"
    coverage.lac_and_entry(2, 0, None, body(10))
    assert (coverage.reaches, coverage.highest) == (True, 10)
