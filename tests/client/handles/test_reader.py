"""
Reading: the range machine alone and in random histories, then readers on a fake cluster: replicas, damage, LAC, tails.
"""

from dataclasses import asdict
from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.client.core.coverage import Coverage
from quire.client.core.quorum import Quorums
from quire.client.core.read import (
    Answered,
    Ask,
    Begin,
    Deliver,
    Failed,
    Finished,
    RangeRead,
    ReadLimits,
    ReadState,
    Slow,
    Stop,
    Taken,
)
from quire.client.handles.end_of_ledger import READ_ON
from quire.metadata.memory.store import Fault
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    BookieHandleNotAvailable,
    ClientClosed,
    DigestMatch,
    LedgerClosed,
    LedgerRecovery,
    MetaStore,
    NoSuchEntry,
    Read,
    Timeout,
    UnauthorizedAccess,
    UnexpectedCondition,
)
from tests.client.fakes.cluster import NO_ENTRY, NO_LEDGER, TIMED_OUT, UNREACHABLE, FakeCluster, Outcome

DIGEST = Digest(DigestType.CRC32C, b"")


def body(entry, payload=None):
    return DIGEST.entry(7, entry, entry - 1, 0, payload if payload is not None else b"%d" % entry)


def machine(first, last, shape=(3, 3, 2), fragments=None, prefer=0, **limits):
    fragments = fragments or [(0, last, tuple(f"b{index}" for index in range(shape[0])))]
    return RangeRead(7, Quorums(*shape), DIGEST, fragments, first, last, ReadLimits(**limits), prefer)


def asks(effects):
    return [effect for effect in effects if isinstance(effect, Ask)]


def delivered(effects):
    return [(effect.first, effect.payloads) for effect in effects if isinstance(effect, Deliver)]


# The machine.


def test_pieces_are_asked_of_one_bookie_ahead_of_the_consumer():
    """As many pieces as configured are in flight or not yet taken, all from the preferred bookie."""
    reading = machine(0, 99, entries_max=10, pieces=3, prefer=1)
    first = asks(reading.handle(Begin()))
    assert [(ask.bookie, ask.first, ask.count, ask.single) for ask in first] == [
        ("b1", 0, 10, False),
        ("b1", 10, 10, False),
        ("b1", 20, 10, False),
    ]
    effects = reading.handle(Answered(first[0].ask, 0, [body(entry) for entry in range(10)]))
    assert delivered(effects) == [(0, [b"%d" % entry for entry in range(10)])]
    assert asks(effects) == [], "what was not taken counts as under way"
    assert [ask.first for ask in asks(reading.handle(Taken()))] == [30]


def test_answers_in_any_order_are_delivered_in_order():
    """A piece is held back until all before it are delivered."""
    reading = machine(0, 29, entries_max=10, pieces=3)
    first, second, third = asks(reading.handle(Begin()))
    assert reading.handle(Answered(third.ask, 0, [body(entry) for entry in range(20, 30)])) == []
    assert reading.handle(Answered(second.ask, 0, [body(entry) for entry in range(10, 20)])) == []
    effects = reading.handle(Answered(first.ask, 0, [body(entry) for entry in range(10)]))
    assert [start for start, _payloads in delivered(effects)] == [0, 10, 20]
    assert isinstance(effects[-1], Finished)


def test_a_short_answer_is_continued_at_the_same_bookie():
    """Its entries are delivered and the rest of the piece is requested there."""
    reading = machine(0, 9)
    (ask,) = asks(reading.handle(Begin()))
    effects = reading.handle(Answered(ask.ask, 0, [body(entry) for entry in range(4)]))
    assert delivered(effects) == [(0, [b"0", b"1", b"2", b"3"])]
    (more,) = asks(effects)
    assert (more.bookie, more.first, more.count) == ("b0", 4, 6)


def test_a_longer_answer_than_asked_is_trimmed():
    """D8: a bookie never trims, the client does."""
    reading = machine(0, 1)
    (ask,) = asks(reading.handle(Begin()))
    effects = reading.handle(Answered(ask.ask, 0, [body(entry) for entry in range(5)]))
    assert delivered(effects) == [(0, [b"0", b"1"])]


def test_a_damaged_entry_is_read_from_the_next_bookie():
    """Entries before it are delivered, and the piece goes on from it elsewhere."""
    reading = machine(0, 4)
    (ask,) = asks(reading.handle(Begin()))
    bodies = [body(entry) for entry in range(5)]
    bodies[2] = bodies[2][:-1] + b"X"
    effects = reading.handle(Answered(ask.ask, 0, bodies))
    assert delivered(effects) == [(0, [b"0", b"1"])]
    (more,) = asks(effects)
    assert (more.bookie, more.first, more.count) == ("b1", 2, 3)


