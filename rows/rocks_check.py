"""
A look at what RocksDB will read when it opens a directory: some damage keeps RocksDB itself busy for good, some it
takes for a torn end.

MANIFEST-* (which tables there are) and *.log (the writes since then) have RocksDB's public log format, little-endian,
in blocks of 32 KiB:

    0   4   CRC32C of type and data, masked
    4   2   bytes of data
    6   1   type: 1 a whole record, 2 to 4 a first, middle, last part; 5 to 8 the same in a log that is used again
    7   … data, behind the log's number in a log that is used again; fewer than 7 bytes at the end of a block are zeros

Each record of a manifest is an edit of what the records before it say, made of fields: a field that is not listed here
is refused, whether RocksDB would pass over it or not, for it may name what is not looked for.  Numbers (n) are varints,
7 bits a byte, the lowest first; strings (s) stand behind their length, a number:

    1 s                     the comparator
    2 n                     the first log of writes that may hold some which are in no table
    3 n                     the next file's number; missing in the snapshot with which a manifest begins
    4 n                     the number of the last write
    6 n n                   a table that is no more: level, number
    9 n                     0
    10 n                    logs of writes below this number are not read
    103 n n n s s n n f …   a table: level, number, bytes, first and last key, first and last write in it; then fields
                            f of its own, a number and a string each, up to the number 1
    8193 s, 8200 s, 8201 s  an id; which logs of writes are gone, where RocksDB counts them; whether keys have times

A field of a table: 2 compact it soon; 3 as 10, in 8 bytes; 5, 6 times; 7, 8 a sum; 9 temperature; 12 an id; 13 when it
was made, among all; 14, 15 sizes.

Each record of a log of writes begins with the number of its first write (8 bytes), and how many it has (4).

RocksDB syncs what it appends to a manifest before it removes a file that this makes superfluous.  Of an append that a
power loss tore any sectors may be missing; they are zeros, or the file ends before them.  RocksDB opens with some of
these, refuses others, and passes over zeros to the next block, where the end of the same append may say which logs of
writes to leave out.  So a start cuts such an end off: what is left is the state before, and opening it loses nothing if
that is all there, whether the append was durable or not.

Knows: that format, CURRENT, and which files belong to a state.  Does not know: what is in tables, options.  Logs that
are used again are passed over: no manifest is one, we write none, and RocksDB reads them to their end.
Safety: a manifest passes only when each record fits its sum up to the end, or up to one that a power loss may have torn
while all tables and logs of writes of the state before it are there.  Of a log of writes only what never ends is
refused: RocksDB stops at a bad record, as it must after a power loss; whether that record was durable is in the numbers
of a bookie (`Rows.sequence`), and `stops` where it is.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c
from twisted.logger import Logger

from quire.protocol import varint
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

COMPARATOR, LOG, NEXT_FILE, LAST_WRITE, GONE, PREVIOUS_LOG, OLDEST_LOG, TABLE = 1, 2, 3, 4, 6, 9, 10, 103
NUMBERS = {LOG, NEXT_FILE, LAST_WRITE, PREVIOUS_LOG, OLDEST_LOG}
STRINGS = {COMPARATOR, 8193, 8200, 8201}
OF_TABLE_END, OF_TABLE_OLDEST_LOG = 1, 3
OF_TABLE = {2, 5, 6, 7, 8, 9, 12, 13, 14, 15}
NUMBER_MAX = (1 << 64) - 1


def number(data: bytes, offset: int) -> tuple[int, int]:
    """The number there, and the offset behind it."""
    value, end = varint.decode(data, offset)
    if value > NUMBER_MAX:
        raise ValueError(f"the number at byte {offset} has more than 64 bits")
    return value, end


def string(data: bytes, offset: int) -> tuple[bytes, int]:
    """The string there, and the offset behind it."""
    size, begin = number(data, offset)
    if size > len(data) - begin:
        raise ValueError(f"the string at byte {offset} of {len(data)} is cut off")
    return data[begin : begin + size], begin + size


class Edit:
    """One record, decoded; `ValueError` when it is none, or has what is not known here."""

    def __init__(self, record: bytes) -> None:
        self.numbers: dict[int, int] = {}
        self.gone: list[tuple[int, int]] = []  # level, number
        self.tables: list[tuple[int, int]] = []
        self.last_in_tables = 0  # the number of the last write in one of `tables`
        offset = 0
        while offset < len(record):
            tag, offset = number(record, offset)
            if tag in NUMBERS:
                self.numbers[tag], offset = number(record, offset)
            elif tag in STRINGS:
                _text, offset = string(record, offset)
            elif tag == GONE:
                level, offset = number(record, offset)
                table, offset = number(record, offset)
                self.gone.append((level, table))
            elif tag == TABLE:
                offset = self._table(record, offset)
            else:
                raise ValueError(f"it has a field {tag}, which is not known here")
        if self.numbers.get(PREVIOUS_LOG, 0):
            raise ValueError("it has a second log of writes")

    def _table(self, record: bytes, offset: int) -> int:
        level, offset = number(record, offset)
        table, offset = number(record, offset)
        _bytes, offset = number(record, offset)
        for _key in range(2):
            _text, offset = string(record, offset)
        _first, offset = number(record, offset)
        last, offset = number(record, offset)
        self.tables.append((level, table))
        self.last_in_tables = max(self.last_in_tables, last)
        while True:
            tag, offset = number(record, offset)
            if tag == OF_TABLE_END:
                return offset
            value, offset = string(record, offset)
            if tag == OF_TABLE_OLDEST_LOG and len(value) == 8:
                self.numbers[OLDEST_LOG] = int.from_bytes(value, "little")
            elif tag not in OF_TABLE:
                raise ValueError(f"it has a table with a field {tag}, which is not known here")


class State:
    """The state that the records up to one of them describe."""

    def __init__(self) -> None:
        self.tables: set[tuple[int, int]] = set()  # level, number
        self.log = 0  # the first log of writes that may hold some which are in no table
        self.oldest_log = 0  # RocksDB reads none below
        self.in_tables = 0  # all writes up to this number are in tables
        self.had_rest = False  # and there were later ones when that was so
        self.is_begun = False  # RocksDB wants more than a snapshot
        self.is_snapshot = True  # nothing has changed `log` since the manifest was begun

    def apply(self, record: bytes) -> None:
        """The next record.  `ValueError` when it does not fit."""
        edit = Edit(record)
        for table in edit.gone:
            if table not in self.tables:
                raise ValueError(f"it takes away table {table[1]}, which is not there")
            self.tables.remove(table)
        self.tables.update(edit.tables)
        self.oldest_log = max(self.oldest_log, edit.numbers.get(OLDEST_LOG, 0))
        self.is_begun = self.is_begun or NEXT_FILE in edit.numbers
        if LOG not in edit.numbers:
            return
        self.log = edit.numbers[LOG]
        self.is_snapshot = NEXT_FILE not in edit.numbers
        if self.is_snapshot:
            return
        last = edit.numbers.get(LAST_WRITE)
        if last is None:
            raise ValueError("it does not say which write was the last")
        # What is written into a table by a flush, or by an open, is all that was not in one.
        self.in_tables = edit.last_in_tables if edit.tables else last
        self.had_rest = last > self.in_tables


NAMES = re.compile(rb"MANIFEST-\d+\n")
LOG_NAMES = re.compile(r"\d+\.log")
BLOCK_BYTES = 32 << 10
SECTOR_BYTES = 512
HEADER = struct.Struct("<IHB")
BATCH = struct.Struct("<QI")  # what a log of writes holds begins so: the first one's number, and how many there are
BEGINNING, CONTINUING, ENDING = (1, 2), (3, 4), (1, 4)
USED_AGAIN = range(5, 9)
SUFFIX = ".log"  # of a log of writes
ROCKSDB_FILE = "CURRENT"  # every RocksDB directory has it
WRONG_SUM = "its checksum is wrong"
IN_OPEN = "the records before it end in the midst of what an open writes"
OF_USED_AGAIN = "its type is that of a log which is used again"

log = Logger()


class Bad(NamedTuple):
    """The first record that is not as it was written."""

    offset: int
    why: str
    endless: bool  # RocksDB would never come to an end with it


def masked(check: int) -> int:
    """A CRC32C as RocksDB stores it."""
    return ((check >> 15 | check << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Part(NamedTuple):
    """The data behind one head: a record, or a part of one that goes over the end of a block."""

    offset: int
    kind: int
    data: bytes


def _parts(data: bytes) -> Iterator[Part | Bad]:
    """Up to the end, one that is torn, or the first that is bad."""
    offset = 0
    while offset + HEADER.size <= len(data):
        room = min(BLOCK_BYTES - offset % BLOCK_BYTES, len(data) - offset) - HEADER.size
        if room < 0:
            offset += room + HEADER.size
            continue
        check, size, kind = HEADER.unpack_from(data, offset)
        if kind in USED_AGAIN:
            yield Bad(offset, OF_USED_AGAIN, offset > 0)
            return
        if size > room:
            if (bad := _too_long(data, offset, room, check)) is not None:
                yield bad
            return
        if kind == 0 and size == 0 and not any(data[offset:]):
            return  # a file that grew, and a write that never came
        body = offset + HEADER.size
        if masked(crc32c(data[body - 1 : body + size])) != check:  # the type is part of what the sum is of
            yield Bad(offset, WRONG_SUM, False)
            return
        yield Part(offset, kind, data[body : body + size])
        offset = body + size


def first_bad(data: bytes) -> Bad | None:
    """The first bad record of a file that is not used again, if there is one.  A torn end is not bad."""
    return next((each for each in _parts(data) if isinstance(each, Bad)), None)


def records(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole records and the offset behind each, up to the first that is bad, torn or of a type not drawn above."""
    begun: list[bytes] = []
    for part in _parts(data):
        if isinstance(part, Bad) or part.kind not in (CONTINUING if begun else BEGINNING):
            return
        begun.append(part.data)
        if part.kind in ENDING:
            yield b"".join(begun), part.offset + HEADER.size + len(part.data)
            begun = []


