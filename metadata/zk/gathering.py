"""
Transactions that are asked for at the same time, carried out as few.

Knows: that as many go together as one request may hold, and that one which can't be done fails alone: when all
together were refused, or the answer was lost, each is carried out by itself.
Does not know: kazoo, sessions, what a step does.

One that comes while none is under way goes at once; beside others, as long as they are few, it goes at the end of the
reactor's turn, with what else came in that: an answer to many lets each of them ask for its next one.  What goes
together is done together or not at all, which is more than each was promised.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredList

from quire.metadata.tree import Create, Step, Write

# SPDX-License-Identifier: Apache-2.0

UNDER_WAY_MAX = 4  # requests; what comes meanwhile goes together
STEPS_MAX = 64  # of one request, or one transaction
BYTES_MAX = 256 << 10
STEP_BYTES = 200  # of a path and the rest, about

Results = list[Any]


class Asked(NamedTuple):
    """One transaction.  `session`: the one that it is bound to, if any; `deadline`: by the reactor's clock, seconds."""

    steps: Sequence[Step]
    session: int | None
    deadline: float
    answer: "Deferred[Results]"

    @property
    def bytes(self) -> int:
        return sum(STEP_BYTES + (len(step.data) if isinstance(step, Create | Write) else 0) for step in self.steps)


class Gathering:
    """
    `once` tries steps a single time: what is answered to each, or None when they were not done, and whether that is in
    doubt.  `alone` carries out one transaction as it was asked for; true: an earlier try may have been done.  `soon`
    has a function called at the end of the reactor's turn.
    """

    def __init__(
        self,
        once: Callable[[Asked], Awaitable[tuple[Results | None, bool]]],
        alone: Callable[[Asked, bool], Awaitable[Results]],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._once = once
        self._alone = alone
        self._soon = soon
        self._goes_soon = False
        self._queue: OrderedDict[Deferred[Results], Asked] = OrderedDict()  # by answer: any of them may be cancelled
        self._under_way = 0

    def ask(self, steps: Sequence[Step], session: int | None, deadline: float) -> "Deferred[Results]":
        """Returns the answer to each step; fails as `alone` does."""
        answer: Deferred[Results] = Deferred(self._cancelled)
        self._queue[answer] = Asked(steps, session, deadline, answer)
        if not self._under_way:
            self._go()
        elif self._under_way < UNDER_WAY_MAX and not self._goes_soon:
            self._goes_soon = True
            self._soon(self._turn_ended)
        return answer

    def _turn_ended(self) -> None:
        self._goes_soon = False
        self._go()

    def _cancelled(self, answer: "Deferred[Results]") -> None:
        """One that is under way is carried out all the same."""
        self._queue.pop(answer, None)

    def _go(self) -> None:
        while self._queue and self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            Deferred.fromCoroutine(self._carry_out(self._next())).addBoth(self._over)

    def _over(self, _result: object) -> None:
        self._under_way -= 1
        self._go()

    def _next(self) -> list[Asked]:
        """Takes the transactions in front that go together."""
        some = [self._queue.popitem(last=False)[1]]
        steps, size = len(some[0].steps), some[0].bytes
        while self._queue:
            each = self._queue[next(iter(self._queue))]
            steps, size = steps + len(each.steps), size + each.bytes
            if each.session != some[0].session or steps > STEPS_MAX or size > BYTES_MAX:
                break
            some.append(self._queue.popitem(last=False)[1])
        return some

    async def _carry_out(self, some: list[Asked]) -> None:
        in_doubt = False
        if len(some) > 1:
            steps = [step for each in some for step in each.steps]
            whole = Asked(steps, some[0].session, min(each.deadline for each in some), Deferred())
            try:
                results, in_doubt = await self._once(whole)
            except Exception as error:  # the callers'
                for each in some:
                    if not each.answer.called:
                        each.answer.errback(error)
                return
            if results is not None:
                for each in some:
                    own, results = results[: len(each.steps)], results[len(each.steps) :]
                    if not each.answer.called:
                        each.answer.callback(own)
                return
        await DeferredList([Deferred.fromCoroutine(self._by_itself(each, in_doubt)) for each in some])

    async def _by_itself(self, asked: Asked, in_doubt: bool) -> None:
        try:
            results = await self._alone(asked, in_doubt)
        except Exception as error:  # the caller's
            if not asked.answer.called:
                asked.answer.errback(error)
        else:
            if not asked.answer.called:
                asked.answer.callback(results)
