"""
Which entries of a ledger a bookie holds, as bytes (spec wire-protocol.md 8).

    offset  width  field
    0       4      version: 0
    4       4      number of groups G
    8       56     zero
    64      24 G   groups, ascending: first id of the first sequence 8, first id of the last sequence 8, sequence size 4, period 4

A group of period 0 is one sequence of consecutive ids.  A group of period P > 0 repeats it at first, first + P, …, last.

Knows: this encoding, as runs (first id, count).  Does not know: ledgers.
Safety: what a peer sent is bounded before it is expanded: never more than `RUNS_MAX` runs.
"""

from collections.abc import Iterable
from struct import Struct, iter_unpack
from typing import Final

from quire.protocol.errors import MalformedFrame

# SPDX-License-Identifier: Apache-2.0

HEADER = Struct(">ii56x")
GROUP = Struct(">qqii")
assert (HEADER.size, GROUP.size) == (64, 24)
SEQUENCE_MAX: Final = (1 << 31) - 1  # entries of one sequence: a signed 32-bit field
RUNS_MAX: Final = 4_000_000  # runs that one answer may expand to

Run = tuple[int, int]  # first id, count


def encode(runs: Iterable[Run]) -> bytes:
    """One group per run of consecutive ids, as Apache's encoder makes them.  `runs` ascend; touching or overlapping ones are merged."""
    groups: list[bytes] = []
    for first, count in merged(runs):
        for start in range(first, first + count, SEQUENCE_MAX):
            groups.append(GROUP.pack(start, start, min(SEQUENCE_MAX, first + count - start), 0))
    return HEADER.pack(0, len(groups)) + b"".join(groups)


def decode(data: bytes) -> list[Run]:
    """The runs, ascending, disjoint and not touching.  Raises `MalformedFrame`."""
    if len(data) < HEADER.size:
        raise MalformedFrame(f"an availability list of {len(data)} bytes has no header")
    version, count = HEADER.unpack_from(data)
    if version != 0:
        raise MalformedFrame(f"an availability list of version {version}")
    if count < 0 or len(data) != HEADER.size + count * GROUP.size:
        raise MalformedFrame(f"an availability list of {len(data)} bytes says that it has {count} groups")
    runs: list[Run] = []
    for first, last, size, period in iter_unpack(GROUP.format, memoryview(data)[HEADER.size :]):
        if size <= 0 or period < 0 or last < first or (period == 0) != (last == first) or (period and (last - first) % period):
            raise MalformedFrame(f"an availability group of first {first}, last {last}, size {size}, period {period}")
        if period == 0:
            runs.append((first, size))
            continue
        if len(runs) + (last - first) // period + 1 > RUNS_MAX:
            raise MalformedFrame(f"an availability list of more than {RUNS_MAX} runs")
        runs.extend((start, size) for start in range(first, last + 1, period))
    return list(merged(sorted(runs)))


def merged(runs: Iterable[Run]) -> Iterable[Run]:
    """Ascending runs with those that touch or overlap joined, empty ones left out."""
    first = stop = 0
    for start, count in runs:
        if count <= 0:
            continue
        if start <= stop and first != stop:
            if start < first:
                raise ValueError(f"runs must ascend: {start} after {first}")
            stop = max(stop, start + count)
            continue
        if first != stop:
            yield first, stop - first
        first, stop = start, start + count
    if first != stop:
        yield first, stop - first