def test_another_entry_than_asked_for_is_damage():
    """A valid body of another entry is not delivered, and the next bookie is asked."""
    reading = machine(3, 3)
    (ask,) = asks(reading.handle(Begin()))
    effects = reading.handle(Answered(ask.ask, 0, [body(4)]))
    assert delivered(effects) == []
    assert asks(effects)[0].bookie == "b1"


def test_an_empty_ok_is_no_answer():
    """A success without entries moves the read to the next bookie."""
    reading = machine(0, 0)
    (ask,) = asks(reading.handle(Begin()))
    assert asks(reading.handle(Answered(ask.ask, 0, [])))[0].bookie == "b1"


@pytest.mark.parametrize(
    ("codes", "final"),
    [
        ((NO_ENTRY, UNREACHABLE, NO_ENTRY), -8),
        ((NO_ENTRY, NO_LEDGER, NO_ENTRY), -13),
        ((TIMED_OUT, -5, UNREACHABLE), -23),
    ],
)
def test_when_every_replica_failed_the_read_fails_by_precedence(codes, final):
    """The most telling code wins, and the reason names entry, ledger and each bookie."""
    reading = machine(5, 5)
    effects = reading.handle(Begin())
    for code in codes:
        (ask,) = asks(effects)
        effects = reading.handle(Answered(ask.ask, code, []))
    (failed,) = effects
    assert failed.code == final
    assert "entry 5 of ledger 7" in failed.reason
    assert all(f"b{index}" in failed.reason for index in range(3))
    assert reading.handle(Taken()) == []


def test_an_error_moves_the_preference():
    """Later reads begin with the bookie after the one that failed."""
    reading = machine(0, 0)
    (ask,) = asks(reading.handle(Begin()))
    reading.handle(Answered(ask.ask, TIMED_OUT, []))
    assert reading.prefer == 1


def test_a_slow_bookie_gets_a_rival_and_the_first_good_answer_counts():
    """The entry is delivered once, and the late answer is ignored."""
    reading = machine(0, 0)
    (slow,) = asks(reading.handle(Begin()))
    (rival,) = asks(reading.handle(Slow()))
    assert rival.bookie == "b1"
    assert len(delivered(reading.handle(Answered(rival.ask, 0, [body(0)])))) == 1
    assert reading.handle(Answered(slow.ask, 0, [body(0)])) == []


def test_a_rivals_failure_is_not_the_end_while_another_is_asked():
    """The read fails only when no request is left in flight."""
    reading = machine(0, 0)
    (slow,) = asks(reading.handle(Begin()))
    (rival,) = asks(reading.handle(Slow()))
    (third,) = asks(reading.handle(Answered(rival.ask, NO_ENTRY, [])))
    assert reading.handle(Answered(third.ask, NO_ENTRY, [])) == []
    assert len(delivered(reading.handle(Answered(slow.ask, 0, [body(0)])))) == 1


def test_pieces_end_with_their_fragment():
    """No piece covers entries of two ensembles."""
    reading = machine(0, 9, fragments=[(0, 3, ("a", "b", "c")), (4, None, ("a", "b", "d"))], prefer=2, pieces=4)
    assert [(ask.bookie, ask.first, ask.count) for ask in asks(reading.handle(Begin()))] == [("c", 0, 4), ("d", 4, 6)]


def test_stripes_are_asked_where_they_lie_together():
    """4/2/2: entries 0 and 1 lie on index 1, 2 and 3 on index 3."""
    reading = machine(0, 4, (4, 2, 2))
    assert [(ask.bookie, ask.first, ask.count, ask.single) for ask in asks(reading.handle(Begin()))] == [
        ("b1", 0, 2, False),
        ("b3", 2, 2, False),
        ("b0", 4, 1, True),
    ]


def test_a_stripe_that_fails_goes_on_entry_by_entry():
    """Each entry of a failed piece is requested from a bookie of its own write set."""
    reading = machine(0, 1, (4, 2, 2))
    (ask,) = asks(reading.handle(Begin()))
    effects = reading.handle(Answered(ask.ask, TIMED_OUT, []))
    assert [(ask.bookie, ask.first, ask.single) for ask in asks(effects)] == [("b0", 0, True), ("b2", 1, True)]


def test_when_all_drop_a_batch_read_plain_reads_are_tried():
    """Spec 3.4: an old bookie closes the connection at a batch read."""
    reading = machine(0, 2)
    effects = reading.handle(Begin())
    for _ in range(3):
        (ask,) = asks(effects)
        effects = reading.handle(Answered(ask.ask, UNREACHABLE, []))
    assert [(ask.first, ask.count, ask.single) for ask in asks(effects)] == [(0, 1, True), (1, 1, True), (2, 1, True)]
    assert not reading.batch


