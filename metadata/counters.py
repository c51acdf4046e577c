"""
The plain numbers of one session with a metadata store: its calls, and how often it was lost.

Knows: how an answer is counted when it comes.  Does not know: which calls there are (`tree`), who shows it (`metrics`).
"""

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.metrics.operations import Operations

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class SessionCounters:
    """Counts what one handle on a tree asks of its store."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.calls = Operations(seconds)
        self.connections = 0  # the first one, and those after one was lost
        self.expired = 0  # sessions

    def counting(self, name: str, answer: "Deferred[T]") -> "Deferred[T]":
        """Counts a call when its answer comes."""
        began = self.calls.seconds()

        def came(given: T) -> T:
            if isinstance(given, Failure):
                assert given.type is not None
                self.calls[name].fail(given.type.__name__)
            else:
                self.calls[name].times.observe(self.calls.seconds() - began)
            return given

        return answer.addBoth(came)
