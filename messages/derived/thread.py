"""
The thread on which a store's rows are written and read: RocksDB holds the interpreter lock, and waits for disks.

Knows: how a call comes there and its outcome back.  Does not know: what is called.
"""

from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, fail

from quire.metadata.clock import Reactor, processor_clock
from quire.metadata.worker import Worker
from quire.protocol.errors import ClientClosed
from quire.protocol.message_errors import MessageError

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

SLICE_S, REST_S = 0.0004, 0.0001  # without rests the reactor waits for the interpreter lock for 5 ms at each turn
PUTS_REST_S = 0.002  # while puts are under way: each of their system calls hands the lock over
LONGER, SLICE_MAX_S = 1.25, 0.002  # while the reactor has nothing to do: a rest takes much of a busy machine's time
IDLE_S = 0.00002  # of processor time: no turn of the reactor


class Call(NamedTuple):
    """A function, and who waits for its outcome."""

    fn: Callable[[], Any]
    answer: "Deferred[Any]"


class RowsThread:
    """Calls are done in the order in which they were asked for."""

    def __init__(self, reactor: Reactor, name: str, is_putting: Callable[[], bool] = lambda: False) -> None:
        """`is_putting`: True while puts of this process are under way; it is asked on the thread."""
        self._reactor = reactor
        self._is_putting = is_putting
        self._worker: Worker[Call] = Worker(f"messages {name}", self._perform)
        self._ended = False
        self._rested_at = 0.0
        self._slice_s = SLICE_S
        self._clock = processor_clock()  # of the reactor's thread
        self._used_s = 0.0
        self._never = Event()

    def ask(self, fn: Callable[[], T]) -> "Deferred[T]":
        """Calls it there, and fires with the outcome; an `OSError` as `MessageError`."""
        if self._ended:
            return fail(ClientClosed("the rows of this store were closed"))
        answer: Deferred[T] = Deferred()
        self._worker.submit(Call(fn, answer))
        return answer

    def rest(self) -> None:
        """
        On the thread, in the midst of a long call: others compute for a moment when it has done so for long, which is
        longer each time that the reactor had nothing to do since the last rest.  While puts are under way it rests most
        of the time.
        """
        now = self._reactor.seconds()
        if not 0 <= now - self._rested_at < self._slice_s:
            is_putting = self._is_putting()
            self._never.wait(PUTS_REST_S if is_putting else REST_S)
            used, self._used_s = self._used_s, self._clock()
            was_idle = self._used_s - used < IDLE_S and not is_putting
            self._slice_s = min(self._slice_s * LONGER, SLICE_MAX_S) if was_idle else SLICE_S
            self._rested_at = self._reactor.seconds()

    def end(self) -> None:
        """The thread ends behind what was asked for."""
        self._ended = True
        self._worker.end()

    def _perform(self, calls: list[Call]) -> None:
        for fn, answer in calls:
            try:
                found = fn()
            except OSError as error:
                self._reactor.callFromThread(_failed, answer, MessageError(f"rows of the store: {error}"))
            except Exception as error:
                self._reactor.callFromThread(_failed, answer, error)
            else:
                self._reactor.callFromThread(_given, answer, found)


def _given(answer: "Deferred[Any]", found: object) -> None:
    if not answer.called:
        answer.callback(found)


def _failed(answer: "Deferred[Any]", error: Exception) -> None:
    if not answer.called:
        answer.errback(error)