def test_stop_asks_no_more():
    """After `Stop` an answer delivers nothing and causes no request."""
    reading = machine(0, 999, entries_max=10)
    (ask, _other) = asks(reading.handle(Begin()))
    reading.handle(Stop())
    assert reading.handle(Answered(ask.ask, 0, [body(entry) for entry in range(10)])) == []


def test_large_entries_make_short_pieces():
    """The size of received entries determines how many the next piece covers."""
    reading = machine(0, 999, bytes_max=100_000, entries_max=1000, pieces=1)
    (ask,) = asks(reading.handle(Begin()))
    assert ask.count == 97
    reading.handle(Answered(ask.ask, 0, [body(entry, bytes(9964)) for entry in range(ask.count)]))
    (ask,) = asks(reading.handle(Taken()))
    assert ask.count == 10


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 3, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2)])
@pytest.mark.parametrize("batch", [True, False])
def test_random_reads_deliver_everything_once_and_in_order(shape, batch):
    """
    Bookies miss entries, fail, answer short, late and damaged, but one replica of each entry is good and reachable:
    what comes is what was written.
    """
    for seed in range(80):
        random = Random(f"{shape}{batch}{seed}")
        q = Quorums(*shape)
        cuts = sorted({0, *(random.randint(1, 60) for _ in range(random.randint(0, 3)))})
        fragments = [(start, None, tuple(f"f{start}i{index}" for index in range(shape[0]))) for start in cuts]
        last = random.randint(max(cuts), 80)
        first = random.randint(0, last)
        good = {}
        for entry in range(last + 1):
            bookies = [bookies for start, _end, bookies in fragments if start <= entry][-1]
            for index in random.sample(q.write_set(entry), random.randint(1, q.write)):
                good.setdefault(bookies[index], set()).add(entry)
        reading = RangeRead(
            7,
            q,
            DIGEST,
            fragments,
            first,
            last,
            ReadLimits(entries_max=random.randint(1, 20), pieces=random.randint(1, 4), batch=batch),
            0,
        )
        waiting, got, untaken = [], [], 0
        effects = reading.handle(Begin())
        while True:
            waiting += asks(effects)
            for start, payloads in delivered(effects):
                assert start == first + len(got)
                got += payloads
                untaken += 1
            assert not any(isinstance(effect, Failed) for effect in effects), (shape, seed, effects)
            if reading.state is not ReadState.READING:
                break
            if random.random() < 0.2:
                effects = reading.handle(Slow())
                continue
            if untaken and (not waiting or random.random() < 0.3):
                untaken -= 1
                effects = reading.handle(Taken())
                continue
            ask = waiting.pop(random.randrange(len(waiting)))
            bodies = []
            while len(bodies) < ask.count and ask.first + len(bodies) in good.get(ask.bookie, ()):
                bodies.append(body(ask.first + len(bodies)))
            if bodies and random.random() < 0.2:
                bodies = bodies[: random.randint(1, len(bodies))]
            effects = reading.handle(Answered(ask.ask, 0 if bodies else random.choice([NO_ENTRY, TIMED_OUT]), bodies))
        assert got == [b"%d" % entry for entry in range(first, last + 1)], (shape, seed)


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
    assert not coverage.complete, "covered, but nobody said anything valid"
    coverage.lac_and_entry(2, 0, None, body(4))
    assert (coverage.lac, coverage.complete) == (3, True)


# Readers on a cluster.


async def collect(generator):
    return [entry async for batch in generator for entry in batch]


def written(cluster, count=50, shape=(3, 3, 2), close=True, **options):
    client = cluster.client(**options)
    writer = cluster.succeed(client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2]))
    if count:
        cluster.succeed(writer.append_many([b"%d" % entry for entry in range(count)]))
    cluster.spin(0.1)
    if close:
        cluster.succeed(writer.close())
    return client, writer


def payloads(entries):
    return [entry.data for entry in entries]


def test_read_and_stream_of_a_closed_ledger():
    """Ranges and the whole ledger are returned complete and in order."""
    cluster = FakeCluster()
    client, writer = written(cluster, read_ahead_entries_max=7)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert payloads(cluster.succeed(reader.read(3, 20))) == [b"%d" % entry for entry in range(3, 21)]
    entries = cluster.succeed(collect(reader.stream()))
    assert [entry.entry_id for entry in entries] == list(range(50))
    assert {entry.ledger_id for entry in entries} == {writer.id}
    assert len(cluster.succeed(collect(reader.stream(10, 19)))) == 10


