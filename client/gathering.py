"""
Many single appends become few batches: what several callers append between two turns of the reactor goes out together.

Knows: payloads in the order they came, who waits for each, and how many may be under way before a caller has to wait.
Does not know: ledgers, threads' event loops; `done` is called on the reactor's thread.

Safety: ids are handed out in the order of the calls, since turns take everything that has come and keep its order.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from quire.client.background import ReactorThread

# SPDX-License-Identifier: Apache-2.0

Done = Callable[[int | Failure], None]


class Appends(Protocol):
    """What takes the batches (`api.Writer` is one)."""

    def append_many(self, payloads: list[bytes], /) -> Deferred[range]: ...


class Gathering:
    """The single appends of one writer, from any thread."""

    def __init__(self, thread: ReactorThread, writer: Appends, entries_max: int, bytes_max: int) -> None:
        self._thread = thread
        self._writer = writer
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._lock = threading.Condition()
        self._payloads: list[bytes] = []
        self._waiters: list[Done] = []
        self._entries = 0  # under way, those of `_payloads` included
        self._bytes = 0
        self._scheduled = False

    def put(self, payload: bytes, done: Done) -> None:
        """
        Appends soon; `done` gets the entry's id or the failure.  Never waits: whoever can wait asks `wait_for_room` first.
        """
        with self._lock:
            self._payloads.append(payload)
            self._waiters.append(done)
            self._entries += 1
            self._bytes += len(payload)
            if self._scheduled:
                return
            self._scheduled = True
        self._thread.call(self._flush)

    def has_room(self) -> bool:
        return self._entries < self._entries_max and self._bytes < self._bytes_max

    def wait_for_room(self) -> None:
        """This thread waits while more than the bounds is under way."""
        if self.has_room():
            return
        self._thread.check_may_wait()
        with self._lock:
            self._lock.wait_for(self.has_room)

    def wait_until_idle(self) -> None:
        """This thread waits until everything that was put has its answer."""
        with self._lock:
            self._lock.wait_for(lambda: not self._entries)

    def _flush(self) -> None:
        with self._lock:
            payloads, self._payloads = self._payloads, []
            waiters, self._waiters = self._waiters, []
            self._scheduled = False
        size = sum(map(len, payloads))

        def answered(result: range | Failure) -> None:
            with self._lock:
                self._entries -= len(payloads)
                self._bytes -= size
                self._lock.notify_all()
            if isinstance(result, Failure):
                for done in waiters:
                    done(result)
            else:
                for entry, done in zip(result, waiters, strict=True):
                    done(entry)

        maybeDeferred(self._writer.append_many, payloads).addBoth(answered)
