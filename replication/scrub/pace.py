"""
How fast a bookie is read: so many bytes in a second at most.

Knows: what was read, and when.  Does not know: what it was.
"""

from quire.metadata.clock import Clock, pause

# SPDX-License-Identifier: Apache-2.0


class Pace:
    """Of one reader of one bookie.  A reader says what it got, and waits before it asks for more."""

    def __init__(self, clock: Clock, bytes_per_second: float | None) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._free_at = 0.0  # when all that was read is paid for

    def read(self, size: int) -> None:
        """So many bytes came."""
        if self._rate is not None:
            self._free_at = max(self._free_at, self._clock.seconds()) + size / self._rate

    async def turn(self) -> None:
        """Returns when more may be asked for."""
        while (left := self._free_at - self._clock.seconds()) > 0:
            await pause(self._clock, left)