def test_ranges_that_make_no_sense():
    """Negative and reversed ranges raise `ValueError`, a range past the last entry raises `Read`."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for first, last in ((-1, 3), (5, 4)):
        assert isinstance(cluster.fails(reader.read(first, last)), ValueError)
    error = cluster.fails(reader.read(0, 50))
    assert isinstance(error, Read)
    assert "entry 50 lies past 49" in str(error)
    assert isinstance(cluster.fails(collect(reader.stream(0, 50))), Read)


def test_d9_unconfirmed_reads_stop_at_the_end_of_a_closed_ledger():
    """Entries behind the last one are never returned, though bookies have them."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10)
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries[10] = DIGEST.entry(writer.id, 10, 9, 99, b"orphan")
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert len(cluster.succeed(reader.read_unconfirmed(5, 100))) == 5
    assert cluster.succeed(reader.read_unconfirmed(10, 100)) == []


def test_an_empty_ledger_streams_nothing():
    """Its last entry is -1 and its stream ends at once."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert reader.last_entry_id == -1
    assert cluster.succeed(collect(reader.stream())) == []


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (4, 2, 2)])
def test_dead_bookies_are_read_around(shape):
    """With any single bookie down every entry is read."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, shape=shape)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for name in cluster.metadata(writer.id).last_fragment.bookies:
        cluster.kill(name)
        assert len(cluster.succeed(reader.read(0, 49))) == 50
        cluster.restart(name)


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


def test_an_entry_damaged_everywhere_fails_the_read():
    """The read raises `DigestMatch`, and the other entries stay readable."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries[7] = b"damage" * 10
    reader = cluster.succeed(client.open_ledger(writer.id))
    error = cluster.fails(reader.read(0, 49))
    assert isinstance(error, DigestMatch)
    assert "sent bytes whose digest is wrong" in str(error)
    assert len(cluster.succeed(reader.read(8, 49))) == 42


def test_a_lost_entry_is_named():
    """The error names the range that no bookie has."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    for bookie in cluster.bookies.values():
        del bookie.ledgers[writer.id].entries[30]
    reader = cluster.succeed(client.open_ledger(writer.id))
    error = cluster.fails(reader.read(0, 49))
    assert isinstance(error, NoSuchEntry)
    assert "entries 30 to 49" in str(error)


def test_a_reader_finds_entries_that_were_moved_to_other_bookies():
    """
    A repair copied a closed ledger to others, and those that it was opened with have forgotten it: no entry is said to
    be missing.
    """
    cluster = FakeCluster(6)
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    before = cluster.metadata(writer.id).last_fragment.bookies
    after = tuple(name for name in cluster.bookies if name not in before)
    for old, new in zip(before, after, strict=True):
        cluster.bookies[new].ledgers[writer.id] = cluster.bookies[old].ledgers.pop(writer.id)
    current = cluster.shared.ledgers[writer.id]
    cluster.succeed(cluster.store.write_ledger(writer.id, current.value.replace_bookies(0, after), current.version))
    assert payloads(cluster.succeed(reader.read(1, 4))) == [b"1", b"2", b"3", b"4"]


