"""Range reads: which replica is asked when, what a bad one costs, and how a read ends."""

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.client.connections.answers import Answer, BatchAnswer
from quire.client.core.quorum import Quorums
from quire.client.core.read import (
    RangeRead,
    ReadLimits,
)
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.range_reader import (
    SUSPECT_SECONDS_MAX,
    Notes,
    RangeReader,
    RangeReads,
    Speculation,
)
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    ClientClosed,
    NoSuchEntry,
    UnexpectedCondition,
)
from tests.client.fakes.cluster import NO_ENTRY, FakeCluster, Outcome
from tests.client.fakes.ledgers import payloads, written

# SPDX-License-Identifier: Apache-2.0


def test_a_damaged_copy_is_replaced_by_a_good_one():
    """Each bookie has some damaged entries, each entry a good copy somewhere."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    for number, bookie in enumerate(cluster.bookies.values()):
        entries = bookie.ledgers[writer.id].entries
        for entry in range(number, 50, 5):
            entries[entry] = entries[entry][:-1] + b"?"
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert payloads(cluster.succeed(reader.read(0, 49))) == [b"%d" % entry for entry in range(50)]


def test_a_silent_bookie_costs_the_speculative_wait_and_no_more():
    """After `speculative_read_ms` another bookie is asked and the read completes."""
    cluster = FakeCluster()
    client, writer = written(cluster, speculative_read_ms=500)
    reader = cluster.succeed(client.open_ledger(writer.id))
    first = cluster.metadata(writer.id).last_fragment.bookies[writer.id % 3]
    cluster.judge = lambda request: "drop" if request.bookie == first else "pass"
    reading = cluster.outcome(reader.read(0, 49))
    cluster.spin(0.6)
    assert reading.code == 0


def test_a_hanging_bookie_costs_one_wait_in_a_whole_stream():
    """It is asked last from then on, in later ranges too."""
    for shape in ((3, 3, 2), (4, 2, 2)):
        cluster = FakeCluster(4)
        client, writer = written(cluster, 400, shape=shape, speculative_read_ms=500, read_ahead_entries_max=10)
        reader = cluster.succeed(client.open_ledger(writer.id))
        hanging = cluster.metadata(writer.id).last_fragment.bookies[writer.id % 3]
        cluster.judge = lambda request, hanging=hanging: "drop" if request.bookie == hanging else "pass"
        reading = cluster.outcome(reader.read(0, 399))
        cluster.spin(1.2)
        assert reading.code == 0, shape
        reading = cluster.outcome(reader.read(0, 399))
        cluster.spin(0.4)
        assert reading.code == 0, shape


@pytest.mark.parametrize("shape", [(3, 3, 2), (4, 2, 2)])
def test_one_entry_costs_one_request_while_all_do_well(shape):
    """Each is asked of one bookie of its write set, and its bytes come back."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, shape=shape)
    reader = cluster.succeed(client.open_ledger(writer.id))
    before = len(client.pool.asked)
    for entry in (7, 0, 49):
        (found,) = cluster.succeed(reader.read(entry, entry))
        assert (found.ledger_id, found.entry_id, found.data) == (writer.id, entry, b"%d" % entry)
    asked = client.pool.asked[before:]
    assert [(request.op, request.entry) for request in asked] == [("read", 7), ("read", 0), ("read", 49)]


@pytest.mark.parametrize("verdict", ["drop", -8, -12, NO_ENTRY, "damage"])
def test_one_entry_that_its_first_replica_does_not_give_is_read_from_another_one(verdict):
    """Silence, failures, a "no" and damaged bytes of one bookie cost further requests, and never the entry."""
    cluster = FakeCluster()
    client, writer = written(cluster, speculative_read_ms=500)
    reader = cluster.succeed(client.open_ledger(writer.id))
    asked = cluster.metadata(writer.id).last_fragment.bookies[writer.id % 3]
    if verdict == "damage":
        cluster.bookies[asked].ledgers[writer.id].entries[7] = b"damage" * 10
    else:
        cluster.judge = lambda request: verdict if request.bookie == asked else "pass"
    reading = cluster.outcome(reader.read(7, 7))
    cluster.spin(0.7)
    assert [entry.data for entry in reading.result()] == [b"7"]
    assert reader.damaged == ({(asked, 7)} if verdict == "damage" else set())
    before = len(client.pool.asked)
    cluster.succeed(reader.read(8, 8))
    assert asked not in {request.bookie for request in client.pool.asked[before:]}, "it is asked last from then on"


