"""Reading one replica: what counts as read, what is asked again, and bookies without batch read."""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.client.connections.answers import BatchAnswer, ListAnswer
from quire.replication.replicas import TRIES_MAX, ReplicaPiece, ReplicaReader, why
from tests.client.fakes.scripted import DIGEST, body, result

BODIES = [body(1, entry) for entry in range(5)]


class Answers:
    """A pool with given answers, the last one for ever."""

    def __init__(
        self, *batches: BatchAnswer, singly: BatchAnswer | None = None, listed: ListAnswer | None = None
    ) -> None:
        self.batches = list(batches)
        self.singly = singly
        self.listed = listed
        self.asked: list[str] = []

    def batch_read(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        self.asked.append("batch")
        return succeed(self.batches.pop(0) if len(self.batches) > 1 else self.batches[0])

    def read_run(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]:
        self.asked.append("run")
        assert self.singly is not None
        return succeed(self.singly)

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]:
        assert self.listed is not None
        return succeed(self.listed)


def piece(pool: Answers, first: int = 0, count: int = 5) -> ReplicaPiece:
    return result(Deferred.fromCoroutine(ReplicaReader(pool, 1, DIGEST).piece("b", first, count)))


def test_bodies_with_right_digests_are_read():
    """A whole batch is returned with code 0."""
    assert piece(Answers(BatchAnswer(0, BODIES))) == (0, BODIES)


def test_more_than_was_asked_for_is_not_taken():
    """Striped ledgers: the next id belongs to others, though this bookie may have a copy."""
    assert piece(Answers(BatchAnswer(0, BODIES)), count=2) == (0, BODIES[:2])


def test_what_follows_a_bad_digest_is_not_read_and_a_bad_first_entry_is_an_error():
    """The entries before the damage are returned."""
    bad = [*BODIES[:2], BODIES[2][:-1] + b"?", *BODIES[3:]]
    assert piece(Answers(BatchAnswer(0, bad))) == (0, BODIES[:2])
    assert piece(Answers(BatchAnswer(0, bad[2:])), first=2) == (-5, [])
    assert piece(Answers(BatchAnswer(0, BODIES[1:])), first=0) == (-5, [])


@pytest.mark.parametrize("code", [-23, -105])
def test_time_outs_and_overload_are_asked_again_a_few_times(code):
    """The code is returned after the last attempt."""
    assert piece(Answers(BatchAnswer(code, []), BatchAnswer(0, BODIES))) == (0, BODIES)
    pool = Answers(BatchAnswer(code, []))
    assert piece(pool) == (code, [])
    assert len(pool.asked) == TRIES_MAX


def test_other_codes_are_final():
    """A missing entry is not asked for again."""
    pool = Answers(BatchAnswer(-13, []))
    assert piece(pool) == (-13, [])
    assert pool.asked == ["batch"]


def test_a_bookie_that_drops_batch_reads_is_read_one_by_one_from_then_on():
    """Bookies before 4.17; one that is really gone answers neither way."""
    pool = Answers(BatchAnswer(-8, []), singly=BatchAnswer(0, BODIES))
    reader = ReplicaReader(pool, 1, DIGEST)
    for _ in range(2):
        assert result(Deferred.fromCoroutine(reader.piece("old", 0, 5))) == (0, BODIES)
    assert pool.asked == ["batch", "run", "run"]
    gone = Answers(BatchAnswer(-8, []), singly=BatchAnswer(-8, []))
    assert piece(gone) == (-8, [])
    assert gone.asked == ["batch", "run"]


def test_a_list_that_does_not_come_is_none():
    """A time-out gives `None` in place of the list of entries."""

    async def stored(pool: Answers) -> list[tuple[int, int]] | None:
        return await ReplicaReader(pool, 1, DIGEST).stored("b")

    assert result(Deferred.fromCoroutine(stored(Answers(listed=ListAnswer(0, [(0, 5)]))))) == [(0, 5)]
    found: list[object] = []
    Deferred.fromCoroutine(stored(Answers(listed=ListAnswer(-23, [])))).addCallback(found.append)
    assert found == [None]


def test_a_code_is_said_in_words():
    """A missing entry, a damaged one and a silent bookie have different words."""
    assert why(-7) == "no such ledger there"
    assert why(-13) == "not stored there"
    assert why(-5) == "its digest is wrong"
    assert why(-8).startswith("no answer")