def test_an_unconfirmed_read_that_finds_the_ledger_closed_stops_at_its_end():
    """When the ledger is closed meanwhile, entries up to the close are returned."""
    cluster = FakeCluster(3)
    client, writer = written(cluster, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.store_fault = lambda name, _arguments: Fault(before=5.0) if name == "read_ledger" else None
    reading = cluster.outcome(reader.read_unconfirmed(40, 60))
    cluster.succeed(writer.close())
    cluster.spin(30)
    assert [entry.entry_id for entry in reading.result()] == list(range(40, 50))


def test_an_entry_that_is_nowhere_fails_also_when_the_store_can_not_be_asked():
    """The error is that of the entry, not that of the store."""
    cluster = FakeCluster(3)
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    for bookie in cluster.bookies.values():
        del bookie.ledgers[writer.id].entries[30]
    cluster.store_fault = lambda name, _arguments: Fault(error=MetaStore("down")) if name == "read_ledger" else None
    assert isinstance(cluster.fails(reader.read(0, 49)), NoSuchEntry)


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


def test_a_reader_that_is_closed_fails_what_is_under_way():
    """Reads in progress and later ones raise `ClientClosed`."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    cluster.judge = lambda _request: "hold"
    reading = cluster.outcome(reader.read(0, 49))
    cluster.succeed(reader.close())
    assert isinstance(reading.error, ClientClosed)
    assert isinstance(cluster.fails(reader.read(0, 1)), ClientClosed)
    assert isinstance(cluster.fails(collect(reader.stream())), ClientClosed)


# How far.


def test_s27_an_open_without_recovery_disturbs_nobody():
    """No bookie is fenced, the writer appends on, and unconfirmed entries can be read."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert not reader.closed
    assert reader.last_entry_id <= 9
    assert not any(bookie.ledgers[writer.id].fenced for bookie in cluster.bookies.values())
    assert cluster.succeed(writer.append(b"more")) == 10
    assert isinstance(cluster.fails(reader.read(0, 10)), Read)
    assert cluster.succeed(reader.read_last_confirmed()) == 9
    assert len(cluster.succeed(reader.read_unconfirmed(0, 10))) == 11


def test_the_last_add_confirmed_of_a_new_ledger():
    """It is -1."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert reader.last_entry_id == -1


def test_what_lies_before_the_last_fragment_is_confirmed():
    """
    R4: a writer's new fragment begins behind what was confirmed, so metadata alone tells of that much, whatever the
    bookies know.
    """
    cluster = FakeCluster(4)
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    known = reader.last_entry_id
    cluster.kill(writer.metadata.last_fragment.bookies[0])
    cluster.succeed(writer.append(b"x"))
    first = writer.metadata.last_fragment.first
    assert first > known + 1, "the bookies told the reader less"
    cluster.judge = lambda request: "drop"
    cluster.spin(0.1)
    assert reader.last_entry_id == first - 1


def test_opening_without_recovery_needs_coverage():
    """With too few answers the open fails with an error of their kind."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie != "b0" else "pass"
    error = cluster.fails(client.open_ledger(writer.id, recover=False))
    assert isinstance(error, Timeout)
    assert "1 of 3 bookies answered" in str(error)
    cluster.judge = lambda request: -12 if request.op == "lac" and request.bookie != "b0" else "pass"
    assert type(cluster.fails(client.open_ledger(writer.id, recover=False))) is Read
    cluster.judge = lambda request: -102 if request.op == "lac" else "pass"
    assert isinstance(cluster.fails(client.open_ledger(writer.id, recover=False)), UnauthorizedAccess)


def test_d14_a_bookies_unsigned_word_does_not_move_the_end():
    """A tail does not go past an entry that only a value without digest confirms."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    known = reader.last_entry_id
    for bookie in cluster.bookies.values():
        bookie.saw_lac(bookie.ledgers[writer.id], 1000)
    tail = cluster.succeed(collect(reader.tail(1.0)))
    assert len(tail) == known + 1
    assert reader.last_entry_id == known


def test_i8_the_visible_end_never_shrinks():
    """Bookies that know less answer later; what was seen stays seen."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    cluster.succeed(writer.append(b"x"))
    cluster.spin(0.1)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    seen = reader.last_entry_id
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries = {0: bookie.ledgers[writer.id].entries[0]}
    assert cluster.succeed(reader.read_last_confirmed()) == seen


# Tails.


def follow(cluster, reader, timeout):
    """A tail in the background: the entries so far, and what became of it."""
    got = []

    async def run():
        async for batch in reader.tail(timeout):
            got.extend(batch)

    return got, cluster.outcome(run())


def test_a_tail_follows_the_writer_to_the_close():
    """It delivers all entries in order and ends when the ledger is closed."""
    cluster = FakeCluster()
    _client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 10.0)
    for number in range(5, 40):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.05)
    assert 35 <= len(got) < 40
    assert not tail.done
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % number for number in range(40)]
    assert reader.closed


def test_a_tail_sees_news_without_waiting_for_a_time_out():
    """An append wakes the long poll and its entries are delivered within milliseconds."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 10.0)
    cluster.spin(1)
    before = len(got)
    cluster.succeed(writer.append(b"a"))
    cluster.succeed(writer.append(b"b"))
    cluster.spin(0.03)
    assert len(got) > before


def test_a_tail_ends_after_silence():
    """Without news for the given time the tail ends well."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    cluster.succeed(writer.write_lac())
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 4.0)
    cluster.spin(3.5)
    assert not tail.done
    cluster.spin(1.0)
    assert tail.code == 0
    assert len(got) == 5


def test_a_tail_of_a_closed_ledger_is_a_read():
    """It delivers every entry and ends."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5)
    reader = cluster.succeed(client.open_ledger(writer.id))
    got, tail = follow(cluster, reader, 10.0)
    cluster.spin(0.1)
    assert tail.code == 0
    assert len(got) == 5


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_a_tail_goes_on_when_a_bookie_dies_and_is_replaced(dead):
    """All entries are delivered, whichever bookie of the ensemble died."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 20.0)
    cluster.spin(0.1)
    cluster.kill(cluster.metadata(writer.id).last_fragment.bookies[dead])
    for number in range(5, 30):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.2)
    cluster.succeed(writer.close())
    cluster.spin(5)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % number for number in range(30)]


