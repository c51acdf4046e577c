"""The owner's machine: whatever happens in whichever order, it says the truth of each item."""

from itertools import product
from random import Random

import pytest

from quire.log.core.ownership import TABLE, Ownership, State
from quire.log.core.ownership_messages import (
    Acked,
    Again,
    Announced,
    Append,
    BecomeOwner,
    Claimed,
    ClaimFree,
    ClaimGone,
    ClaimMine,
    ClaimTaken,
    CloseLedger,
    CreateFailed,
    CreateLedger,
    Deposed,
    Discard,
    EditAnnounce,
    EditClaim,
    EditClose,
    EditOpen,
    EditResign,
    End,
    Expired,
    Fail,
    GiveUp,
    Item,
    LedgerClosed,
    LedgerCreated,
    LedgerNotOpen,
    LedgerVanished,
    MakeClaim,
    NewLedgerVanished,
    Opened,
    Recover,
    Recovered,
    RecoverFailed,
    Refused,
    Release,
    ReleaseClaim,
    Resigned,
    RollDue,
    SegmentClosed,
    SegmentEnded,
    Send,
    Settle,
    Settled,
    Transfer,
    Wait,
    WriterEnded,
)
from quire.log.core.values import Counts
from quire.protocol.errors import MetaStore, NotEnoughBookies
from quire.protocol.log_errors import AppendUnknown, LogError, LogFenced, SegmentLost

# SPDX-License-Identifier: Apache-2.0

COUNTS = Counts(3, 30, 2, 1700)
DEPOSED = LogFenced("another owns it")
UNANSWERED = MetaStore("no answer")


def test_what_others_can_cause_is_legal_everywhere():
    """Claims, manifests, watches, the user and the clock: whatever the state."""
    for state, kind in product(
        State,
        (ClaimFree, ClaimMine, ClaimGone, ClaimTaken, Deposed, SegmentEnded, Append, Transfer, RollDue, Expired),
    ):
        assert (state, kind) not in TABLE.illegal


@pytest.mark.parametrize("state", State)
def test_every_row_of_a_state_can_be_taken(state):
    """None raises."""
    given = [
        *(ClaimFree(), ClaimMine(), ClaimGone(), ClaimTaken("other"), Claimed(9, None), SegmentClosed(5), Opened(5)),
        *(Announced(), Resigned(), Refused(DEPOSED), Deposed(DEPOSED), SegmentEnded(5, 1), LedgerCreated(51)),
        *(CreateFailed(NotEnoughBookies("1")), Acked(5, 0), WriterEnded(5), LedgerNotOpen(5), LedgerClosed(5, COUNTS)),
        *(Recovered(5, 0, COUNTS), RecoverFailed(5, NotEnoughBookies("1")), LedgerVanished(5, None), Settled(5, 0)),
        *(NewLedgerVanished(), Append([item()]), RollDue(), Transfer(""), GiveUp(UNANSWERED), Again(), Expired(0.0)),
    ]
    assert {type(each) for each in given} == set(TABLE.inputs)
    for each in given:
        if (state, type(each)) in TABLE.rows:
            at(state).handle(each)


def test_a_candidate_that_is_not_to_wait_any_more():
    """It leaves, with the reason."""
    machine = at(State.WAITING)
    assert machine.handle(Deposed(DEPOSED)) == [ReleaseClaim(), End(DEPOSED)]
    assert machine.state is State.OUT


def item(deadline=100.0):
    """One record."""
    return Item(deadline)


def at(state):
    """A machine in that state, with its segment 5 on ledger 50 where it has one."""
    machine = Ownership()
    if state is State.OUT:
        machine.handle(Transfer(""))
        return machine
    steps = [ClaimMine(), Claimed(3, (4, 40)), SegmentClosed(4), Append([item()]), LedgerCreated(50), Opened(5)]
    reached = [State.CLAIMING, State.SETTLING, State.IDLE, State.OPENING, State.OPENING, State.WRITING]
    for step, after in zip(steps, reached, strict=True):
        if machine.state is state:
            return machine
        machine.handle(step)
        assert machine.state is after
    send(machine)
    more = {
        State.ROLLING: RollDue(),
        State.FENCED: WriterEnded(5),
        State.MOVING: Transfer("x"),
        State.LOST: Deposed(DEPOSED),
    }
    if state in more:
        machine.handle(more[state])
    assert machine.state is state
    return machine