def test_one_entry_ends_with_its_reader():
    """What waits for a bookie fails with `ClientClosed`, and no timer stays."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    cluster.judge = lambda _request: "drop"
    reading = cluster.outcome(reader.read(7, 7))
    reader.close()
    assert reading.code == ClientClosed.code


def test_a_bug_in_the_machine_fails_the_read_and_nothing_else(monkeypatch):
    """The read raises `UnexpectedCondition`, and the next read of the reader succeeds."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    reading: Outcome = cluster.outcome(reader.read(0, 49))
    with monkeypatch.context() as broken:
        broken.setattr(RangeRead, "handle", lambda _self, _given: 1 // 0)
        cluster.spin(1)
    assert isinstance(reading.error, UnexpectedCondition)
    assert len(cluster.succeed(reader.read(0, 49))) == 50


def test_a_crowded_bookie_is_asked_after_the_others():
    """Bookies with fewer reads in flight come first, in steps of `crowded_reads`."""
    cluster = FakeCluster()
    _writing, writer = written(cluster, 5)
    client = cluster.client(crowded_reads=8)
    reader = cluster.succeed(client.open_ledger(writer.id))
    client.pool.crowd = {"b0": 9, "b1": 17, "b2": 3}
    assert len(cluster.succeed(reader.read(0, 4))) == 5
    assert [request.bookie for request in client.pool.asked if request.op in ("read", "batch")] == ["b2"]
    client.pool.crowd = {"b0": 9, "b1": 17, "b2": 30}
    cluster.succeed(reader.read(1, 1))
    assert [request.bookie for request in client.pool.asked if request.op in ("read", "batch")][1:] == ["b0"]


DIGEST = Digest(DigestType.CRC32C, b"")
LOST = -8


def body(entry):
    return DIGEST.entry(7, entry, entry - 1, 0, b"%d" % entry)


class Pool:
    """What was asked, as (bookie, first, count), with the Deferreds that wait for answers."""

    def __init__(self):
        self.asked = []
        self.waiting = []

    def read(self, bookie, ledger, entry, fence_key=None, priority=0):
        return self._ask(bookie, entry, 1)

    def batch_read(self, bookie, ledger, first, count_max, bytes_max):
        return self._ask(bookie, first, count_max)

    def _ask(self, *asked):
        self.asked.append(asked)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self, number):
        """Everything that was asked for, as it was written."""
        _bookie, first, count = self.asked[number]
        bodies = [body(first + index) for index in range(count)]
        self.waiting[number].callback(Answer(0, bodies[0], None, first) if count == 1 else BatchAnswer(0, bodies))


class KeptNotes(Notes):
    def __init__(self):
        self.all = []

    def damaged(self, bookie, entry):
        self.all.append(("damaged", bookie, entry))

    def late(self, bookie):
        self.all.append(("late", bookie))

    def failed(self, bookie, code):
        self.all.append(("failed", bookie, code))


def range_reader(pool, last, clock=None, speculation=Speculation(0, 0, 1.0), **limits):
    notes = KeptNotes()
    fragments = [(0, None, ("b0", "b1", "b2"))]
    machine = RangeRead(7, Quorums(3, 3, 2), DIGEST, fragments, 0, last, ReadLimits(**limits))
    return RangeReader(clock or Clock(), pool, 7, machine, speculation, notes), notes


def fired(deferred):
    found = []
    deferred.addBoth(found.append)
    assert found, "it waits"
    return getattr(found[0], "value", found[0])


def test_runs_come_in_order_and_none_after_the_last():
    """Whatever the order of answers; nothing is asked before the first run is wanted."""
    pool = Pool()
    reading, _notes = range_reader(pool, 5, entries_max=3)
    assert pool.asked == []
    first = reading.following()
    assert pool.asked == [("b0", 0, 3), ("b0", 3, 3)]
    pool.answer(1)
    assert not first.called
    pool.answer(0)
    assert fired(first) == (0, [b"0", b"1", b"2"])
    assert fired(reading.following()) == (3, [b"3", b"4", b"5"])
    assert fired(reading.following()) is None
    assert reading.lac == 4


class PoolAtOnce(Pool):
    """Answers before the question returns, at most two entries at a time; as a copy in memory may."""

    def batch_read(self, bookie, ledger, first, count_max, bytes_max):
        return succeed(BatchAnswer(0, [body(first), body(first + 1)]))


