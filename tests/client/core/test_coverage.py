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
