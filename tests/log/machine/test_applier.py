"""What is applied, in slices; who is answered, and when; what becomes of those who wait when it ends."""

from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from quire.log.core.batch import Records
from quire.log.core.machine.applying_messages import Applied, ApplyRaised, Given
from quire.log.machine import applier as applier_module
from quire.log.machine.applier import LOOKED_AT, SLICE_S, Acknowledged, Applier
from quire.log.owner.appending.appends import Batch, Call
from quire.log.owner.appending.encoder import Placed
from quire.log.reader.batches import Record
from quire.protocol.errors import ClientClosed
from quire.protocol.log_errors import ApplyFailed
from tests.log.fakes.machines import Chain

# SPDX-License-Identifier: Apache-2.0

CLOSED = ClientClosed("it was closed")


def records(first, values):
    return [Record(number, number, 5, value, None, None, ()) for number, value in enumerate(values, first)]


def given(first, values):
    return Given(first, len(values), sum(map(len, values)), SimpleNamespace(records=lambda: records(first, values)))


class Story:
    """An applier with a machine that holds nothing, and what it has told."""

    def __init__(self, machine=None):
        self.clock, self.told = Clock(), []
        self.applier = Applier("orders", self.clock, self.told.append)
        self.machine = machine or Chain()
        self.applier.begin(self.machine, 0)

    def asked(self, index):
        """An answer for a record whose index is known once the Deferred fires."""
        appended = index if isinstance(index, Deferred) else Deferred()
        answer = Deferred.fromCoroutine(self.applier.answer(appended))
        if appended is not index:
            appended.callback(index)
        return answer


def outcome(deferred):
    """What it fired with."""
    found = []

    def keep(result):
        found.append(result)
        return None if isinstance(result, Failure) else result

    deferred.addBoth(keep)
    return found[0] if found else None


def test_records_are_applied_in_order_without_those_that_were():
    """The first few of a batch may have been given before."""
    story = Story()
    story.applier.apply(given(0, [b"a", b"b"]), 0)
    story.applier.apply(given(1, [b"b", b"c"]), 1)
    assert (story.applier.applied, story.machine.applied) == (3, 3)
    assert story.told == [Applied(2), Applied(3)]


def test_long_work_is_done_in_slices():
    """The reactor does other things between; what comes meanwhile waits behind it; reads are between two applies."""
    clock = Clock()

    class Slow(Chain):
        def apply(self, record):
            clock.advance(SLICE_S / LOOKED_AT)
            return super().apply(record)

    story = Story(Slow())
    story.clock = clock
    applier = Applier("orders", clock, story.told.append)
    applier.begin(story.machine, 0)
    applier.apply(given(0, [b"x"] * 300), 0)
    assert 0 < applier.applied < 300
    reached = applier.reached(300)
    applier.apply(given(300, [b"y"]), 0)
    assert outcome(reached) is None
    while applier.applied < 301:
        before = applier.applied
        clock.advance(0)
        assert before < applier.applied <= before + 4 * LOOKED_AT
    assert reached.called
    assert story.told[-1] == Applied(301)


def test_nothing_is_told_of_a_machine_that_was_forgotten_between_two_slices():
    """The log was trimmed above what waited: what loads another one can't hear of the one before."""
    clock, told = Clock(), []

    class Slow(Chain):
        def apply(self, record):
            clock.advance(SLICE_S)
            return super().apply(record)

    applier = Applier("orders", clock, told.append)
    applier.begin(Slow(), 0)
    applier.apply(given(0, [b"x"] * 300), 0)
    heard = [*told]
    applier.forget()
    clock.advance(0)
    assert told == heard
    applier.begin(Chain(), 0)
    applier.apply(given(0, [b"x"]), 0)
    assert told == [*heard, Applied(1)]


def test_a_proposal_is_answered_whenever_its_index_is_known():
    """Before its record is applied, or after; what nobody can want any more is not kept."""
    story = Story()
    early, index = story.asked(0), Deferred()
    late = story.asked(index)
    story.applier.apply(given(0, [b"a", b"b"]), 0)
    assert outcome(early) == (0, b"a")
    assert outcome(late) is None
    index.callback(1)
    assert outcome(late) == (1, b"b")
    failure = outcome(story.asked(1))
    assert failure.check(ApplyFailed)
    assert failure.value.index == 1


def test_answers_go_while_proposals_are_under_way(monkeypatch):
    """What nobody can want any more makes room, though never none is under way."""
    monkeypatch.setattr(applier_module, "ANSWERS_MAX", 3)
    story, last = Story(), Deferred()
    waiting = story.asked(last)
    for number in range(50):
        index = Deferred()
        asked = story.asked(index)
        story.applier.apply(given(2 * number, [b"a", b"b"]), 0)
        index.callback(2 * number + 1)
        assert outcome(asked) == (2 * number + 1, b"b")
    story.applier.apply(given(100, [b"c"]), 0)
    last.callback(100)
    assert outcome(waiting) == (100, b"c")


def test_a_proposal_that_fails_is_told_why():
    """Its append's error."""
    story, index = Story(), Deferred()
    answer = story.asked(index)
    index.errback(CLOSED)
    assert outcome(answer).value is CLOSED


def test_whoever_waits_for_an_index():
    """Fires when all below it is applied, in the order of indexes; at once when it is."""
    story, fired = Story(), []
    for index in (2, 1, 3, 0):
        story.applier.reached(index).addCallback(lambda _none, index=index: fired.append(index))
    assert fired == [0]
    story.applier.apply(given(0, [b"a", b"b"]), 0)
    assert fired == [0, 1, 2]
    story.applier.forget()
    waiting = story.applier.reached(0)
    assert outcome(waiting) is None
    story.applier.begin(Chain(), 5)
    assert fired == [0, 1, 2, 3]
    assert waiting.called