def test_runs_come_in_order_from_a_pool_that_answers_at_once():
    """What follows a short answer is asked for from inside that answer, and does not overtake it."""
    reading, _notes = range_reader(PoolAtOnce(), 19, entries_max=10)
    read = []
    while (run := fired(reading.following())) is not None:
        assert run.first == len(read)
        read += run.payloads
    assert read == [b"%d" % entry for entry in range(20)]


def test_asking_goes_on_as_runs_are_taken():
    """Two pieces are asked for or lie ready, and no more, however slowly they are taken."""
    pool = Pool()
    reading, _notes = range_reader(pool, 8, entries_max=3)
    first = reading.following()
    pool.answer(0)
    assert fired(first).first == 0
    assert pool.asked[2:] == [("b0", 6, 3)]
    pool.answer(1)
    pool.answer(2)
    assert len(pool.asked) == 3
    assert [fired(reading.following()).first for _ in range(2)] == [3, 6]


def test_waits_for_another_replica_grow_until_a_run_comes():
    """Each costs more than the one before, at most the most; a delivery sets it back, and nothing rings at the end."""
    pool, clock = Pool(), Clock()
    reading, notes = range_reader(pool, 1, clock, Speculation(1000, 3000, 2.0), entries_max=1, pieces=1)
    first = reading.following()
    for wait, count in ((0.5, 1), (0.5, 2), (1.5, 2), (0.5, 3)):
        clock.advance(wait)
        assert len(pool.asked) == count
    assert [bookie for bookie, _first, _count in pool.asked] == ["b0", "b1", "b2"]
    assert [note[0] for note in notes.all] == ["late"] * 3
    assert reading.prefer == 2
    pool.answer(2)
    assert fired(first) == (0, [b"0"])
    second = reading.following()
    clock.advance(0.5)
    assert len(pool.asked) == 4
    clock.advance(0.5)
    assert len(pool.asked) == 5, "after the first wait again"
    pool.answer(4)
    assert fired(second) == (1, [b"1"])
    assert clock.getDelayedCalls() == []


def test_a_consumer_that_takes_its_time_makes_no_bookie_late():
    """While a run lies ready no other replica is asked."""
    pool, clock = Pool(), Clock()
    reading, notes = range_reader(pool, 8, clock, Speculation(100, 100, 1.0), entries_max=3)
    first = reading.following()
    pool.answer(0)
    assert fired(first).first == 0
    pool.answer(1)
    clock.advance(0.1)
    assert len(pool.asked) == 3
    assert notes.all == []


def test_what_becomes_known_of_bookies_is_noted():
    """An error with its code, a copy that is not what was written with its entry; the read goes on elsewhere."""
    pool = Pool()
    reading, notes = range_reader(pool, 1, entries_max=2)
    waiting = reading.following()
    pool.waiting[0].callback(BatchAnswer(LOST, []))
    pool.waiting[1].callback(BatchAnswer(0, [body(0), b"junk" * 20]))
    assert fired(waiting) == (0, [b"0"])
    assert notes.all == [("failed", "b0", LOST), ("damaged", "b1", 1)]
    pool.answer(2)
    assert fired(reading.following()) == (1, [b"1"])


def test_an_entry_that_no_bookie_has_fails_the_read_once_and_for_all():
    """After what came before it; later calls fail alike."""
    pool = Pool()
    reading, _notes = range_reader(pool, 1, entries_max=1)
    waiting = reading.following()
    pool.answer(0)
    assert fired(waiting) == (0, [b"0"])
    second = reading.following()
    for number in (1, 2, 3):
        pool.waiting[number].callback(Answer(-13))
    assert isinstance(fired(second), NoSuchEntry)
    assert isinstance(fired(reading.following()), NoSuchEntry)


def test_a_run_that_is_waited_for_may_be_given_up():
    """The consumer cancels: no timer is left, late answers are dropped, and the range is at its end."""
    pool, clock = Pool(), Clock()
    reading, _notes = range_reader(pool, 1, clock, Speculation(100, 100, 1.0))
    waiting = reading.following()
    waiting.addErrback(lambda _cancelled: None)
    waiting.cancel()
    assert clock.getDelayedCalls() == []
    pool.answer(0)
    assert pool.waiting[0].result is None, "the answer was taken, and nobody was told"
    assert fired(reading.following()) is None


def record():
    made = LedgerMetadata.new(3, 3, 2, ("b0", "b1", "b2"), DigestType.CRC32C, b"")
    return LedgerRecord(None, 7, Versioned(made, 0))


