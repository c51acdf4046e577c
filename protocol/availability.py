"""
The entries of a ledger that a bookie holds, as bytes (wire.md 8).

    offset  width  field
    0       4      version: 0
    4       4      number of groups G
    8       56     zero
    64      24 G   groups, ascending: first id of the first sequence 8, first id of the last sequence 8, sequence size
                   4, period 4

A group of period 0 is one sequence of consecutive ids.  A group of period P > 0 repeats it at first, first + P, …,
last.

Knows: this encoding, as runs (first id, count).  Does not know: ledgers.
Safety: what a peer sent is bounded before it is expanded: never more than `RUNS_MAX` runs.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
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
PAUSE_RUNS: Final = 64  # some 0.1 ms of work
IDS_END: Final = 1 << 63
RUNS_MAX: Final = 1_000_000  # runs that one answer may expand to: at most half a second, and 100 bytes each

Run = tuple[int, int]  # first id, count
Group = tuple[int, int, int, int]  # the four fields


class TooManyGroups(Exception):
    """The entries need a longer list than was allowed."""


def encode(runs: Iterable[Run], pause: Callable[[], None] = lambda: None, groups_max: int | None = None) -> bytes:
    """
    The bytes for ascending runs; touching or overlapping ones are merged.  One group per run, as Apache's encoder makes
    them; where those would not fit into a frame, runs at equal distances (a striped ledger has no others) share a
    group.

    The runs are taken one by one and nothing is kept of them but the bytes; `pause` is called now and then.  Raises
    `TooManyGroups`, as soon as that is clear.
    """
    packed, count = bytearray(), 0
    for group in periodic(_pieces(merged(_paused(runs, pause)))):
        first, last, _size, period = group
        count += (last - first) // period + 1 if period else 1
        packed += GROUP.pack(*group)
        if groups_max is not None and len(packed) > groups_max * GROUP.size:
            raise TooManyGroups(f"a list of entries would have more than {groups_max} groups")
    if count <= PLAIN_GROUPS_MAX:
        packed = bytearray().join(
            GROUP.pack(first, first, size, 0) for first, size in _paused(_expanded(packed), pause)
        )
    return HEADER.pack(0, len(packed) // GROUP.size) + packed


def _paused(runs: Iterable[Run], pause: Callable[[], None]) -> Iterator[Run]:
    for number, run in enumerate(runs):
        if number % PAUSE_RUNS == 0:
            pause()
        yield run


def _pieces(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, cut where they are too long for a group."""
    for first, count in runs:
        for start in range(first, first + count, SEQUENCE_MAX):
            yield start, min(SEQUENCE_MAX, first + count - start)


def periodic(runs: Iterable[Run]) -> Iterator[Group]:
    """Ascending, disjoint runs as few groups: neighbours of one size and at one distance share a group."""
    first = last = size = period = 0  # the group that may still grow; none while `size` is 0
    for start, count in runs:
        distance = start - last
        if count == size and distance <= PERIOD_MAX and period in (0, distance):
            last, period = start, distance
            continue
        if size:
            yield first, last, size, period
        first, last, size, period = start, start, count, 0
    if size:
        yield first, last, size, period


def runs_of(data: bytes) -> Iterator[Run]:
    """Yields the ascending runs of a list made here; touching ones were one that was too long for a group."""
    return _expanded(memoryview(data)[HEADER.size :])


def _expanded(groups: bytes | bytearray | memoryview) -> Iterator[Run]:
    for first, last, size, period in iter_unpack(GROUP.format, groups):
        for start in range(first, last + 1, period or 1):
            yield start, size


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
    stop, clean = -1, True  # whether they ascend and don't touch, as they come
    for first, last, size, period in iter_unpack(GROUP.format, memoryview(data)[HEADER.size :]):
        odd = last > first and (period == 0 or (last - first) % period)
        if size <= 0 or period < 0 or not 0 <= first <= last <= IDS_END - size or odd:
            raise MalformedFrame(f"an availability group of first {first}, last {last}, size {size}, period {period}")
        clean = clean and stop < first and (last == first or size < period)
        stop = last + size
        if last == first:
            runs.append((first, size))
            continue
        if len(runs) + (last - first) // period + 1 > RUNS_MAX:
            raise MalformedFrame(f"an availability list of more than {RUNS_MAX} runs")
        runs.extend(zip(range(first, last + 1, period), repeat(size), strict=False))
    if clean:
        return runs
    runs.sort()
    return list(merged(runs))


def merged(runs: Iterable[Run]) -> Iterator[Run]:
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