def _too_long(data: bytes, offset: int, room: int, check: int) -> Bad | None:
    """A record longer than its block or the file: torn if the file ends here, unless a shorter one fits the sum."""
    if offset + HEADER.size + room < len(data):
        return Bad(offset, "it is longer than its block", False)
    begin = offset + HEADER.size - 1
    sums = crc32c(data[begin : begin + 1])
    for end in range(begin + 1, len(data)):
        if masked(sums) == check:
            return Bad(offset, "its length is wrong", False)
        sums = crc32c(data[end : end + 1], sums)
    return Bad(offset, "its length is wrong", False) if masked(sums) == check else None


class Manifest(NamedTuple):
    """The manifest that CURRENT names."""

    path: str
    data: bytes

    def end(self) -> int:
        """The offset behind its last whole record."""
        return max((end for _record, end in records(self.data)), default=0)

    def lacking(self, directory: str, files: Files) -> str | None:
        """Names what is missing of the state that its whole records describe, or None.  `OSError`."""
        state = State()
        try:
            for record, _end in records(self.data):
                state.apply(record)
        except ValueError as error:
            return f"of a record before it: {error}"
        names = files.names(directory)
        if gone := {f"{table:06}.sst" for _level, table in state.tables} - set(names):
            return f"{min(gone)} of the state before is gone"
        logs = sorted(int(name[: -len(SUFFIX)]) for name in names if LOG_NAMES.fullmatch(name))
        return self._lacking_logs(state, directory, [number for number in logs if number >= state.log], files)

    def _lacking_logs(self, state: State, directory: str, logs: list[int], files: Files) -> str | None:
        made = int(self.path.rpartition("-")[2])
        if not state.is_begun or state.oldest_log > state.log:
            return IN_OPEN
        # RocksDB begins a manifest in an open, and when it could not write to the one before.  The snapshot in it does
        # not say which writes are in tables, unless none are.
        is_counted = not state.is_snapshot or state.log == 0
        # A flush names the log of writes that it began.  An open names none that is there: it began one before the
        # manifest, when all writes were in tables.
        begun_by_open = is_counted and state.log < made and not state.had_rest
        if not logs or (logs[0] != state.log and not (begun_by_open and logs[0] < made)):
            return f"the log of writes from {state.log:06}{SUFFIX} on of the state before is gone"
        following = state.in_tables + 1 if is_counted else None
        for number in logs:
            path = os.path.join(directory, f"{number:06}{SUFFIX}")
            data, read_to = files.read_file(path) or b"", 0
            for record, end in records(data):
                if len(record) < BATCH.size:
                    return f"{path} holds a record of {len(record)} bytes"
                first, count = BATCH.unpack_from(record)
                if following is not None and first > following:
                    return f"{path} begins with write {first}, and those from {following} on are gone"
                following = max(following or 0, first + count)
                read_to = end
            if state.is_snapshot and number < made and not read_to:
                return IN_OPEN  # this may be its log, and those before it gone
            if read_to < len(data):
                break  # RocksDB ends here, too
        return None