def test_a_tail_of_bookies_without_long_poll_asks_again_and_again():
    """Entries are delivered although every long poll is refused."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    cluster.judge = lambda request: -1 if request.op == "poll" else "pass"
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 5.0)
    for number in range(5, 10):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.5)
    assert len(got) >= 9
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert len(got) == 10


def test_a_tail_sees_the_end_that_a_recovery_finds():
    """When another client recovers the ledger, the tail delivers the rest and ends."""
    cluster = FakeCluster()
    client, writer = written(cluster, 20, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 10.0)
    cluster.spin(0.1)
    cluster.succeed(cluster.client().open_ledger(writer.id))
    cluster.spin(1)
    assert tail.code == 0
    assert len(got) == 20


def test_a_tail_of_a_deleted_ledger_ends():
    """A deletion ends the tail without an error."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    _got, tail = follow(cluster, reader, 100.0)
    cluster.spin(1)
    cluster.succeed(client.delete_ledger(writer.id))
    cluster.spin(5)
    assert tail.code == 0


def test_closing_the_reader_ends_its_tail():
    """The tail raises `ClientClosed`."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    _got, tail = follow(cluster, reader, 100.0)
    cluster.spin(1)
    cluster.succeed(reader.close())
    cluster.spin(5)
    assert isinstance(tail.error, ClientClosed)


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


def test_reading_with_everybody_down():
    """The read fails with the error for unreachable bookies."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    cluster.kill("b0", "b1", "b2")
    assert isinstance(cluster.fails(reader.read(0, 0)), BookieHandleNotAvailable)


def test_a_try_is_content_with_the_first_news():
    """One bookie that knows more is enough; without news it is what was known; without anybody it fails."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append_many([b"a", b"b"]))
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    cluster.succeed(writer.append_many([b"c"]))
    cluster.succeed(writer.append_many([b"d"]))
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie != "b1" else "pass"
    began = cluster.clock.seconds()
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2
    assert cluster.clock.seconds() - began < 0.5, "nobody waits for the silent ones"
    assert isinstance(cluster.fails(reader.read_last_confirmed()), Timeout), "certainty takes more"
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2
    cluster.judge = lambda request: -8 if request.op == "lac" else "pass"
    error = cluster.fails(reader.try_read_last_confirmed())
    assert isinstance(error, LedgerRecovery)
    assert all(f"{bookie} can't be reached" in str(error) for bookie in ("b0", "b1", "b2"))
    cluster.judge = lambda request: "pass" if request.op != "lac" else -7 if request.bookie == "b1" else -8
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2, "who has nothing of the ledger has answered"
    cluster.judge = lambda _request: "pass"
    cluster.succeed(writer.close())
    cluster.spin(0.1)
    assert cluster.succeed(reader.try_read_last_confirmed()) == 3, "a closed ledger's end is in the metadata"


def test_the_last_entry_is_asked_for_anew_while_the_ledger_is_open():
    """Each call returns the entry that is confirmed by then."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    assert isinstance(cluster.fails(reader.read_last_entry()), NoSuchEntry)
    for payload in (b"a", b"b", b"c"):
        cluster.succeed(writer.append(payload))
    assert cluster.succeed(reader.read_last_entry()) == (writer.id, 1, b"b")
    cluster.succeed(writer.close())
    closed = cluster.succeed(cluster.client().open_ledger(writer.id))
    assert cluster.succeed(closed.read_last_entry()) == (writer.id, 2, b"c")