def test_a_load_passes_over_proposals():
    """Their records are in the snapshot; what the machine gave for them nobody knows."""
    story = Story()
    below, above = story.asked(3), story.asked(7)
    story.applier.forget()
    story.applier.begin(Chain(), 5)
    assert outcome(below).check(ApplyFailed)
    assert outcome(above) is None


def test_a_machine_that_raises():
    """Nothing behind that record is applied; the error names its index and the cause."""
    story = Story()
    story.applier.apply(given(0, [b"a", b"bad", b"c"]), 0)
    assert (story.applier.applied, story.machine.applied) == (1, 1)
    (raised,) = story.told
    assert isinstance(raised, ApplyRaised)
    assert (raised.index, raised.error.index) == (1, 1)
    assert isinstance(raised.error.__cause__, ValueError)
    story.applier.end(raised.error)
    for waiting in (story.asked(1), story.applier.reached(9)):
        assert outcome(waiting).value is raised.error


async def awaited(machine, record): ...


async def gathered(machine, record):
    yield record


def fired(machine, record):
    return Deferred()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("apply", "said"), [(awaited, "coroutine"), (gathered, "async_generator"), (fired, "Deferred")]
)
@pytest.mark.parametrize("before", [[], [b"a"]])
def test_a_machine_whose_answers_would_have_to_be_awaited(apply, said, before):
    """Nothing of such an answer's work was done, so its record counts as not applied, whichever answer is the first."""

    class Wrapped(Chain):
        def apply(self, record):
            return super().apply(record) if record.value == b"a" else apply(self, record)

    story = Story(Wrapped())
    asked = story.asked(len(before))
    story.applier.apply(given(0, [*before, b"x", b"a"]), 0)
    assert story.applier.applied == len(before)
    (raised,) = story.told
    assert isinstance(raised, ApplyRaised)
    assert raised.index == len(before)
    assert f"gave a {said} at index {len(before)}, which nobody awaits" in str(raised.error)
    assert not asked.called
    story.applier.end(raised.error)
    assert outcome(asked).value is raised.error


def test_the_end_answers_all_who_wait():
    """With its error; the machine stays."""
    story = Story()
    waiting = [story.asked(3), story.applier.reached(4)]
    story.applier.end(CLOSED)
    for each in waiting:
        assert outcome(each).value is CLOSED
    assert story.applier.machine is story.machine


def test_what_is_proposed_while_records_are_applied():
    """An answer's callback may give more to be applied: it comes behind."""
    story = Story()
    answer = story.asked(0)
    answer.addCallback(lambda _answer: story.applier.apply(given(2, [b"c"]), 0))
    story.applier.apply(given(0, [b"a", b"b"]), 0)
    assert story.machine.applied == 3


@pytest.mark.parametrize("columns", [{}, {"keys": [b"k", None], "times": [None, 7], "headers": [[("a", b"1")], []]}])
def test_an_owner_s_batch_is_what_a_reader_gets(columns):
    """Indexes, positions, stamp and all columns."""
    batch = Batch(Records([b"ab", b"c"], **columns), [(Call(2, False, 9.0), 2)])
    batch.placed = Placed(7, [20, 22], 23, 1700)
    key, time, headers = (b"k", 7, (("a", b"1"),)) if columns else (None, None, ())
    assert Acknowledged(batch).records() == [
        Record(7, 20, 1700, b"ab", key, None, headers),
        Record(8, 22, 1700, b"c", None, time, ()),
    ]


def owned(first, values):
    """What an owner was acknowledged."""
    batch = Batch(Records(values), [(Call(len(values), False, 9.0), len(values))])
    batch.placed = Placed(first, list(range(len(values))), 99, 5)
    return Given(first, len(values), 1, Acknowledged(batch))


class Own(Chain):
    """A machine that takes entries of its own process at once, but for those that begin with `refused`."""

    def __init__(self):
        super().__init__()
        self.taken = []

    def apply_own(self, first, values):
        if values[0] == b"bad":
            raise ValueError("not this")
        if values[0] != b"refused":
            self.taken.append((first, values))
            self.applied += len(values)
        return values[0] != b"refused"


def test_a_machine_may_take_an_entry_of_its_own_process_at_once():
    """The objects that were stored; what it does not take, others stored, or was applied in part, comes singly."""
    story = Story(Own())
    values = [b"a", b"b"]
    reached = story.applier.reached(2)
    story.applier.apply(owned(0, values), 0)
    assert (story.applier.applied, story.machine.taken, story.machine.applied) == (2, [(0, values)], 2)
    assert story.machine.taken[0][1][0] is values[0]
    assert reached.called
    assert story.told == [Applied(2)]
    for each in (owned(2, [b"refused"]), given(3, [b"c"])):
        story.applier.apply(each, 0)
    story.applier.apply(owned(3, [b"c", b"d"]), 1)
    assert (story.applier.applied, story.machine.applied, len(story.machine.taken)) == (5, 5, 1)


def test_whoever_waits_for_an_answer_gets_the_machine_s():
    """Then each record is applied by itself."""
    story = Story(Own())
    asked = story.asked(Deferred())
    story.applier.apply(owned(0, [b"a"]), 0)
    assert story.machine.taken == []
    assert (story.machine.applied, asked.called) == (1, False)


def test_a_machine_that_raises_at_an_entry_of_its_own():
    """The replica stops at its first record."""
    story = Story(Own())
    story.applier.apply(owned(0, [b"bad"]), 0)
    (raised,) = story.told
    assert (raised.index, "raised ValueError at index 0 (not this)" in str(raised.error)) == (0, True)
