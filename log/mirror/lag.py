"""
How far a copy is behind the log that it is a copy of, by looks at the end of that log.

Knows: when it ended where; what is copied.  Does not know: either log, the time of day.

A copy is so many seconds behind as it is since the last look at an end that the copy has reached: what the other log
had before that is all there.  So no two clocks are compared, and it grows while the other log can't be reached.
"""

from collections import deque

# SPDX-License-Identifier: Apache-2.0

LOOKS_MAX = 4096  # at ends that are not reached; without the oldest of more, the copy looks older than it is


class Lag:
    """The lag of a copy that is at `end`; `source_end` is where the other log ended at the last look."""

    def __init__(self, now: float, end: int) -> None:
        """From `now` on, with what is copied by then."""
        self.end = self.source_end = end
        self.looked_at = now
        self._whole_at = now  # of the last look at an end that is reached
        self._looks: deque[tuple[float, int]] = deque(maxlen=LOOKS_MAX)

    def looked(self, now: float, end: int) -> None:
        """The other log ends there."""
        self.looked_at, self.source_end = now, max(end, self.source_end)
        if end <= self.end:
            self._whole_at = now
        else:
            self._looks.append((now, end))

    def copied(self, end: int) -> None:
        """The copy has all before that index."""
        self.end = end
        self.source_end = max(end, self.source_end)
        while self._looks and self._looks[0][1] <= end:
            self._whole_at = self._looks.popleft()[0]

    @property
    def records(self) -> int:
        """Counts the records that are known and not copied."""
        return self.source_end - self.end

    def seconds(self, now: float) -> float:
        """Says how old the state is that the copy has whole."""
        return max(0.0, now - self._whole_at)