class Torn(StorageError):
    """A manifest of which a power loss tore the end, and nothing is lost: `cut_torn_end` takes it off."""

    def __init__(self, manifest: Manifest, end: int) -> None:
        super().__init__(
            f"{manifest.path} at offset {end}: a power loss tore what was written last; all of the state before is "
            f"there, so nothing is lost, and the next start cuts off these {len(manifest.data) - end} bytes"
        )
        self.manifest = manifest
        self.end = end


def _manifest(directory: str, files: Files) -> Manifest | None:
    path = os.path.join(directory, ROCKSDB_FILE)
    current = files.read_file(path)
    if current is None:
        return None
    if NAMES.fullmatch(current) is None:
        raise StorageError(f"{path} at offset 0: damaged: it does not name a manifest")
    manifest = os.path.join(directory, current.decode().strip())
    data = files.read_file(manifest)
    if data is None:
        raise StorageError(f"{path} at offset 0: damaged, or a file is gone: it names {manifest}, which is not there")
    return Manifest(manifest, data)


def _is_torn(data: bytes, offset: int) -> bool:
    """True if a sector, or as much of one as lies behind the offset, was not written: a file grows by zeros."""
    begins = [offset, *range(offset - offset % SECTOR_BYTES + SECTOR_BYTES, len(data), SECTOR_BYTES)]
    return not all(any(data[begin : begin - begin % SECTOR_BYTES + SECTOR_BYTES]) for begin in begins)


