"""
The journal that an Apache bookie left: files `<id, lower-case hex>.txn` of versions 1 to 6, and `lastMark`
(storage-order.md 9.1).

    header   version 1: none.  2 to 4: "BKLG", i32 version.  5 and 6: the same, zeros up to 512
    record   i32 length > 0, then so many bytes: i64 ledger, i64 entry, rest
    padding  i32 -256, i32 n, n bytes (version 5 and up), once behind each group, so that the next begins at a multiple
             of 512
    end      i32 0 (space that was allocated and not used), or the end of the file

From version 5 on a file has whole MiB, which Apache allocates before it writes to them, or its header only.
Entry -0x1000: the ledger's key; -0x2000: fence; -0x8000: explicit LAC; both with i32 length and bytes.  Other negative
ones are passed over.  `lastMark` (`lastMark.<i>` for journal i of several), in each ledger directory: i64 file id, i64
offset; the highest counts.

Knows: these bytes.  Does not know: what is done with them.
Safety: there is no checksum.  From version 5 on every group that Apache acknowledged ends with padding or exactly at a
multiple of 512, so records behind the last such place were never acknowledged: they are cut off, and a half-written one
is never taken for an entry.  A length that can't be is damage, and so is a whole group behind what can't be read.  A
file without a header counts as version 1 only where a record begins it and no other file has a header: else an end that
was found at its first byte would deny all that it held.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from quire.bookie.index.run import RUN_ENTRIES_MAX
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

SUFFIX = ".txn"
MAGIC = b"BKLG"
HEAD = struct.Struct(">4si")
HEADER_BYTES = {1: 0, 2: 8, 3: 8, 4: 8, 5: 512, 6: 512}
ALIGNMENT = 512
ALLOCATED_BYTES = 1 << 20
PADDED_SINCE = 5
PADDING = -256
WIDTH = struct.Struct(">i")
IDS = struct.Struct(">qq")
KEY, FENCE, EXPLICIT_LAC = -0x1000, -0x2000, -0x8000
READ_BYTES = 4 << 20
WALKED_PAGE = 4096
RECORD_BYTES_MAX = 64 << 20  # a larger length can't be one

WHAT_TO_DO = (
    "Put it back as it was, or have what this bookie holds copied from other bookies with `quire decommission ID`, "
    "then begin empty, under another bookieId"
)
LAST_MARK = "lastMark"
MARK = struct.Struct(">qq")


class ApacheMark(NamedTuple):
    """A place in an Apache journal: everything before it is stored elsewhere."""

    file: int
    offset: int


# Apache does not start when the file that its mark names is missing: so it can't serve directories that quire holds,
# with entries that it would not find.
GUARD = ApacheMark((1 << 63) - 1, 0)


def lacks_newest(files: Files, directory: str, mark: ApacheMark) -> bool:
    """
    True if there is no file behind the mark's though Apache began one: it does so as soon as it has replayed the
    mark's, of which it then names the end behind the zero that it met there; each other place that it names is a
    multiple of 512.  Raises `StorageError`, `OSError`.
    """
    if mark.offset % ALIGNMENT != WIDTH.size or journal_ids(files, directory)[-1:] != [mark.file]:
        return False
    opened = JournalFile(files, directory, mark.file)
    opened.close()
    return opened.version >= PADDED_SINCE


class Block(NamedTuple):
    """Consecutive entries of a ledger (`kind`: the first one's id), or one KEY, FENCE, EXPLICIT_LAC with its bytes."""

    ledger: int
    kind: int
    bodies: list[bytes]


def journal_name(file: int) -> str:
    return f"{file:x}{SUFFIX}"


def journal_ids(files: Files, directory: str) -> list[int]:
    """The ids of the journal files in `directory` (`<dir>/current`), ascending."""
    found = []
    for name in files.names(directory):
        stem = name.removesuffix(SUFFIX)
        if stem != name and stem and all(digit in "0123456789abcdef" for digit in stem):
            found.append(int(stem, 16))
    return sorted(found)


def mark_name(journal: int, journals: int) -> str:
    return LAST_MARK if journals == 1 else f"{LAST_MARK}.{journal}"


def pack_mark(mark: ApacheMark) -> bytes:
    """The contents of a mark's file."""
    return MARK.pack(*mark)


def read_last_mark(files: Files, directory: str, name: str) -> ApacheMark | None:
    """The mark in one ledger directory; None when it is missing or has not 16 bytes, as Apache has it."""
    data = files.read_file(os.path.join(directory, name))
    return ApacheMark(*MARK.unpack(data)) if data is not None and len(data) == MARK.size else None


class JournalFile:
    """One open file.  After `records`, `end` is where reading stopped and `cut` what was left out there."""

    def __init__(self, files: Files, directory: str, file: int) -> None:
        """Raises `StorageError` for an unknown version, `OSError`."""
        self.path = os.path.join(directory, journal_name(file))
        self.end = 0
        self.cut: str | None = None
        self._files = files
        self._handle = files.open(self.path)
        self.size = files.size(self._handle)
        self._data = b""
        self._at = 0  # where _data begins in the file
        head = self._bytes(0, HEAD.size)
        self.has_header = head.startswith(MAGIC) and len(head) == HEAD.size
        self.version = HEAD.unpack(head)[1] if self.has_header else 1
        if self.version not in HEADER_BYTES:
            self.close()
            raise StorageError(f"{self.path} has version {self.version}; known are 1 to 6")

    def close(self) -> None:
        self._files.close(self._handle)

    def _bytes(self, offset: int, count: int) -> bytes:
        """Fewer at the end of the file."""
        start = offset - self._at
        if start < 0 or start + count > len(self._data):
            left = max(0, self.size - offset)  # a damaged length may be any
            self._data = self._files.read(self._handle, min(max(READ_BYTES, count), left), offset)
            self._at, start = offset, 0
        return self._data[start : start + count]

    def records(self, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """(offset, payload) of every record from `offset` on (0: from the first).  Raises `StorageError` on damage."""
        at = max(offset, HEADER_BYTES[self.version])
        padded = self.version >= PADDED_SINCE
        group: list[tuple[int, bytes]] = []  # records whose group has not ended yet
        while True:
            head = self._bytes(at, WIDTH.size)
            if len(head) < WIDTH.size:
                self.end = at
                break
            (length,) = WIDTH.unpack(head)
            if length == 0:
                self.end = at + WIDTH.size
                break
            if length == PADDING and padded:
                yield from group
                group = []
                (skip,) = WIDTH.unpack(self._bytes(at + WIDTH.size, WIDTH.size).ljust(WIDTH.size, b"\0"))
                if skip < 0:
                    raise StorageError(
                        f"{self.path} at offset {at}: padding of {skip} bytes can't be; the file is damaged"
                    )
                at += 2 * WIDTH.size + skip
                continue
            if length < IDS.size:
                raise StorageError(
                    f"{self.path} at offset {at}: a record of {length} bytes can't be; the file is damaged, and what "
                    "follows can't be trusted"
                )
            payload = self._bytes(at + WIDTH.size, length)
            if len(payload) < length:
                self.end = at
                break
            if IDS.unpack_from(payload)[0] < 0:
                raise StorageError(
                    f"{self.path} at offset {at}: a record of ledger {IDS.unpack_from(payload)[0]} can't be; the "
                    "file is damaged"
                )
            group.append((at, payload))
            at += WIDTH.size + length
            if not padded or at % ALIGNMENT == 0:
                yield from group
                group = []
        if group:
            self.cut = (
                f"{self.path} at offset {group[0][0]}: {len(group)} records whose group was never written to its end"
            )
        later = self._later_group(group[0][0] if group else at) if padded else None
        if later is not None:
            raise StorageError(
                f"{self.path} at offset {group[0][0] if group else at}: no whole group, yet a later one is whole at "
                f"offset {later}; acknowledged entries may be lost here.  Apache gives them up with "
                "skipReplayJournalInvalidRecord=true; else remove this bookie's data; the others have copies"
            )

    def harm(self) -> str | None:
        """How the file differs from any that Apache leaves; None for nothing.  Raises `OSError`."""
        if self.version >= PADDED_SINCE:
            if self.size % ALLOCATED_BYTES and self.size != HEADER_BYTES[self.version]:
                return f"it has {self.size} bytes, and Apache allocates whole MiB"
            return None
        at = HEADER_BYTES[self.version]
        head = self._bytes(at, WIDTH.size + IDS.size).ljust(WIDTH.size + IDS.size, b"\0")
        (length,), (ledger, _entry) = WIDTH.unpack_from(head), IDS.unpack_from(head, WIDTH.size)
        if not self.has_header:
            begins = IDS.size <= length <= min(RECORD_BYTES_MAX, self.size - at - WIDTH.size) and ledger >= 0
            return None if begins else "it begins with neither a header nor a record"
        return None if length or self._is_zeros(at) else "where its first record should be are zeros, and more behind"

    def _is_zeros(self, offset: int) -> bool:
        return not any(any(self._bytes(at, READ_BYTES)) for at in range(offset, self.size, READ_BYTES))

    def _later_group(self, offset: int) -> int | None:
        """The offset of a whole group behind a place where reading stopped, as at a damaged length."""
        at = (offset // ALIGNMENT + 1) * ALIGNMENT
        walked: dict[int, int] = {}
        while len(head := self._bytes(at, WIDTH.size + IDS.size)) == WIDTH.size + IDS.size:
            if any(head) and self._is_group(at, walked):
                return at
            at += ALIGNMENT
        return None

    def _is_group(self, at: int, walked: dict[int, int]) -> bool:
        """True if records follow each other from here to a padding.  `walked`: where none does, by page."""
        records = 0
        while len(head := self._bytes(at, WIDTH.size + IDS.size)) == WIDTH.size + IDS.size:
            (length,) = WIDTH.unpack_from(head)
            if length == PADDING:
                (skip,) = WIDTH.unpack_from(head, WIDTH.size)
                return records > 0 and 0 <= skip < 2 * ALIGNMENT and (at + 2 * WIDTH.size + skip) % ALIGNMENT == 0
            if not IDS.size <= length <= RECORD_BYTES_MAX or IDS.unpack_from(head, WIDTH.size)[0] < 0:
                return False
            page, bit = at // WALKED_PAGE, 1 << at % WALKED_PAGE
            if walked.get(page, 0) & bit:
                return False
            walked[page] = walked.get(page, 0) | bit
            records += 1
            at += WIDTH.size + length
        return False


def blocks(records: Iterator[tuple[int, bytes]], path: str) -> Iterator[Block]:
    """The records, consecutive entries of a ledger together.  Raises `StorageError` for one that is cut off."""
    ledger = following = -1
    bodies: list[bytes] = []
    for offset, payload in records:
        of, entry = IDS.unpack_from(payload)
        if bodies and (of != ledger or entry != following or len(bodies) >= RUN_ENTRIES_MAX):
            yield Block(ledger, following - len(bodies), bodies)
            bodies = []
        if entry >= 0:
            bodies.append(payload)
            ledger, following = of, entry + 1
        elif entry == FENCE:
            yield Block(of, FENCE, [])
        elif entry in (KEY, EXPLICIT_LAC):
            yield Block(of, entry, [_counted(payload, path, offset)])
    if bodies:
        yield Block(ledger, following - len(bodies), bodies)


def _counted(payload: bytes, path: str, offset: int) -> bytes:
    """The bytes behind ids and length."""
    start = IDS.size + WIDTH.size
    if len(payload) < start or len(payload) != start + WIDTH.unpack_from(payload, IDS.size)[0]:
        raise StorageError(
            f"{path} at offset {offset}: a key or LAC record of {len(payload)} bytes whose length does not fit; the "
            "file is damaged"
        )
    return payload[start:]


class ApacheJournal:
    """The journal of one directory from a mark on.  After `blocks`, `end` is the mark that Apache would write."""

    def __init__(self, files: Files, directory: str, mark: ApacheMark | None) -> None:
        """Raises `StorageError` when the file that the mark names is missing: acknowledged entries were in it."""
        self.end = mark or ApacheMark(0, 0)
        self.cuts: list[str] = []
        self._files = files
        self._directory = directory
        self._all = journal_ids(files, directory)
        self._ids = [file for file in self._all if mark is None or file >= mark.file]
        if mark is not None and mark.file > 0 and self._ids[:1] != [mark.file]:
            raise StorageError(
                f"{os.path.join(directory, journal_name(mark.file))} is missing, yet {LAST_MARK} says that entries "
                f"of it were not stored elsewhere.  {WHAT_TO_DO}"
            )

    def blocks(self) -> Iterator[Block]:
        """Yields what Apache acknowledged behind the mark, in order.  `StorageError` on damage, `OSError`."""
        start = self.end
        for file in self._ids:
            offset = start.offset if file == start.file else 0
            with closing(JournalFile(self._files, self._directory, file)) as opened:
                self._check(file, opened, offset)
                yield from blocks(opened.records(offset), opened.path)
            self.end = ApacheMark(file, opened.end)
            if opened.cut is not None:
                self.cuts.append(opened.cut)

    def _check(self, file: int, opened: JournalFile, offset: int) -> None:
        """Raises `StorageError` for a file that was cut off or lost its header; it is needed from `offset` on."""
        harm = opened.harm()
        if harm is None and offset > opened.size:
            harm = f"it has {opened.size} bytes, and {LAST_MARK} names offset {offset}"
        if harm is None and not opened.has_header and any(map(self._has_header, set(self._all) - {file})):
            harm = "it has no header, and other files in its directory have one"
        if harm is not None:
            new = "It had nothing only if Apache ended in the moment in which it made it.  " if not opened.size else ""
            raise StorageError(
                f"{opened.path}: damaged: {harm}.  Entries that were acknowledged last may have been in it.  {new}"
                f"{WHAT_TO_DO}"
            )

    def _has_header(self, file: int) -> bool:
        opened = JournalFile(self._files, self._directory, file)
        opened.close()
        return opened.has_header