def send(machine):
    """Entries for what is sent."""
    for number in range(machine.sent):
        machine.items[number].last = number


def kinds(effects):
    """Their types, in order."""
    return [type(effect) for effect in effects]


def test_the_way_to_the_first_acknowledgement():
    """Claim, epoch, what another left open, a ledger that is named before it is written."""
    machine, one = Ownership(), item()
    assert kinds(machine.handle(ClaimFree())) == [MakeClaim]
    assert kinds(machine.handle(ClaimMine())) == [EditClaim]
    assert machine.handle(Claimed(3, (4, 40))) == [Recover(4, 40)]
    assert machine.handle(Append([one])) == []
    assert machine.handle(Recovered(4, 1, COUNTS)) == [EditClose(4, COUNTS)]
    assert kinds(machine.handle(SegmentClosed(4))) == [BecomeOwner, CreateLedger]
    assert machine.handle(LedgerCreated(50)) == [EditOpen(50, None)]
    assert machine.handle(Opened(5)) == [Send([one])]
    send(machine)
    assert machine.handle(Acked(5, 0)) == [Release([one])]


def test_a_rollover_keeps_the_order():
    """Nothing goes to the old ledger any more; what came meanwhile goes to the next, named in one edit."""
    machine = at(State.ROLLING)
    first, later = machine.items[0], item()
    assert machine.handle(Append([later])) == []
    assert machine.handle(Acked(5, 0)) == [Release([first]), CloseLedger(5)]
    assert kinds(machine.handle(LedgerClosed(5, COUNTS))) == [CreateLedger]
    assert machine.handle(LedgerCreated(51)) == [EditOpen(51, (5, COUNTS))]
    assert machine.handle(Opened(6)) == [Send([later])]


def test_a_fence_without_a_new_owner():
    """What is in the ledger is acknowledged, what is not goes to the next one, after others had time to go first."""
    machine = at(State.WRITING)
    first, second, third = machine.items[0], item(), item()
    machine.handle(Append([second]))
    machine.handle(Append([third]))
    send(machine)
    assert machine.handle(LedgerNotOpen(5)) == [Recover(5, 50)]
    assert machine.handle(Recovered(5, 1, COUNTS)) == [Release([first, second]), Wait("fence")]
    assert kinds(machine.handle(Again())) == [CreateLedger]
    machine.handle(LedgerCreated(51))
    assert machine.handle(Opened(6)) == [Send([third])]


def test_a_candidate_s_log_ends():
    """It is deleted or terminated while another one owns it: the candidate waits no longer."""
    for state in (State.WAITING, State.CLAIMING):
        machine = at(state)
        assert machine.handle(Deposed(DEPOSED)) == [ReleaseClaim(), End(DEPOSED)]
        assert machine.state is State.OUT


def test_a_claim_that_goes_before_it_counts_is_made_again():
    """The session was lost, and no one else has the claim."""
    machine = at(State.CLAIMING)
    assert machine.handle(ClaimGone()) == [MakeClaim()]
    assert machine.state is State.WAITING
    assert at(State.CLAIMING).handle(ClaimTaken("other")) == []


def test_a_fence_by_a_publisher():
    """The manifest says what is in the segment, so its ledger need not be recovered, nor closed again."""
    machine = at(State.WRITING)
    (first,) = machine.items
    assert machine.handle(SegmentEnded(5, 0)) == [Wait("fence")]
    assert kinds(machine.handle(Again())) == [CreateLedger]
    assert machine.handle(LedgerCreated(51)) == [EditOpen(51, None)]
    assert machine.handle(Opened(7)) == [Send([first])]
    machine = at(State.FENCED)
    machine.handle(Recovered(5, 0, COUNTS))
    machine.handle(SegmentEnded(5, 1))
    machine.handle(Again())
    assert machine.state is State.IDLE