def _look_at_manifest(directory: str, files: Files) -> None:
    manifest = _manifest(directory, files)
    if manifest is None:
        return
    data = manifest.data
    bad, end = first_bad(data), manifest.end()
    if bad is None and end == len(data):
        return
    offset, why = (end, "it is cut off") if bad is None else (bad.offset, bad.why)
    torn = bad is None or (bad.why == WRONG_SUM and _is_torn(data, offset))
    lacking = manifest.lacking(directory, files) if torn else None
    if not torn or lacking is not None:
        words = [f"damaged: a record begins here, and {why}", *filter(None, [lacking])]
        raise StorageError(f"{manifest.path} at offset {offset}: {'; '.join(words)}")
    if bad is not None:
        raise Torn(manifest, end)


def cut_torn_end(directory: str) -> None:
    """Takes off the manifest what a power loss tore, before RocksDB opens it to write.  `StorageError`, `OSError`."""
    files = Files()
    try:
        _look_at_manifest(directory, files)
    except Torn as torn:
        files.replace(torn.manifest.path, torn.manifest.data[: torn.end])
        log.warn("cut off: {torn}", torn=torn)


def check(directory: str, files: Files | None = None) -> None:
    """Looks at a directory before RocksDB opens it.  `StorageError`; `Torn`: `cut_torn_end` will do; `OSError`."""
    files = files if files is not None else Files()
    _look_at_manifest(directory, files)
    for name in files.names(directory):
        if name.endswith(SUFFIX):
            path = os.path.join(directory, name)
            bad = first_bad(files.read_file(path) or b"")
            if bad is not None and bad.endless:
                raise StorageError(f"{path} at offset {bad.offset}: damaged: a record begins here, and {bad.why}")


def stops(directory: str, files: Files) -> str | None:
    """Yields where RocksDB will end reading the logs of writes before their end: file and offset.  `OSError`."""
    for name in files.names(directory):
        if name.endswith(SUFFIX):
            path = os.path.join(directory, name)
            bad = first_bad(files.read_file(path) or b"")
            if bad is not None and (bad.endless or bad.why != OF_USED_AGAIN):
                return f"{path} at offset {bad.offset} holds a record of writes, and {bad.why}"
    return None


def lost_writes(directories: Iterable[str], files: Files) -> list[str]:
    """A line for each directory where writes may be gone: without a log of them, or one that `stops`.  `OSError`."""
    found = []
    for directory in directories:
        if not files.exists(os.path.join(directory, ROCKSDB_FILE)):
            continue
        if not any(name.endswith(SUFFIX) for name in files.names(directory)):
            found.append(f"{directory} has no log of writes (*{SUFFIX}): it was removed")
        elif (where := stops(directory, files)) is not None:
            found.append(where)
    return found