@pytest.mark.parametrize(("wait_ms", "asked"), [(50, 3), (0, 1)])
def test_a_poll_that_lasts_is_sent_to_the_next_bookie_too(wait_ms, asked):
    """The bookie that is asked first hangs; another one has the news, and is asked first from then on."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"first"))  # else they would say that they have nothing of it
    client = cluster.client(speculative_poll_ms=wait_ms, long_poll_ms=900, read_timeout_ms=1000)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    first = reader.metadata.last_fragment.bookies[reader.id % 3]
    cluster.judge = lambda request: "drop" if request.op == "poll" and request.bookie == first else "pass"
    seen = []

    async def follow():
        async for entries in reader.tail(0.8):
            seen.extend(entry.data for entry in entries)

    tail = Outcome(Deferred.fromCoroutine(follow()))
    cluster.spin(0.5)
    polls = [request.bookie for request in client.pool.asked if request.op == "poll"]
    assert len(polls) == len(set(polls)) == asked
    cluster.succeed(writer.append_many([b"a"]))
    cluster.succeed(writer.append_many([b"b"]))
    cluster.spin(0.2)
    assert seen == ([b"first", b"a"] if asked == 3 else [])
    assert [request.bookie for request in client.pool.asked if request.op == "poll"][asked : asked + 1] != [first]
    cluster.judge = lambda _request: "pass"
    reader.close()
    cluster.spin(2.0)
    assert tail.done


@pytest.mark.parametrize(("long_poll_ms", "times"), [(900, [0, 50, 130, 210]), (100, [0, 50])])
def test_further_polls_go_out_after_longer_and_longer_waits_until_the_first_would_end(long_poll_ms, times):
    """The waits grow by the factor of the options up to their maximum."""
    cluster = FakeCluster(4)
    writer = cluster.succeed(cluster.client().create_ledger(ensemble_size=4, write_quorum=4))
    cluster.succeed(writer.append(b"first"))
    client = cluster.client(
        speculative_poll_ms=50, speculative_poll_ms_max=80, long_poll_ms=long_poll_ms, read_timeout_ms=1000
    )
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    asked = []

    def drop(request):
        if request.op == "poll":
            asked.append((request.bookie, cluster.clock.seconds()))
        return "drop" if request.op == "poll" else "pass"

    cluster.judge = drop
    tail = Outcome(Deferred.fromCoroutine(anext(reader.tail(0.6))))
    cluster.spin(0.5)
    assert [round(1000 * (at - asked[0][1])) for _bookie, at in asked] == times
    assert len({bookie for bookie, _at in asked}) == len(times)
    reader.close()
    cluster.spin(2.0)
    assert tail.done


@pytest.mark.parametrize("news", ["answer", "close of the ledger", "close of the reader"])
def test_once_there_is_news_nobody_else_is_polled(news):
    """An answer or a close ends the speculative poll of further bookies."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"first"))
    client = cluster.client(speculative_poll_ms=50, long_poll_ms=900)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))

    async def follow():
        async for _entries in reader.tail(0.8):
            pass

    tail = Outcome(Deferred.fromCoroutine(follow()))
    cluster.spin(0.02)
    if news == "answer":
        cluster.succeed(writer.append(b"second"))
    elif news == "close of the ledger":
        cluster.succeed(writer.close())
    else:
        reader.close()
    cluster.spin(0.035)  # the second bookie's turn would come
    assert tail.done == (news != "answer")
    assert sum(request.op == "poll" for request in client.pool.asked) == (2 if news == "answer" else 1), (
        "the next round begins with one"
    )
    reader.close()
    cluster.spin(1.0)
    assert tail.done


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


# Hints that nothing vouches for (D14), and ids out of order.


def out_of_order(cluster, shape=(3, 3, 2), count=10):
    """
    An advanced writer that wrote entries from 1000 on first: every bookie's highest entry carries an old last add
    confirmed.
    """
    writer = cluster.succeed(
        cluster.client().create_ledger(
            ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], advanced=True
        )
    )
    early = [cluster.outcome(writer.append_at(entry, b"early")) for entry in range(1000, 1005)]
    cluster.spin(0.01)
    for entry in range(count):
        cluster.succeed(writer.append_at(entry, b"%d" % entry))
    cluster.spin(0.01)
    return writer, early


def requests(client):
    return sum(request.op in ("poll", "lac", "read", "batch") for request in client.pool.asked)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (5, 3, 2)])
@pytest.mark.parametrize("options", [{}, {"batch_read": False}])
def test_a_tail_sees_what_is_confirmed_where_ids_are_out_of_order_and_then_waits(shape, options):
    """
    All but the last, which nobody told of; that comes with the next.  A few questions for each, and none while nothing
    happens.
    """
    cluster = FakeCluster(5)
    writer, early = out_of_order(cluster, shape)
    client = cluster.client(long_poll_ms=1000, read_timeout_ms=2000, **options)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert reader.last_entry_id == -1, "what the highest entries carry"
    got, tail = follow(cluster, reader, 30.0)
    cluster.spin(0.5)
    assert payloads(got) == [b"%d" % entry for entry in range(9)]
    before = requests(client)
    cluster.spin(10.0)
    assert requests(client) - before <= 10 * (1 + shape[0]), "one poll a second, and what it leads to"
    before = requests(client)
    for entry in range(10, 20):
        cluster.succeed(writer.append_at(entry, b"%d" % entry))
        cluster.spin(0.05)
        assert len(got) == entry, "as soon as the next entry tells that it is confirmed"
    assert requests(client) - before <= 10 * (6 * shape[0])
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % entry for entry in range(20)]
    assert all(isinstance(outcome.error, LedgerClosed) for outcome in early)


