"""
Several coroutines at the same time.

Knows: waiting for all of them, feeding a few workers from one source, waking one that waits, keeping a pace, giving way
to what else the bookies do, sharing what there is only so much of, beginning again after a fault of ours, whether one
that fails says anything of the others.
Does not know: what they do; what else a bookie does: it is felt.

A bookie that nobody else uses answers about as fast as ever until it has enough to do; beyond that more at once is only
a longer queue, in which others would wait, too.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from math import inf
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, FirstError, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, pause
from quire.metadata.tree_store import MetadataStore
from quire.metrics.histogram import Histogram
from quire.protocol.errors import LedgerError, MetaStore

# SPDX-License-Identifier: Apache-2.0

BYTES_MIN = 64 << 10
BYTES_BEGIN = 512 << 10  # a few answers later it is all, if they are in time
BYTES_MAX = 8 << 20
REQUEST_BYTES = 4 << 10  # that a request costs at least
SLOW_TIMES = 2.0  # as long as the shortest answer to a request of its size takes
SLOW_S = 0.03  # and so much longer: a disk's syncs, a turn of a busy process
SLOW_ROW = 3  # so many one after the other
SHRUNK, SHRUNK_LEAST = 1 / 2, 1 / 16  # to as much as would have been answered in time, within these


class Window:
    """The window of one bookie, for one kind of request."""

    def __init__(self) -> None:
        self.bytes = BYTES_BEGIN
        self._shortest: dict[int, float] = {}  # by the number of bits of a request's size
        self._row = 0  # of slow answers, up to the last one
        self._shrunk_at = float("-inf")
        self._slow_from = float(BYTES_MAX)  # above this it was slow

    def answered(self, size: int, began: float, now: float, failed: bool = False) -> None:
        """A request of that size, begun then, has its answer.  `failed`: the bookie was too busy, or gave none."""
        took = now - began
        bits = size.bit_length()
        self._shortest[bits] = min(took, self._shortest.get(bits, took))
        shortest = min(each for other, each in self._shortest.items() if other >= bits)  # a larger one takes no less
        in_time = SLOW_TIMES * shortest + SLOW_S
        if failed or took > in_time:
            if began < self._shrunk_at:  # it was in the longer queue
                return
            self._row += 1
            if failed or self._row >= SLOW_ROW:
                self._row = 0
                self._shrunk_at = now
                self._slow_from = self.bytes * max(SHRUNK_LEAST, min(SHRUNK, in_time / took if took else SHRUNK))
                self.bytes = max(BYTES_MIN, int(self._slow_from))
        else:
            self._row = 0
            grown = size if self.bytes < self._slow_from else size * BYTES_MIN / self.bytes  # a round: so many more
            self.bytes = min(BYTES_MAX, int(self.bytes + max(1.0, grown)))


T = TypeVar("T")

BEGIN_AGAIN_S = 60.0  # after a failure that nobody foresaw
EVEN_S = 0.5  # within that a pace may be uneven
AHEAD_WINDOWS = 2  # of what a bookie is to store: one that is on its way there, one that is read meanwhile
LOG = Logger(namespace="quire.autorecovery")


async def kept_up(
    clock: Clock,
    story: Callable[[], Coroutine[Any, Any, None]],
    what: str,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """
    Until it ends by itself, or fails when it `is_over`: what nobody foresaw ends no work that can be begun again, and
    the log has it.  `CancelledError`.
    """
    while True:
        failed: list[Failure] = []
        await Deferred.fromCoroutine(story()).addErrback(failed.append)
        if not failed:
            return
        if isinstance(failed[0].value, CancelledError):
            raise failed[0].value
        if is_over():
            LOG.failure("{what} failed at its end", failed[0], what=what)
            return
        LOG.failure("{what} failed, and begins again in {seconds:.0f} s", failed[0], what=what, seconds=BEGIN_AGAIN_S)
        await pause(clock, BEGIN_AGAIN_S)


async def about_one(store: MetadataStore, error: LedgerError) -> None:
    """
    Returns when a failure may be about one ledger alone; `MetaStore` when the store gives nobody an answer: each
    further ledger would wait for its time-out and fail as well.
    """
    if isinstance(error, MetaStore):
        await store.cluster()


async def all_of(stories: "list[Coroutine[Deferred[Any], Any, T]]") -> list[T]:
    """Runs them at the same time; results in order.  When one fails the others are cancelled; its error is raised."""
    begun = [Deferred.fromCoroutine(story) for story in stories]
    try:
        return await gatherResults(begun, consumeErrors=True)
    except FirstError as first:
        for each in begun:
            each.cancel()
        raise first.subFailure.value or first from None


async def each_of(
    items: AsyncIterator[T] | Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]], workers: int
) -> None:
    """Gives each item to `work`, at most `workers` at a time; their source is asked only when one is free."""
    if isinstance(items, AsyncIterator):
        await _each_that_comes(items, work, workers)
        return
    source = iter(items)  # of all workers

    async def worker() -> None:
        for item in source:
            await work(item)

    await all_of([worker() for _ in range(workers)])


async def _each_that_comes(
    source: AsyncIterator[T], work: Callable[[T], Coroutine[Any, Any, None]], workers: int
) -> None:
    """As `each_of`, of a source that has to be waited for."""
    asking = DeferredLock()
    over = False

    async def following() -> tuple[T] | None:
        nonlocal over
        await asking.acquire()
        try:
            return None if over else (await anext(source),)
        except StopAsyncIteration:
            over = True
            return None
        finally:
            asking.release()

    async def worker() -> None:
        while (item := await following()) is not None:
            await work(item[0])

    await all_of([worker() for _ in range(workers)])


class Bell:
    """Wakes the one who waits; it may be rung before that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: Deferred[None] | None = None

    def ring(self) -> None:
        """Again does nothing."""
        self._rung = True
        if self._waiter is not None and not self._waiter.called:
            self._waiter.callback(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Returns when it was rung since the last wait, or after that time."""
        if not self._rung:
            self._waiter = Deferred()
            timer = None if seconds is None else self._clock.callLater(max(0.0, seconds), self.ring)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None and timer.active():
                    timer.cancel()
        self._rung = False


class Pace:
    """
    How fast bookies are read from and written to: so many (bytes, ledgers) a second at most, if that is given, and
    never more at once than each bookie answers without delay (`Window`).  A reader says what it got, and waits
    before it asks for more; who says beforehand about how much that will be is one of many that read at the same time.
    What the answers of the last moment took is made up for.
    """

    def __init__(
        self,
        clock: Clock,
        per_second: float | None,
        reads: Histogram | None = None,
        stores: Histogram | None = None,
    ) -> None:
        """`reads`, `stores`: the times that these requests take."""
        self._clock = clock
        self._rate = per_second
        self._times = reads, stores
        self._free_at = clock.seconds()  # when all that was read is paid for
        self._lanes: dict[tuple[str, bool], Lane] = {}

    @property
    def at_once(self) -> float:
        """Returns the amount that, asked for together, keeps the pace even."""
        return inf if self._rate is None else self._rate * EVEN_S

    def read(self, size: int, expected: int = 0) -> None:
        """Counts what came, of which `expected` was given to `turn`."""
        if self._rate is not None:
            self._free_at = max(self._free_at, self._clock.seconds() - EVEN_S) + (size - expected) / self._rate

    async def turn(self, expected: int = 0) -> None:
        """Returns when more may be asked for."""
        while (left := self._free_at - self._clock.seconds()) > 0:
            await pause(self._clock, min(left, EVEN_S))  # what was expected may have been too much
        self.read(expected)

    def reads(self, bookie: str) -> "Lane":
        """The requests to read from a bookie."""
        return self._lane(bookie, False)

    def stores(self, bookie: str) -> "Lane":
        """The requests to store there."""
        return self._lane(bookie, True)

    def _lane(self, bookie: str, storing: bool) -> "Lane":
        lane = self._lanes.get((bookie, storing))
        if lane is None:
            lane = self._lanes[bookie, storing] = Lane(self._clock, self._times[storing])
        return lane


class Shared(Generic[T]):
    """
    A question that many ask, put once at a time: its answer is that of all who had asked before it was put.  Those who
    come while it is under way share the next one.
    """

    def __init__(self) -> None:
        self._waiting: list[Deferred[T]] = []
        self._under_way = False

    def ask(self, call: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Puts the question by that call, or by another one's that begins later than this."""
        answer: Deferred[T] = Deferred()
        self._waiting.append(answer)
        self._call = call
        if not self._under_way:
            self._go()
        return answer

    def _go(self) -> None:
        self._under_way = True
        sharing, self._waiting = self._waiting, []
        Deferred.fromCoroutine(self._call()).addBoth(self._over, sharing)

    def _over(self, result: Any, sharing: "list[Deferred[T]]") -> None:
        self._under_way = False
        if self._waiting:
            self._go()
        for each in sharing:
            if not each.called:  # else it was cancelled
                each.callback(result)


class Lane:
    """
    Requests of one kind to one bookie, in its window; `ahead`: what was read for it and is not stored yet; `answers`:
    whether it answers (`replicas`), which many ask at the same time.
    """

    def __init__(self, clock: Clock, times: Histogram | None = None) -> None:
        self._clock = clock
        self._times = times
        self._window = Window()
        self._share = Share(self._window.bytes)
        self.ahead = Share(AHEAD_WINDOWS * self._window.bytes)
        self.answers: Shared[int] = Shared()

    @property
    def bytes(self) -> int:
        """The bytes that may be under way now; a larger request is made alone."""
        return self._share.most

    async def ask(self, size: int, call: Callable[[], Awaitable[T]], failed: Callable[[T], bool]) -> T:
        """Makes a call that asks for so many bytes, in its turn; `failed`: the bookie had no time for it."""
        size = max(size, REQUEST_BYTES)
        await self._share.take(size)
        began, late = self._clock.seconds(), True
        try:
            answer = await call()
            late = failed(answer)
            return answer
        finally:
            now = self._clock.seconds()
            if self._times is not None and not late:
                self._times.observe(now - began)
            self._window.answered(size, began, now, late)
            self._share.most = self._window.bytes
            self.ahead.most = AHEAD_WINDOWS * self._window.bytes
            self._share.give(size)


class Share:
    """
    A limited amount (bytes, requests) that many use at the same time.  A caller waits for its turn; one that wants
    more than there is gets it when nobody else has any.
    """

    def __init__(self, most: int) -> None:
        self.used = 0
        self.most = most  # may change; `give` looks at it
        self._waiting: deque[tuple[int, Deferred[None]]] = deque()
        self._giving = False

    async def take(self, size: int) -> None:
        """Returns when it is the caller's, until `give`."""
        if not self._waiting and self._fits(size):
            self.used += size
            return
        turn: Deferred[None] = Deferred(lambda _: self._left(waiter))
        waiter = size, turn
        self._waiting.append(waiter)
        await turn

    def give(self, size: int) -> None:
        """Gives back an amount.  A negative size: it has become more than was asked for."""
        self.used -= size
        if self._giving:
            return
        self._giving = True  # who gets its turn runs here, and may give its own back: one loop serves all
        try:
            while self._waiting and self._fits(self._waiting[0][0]):
                size, turn = self._waiting.popleft()
                self.used += size
                turn.callback(None)
        finally:
            self._giving = False

    async def turn(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call while one of the share is taken."""
        await self.take(1)
        try:
            return await call()
        finally:
            self.give(1)

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self.most

    def _left(self, waiter: tuple[int, "Deferred[None]"]) -> None:
        """One that waits was cancelled."""
        self._waiting.remove(waiter)
        self.give(0)


class Portion:
    """The part of some shares that one story has, of each as much; it is given back when the story ends."""

    def __init__(self, *shares: Share | None) -> None:
        self._taken = {share: 0 for share in shares if share is not None}

    async def take(self, size: int) -> None:
        """Takes from one share after the other, so that nothing of the next is held while the first is waited for."""
        for share in self._taken:
            await share.take(size)
            self._taken[share] += size

    def give(self, size: int) -> None:
        """As `Share.give`; after the end nothing is left to be given."""
        for share, taken in self._taken.items():
            if taken:
                self._taken[share] -= size
                share.give(size)

    def end(self) -> None:
        for share, taken in self._taken.items():
            self._taken[share] = 0
            if taken:
                share.give(taken)
