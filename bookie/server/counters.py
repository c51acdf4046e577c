"""
What the service has served, as plain integers that /metrics reads.

Knows: names.  Does not know: who counts.
"""

# SPDX-License-Identifier: Apache-2.0


class ServiceCounters:
    """Counts since the bookie started; each only rises."""

    __slots__ = (
        "add_entries",
        "add_runs",
        "adds_refused",
        "batch_reads",
        "fences",
        "forces",
        "lac_reads",
        "lac_writes",
        "lists",
        "long_polls",
        "read_bytes",
        "read_entries",
        "reads",
        "reads_again",
        "reads_rejected",
        "refusals",
    )

    def __init__(self) -> None:
        self.add_runs = 0  # adds that arrived together count once
        self.add_entries = 0
        self.adds_refused = 0  # entries
        self.reads = 0
        self.batch_reads = 0
        self.read_entries = 0
        self.read_bytes = 0
        self.reads_again = 0  # read, dropped because the peer took no answers or a turn had too many, to be read again
        self.reads_rejected = 0  # too many requests
        self.fences = 0
        self.lac_reads = 0
        self.lac_writes = 0
        self.long_polls = 0
        self.forces = 0
        self.lists = 0
        self.refusals = 0  # answers other than EOK, adds left out
