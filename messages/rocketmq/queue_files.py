"""
Consume-queue files of a source: what only they say, and whether they agree with the log.

Knows: units, and how a queue's last one and the one that points to a record are found.
Does not know: the log, what is done about a difference.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from quire.messages.core.layout import BATCH_UNIT, UNIT
from quire.messages.rocketmq.source import QueueFiles, Source, Tree, queue_files

# SPDX-License-Identifier: Apache-2.0

LOOKED_BEHIND = 512  # units behind the last one that a search by halves finds


class Unit(NamedTuple):
    """A row of a queue: its position, how many positions it has, and the record that it points to."""

    position: int
    positions: int
    offset: int
    size: int

    @property
    def next(self) -> int:
        return self.position + self.positions


class Units(Sequence[Unit]):
    """The units of one queue, written or not, in the order of its files."""

    def __init__(self, tree: Tree, queue: QueueFiles) -> None:
        self.files = queue
        self._tree = tree
        self._format: struct.Struct = BATCH_UNIT if queue.is_batch else UNIT
        self._first: list[int] = []  # unit of each file
        count = 0
        for _path, _begin, size in queue.files:
            self._first.append(count)
            count += size // self._format.size
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Unit:  # type: ignore[override]  # of a whole slice nobody asks
        if not 0 <= number < self._count:
            raise IndexError(number)
        file = bisect_left(self._first, number + 1) - 1
        while self.files.files[file][2] < self._format.size:
            file -= 1
        path, begin, _size = self.files.files[file]
        at = (number - self._first[file]) * self._format.size
        return self._unit(self._tree.read(path, at, self._format.size), begin + at)

    def _unit(self, data: bytes, at: int) -> Unit:
        if len(data) < self._format.size:
            return Unit(at // self._format.size, 1, 0, 0)  # cut off meanwhile
        if self.files.is_batch:
            offset, size, _tags, _store_ms, position, positions, *_ = self._format.unpack(data)
            return Unit(position, max(1, positions), offset, size)
        offset, size, _tags = self._format.unpack(data)
        return Unit(at // self._format.size, 1, offset, size)

    def last(self, end: int) -> Unit | None:
        """The last one that is written and points below an offset; None: there is none."""
        number = bisect_left(self, True, key=lambda unit: unit.size <= 0 or unit.offset >= end) - 1
        found = self[number] if number >= 0 else None
        for further in range(number + 1, min(number + 1 + LOOKED_BEHIND, len(self))):  # a damaged one misleads
            unit = self[further]
            if unit.size > 0 and unit.offset < end and (found is None or unit.offset > found.offset):
                found = unit
        return found

    def of_record(self, offset: int) -> Unit | None:
        """The one that points to a record; None: there is none."""
        number = bisect_left(self, True, key=lambda unit: unit.size <= 0 or unit.offset >= offset)
        if number < len(self) and (unit := self[number]).size > 0 and unit.offset == offset:
            return unit
        return None


class QueuesOfSource:
    """All queues that a source has files of."""

    def __init__(self, tree: Tree, source: Source) -> None:
        self._tree = tree
        self._source = source

    @cached_property
    def _by_name(self) -> dict[tuple[str, int], Units]:
        found: dict[tuple[str, int], Units] = {}
        for queue in queue_files(self._tree, self._source.root):
            units = Units(self._tree, queue)
            if len(units) >= len(found.get((queue.topic, queue.queue), ())):
                found[queue.topic, queue.queue] = units
        return found

    def get(self, topic: str, queue: int) -> Units | None:
        return self._by_name.get((topic, queue))

    def __iter__(self) -> Iterator[tuple[tuple[str, int], Units]]:
        return iter(sorted(self._by_name.items(), key=lambda each: each[0]))