def reads(pool, clock, ranks=None, notes=None, speculative_read_ms=0, **options):
    chosen = ClientOptions(speculative_read_ms=speculative_read_ms, **options)
    return RangeReads(clock, pool, record(), DIGEST, chosen, notes or KeptNotes(), lambda _bookies: ranks or {})


def test_ledgers_begin_with_replicas_of_their_own():
    """By the ledger's id, so that readers of many ledgers spread over the bookies."""
    pool = Pool()
    all_reads = reads(pool, Clock())
    assert all_reads.prefer == 7 % 3
    all_reads.begin(0, 1, ReadLimits()).following()
    assert pool.asked == [("b1", 0, 2)]


def test_ranges_are_read_within_the_limits_of_the_options():
    """Unless the caller has limits of its own."""
    pool = Pool()
    all_reads = reads(pool, Clock(), read_ahead_entries_max=2, read_ahead_batches=1)
    all_reads.begin(0, 9).following()
    all_reads.begin(0, 9, ReadLimits(entries_max=3, pieces=1)).following()
    assert [count for _bookie, _first, count in pool.asked] == [2, 3]


def test_a_bookie_that_failed_is_asked_last_for_a_while():
    """Later ranges of the handle know of it, until it has been long ago."""
    pool, clock = Pool(), Clock()
    all_reads = reads(pool, clock)
    for wait, first in ((0, "b1"), (SUSPECT_SECONDS_MAX - 1, "b2"), (2, "b1")):
        clock.advance(wait)
        pool.asked.clear()
        pool.waiting.clear()
        reading = all_reads.begin(0, 1, ReadLimits())
        reading.following()
        assert pool.asked[0][0] == first
        if not wait:
            pool.waiting[0].callback(BatchAnswer(LOST, []))
        all_reads.finish(reading)


def test_one_entry_is_asked_of_the_best_replica_by_itself():
    """
    Also while some bookies are crowded, slow or suspected, as those of a busy client often are: no range read begins.
    """
    pool = Pool()
    all_reads = reads(pool, Clock(), {"b0": (1, 0), "b1": (3, 0), "b2": (0, 9)})
    asked = all_reads.one(5)
    reading = all_reads.begin(0, 1)
    reading.following()
    assert pool.asked == [("b2", 5, 1), ("b2", 0, 2)]
    pool.waiting[1].callback(BatchAnswer(LOST, []))  # b2 is suspected from now on
    all_reads.finish(reading)
    pool.asked.clear()
    suspecting = all_reads.one(6)
    assert pool.asked == [("b0", 6, 1)]
    pool.waiting[0].callback(Answer(0, body(5), None, 5))
    pool.waiting[-1].callback(Answer(0, body(6), None, 6))
    assert (fired(asked), fired(suspecting)) == (b"5", b"6")


@pytest.mark.parametrize("late", [False, True])
def test_a_range_read_goes_on_with_the_one_that_was_asked(late):
    """
    It counts as the first one asked, whatever ranks say by now: its answer is not asked for again, and it is to blame.
    """
    pool, clock, ranks, notes = Pool(), Clock(), {"b0": (1, 0), "b1": (0, 0), "b2": (1, 0)}, KeptNotes()
    all_reads = reads(pool, clock, ranks, notes, speculative_read_ms=100, speculative_read_ms_max=1000)
    waiting = all_reads.one(5)
    if late:
        clock.advance(0.1)
    else:
        pool.waiting[0].callback(Answer(LOST))
    asked = fired(waiting)
    ranks["b1"] = (2, 0)  # the very read under way makes it look busier
    reading = all_reads.begin(5, 5, asked=asked)
    following = reading.following()
    assert [bookie for bookie, _first, _count in pool.asked] == ["b1", "b2"]
    assert notes.all == [("late", "b1") if late else ("failed", "b1", LOST)]
    pool.answer(1)
    assert fired(following).payloads == [b"5"]
    all_reads.finish(reading)


def test_the_end_of_a_handle_ends_its_reads():
    """Those under way fail with the reason, a finished one does not, and none begins after."""
    pool = Pool()
    all_reads = reads(pool, Clock())
    over, under_way = all_reads.begin(0, 1, ReadLimits()), all_reads.begin(0, 1, ReadLimits())
    waiting = under_way.following()
    all_reads.finish(over)
    all_reads.check_open()
    all_reads.end("the client was closed")
    assert isinstance(fired(waiting), ClientClosed)
    assert fired(over.following()) is None
    with pytest.raises(ClientClosed, match="ledger 7: the client was closed"):
        all_reads.check_open()
