"""
Numbers of what the service has served, as plain integers that /metrics reads.

Knows: names.  Does not know: when each is counted.
"""

from dataclasses import dataclass

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class ServiceCounters:
    """Counts since the bookie started; each only rises."""

    add_runs: int = 0  # adds that arrived together count once
    add_entries: int = 0
    adds_refused: int = 0  # entries
    reads: int = 0
    batch_reads: int = 0
    read_entries: int = 0
    read_bytes: int = 0
    reads_again: int = 0  # read, dropped because the peer took no answers or a turn had too many, to be read again
    reads_rejected: int = 0  # too many requests
    fences: int = 0
    lac_reads: int = 0
    lac_writes: int = 0
    long_polls: int = 0
    forces: int = 0
    lists: int = 0
    refusals: int = 0  # answers other than EOK, adds left out
