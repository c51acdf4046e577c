"""One entry's body: from whom it comes, and the error when no replica has it."""

from twisted.internet.defer import Deferred

from quire.client.connections.answers import Answer
from quire.client.handles.entry_body import read_body
from quire.protocol.errors import DigestMatch
from tests.client.handles.test_range_reader import DIGEST, LOST, Pool, body, fired


def test_a_body_comes_from_the_first_replica_whose_copy_is_right():
    """With header and digest; when no replica has it the error names each and what it did."""
    pool = Pool()
    asking = Deferred.fromCoroutine(read_body(pool, 7, DIGEST, ["b0", "b1", "b2"], 4))
    pool.waiting[0].callback(Answer(LOST))
    pool.waiting[1].callback(Answer(0, b"junk" * 20))
    pool.waiting[2].callback(Answer(0, body(4)))
    assert fired(asking) == body(4)
    asking = Deferred.fromCoroutine(read_body(pool, 7, DIGEST, ["b0", "b1"], 4))
    pool.waiting[3].callback(Answer(0, body(5)))
    pool.waiting[4].callback(Answer(LOST))
    error = fired(asking)
    assert isinstance(error, DigestMatch)
    assert "entry 4 of ledger 7" in str(error)
    assert "b0 " in str(error)
    assert "b1 " in str(error)
