"""Workers that do each job at once, so that a test needs no thread."""

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")


class InlineWorkers:
    """Does each job at once, in the caller; a Deferred has fired when it is returned."""

    threaded = False

    def run(self, job: Callable[..., T], *args: Any) -> "Deferred[T]":
        return maybeDeferred(job, *args)

    def spawn(self, job: Callable[[], None]) -> None:
        job()

    def pause(self) -> None:
        """Nothing else waits for the interpreter."""

    def stop(self) -> None:
        """Nothing runs."""
