"""The checker of histories: verdicts that are known, and all orders of small histories."""

from itertools import permutations
from random import Random

import pytest

from tests.linear import NEVER, Call, Undecided, first_broken, is_linearizable, register

# Each call: begin, end, what, answer.  One register, empty at first.
READ = ("read",)


def write(value):
    return "write", value


def swap(expected, value):
    return "swap", expected, value


GOOD = {
    "nothing": [],
    "a read of nothing": [(0, 1, READ, None)],
    "one after the other": [(0, 1, write(1), None), (2, 3, READ, 1)],
    "a read beside a write sees the old": [(0, 3, write(1), None), (1, 2, READ, None)],
    "a read beside a write sees the new": [(0, 3, write(1), None), (1, 2, READ, 1)],
    "an end that is another's beginning is beside it": [(0, 1, write(1), None), (1, 2, READ, None)],
    "two writes beside each other, either last": [(0, 3, write(1), None), (0, 3, write(2), None), (4, 5, READ, 1)],
    "two reads beside a write, old then new": [(0, 9, write(1), None), (1, 2, READ, None), (3, 4, READ, 1)],
    "a write without an answer took effect": [(0, NEVER, write(1), None), (5, 6, READ, 1)],
    "a write without an answer never did": [(0, NEVER, write(1), None), (5, 6, READ, None)],
    "a write without an answer takes effect late": [
        (0, NEVER, write(1), None), (1, 2, READ, None), (3, 4, READ, None), (5, 6, READ, 1)
    ],
    "two without answers, seen one after the other": [
        (0, NEVER, write(1), None), (0, NEVER, write(2), None), (1, 2, READ, 2), (3, 4, READ, 1)
    ],
    "a swap that wins": [(0, 1, write(1), None), (2, 3, swap(1, 2), True), (4, 5, READ, 2)],
    "a swap that loses": [(0, 1, write(1), None), (2, 3, swap(5, 2), False), (4, 5, READ, 1)],
    "of two swaps one wins": [(0, 1, write(1), None), (2, 5, swap(1, 2), True), (2, 5, swap(1, 3), False)],
    "a chain of writes and reads that overlap": [
        (0, 4, write(1), None), (2, 6, write(2), None), (3, 8, READ, 1), (5, 9, write(3), None), (7, 10, READ, 2),
        (11, 12, READ, 3),
    ],
}  # fmt: skip

BAD = {
    "a read of what nobody wrote": [(0, 1, READ, 1)],
    "a read that misses a write": [(0, 1, write(1), None), (2, 3, READ, None)],
    "a read of the future": [(0, 1, READ, 1), (2, 3, write(1), None)],
    "new, then old": [(0, 9, write(1), None), (1, 2, READ, 1), (3, 4, READ, None)],
    "an overwritten value": [(0, 1, write(1), None), (2, 3, write(2), None), (4, 5, READ, 1)],
    "two readers that disagree about two writes": [
        (0, 1, write(1), None), (0, 1, write(2), None), (2, 3, READ, 1), (4, 5, READ, 2), (6, 7, READ, 1)
    ],
    "an old value after a new one was read elsewhere": [
        (0, 1, write(1), None), (2, 9, write(2), None), (3, 4, READ, 2), (5, 6, READ, 1)
    ],
    "both swaps win": [(0, 1, write(1), None), (2, 5, swap(1, 2), True), (2, 5, swap(1, 3), True)],
    "a swap that could not win": [(0, 1, write(1), None), (2, 3, swap(2, 3), True)],
    "a swap that could not lose": [(0, 1, write(1), None), (2, 3, swap(1, 3), False)],
    "a write without an answer goes away again": [
        (0, NEVER, write(1), None), (1, 2, READ, 1), (3, 4, READ, None)
    ],
    "a write without an answer before it began": [(0, 1, READ, 1), (2, NEVER, write(1), None)],
    "one without an answer takes effect twice": [
        (0, NEVER, write(1), None), (1, 2, READ, 1), (3, 4, write(2), None), (5, 6, READ, 2), (7, 8, READ, 1)
    ],
    "a read beside a write of neither value": [
        (0, 1, write(1), None), (2, 3, write(2), None), (4, 7, write(3), None), (5, 6, READ, 1)
    ],
}  # fmt: skip