def test_a_deposed_owner_settles_what_it_sent():
    """What never was sent fails at once; what was waits for the ledger's end."""
    machine = at(State.WRITING)
    first, second = machine.items[0], item()
    machine.handle(Append([second]))
    send(machine)
    assert machine.handle(Deposed(DEPOSED)) == [Settle(5, 50)]
    assert machine.handle(Settled(5, 0))[:2] == [Release([first]), Fail([second], DEPOSED)]
    machine = at(State.ROLLING)
    waiting = item()
    machine.handle(Append([waiting]))
    assert machine.handle(Deposed(DEPOSED)) == [Fail([waiting], DEPOSED), Settle(5, 50)]
    machine = at(State.IDLE)
    assert kinds(machine.handle(Deposed(DEPOSED))) == [ReleaseClaim, End]


def test_an_end_that_is_not_learned():
    """After its deadline an append may be stored or not, and is not sent again."""
    for state in (State.FENCED, State.LOST, State.MOVING):
        machine = at(state)
        if state is State.MOVING:
            machine.handle(WriterEnded(5))
        assert machine.handle(Expired(99.0)) == []
        (failed, *_) = machine.handle(Expired(100.0))
        assert isinstance(failed.error, AppendUnknown)
        assert not machine.items


@pytest.mark.parametrize("closed", [False, True])
def test_what_waits_for_the_end_of_a_segment_waits_no_longer_than_it_may(closed):
    """For its ledger's close, or for the edit; not while something that was sent is under way."""
    machine = at(State.ROLLING)
    late, early = item(100.0), item(101.0)
    if not closed:
        machine.handle(Append([late, early]))
    assert machine.handle(Expired(100.0)) == []
    assert kinds(machine.handle(Acked(5, 0))) == [Release, CloseLedger]
    if closed:
        assert kinds(machine.handle(LedgerClosed(5, COUNTS))) == [EditClose]
        machine.handle(Append([late, early]))
    (failed,) = machine.handle(Expired(100.0))
    assert (failed.items, type(failed.error)) == ([late], LogError)
    assert list(machine.items) == [early]


@pytest.mark.parametrize("rolling", [False, True])
def test_a_close_does_not_wait_for_a_recovery_for_ever(rolling):
    """
    Once nothing that was sent waits for it, the segment stays open for the next owner; also where a roll's close of
    the ledger found the fence.
    """
    machine = at(State.ROLLING if rolling else State.FENCED)
    if rolling:
        assert kinds(machine.handle(Acked(5, 0))) == [Release, CloseLedger]
        assert machine.handle(WriterEnded(5)) == [Recover(5, 50)]
    machine.handle(RecoverFailed(5, NotEnoughBookies("2 of 3")))
    machine.handle(Transfer(""))
    if not rolling:
        assert machine.handle(Expired(99.0, patience=True)) == []
    late = kinds(machine.handle(Expired(100.0, patience=True)))
    assert late == ([CloseLedger] if rolling else [Fail, CloseLedger])
    assert machine.handle(WriterEnded(5)) == [Recover(5, 50)]
    machine.handle(RecoverFailed(5, NotEnoughBookies("2 of 3")))
    assert machine.handle(Expired(100.0, patience=True)) == [EditResign(None)]
    assert machine.handle(Resigned()) == [ReleaseClaim(), End(None)]


def test_a_close_does_not_wait_for_the_store_for_ever():
    """Once nothing waits for an answer, what is left goes to the next owner; what waits fails in its own time."""
    machine = at(State.MOVING)
    assert machine.handle(GiveUp(UNANSWERED)) == []
    machine.handle(Acked(5, 0))
    machine.handle(LedgerClosed(5, COUNTS))
    assert machine.handle(GiveUp(UNANSWERED)) == [ReleaseClaim(), End(None, UNANSWERED)]
    assert machine.state is State.OUT
    machine = at(State.OPENING)
    machine.handle(Transfer(""))
    assert machine.handle(GiveUp(UNANSWERED)) == []
    assert kinds(machine.handle(Expired(100.0))) == [Fail]
    assert machine.handle(GiveUp(UNANSWERED)) == [ReleaseClaim(), End(None, UNANSWERED)]
    assert machine.handle(LedgerCreated(50)) == [Discard(50)]


