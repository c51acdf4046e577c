"""Transactions that come at the same time: what goes together, and that one which fails does so alone."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from quire.metadata.tree import Check, Create, Delete, Step, Write
from quire.metadata.zk.gathering import BYTES_MAX, STEPS_MAX, UNDER_WAY_MAX, Asked, Gathering, Results
from quire.protocol.errors import MetaStore
from tests.metadata.stories import calls_of

# SPDX-License-Identifier: Apache-2.0

Once = Deferred[tuple[Results | None, bool]]


class Server:
    """Notes what is tried, together and alone; a test answers."""

    def __init__(self) -> None:
        self.together: list[tuple[Asked, Once]] = []
        self.alone: list[tuple[Asked, bool, Deferred[Results]]] = []
        self.ends: list[Callable[[], None]] = []  # called at the end of the turn
        self.gathering = Gathering(self._once, self._alone, self.ends.append)

    def _once(self, asked: Asked) -> Once:
        self.together.append((asked, Deferred()))
        return self.together[-1][1]

    def _alone(self, asked: Asked, in_doubt: bool) -> "Deferred[Results]":
        self.alone.append((asked, in_doubt, Deferred()))
        return self.alone[-1][2]

    def ask(self, *steps: Step, session: int | None = None, deadline: float = 9.0) -> list[object]:
        """What came of it, in a list; empty while it waits."""
        found: list[object] = []
        asked = self.gathering.ask(steps, session, deadline)
        asked.addCallbacks(found.append, lambda failure: found.append(failure.value))
        return found

    def end_turn(self) -> None:
        while self.ends:
            self.ends.pop(0)()

    def busy(self) -> None:
        """As many are under way as may be."""
        for number in range(UNDER_WAY_MAX):
            self.ask(Create(f"/busy/{number}"))
            self.end_turn()

    def free_one(self) -> None:
        self.alone[0][2].callback([None])


def test_what_comes_while_few_are_under_way_goes_in_its_turn() -> None:
    """The first at once, others at the turn's end, as they were asked for; the answer is the caller's."""
    server = Server()
    found = []
    for number in range(UNDER_WAY_MAX):
        found.append(server.ask(Create(f"/{number}"), session=number))
        assert len(server.alone) == max(1, number)
        server.end_turn()
    assert [(each[0].steps, each[0].session, each[1]) for each in server.alone] == [
        ((Create(f"/{number}"),), number, False) for number in range(UNDER_WAY_MAX)
    ]
    server.alone[1][2].callback(["made"])
    server.alone[0][2].errback(MetaStore("no"))
    assert found[1] == [["made"]]
    assert isinstance(found[0][0], MetaStore)
    assert not server.together


def test_what_came_in_one_turn_goes_together() -> None:
    """Beside one that is under way: at the end of the turn, which is waited for once."""
    server = Server()
    server.ask(Create("/first"))
    for number in range(3):
        server.ask(Create(f"/{number}"))
    assert len(server.ends) == 1
    assert not server.together
    server.end_turn()
    ((asked, _answer),) = server.together
    assert [step.path for step in asked.steps] == ["/0", "/1", "/2"]
    assert len(server.alone) == 1


def test_the_others_go_together_and_each_gets_its_own_answers() -> None:
    """In the order in which they came, by the earliest of their deadlines."""
    server = Server()
    server.busy()
    first = server.ask(Create("/a"), Write("/b", b"x", 3), deadline=5.0)
    second = server.ask(Delete("/c", -1))
    server.free_one()
    ((asked, answer),) = server.together
    assert asked.steps == [Create("/a"), Write("/b", b"x", 3), Delete("/c", -1)]
    assert asked.deadline == 5.0
    answer.callback((["/a", "stat", True], False))
    assert (first, second) == ([["/a", "stat"]], [[True]])
    assert len(server.alone) == UNDER_WAY_MAX


@pytest.mark.parametrize("in_doubt", [False, True])
def test_when_all_together_were_not_done_each_is_tried_alone(in_doubt: bool) -> None:
    """One that can't be done spoils no other's; who decides by what it finds is told that it may find its own."""
    server = Server()
    server.busy()
    found = [server.ask(Create("/a")), server.ask(Check("/missing"))]
    server.free_one()
    server.together[0][1].callback((None, in_doubt))
    (_, doubt, one), (_, other_doubt, other) = server.alone[UNDER_WAY_MAX:]
    assert (doubt, other_doubt) == (in_doubt, in_doubt)
    one.callback(["/a"])
    other.errback(MetaStore("there is no /missing"))
    assert found[0] == [["/a"]]
    assert "missing" in str(found[1][0])
    later = server.ask(Create("/b"))
    server.end_turn()
    assert server.alone[-1][0].steps == (Create("/b"),), "there is room again"
    assert later == []


def test_a_server_that_does_not_answer_is_everyone_s_error() -> None:
    """It may have been done: nothing is tried again."""
    server = Server()
    server.busy()
    found = [server.ask(Create("/a")), server.ask(Create("/b"))]
    server.free_one()
    server.together[0][1].errback(MetaStore("did not answer within 10 s"))
    assert all(isinstance(each[0], MetaStore) for each in found)
    assert len(server.alone) == UNDER_WAY_MAX


def test_what_goes_together_is_bounded_and_of_one_session() -> None:
    """By steps, by bytes; a transaction that is larger alone goes alone."""
    server = Server()
    server.busy()
    for number in range(STEPS_MAX + 1):
        server.ask(Create(f"/{number}"))
    server.ask(Create("/of a session"), session=7)
    server.ask(Create("/of a session, too"), session=7)
    server.ask(Create("/large", bytes(BYTES_MAX)), session=7)
    server.free_one()
    assert [len(asked.steps) for asked, _ in server.together] == [STEPS_MAX]
    server.together[0][1].callback(([None] * STEPS_MAX, False))
    assert server.alone[-1][0].steps == (Create(f"/{STEPS_MAX}"),)
    server.alone[-1][2].callback([None])
    assert [each.path for each in server.together[1][0].steps] == ["/of a session", "/of a session, too"]
    assert server.together[1][0].session == 7
    server.together[1][1].callback(([None] * 2, False))
    assert server.alone[-1][0].steps == (Create("/large", bytes(BYTES_MAX)),)


def test_a_caller_that_was_cancelled() -> None:
    """One that waits is not carried out; one that is under way is, and nobody hears of it."""
    server = Server()
    server.busy()
    waiting = server.gathering.ask([Create("/a")], None, 9.0)
    waiting.addErrback(lambda _: None)
    others = [server.gathering.ask([Create(path)], None, 9.0) for path in ("/b", "/c")]
    waiting.cancel()
    server.free_one()
    ((asked, answer),) = server.together
    assert [each.path for each in asked.steps] == ["/b", "/c"]
    others[0].addErrback(lambda _: None)
    others[0].cancel()
    answer.callback((["/b", "/c"], False))
    assert others[1].result == ["/c"]


def test_cancelling_many_costs_no_more_for_each() -> None:
    """However many wait beside it."""
    calls = []
    for count in (10, 1000):
        server = Server()
        server.busy()
        waiting = [server.gathering.ask([Create(f"/{number}")], None, 9.0) for number in range(count)]
        for each in waiting:
            each.addErrback(lambda _: None)
        calls.append(calls_of(lambda waiting=waiting: [each.cancel() for each in reversed(waiting)]) / count)
    assert calls[1] < 2 * calls[0]