def history(calls, key="x"):
    return [Call(begin, end, key, what, answer) for begin, end, what, answer in calls]


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_an_order_explains(name):
    """The verdict is yes."""
    assert is_linearizable(history(GOOD[name]))


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_order_explains(name):
    """The verdict is no, and the history is shown."""
    assert first_broken(history(BAD[name])) == history(BAD[name])


def test_there_are_thirty_known_histories():
    """Beside those that are drawn."""
    assert len(GOOD) + len(BAD) == 30


def drawn(rng):
    """A small history whose answers are those of some order, or drawn."""
    calls, state = [], None
    at = 0
    for _ in range(rng.randint(1, 5)):
        at += rng.randint(0, 2)
        begin, end = at - rng.randint(0, 3), at + rng.randint(0, 3)
        what = rng.choice((READ, READ, write(rng.randint(1, 3)), swap(rng.randint(1, 3), rng.randint(1, 3))))
        state, answer = register(state, what)
        if rng.random() < 0.3:
            answer = {"read": rng.choice((None, 1, 2, 3)), "write": None, "swap": rng.choice((True, False))}[what[0]]
        calls.append((begin, NEVER if rng.random() < 0.15 else end, what, answer))
    return history(calls)


def by_all_orders(calls):
    """Each subset that has all answered calls, in each order that their times allow."""
    unanswered = [call for call in calls if call.end == NEVER]
    answered = [call for call in calls if call.end != NEVER]
    for bits in range(1 << len(unanswered)):
        some = answered + [call for number, call in enumerate(unanswered) if bits >> number & 1]
        for order in permutations(some):
            if all(later.end >= call.begin for place, call in enumerate(order) for later in order[place:]):
                state, right = None, True
                for call in order:
                    state, answer = register(state, call.what)
                    right = right and (call.end == NEVER or answer == call.answer)
                if right:
                    return True
    return False


def test_small_histories_have_the_verdict_of_all_orders():
    """10,000 of up to five calls."""
    rng = Random("linear")
    verdicts = []
    for _ in range(10_000):
        calls = drawn(rng)
        verdicts.append(by_all_orders(calls))
        assert is_linearizable(calls) == verdicts[-1], calls
    assert 1_000 < sum(verdicts) < 9_000, "both verdicts are met"


def test_each_key_is_judged_by_itself():
    """Calls of other keys don't count, and the key that is wrong is shown."""
    good, bad = history(GOOD["one after the other"], "good"), history(BAD["new, then old"], "bad")
    assert is_linearizable(good)
    assert first_broken([*good, *bad]) == bad


def test_a_long_history_takes_few_steps():
    """Thousands of calls of a few clients are no work: the memory of what was tried ends what leads nowhere."""
    calls = []
    for number in range(2_000):
        calls.append(Call(2 * number, 2 * number + 3, "x", write(number)))
        calls.append(Call(2 * number + 1, 2 * number + 3, "x", READ, number))
    assert is_linearizable(calls, steps_max=20_000)


def test_reads_at_once_take_few_steps():
    """Which of them are first is all the same, also where what some of them saw is wrong in the end."""
    calls = [Call(0, 10, "x", READ, None) for _ in range(40)]
    calls += [Call(0, NEVER, "x", write(1)), *(Call(5, 20, "x", READ, 1) for _ in range(40))]
    assert is_linearizable(calls, steps_max=200)
    assert not is_linearizable([*calls, Call(21, 22, "x", READ, None)], steps_max=200)


def test_too_many_steps_are_no_verdict():
    """A check that would not end says so."""
    calls = [Call(0, 10, "x", write(number)) for number in range(20)]
    calls += [Call(11, 12, "x", READ, 99)]
    with pytest.raises(Undecided):
        is_linearizable(calls, steps_max=1_000)
