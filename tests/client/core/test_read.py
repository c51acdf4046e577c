"""The machine of a range read: alone, and in random histories."""

from dataclasses import asdict
from random import Random

import pytest

from quire.client.core.quorum import Quorums
from quire.client.core.read import (
    SMALL_PIECES_FIRST,
    SMALL_PIECES_MAX,
    Answered,
    Ask,
    AskOrder,
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
from quire.protocol.digest import Digest, DigestType
from tests.client.fakes.cluster import NO_ENTRY, NO_LEDGER, TIMED_OUT, UNREACHABLE

DIGEST = Digest(DigestType.CRC32C, b"")


def body(entry, payload=None):
    return DIGEST.entry(7, entry, entry - 1, 0, payload if payload is not None else b"%d" % entry)


def machine(first, last, shape=(3, 3, 2), fragments=None, prefer=0, **limits):
    fragments = fragments or [(0, last, tuple(f"b{index}" for index in range(shape[0])))]
    return RangeRead(7, Quorums(*shape), DIGEST, fragments, first, last, ReadLimits(**limits), AskOrder(prefer))


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
    """An old bookie closes the connection at a batch read."""
    reading = machine(0, 2)
    effects = reading.handle(Begin())
    for _ in range(3):
        (ask,) = asks(effects)
        effects = reading.handle(Answered(ask.ask, UNREACHABLE, []))
    assert [(ask.first, ask.count, ask.single) for ask in asks(effects)] == [(0, 1, True), (1, 1, True), (2, 1, True)]
    assert not reading.batch


def test_a_stripe_s_first_entry_is_read_singly_where_the_batch_read_was_dropped():
    """Each entry of the piece may still come from that bookie, the first one too, after its other copies."""
    reading = machine(0, 1, (4, 2, 2))
    (ask,) = asks(reading.handle(Begin()))
    first, second = asks(reading.handle(Answered(ask.ask, UNREACHABLE, [])))
    assert [(each.bookie, each.first) for each in (first, second)] == [("b0", 0), ("b2", 1)]
    (again,) = asks(reading.handle(Answered(first.ask, NO_ENTRY, [])))
    assert (again.bookie, again.first, again.single) == (ask.bookie, 0, True)
    assert delivered(reading.handle(Answered(again.ask, 0, [body(0)]))) == [(0, [b"0"])]


def test_each_batch_read_that_all_drop_becomes_plain_reads():
    """A piece that was asked for before the first of them was found out, too, in whatever order they fail."""
    reading = machine(0, 3, (1, 1, 1), entries_max=2)
    first, second = asks(reading.handle(Begin()))
    assert [ask.first for ask in asks(reading.handle(Answered(second.ask, UNREACHABLE, [])))] == [2]
    assert [ask.first for ask in asks(reading.handle(Answered(first.ask, UNREACHABLE, [])))] == [0, 1]


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


@pytest.mark.parametrize("striped", [True, False])
def test_few_small_pieces_are_asked_for_before_entries_are_known_to_be_small(striped):
    """Each may be as large as a frame; once one came as many are under way as fit into what is read ahead."""
    reading = machine(0, 999, shape=(3, 2, 2) if striped else (3, 3, 2), batch=striped, bytes_max=1 << 20)
    first = asks(reading.handle(Begin()))
    assert len(first) == SMALL_PIECES_FIRST
    more = asks(reading.handle(Answered(first[0].ask, 0, [body(entry) for entry in range(first[0].count)])))
    assert len(first) - 1 + len(more) == SMALL_PIECES_MAX - 1, "one waits for the consumer"
    large = machine(0, 999, shape=(3, 2, 2) if striped else (3, 3, 2), batch=striped, bytes_max=1 << 20)
    (one, *_others) = asks(large.handle(Begin()))
    found = [body(entry, bytes(1 << 19)) for entry in range(one.count)]
    assert asks(large.handle(Answered(one.ask, 0, found))) == []


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


def test_what_entries_carry_is_seen_in_whatever_order_they_come():
    """A tail that reads on asks for several entries at once; the highest one counts though its answer is the first."""
    reading = machine(1, 100, fragments=[(0, None, ("b0", "b1", "b2"))], **asdict(READ_ON))
    asked = asks(reading.handle(Begin()))
    assert [ask.first for ask in asked] == [1, 2, 3, 4]
    for ask in reversed(asked):
        reading.handle(Answered(ask.ask, 0, [body(ask.first)]))
    assert reading.lac == 3