def test_what_waits_behind_a_fence_fails_in_time():
    """It was never sent, and what was sent before it has failed by then."""
    machine = at(State.FENCED)
    waiting = item(101.0)
    machine.handle(Append([waiting]))
    machine.handle(RecoverFailed(5, UNANSWERED))
    assert kinds(machine.handle(Expired(100.0))) == [Fail]
    (failed,) = machine.handle(Expired(101.0))
    assert (failed.items, type(failed.error)) == ([waiting], MetaStore)
    assert "this is not in the log: no answer" in str(failed.error)  # and not that of an unknown commit


def test_a_ledger_that_is_gone():
    """Still named: nothing can go on here; not named any more: the next is opened, and what was sent is unknown."""
    machine = at(State.FENCED)
    waiting = item()
    machine.handle(Append([waiting]))
    failed, wait = machine.handle(LedgerVanished(5, None))
    assert isinstance(failed.error, AppendUnknown)
    assert wait == Wait("fence")
    assert list(machine.items) == [waiting]
    lost = SegmentLost("segment 5")
    machine = at(State.FENCED)
    machine.handle(Append([item()]))
    assert kinds(machine.handle(LedgerVanished(5, lost))) == [Fail, Fail, ReleaseClaim, End]
    machine = at(State.SETTLING)
    assert machine.handle(LedgerVanished(4, lost)) == [ReleaseClaim(), End(lost)]


def test_a_takeover_that_can_not_recover_gives_the_claim_back():
    """It tries again until its time is over, then fails with the recovery's error; the segments are as they were."""
    machine = at(State.SETTLING)
    error = NotEnoughBookies("2 of 3")
    assert machine.handle(RecoverFailed(4, error)) == [Wait("recover")]
    assert machine.handle(Again()) == [Recover(4, 40)]
    assert machine.handle(Expired(5.0)) == []
    assert machine.handle(Expired(5.0, patience=True)) == [ReleaseClaim(), End(error)]


def test_a_ledger_that_was_never_named_is_discarded():
    """Also when it is made after the log was lost; one that was named meanwhile is not."""
    machine = at(State.OPENING)
    machine.handle(LedgerCreated(50))
    assert Discard(50) in machine.handle(Refused(DEPOSED))
    machine = at(State.OPENING)
    machine.handle(Deposed(DEPOSED))
    assert machine.handle(LedgerCreated(50)) == [Discard(50)]
    machine = at(State.OPENING)
    machine.handle(LedgerCreated(50))
    machine.handle(Deposed(DEPOSED))
    assert machine.handle(Opened(5)) == []
    assert machine.handle(Refused(DEPOSED)) == []


def test_handing_over():
    """It is announced, what was sent is drained, the segment closes with the resignation, the claim goes last."""
    machine = at(State.WRITING)
    (first,) = machine.items
    assert machine.handle(Transfer("t")) == [EditAnnounce("t")]
    assert machine.handle(Announced()) == []
    (refused,) = machine.handle(Append([item()]))
    assert type(refused) is Fail
    assert machine.handle(Acked(5, 0)) == [Release([first]), CloseLedger(5)]
    assert machine.handle(LedgerClosed(5, COUNTS)) == [EditResign((5, COUNTS))]
    assert machine.handle(Resigned()) == [ReleaseClaim(), End(None)]
    machine = at(State.FENCED)
    assert machine.handle(Transfer("")) == []
    machine.handle(Recovered(5, 0, COUNTS))
    machine.handle(Again())
    assert machine.handle(SegmentClosed(5)) == [EditResign(None)]
    assert at(State.SETTLING).handle(Transfer("")) == [EditResign(None)]


class Ledger:
    """What a walk knows of one: the items that were sent to it, how many are acknowledged, where it ended."""

    def __init__(self) -> None:
        self.sent = []
        self.acked = 0
        self.end = None  # entries, once it is closed
        self.named = False


