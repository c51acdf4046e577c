"""
The plain numbers of one client: of a batch, a run of answers or a call at a time, never of each entry.

Knows: names of operations and requests.  Does not know: who counts, who shows it (`metrics`).
"""

from collections.abc import Callable

from quire.metrics.operations import Operation, Operations
from quire.protocol.errors import BY_CODE, UnexpectedCondition

# SPDX-License-Identifier: Apache-2.0

ADD, READ = "add", "read"  # operations, and requests to bookies
CREATE, OPEN, RECOVER, DELETE = "create", "open", "recover", "delete"
BATCH_READ, FENCE, POLL = "batch_read", "fence", "long_poll"
READ_LAC, WRITE_LAC, FORCE, LIST, INFO = "read_lac", "write_lac", "force", "list", "info"
CANCELLED = "Cancelled"
TIMED_EVERY = 8  # requests: to take the time costs as much as all the rest of counting


def name_of(code: int) -> str:
    """The error's name."""
    return BY_CODE.get(code, UnexpectedCondition).__name__


class ClientCounters:
    """
    Counts what a client does.  `operations`: an add is an entry, from when it was sent until it is acknowledged, the
    same for all of a batch; a read is one entry, or one run of a range.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.operations = Operations(seconds)
        self.adds = self.operations[ADD]
        self.reads = self.operations[READ]
        self.add_bytes = 0
        self.read_entries = 0
        self.ensemble_changes = 0
        self.speculative_reads = 0
        self.damaged_copies = 0


class Requests(Operation):
    """
    The requests of one kind to one bookie.  The first of each `TIMED_EVERY` is timed, from when it is sent (a read:
    wanted) until its answer; others are only counted.  An add is an entry, and a batch of them is timed as one.
    """

    __slots__ = ("done", "untimed", "waiting")

    def __init__(self) -> None:
        super().__init__()
        self.done = 0  # answered with yes
        self.waiting = 0
        self.untimed = 0  # so many more before the next is timed


class Traffic:
    """Counts what one bookie's connections carried, and how they came and went."""

    __slots__ = ("connected", "failed", "lost", "open", "received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.open = 0  # now
        self.connected = 0  # times
        self.failed = 0  # attempts
        self.lost = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    def carried(self, sent: int, received: int) -> None:
        """Adds what a connection carried, in bytes."""
        self.sent_bytes += sent
        self.received_bytes += received
