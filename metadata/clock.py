"""
The machine's clocks: one that is never set, for all that waits or measures, and the time of day, for what people read.

Twisted's reactor asks the time of day for both.  Where that is set back, by a person or after a leap of a virtual machine, whatever waits (the
time-outs of requests, the next flush, garbage collection) waits that much longer; where it is set forward, all of it is due at once, and a
bookie would take a minute for the day after which a superfluous copy may go.  So the programs of quire steady their reactor before it
runs.  A program with a reactor of its own may do the same; with the time of day nothing false is served, but it has to wait.

Knows: those two clocks.  Does not know: who waits for what.
"""

import time
from typing import Any

# SPDX-License-Identifier: Apache-2.0


def steady(reactor: Any) -> None:
    """Lets a reactor that does not run yet, and in which nothing waits, measure by a clock that is never set."""
    if not reactor.running:
        reactor.seconds = time.monotonic


def time_of_day() -> float:
    """Seconds since 1970."""
    return time.time()
