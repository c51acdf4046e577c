"""
Consume queues and key index of plain files, as a broker builds them: for one in DLedger mode, which builds them of
DLedger's files only.

An index file, big-endian: a header of 40 bytes (store time of the first and of the last record, i64 each; their
offsets, i64 each; slots in use, i32; rows + 1, i32), then a table of slots (i32, number of the slot's newest row), then
rows of 20 bytes, from number 1 on: hash of the key i32, physical offset i64, seconds since the first record i32, number
of the row before in its slot i32.

Knows: the bytes of these files and how large they are.
Does not know: which records are given.
Safety: a file has its name only when all are whole.
"""

import os
import struct
from array import array
from datetime import UTC, datetime
from typing import NamedTuple

from quire.messages.core.layout import (
    BATCH_QUEUE_FILE_BYTES,
    BATCH_UNIT,
    BLANK_UNIT,
    QUEUE_FILE_BYTES,
    UNIT,
    file_name,
)
from quire.messages.core.queues import Placing
from quire.messages.core.record import Record, key_hash
from quire.messages.rocketmq.part import Part
from quire.protocol.message_errors import ExportRefused
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

INDEX_HEADER, INDEX_ROW = struct.Struct(">qqqqii"), struct.Struct(">iqii")
SECONDS_MAX = 0x7FFFFFFF
GATHERED_BYTES_MAX = 64 << 20  # of units, before they are written


class Sizes(NamedTuple):
    """Sizes of the files beside the log, each a setting of the broker; RocketMQ's defaults."""

    queue_file_bytes: int = QUEUE_FILE_BYTES
    batch_queue_file_bytes: int = BATCH_QUEUE_FILE_BYTES
    index_slots: int = 5_000_000
    index_rows: int = 20_000_000


class Building:
    """All files that `take` gets records for, in the order of the log; `queues`: those that have a file by now."""

    def __init__(self, files: Files, directory: str, placing: Placing, sizes: Sizes) -> None:
        self._files, self._directory, self._placing, self._sizes = files, directory, placing, sizes
        self.queues: dict[tuple[str, int], _Queue] = {}
        self._gathered = 0
        self._parts: dict[str, int] = {}  # files on their way, and how large they are to be
        self._index: _Index | None = None

    def take(self, record: Record) -> None:
        properties = record.properties
        place = self._placing.place(record, record.offset)
        code = record.tags_code(properties)
        key = record.topic, record.queue
        if place is not None and ("/" in key[0] or key[0] in (".", "..")):
            raise ExportRefused(
                "TopicName",
                f"the topic {key[0]!r} is no name of a directory, and its queue needs files",
                offset=record.offset,
            )
        if place is not None:
            queue = self.queues.get(key)
            if "INNER_BASE" in properties:
                last = record.store_ms, place.position, place.positions, -1, 0
                unit = BATCH_UNIT.pack(record.offset, record.size, code, *last)
                queue = queue or _Queue(f"batchconsumequeue/{key[0]}/{key[1]}", self._sizes.batch_queue_file_bytes, 0)
            else:
                unit = UNIT.pack(record.offset, record.size, code)
                size = self._sizes.queue_file_bytes
                queue = queue or _Queue(f"consumequeue/{key[0]}/{key[1]}", size, place.position * UNIT.size)
            self.queues[key] = queue
            queue.units += unit
            self._gathered += len(unit)
            if self._gathered > GATHERED_BYTES_MAX:
                self._flush()
        for word in record.keys(properties):
            self._put(key_hash(record.topic, word), record)

    def _put(self, code: int, record: Record) -> None:
        if self._index is not None and self._index.rows + 1 >= self._sizes.index_rows:
            self._end_index()
        if self._index is None:
            self._index = _Index(self._sizes, record)
        self._index.put(code, record)

    def _end_index(self) -> None:
        if self._index is not None:
            at = datetime.fromtimestamp(self._index.begin_ms / 1000, UTC)
            name = f"index/{at:%Y%m%d%H%M%S}{self._index.begin_ms % 1000:03d}"
            while name in self._parts:
                name = f"index/{int(name.removeprefix('index/')) + 1}"
            self._write(name, 0, self._index.encode(), self._index.size)
            self._index = None

    def _flush(self) -> None:
        for queue in self.queues.values():
            while queue.units:
                begin = queue.at - queue.at % queue.file_bytes
                name = f"{queue.folder}/{file_name(begin)}"
                count = min(len(queue.units), begin + queue.file_bytes - queue.at)
                units = bytes(queue.units[:count])
                del queue.units[:count]
                if name not in self._parts:
                    units = BLANK_UNIT * ((queue.at - begin) // UNIT.size) + units
                queue.at += count
                self._write(name, queue.at - begin - len(units), units, queue.file_bytes)
        self._gathered = 0

    def _write(self, name: str, at: int, data: bytes, size: int) -> None:
        part = self._part(name)
        try:
            part.write(at, data)
            part.flush()
        finally:
            part.close()
        self._parts[name] = size

    def _part(self, name: str) -> Part:
        return Part(self._files, os.path.join(self._directory, *name.split("/")), goes_on=name in self._parts)

    def finish(self) -> None:
        """Gives all files their names."""
        self._flush()
        self._end_index()
        for name, size in self._parts.items():
            part = self._part(name)
            try:
                part.sync(size)
            finally:
                part.close()
            part.rename()


class _Queue:
    """Units of a queue that are not written yet, and at which byte of the queue they begin."""

    __slots__ = ("at", "file_bytes", "folder", "units")

    def __init__(self, folder: str, file_bytes: int, at: int) -> None:
        self.folder, self.file_bytes, self.at = folder, file_bytes, at
        self.units = bytearray()


class _Index:
    """One index file."""

    def __init__(self, sizes: Sizes, first: Record) -> None:
        self.begin_ms, self._begin = first.store_ms, first.offset
        self.size = INDEX_HEADER.size + 4 * sizes.index_slots + INDEX_ROW.size * sizes.index_rows
        self._slots = array("i", bytes(4 * sizes.index_slots))
        self._used = self.rows = 0
        self._data = bytearray(INDEX_ROW.size)  # row 0 is not used
        self._last = first

    def put(self, code: int, record: Record) -> None:
        slot = code % len(self._slots)
        before = self._slots[slot]
        self.rows += 1
        self._used += not before
        self._slots[slot] = self.rows
        seconds = min(max(0, (record.store_ms - self.begin_ms) // 1000), SECONDS_MAX)
        self._data += INDEX_ROW.pack(code, record.offset, seconds, before)
        self._last = record

    def encode(self) -> bytes:
        """The file up to its last row."""
        head = self.begin_ms, self._last.store_ms, self._begin, self._last.offset, self._used, self.rows + 1
        self._slots.byteswap()
        return INDEX_HEADER.pack(*head) + self._slots.tobytes() + bytes(self._data)
