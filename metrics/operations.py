"""
How often each of some operations was done, how long it took, and how often it failed, by why.

Knows: that times are of what succeeded; that a name is met first when it happens.
Does not know: what the operations are, who shows them (`families`).

One thread counts; any may read, from copies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.metrics.histogram import Histogram

# SPDX-License-Identifier: Apache-2.0


class Operation:
    """One of them.  `failed`: by the name of what went wrong."""

    __slots__ = ("failed", "times")

    def __init__(self) -> None:
        self.times = Histogram()
        self.failed: dict[str, int] = {}

    def fail(self, why: str, count: int = 1) -> None:
        """Counts failures."""
        self.failed[why] = self.failed.get(why, 0) + count

    @property
    def failures(self) -> int:
        """Returns how often it failed, whatever for."""
        return sum(self.failed.copy().values())


class Operations:
    """Operations by name.  `seconds` is a clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._named: dict[str, Operation] = {}

    def __getitem__(self, name: str) -> Operation:
        """The operation of that name, which may not have been done yet."""
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = Operation()
        return found

    def named(self) -> dict[str, Operation]:
        """Returns the operations that were met so far."""
        return self._named.copy()

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Counts what happens in a `with` block: an error, if only that it was cancelled, is a failure."""
        began = self.seconds()
        try:
            yield
        except BaseException as error:
            self[name].fail(type(error).__name__)
            raise
        self[name].times.observe(self.seconds() - began)
