"""
How fast a log may be appended to, and what is read of it be given out: buckets of tokens.

Knows: rates, and what was taken when; the time is given to it.  Does not know: what waits.

A bucket fills by its rate up to what a second brings.  Something may be taken while it owes nothing; what is larger
than it makes debt, for which the next one waits.  So over time a rate is kept whatever the sizes are.
"""

from collections.abc import Callable

# SPDX-License-Identifier: Apache-2.0

UNLIMITED = -1
BURST_S = 1.0


class Bucket:
    """`wait_s` before `take`, both with the time in seconds and the rate of now."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0.0  # tokens; below 0: debt
        self._at: float | None = None

    def wait_s(self, now: float, rate: int) -> float:
        """Seconds until something may be taken; infinite with a rate of 0."""
        if rate == UNLIMITED:
            self._level, self._at = 0.0, None
            return 0.0
        if rate == 0:
            return float("inf")
        if self._at is not None:
            self._level = min(rate * BURST_S, self._level + max(0.0, now - self._at) * rate)
        self._at = now
        return max(0.0, -self._level / rate)

    def take(self, amount: int) -> None:
        """Takes so much, whatever there is."""
        if self._at is not None:
            self._level -= amount


class Rate:
    """Two buckets: of records and of bytes a second."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._records, self._bytes = Bucket(), Bucket()

    def wait_s(self, now: float, records: int, size: int) -> float:
        """Seconds until something may be taken at these rates."""
        return max(self._records.wait_s(now, records), self._bytes.wait_s(now, size))

    def take(self, records: int, size: int) -> None:
        """A batch of so many records and bytes."""
        self._records.take(records)
        self._bytes.take(size)


class Together:
    """The rate that all owners of a process share, and how many bytes they may have under way."""

    __slots__ = ("_bytes_max", "bytes", "rate", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.rate = Rate()
        self.bytes = 0
        self.waiting: dict[Callable[[], object], None] = {}  # who waits for it, the longest first

    def fits(self, size: int) -> bool:
        """True if there is room for so many bytes."""
        return self.bytes + size <= self._bytes_max

    def wake(self) -> None:
        """Bytes came back: each looks whether there is room, while there may be."""
        for look in [*self.waiting]:
            if self.bytes >= self._bytes_max:
                return
            look()


class ReadRates:
    """Most records and bytes of values a second that a reader gives out; -1: any, 0: none.  Both may be set."""

    __slots__ = ("_rate", "_seconds", "bytes", "records")

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds`: the time."""
        self.records = self.bytes = UNLIMITED
        self._seconds = seconds
        self._rate = Rate()

    @property
    def are_set(self) -> bool:
        """True if there is a limit."""
        return self.records != UNLIMITED or self.bytes != UNLIMITED

    @property
    def wait_s(self) -> float:
        """Seconds until more may be given out."""
        return self._rate.wait_s(self._seconds(), self.records, self.bytes)

    def take(self, records: int, size: int) -> None:
        """Notes that so many were given out."""
        self._rate.take(records, size)