def test_a_tail_finds_what_a_wide_window_confirmed_out_of_order():
    """
    Many entries carry the same old last add confirmed, only the last ones a newer one; the tail reads on until it meets
    those.
    """
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger(advanced=True))
    cluster.outcome(writer.append_at(1000, b"early"))
    cluster.spin(0.01)
    for start in (0, 100):
        for entry in range(start, start + 100):
            cluster.outcome(writer.append_at(entry, b"%d" % entry))
        cluster.spin(0.1)
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 30.0)
    cluster.spin(1)
    assert len(got) >= 100
    cluster.succeed(writer.write_lac())
    cluster.spin(1)
    assert len(got) == 200


@pytest.mark.parametrize("liars", [1, 2, 3])
@pytest.mark.parametrize("long_poll_ms", [200, 3000])
def test_a_bookie_that_holds_a_wrong_lac_neither_stops_a_tail_nor_makes_it_spin(liars, long_poll_ms):
    """News is seen at once while another bookie is asked, and within the rest if none but liars are there."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False, long_poll_ms=long_poll_ms)
    for number in range(3):
        cluster.succeed(writer.append(b"%d" % number))
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 1000.0)
    for name in sorted(cluster.bookies)[:liars]:
        cluster.bookies[name].saw_lac(cluster.bookies[name].ledgers[writer.id], 1_000_000)
    cluster.spin(10.0)  # long enough for whatever grows to have grown
    before = requests(client)
    cluster.spin(10.0)
    rest = min(1.0, long_poll_ms / 1000)
    assert requests(client) - before <= 10 / rest * 20
    for number in range(3, 20):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(rest + 0.1)
        assert len(got) >= number
    assert not tail.done
    cluster.succeed(writer.close())
    cluster.spin(0.1)
    assert tail.code == 0
    assert len(got) == 20


def test_a_bookie_that_answers_every_poll_at_once_is_asked_less_and_less():
    """As one that knows no long poll and says so by no error."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    poll = client.pool.long_poll
    client.pool.long_poll = lambda bookie, ledger, lac, _timeout_ms: poll(bookie, ledger, lac, 1)
    _got, _tail = follow(cluster, reader, 1000.0)
    cluster.spin(1.0)
    assert requests(client) > 5
    before = requests(client)
    cluster.spin(10.0)
    assert requests(client) - before <= 11 * 4


def test_fresh_news_costs_a_tail_one_poll_and_one_question_of_each_bookie():
    """Each append causes one poll, one read and one LAC request to each bookie."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False)
    cluster.succeed(writer.append(b"0"))
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 1000.0)
    cluster.spin(0.1)
    for number in range(1, 20):
        before = len(client.pool.asked)
        cluster.succeed(writer.append(b"%d" % number))
        began = cluster.clock.seconds()
        while len(got) < number:
            cluster.spin(0.0005)
        assert cluster.clock.seconds() - began < 0.008, "as long as three questions and answers take"
        cluster.spin(0.01)
        assert sorted(request.op for request in client.pool.asked[before:]) == ["lac", "lac", "lac", "poll", "read"]


def test_ids_that_no_frame_holds_are_refused_at_once():
    """Ids beyond 63 bits raise `ValueError` and other types `TypeError`; the largest id passes."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    for reading in (reader.read, reader.read_unconfirmed):
        for first, last in ((-1, 0), (1, 0), (0, 1 << 63), (1 << 63, 1 << 63), (1 << 200, 1 << 200)):
            assert isinstance(cluster.fails(reading(first, last)), ValueError)
        for first, last in ((0.5, 1.5), ("0", "1"), (None, None)):
            assert isinstance(cluster.fails(reading(first, last)), TypeError)
    assert isinstance(cluster.fails(reader.read((1 << 63) - 1, (1 << 63) - 1)), Read)
    assert cluster.fails(reader.read_unconfirmed((1 << 63) - 1, (1 << 63) - 1)).code == NO_ENTRY
    assert len(cluster.succeed(reader.read_unconfirmed(0, 4))) == 5


def test_what_entries_carry_is_seen_in_whatever_order_they_come():
    """A tail that reads on asks for several entries at once; the highest one counts though its answer is the first."""
    reading = machine(1, 100, fragments=[(0, None, ("b0", "b1", "b2"))], **asdict(READ_ON))
    asked = asks(reading.handle(Begin()))
    assert [ask.first for ask in asked] == [1, 2, 3, 4]
    for ask in reversed(asked):
        reading.handle(Answered(ask.ask, 0, [body(ask.first)]))
    assert reading.lac == 3