class Walk:
    """
    A machine among random events and answers.  Each item is one entry; what is in a named ledger below its end is in
    the log.
    """

    def __init__(self, seed) -> None:
        self.random = Random(seed)
        self.machine = Ownership()
        self.ledgers = {}
        self.numbers = {}  # of segments -> ledger
        self.owner = True
        self.next_segment = 5
        self.open = None  # the segment that the manifest says is open
        self.now = 0.0
        self.asked = []  # effects that wait for their answer
        self.items = []
        self.waiting = []  # for room in the window of the open segment's writer
        self.gone = set()  # that were sent at some time
        self.answers = {}
        self.over = False
        self.calm = False
        self.feed(ClaimMine())

    def feed(self, given) -> None:
        for effect in self.machine.handle(given):
            self.perform(effect)

    def perform(self, effect) -> None:
        if isinstance(effect, Recover | Settle | CloseLedger | End):
            self.waiting.clear()
        if isinstance(effect, Send):
            self.waiting += effect.items
            self.send(self.random.randint(0, len(self.waiting)))
        elif isinstance(effect, Release | Fail):
            for each in effect.items:
                assert each not in self.answers, "answered twice"
                self.answers[each] = None if isinstance(effect, Release) else effect.error
        elif isinstance(effect, End):
            self.over = True
        elif not isinstance(effect, BecomeOwner | ReleaseClaim):
            self.asked.append(effect)

    def send(self, count) -> None:
        """The writer has room for so many."""
        ledger = self.ledgers[self.machine.ledger]
        for each in self.waiting[:count]:
            assert each not in self.answers, "sent after it was answered"
            each.last = len(ledger.sent)
            ledger.sent.append(each)
            self.gone.add(each)
        del self.waiting[:count]

    def close(self, ledger) -> None:
        """It is brought to an end by whomever: what was acknowledged is in, more may be."""
        if ledger.end is None:
            ledger.end = self.random.randint(ledger.acked, len(ledger.sent))

    def fails(self) -> bool:
        return not self.calm and self.random.random() < 0.2

    def answer(self, effect) -> None:
        """One of the answers that the effect may have."""
        if isinstance(effect, Recover | Settle):
            self.answer_end(effect)
        elif isinstance(effect, EditClaim):
            found = None if self.random.random() < 0.5 else (4, 40)
            self.ledgers.setdefault(40, Ledger())
            self.numbers[4] = 40
            self.feed(Claimed(1, found))
        elif isinstance(effect, EditClose):
            self.open = None if self.owner else self.open
            self.feed(SegmentClosed(effect.n) if self.owner else Refused(DEPOSED))
        elif isinstance(effect, EditOpen):
            self.answer_open(effect)
        elif isinstance(effect, EditResign):
            self.feed(Resigned() if self.owner else Refused(DEPOSED))
        elif isinstance(effect, EditAnnounce):
            self.feed(Announced() if self.owner else Refused(DEPOSED))
        elif isinstance(effect, CreateLedger):
            if self.fails():
                self.feed(CreateFailed(NotEnoughBookies("none")))
            else:
                number = 50 + len(self.ledgers)
                self.ledgers[number] = Ledger()
                self.feed(LedgerCreated(number))
        elif isinstance(effect, CloseLedger):
            ledger = self.ledgers[self.numbers[effect.n]]
            if ledger.end is None:
                assert ledger.acked == len(ledger.sent), "closed while appends are under way"
                ledger.end = ledger.acked
                self.feed(LedgerClosed(effect.n, COUNTS._replace(records=ledger.end)))
            else:
                self.feed(WriterEnded(effect.n))
        elif isinstance(effect, Wait):
            self.feed(Again())

    def answer_end(self, effect) -> None:
        ledger = self.ledgers[effect.ledger]
        if self.fails() and isinstance(effect, Recover):
            self.feed(RecoverFailed(effect.n, NotEnoughBookies("too few")))
            return
        self.close(ledger)
        counts = COUNTS._replace(records=ledger.end)
        settled = isinstance(effect, Settle)
        self.feed(Settled(effect.n, ledger.end - 1) if settled else Recovered(effect.n, ledger.end - 1, counts))

    def answer_open(self, effect) -> None:
        if not self.owner:
            self.feed(Refused(DEPOSED))
        elif self.fails():
            del self.ledgers[effect.ledger]
            self.feed(NewLedgerVanished())
        else:
            assert self.open is None or (effect.ends is not None and effect.ends[0] == self.open), "two are open"
            self.ledgers[effect.ledger].named = True
            self.open = self.next_segment
            self.numbers[self.next_segment] = effect.ledger
            self.next_segment += 1
            self.waiting.clear()
            self.feed(Opened(self.next_segment - 1))

    def event(self) -> None:
        """Something that nobody asked for."""
        random, machine = self.random, self.machine
        number = machine.segment
        ledger = self.ledgers.get(self.numbers.get(number))
        kind = random.choice(
            ["append"] * 8
            + ["ack"] * 8
            + ["room"] * 4
            + ["fence", "fence", "publish", "depose", "claim", "expire", "roll", "roll", "move"]
        )
        if kind == "append" and machine.state in (
            State.IDLE,
            State.OPENING,
            State.WRITING,
            State.ROLLING,
            State.FENCED,
        ):
            each = Item(self.now + 50)
            self.items.append(each)
            self.feed(Append([each]))
        elif kind == "ack" and ledger is not None and ledger.end is None and ledger.acked < len(ledger.sent):
            ledger.acked = random.randint(ledger.acked + 1, len(ledger.sent))
            self.feed(Acked(number, ledger.acked - 1))
        elif kind == "room" and self.waiting:
            self.send(random.randint(1, len(self.waiting)))
        elif kind in {"fence", "publish"} and ledger is not None:
            self.close(ledger)
            if kind == "publish":
                self.open = None
                self.waiting.clear()
                self.feed(SegmentEnded(number, ledger.end))
            self.feed(random.choice([WriterEnded, LedgerNotOpen])(number))
        elif kind == "depose" and random.random() < 0.3 and self.machine.state is not State.CLAIMING:
            self.owner = False
            self.feed(Deposed(DEPOSED))
        elif kind == "claim" and random.random() < 0.3:
            self.feed(random.choice([ClaimGone(), ClaimTaken("other")]))
            if self.machine.state is State.WAITING:
                self.feed(ClaimMine())
        elif kind == "expire":
            self.now += random.choice([1, 1, 60])
            self.feed(Expired(self.now, patience=random.random() < 0.1))
        elif kind == "roll":
            self.feed(RollDue())
        elif kind == "move" and random.random() < 0.2:
            self.feed(Transfer(random.choice(["", "other"])))

    def run(self, steps) -> None:
        for _ in range(steps):
            if self.asked and self.random.random() < 0.5:
                self.answer(self.asked.pop(self.random.randrange(len(self.asked))))
            else:
                self.event()
        self.calm = True
        for _ in range(1000):
            if self.over and not self.asked:
                break
            number = self.machine.segment
            ledger = self.ledgers.get(self.numbers.get(number))
            if self.waiting:
                self.send(len(self.waiting))
            elif ledger is not None and ledger.end is None and ledger.acked < len(ledger.sent):
                ledger.acked = len(ledger.sent)
                self.feed(Acked(number, ledger.acked - 1))
            elif self.asked:
                self.answer(self.asked.pop(0))
            elif ledger is not None and ledger.end is not None and self.machine.state is State.WRITING:
                self.feed(WriterEnded(number))
            else:
                self.feed(Transfer(""))
        assert self.over, f"it does not end: {self.machine.state}"

    def check(self) -> None:
        """Each item has one answer, and it is the truth; what is in the log is there once, in order."""
        stored = []
        for ledger in self.ledgers.values():
            if ledger.named:
                self.close(ledger)
                stored += ledger.sent[: ledger.end]
        assert len(set(map(id, stored))) == len(stored), "stored twice"
        places = {id(each): number for number, each in enumerate(stored)}
        order = [places[id(each)] for each in self.items if id(each) in places]
        assert order == sorted(order), "stored out of order"
        for each in self.items:
            assert each in self.answers, "never answered"
            error = self.answers[each]
            if error is None:
                assert id(each) in places, "acknowledged, and not in the log"
            elif isinstance(error, AppendUnknown):
                assert each in self.gone, "unknown, and was never sent"
            else:
                assert id(each) not in places, f"failed as not stored, and is: {error!r}"


@pytest.mark.parametrize("start", range(20))
def test_random_walks_say_the_truth(start):
    """Answers, fences, publishers, takeovers, time-outs and closes in any order: 200 walks of 20 to 200 steps each."""
    for number in range(200):
        seed = start * 1000 + number
        walk = Walk(seed)
        try:
            walk.run(walk.random.randint(20, 200))
            walk.check()
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error
