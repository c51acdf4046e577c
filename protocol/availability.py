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
PERIOD_MAX: Final = (1 << 31) - 1
PLAIN_GROUPS_MAX: Final = 200_000  # 4.8 MB: as much as a frame takes
RUNS_MAX: Final = 4_000_000  # runs that one answer may expand to

Run = tuple[int, int]  # first id, count
Group = tuple[int, int, int, int]  # the four fields


def encode(runs: Iterable[Run]) -> bytes:
    """
    The bytes for ascending runs; touching or overlapping ones are merged.  One group per run, as Apache's encoder makes them;
    where those would not fit into a frame, runs at equal distances (a striped ledger has no others) share a group.
    """
    pieces = [(start, min(SEQUENCE_MAX, first + count - start)) for first, count in merged(runs) for start in range(first, first + count, SEQUENCE_MAX)]
    groups = [(first, first, size, 0) for first, size in pieces] if len(pieces) <= PLAIN_GROUPS_MAX else periodic(pieces)
    return HEADER.pack(0, len(groups)) + b"".join([GROUP.pack(*group) for group in groups])


def periodic(runs: Iterable[Run]) -> list[Group]:
    """Ascending, disjoint runs as few groups: neighbours of one size and at one distance share a group."""
    groups: list[Group] = []
    for start, size in runs:
        if groups:
            first, last, before, period = groups[-1]
            distance = start - last
            if size == before and distance <= PERIOD_MAX and period in (0, distance):
                groups[-1] = (first, start, size, distance)
                continue
        groups.append((start, start, size, 0))
    return groups


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
        if size <= 0 or period < 0 or last < first or (last > first and (period == 0 or (last - first) % period)):
            raise MalformedFrame(f"an availability group of first {first}, last {last}, size {size}, period {period}")
        if last == first:
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
