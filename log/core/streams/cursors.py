"""
A durable cursor: its value, which says where it is and which ledgers it names, and acknowledgements as bytes, in the
entries of its ledger and as a text in its value.

An entry, big-endian:

    0   4   "qcur"
    4   1   version 1
    5   1   kind: 1 part of a checkpoint, 2 change
    6   2   part, from 0
    8   2   parts; a change has one
    10  2   0
    12  8   mark: all records below it are done
    20      runs of those above it

Runs are pairs of varints, 7 bits a byte, the low ones first: the gap since the end of the run before, or since the
mark, and the length, at least 1.  Each part begins at the mark anew.  A checkpoint, whose parts are consecutive
entries, has all runs; a change those that are new since the entry before.  In a value the first gap is since 0, for its
mark is moved by others than its holder.

Knows: these bytes, and the members of a value; those of a later version are kept.
Does not know: ledgers, who holds the cursor, who acknowledges.
Safety: what contradicts this page is `LogDamaged`, what a newer version wrote `UnknownFormat`; never other records.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from quire.log.core.streams.marks import Run
from quire.log.core.values import FORMAT, Doomed, Value, any_json
from quire.protocol import varint
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

MAGIC, VERSION = b"qcur", 1
HEADER = struct.Struct(">4sBBHHHQ")
BODY_BYTES = 16 << 10  # of an entry, about: what is made or read of it in a turn
PARTS_MAX = (1 << 16) - 1
INDEX_MAX = (1 << 63) - 1
ACKS_BYTES_MAX = 4 << 10  # in a value


class Kind(IntEnum):
    CHECKPOINT = 1
    CHANGE = 2


class CursorEntry(NamedTuple):
    """The content of one entry."""

    kind: int
    part: int
    parts: int
    mark: int
    runs: list[Run]


def bodies(mark: int, runs: Iterable[Run], size: int = BODY_BYTES) -> Iterator[bytes]:
    """The runs in bytes, cut at about `size`; one that is empty when there is none."""
    encode = varint.encode
    body, at, empty = bytearray(), mark, True
    for start, stop in runs:
        body += encode(start - at)
        body += encode(stop - start)
        at = stop
        if len(body) >= size:
            yield bytes(body)
            body, at, empty = bytearray(), mark, False
    if body or empty:
        yield bytes(body)


def pack_checkpoint(mark: int, parts: list[bytes]) -> list[bytes]:
    """The entries of a checkpoint with these bodies."""
    count = len(parts)
    return [
        HEADER.pack(MAGIC, VERSION, Kind.CHECKPOINT, number, count, 0, mark) + body for number, body in enumerate(parts)
    ]


def pack_change(mark: int, body: bytes) -> bytes:
    """The entry of a change."""
    return HEADER.pack(MAGIC, VERSION, Kind.CHANGE, 0, 1, 0, mark) + body


def unpack_entry(data: bytes) -> CursorEntry:
    """`LogDamaged`, `UnknownFormat`."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise LogDamaged(f"it is no entry of a cursor's ledger: it begins with {data[:20]!r}")
    _magic, version, kind, part, parts, zero, mark = HEADER.unpack_from(data)
    if version != VERSION or kind not in (Kind.CHECKPOINT, Kind.CHANGE) or zero:
        raise UnknownFormat(f"an entry of a cursor's ledger has version {version}, kind {kind}: a newer quire reads it")
    if part >= parts or (kind == Kind.CHANGE and parts != 1) or mark > INDEX_MAX:
        raise LogDamaged(f"an entry of a cursor's ledger is part {part} of {parts}, with the mark {mark}")
    return CursorEntry(kind, part, parts, mark, unpack_runs(data, mark, HEADER.size))


def unpack_runs(data: bytes, mark: int, at: int = 0) -> list[Run]:
    """Reads the runs in the bytes from `at` on.  `LogDamaged`."""
    decode, size = varint.decode, len(data)
    runs: list[Run] = []
    stop = mark
    try:
        while at < size:
            gap, at = (data[at], at + 1) if data[at] < 128 else decode(data, at)
            length, at = (data[at], at + 1) if data[at] < 128 else decode(data, at)
            start = stop + gap
            stop = start + length
            if not length:
                raise ValueError(f"a run of no record at index {start}")
            runs.append((start, stop))
        if stop > INDEX_MAX:
            raise ValueError(f"it ends at index {stop}")
    except (ValueError, IndexError) as error:
        raise LogDamaged(f"the acknowledgements from index {mark} on can't be decoded: {error}") from None
    return runs


def acks_of(runs: Iterable[Run]) -> str | None:
    """The runs as text for a cursor's value; None when they are too long for one."""
    text = b2a_base64(next(bodies(0, runs, ACKS_BYTES_MAX)), newline=False).decode()
    return text if len(text) <= ACKS_BYTES_MAX else None


def decode_acks(text: str) -> list[Run]:
    """`LogDamaged`."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise LogDamaged(f"the acknowledgements {text[:80]!r} are no base64: {error}") from None
    return unpack_runs(data, 0)


OPEN, DELETING = "open", "deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorValue(Value):
    """
    `mark`: all records below it are done; more may be, but the log is needed from here on.  `holder`: the token of the
    one handle that may change the rest.  `checkpoint`: the entry of `ledger` from which on acknowledgements are read;
    without a ledger they are in `acks`, base64.
    """

    what = tag = "cursor"
    inner: ClassVar[Mapping[str, type[Value]]] = {"doomed": Doomed}
    format: int
    name: str
    edit: str
    holder: str | None = None  # its token
    ledger: int | None
    checkpoint: int | None = None
    mark: int
    acks: str | None = None
    doomed: tuple[Doomed, ...]
    state: str
    properties: Mapping[str, Any] | None = None
    touched: int | None = None

    @classmethod
    def new(cls, name: str, edit: str, mark: int, now_ms: int) -> CursorValue:
        """Makes the value of a cursor that nobody holds yet."""
        return cls(
            format=FORMAT,
            name=name,
            edit=edit,
            ledger=None,
            mark=mark,
            doomed=(),
            state=OPEN,
            properties={},
            touched=now_ms,
        )

    @property
    def ledgers(self) -> list[int]:
        """All ledgers that the value names."""
        return [*([] if self.ledger is None else [self.ledger]), *(each.ledger for each in self.doomed)]

    def named(self, ledger: int, checkpoint: int, mark: int, now_ms: int) -> CursorValue:
        """With the ledger that holds what is acknowledged; the one before is doomed."""
        before = self if self.ledger == ledger else self.left(now_ms)
        return replace(
            before, ledger=ledger, checkpoint=checkpoint, mark=max(mark, self.mark), acks=None, touched=now_ms
        )

    def left(self, now_ms: int) -> CursorValue:
        """Without its ledger, which is doomed."""
        doomed = self.doomed if self.ledger is None else (*self.doomed, Doomed(self.ledger, "cursor", now_ms))
        return replace(self, ledger=None, checkpoint=None, doomed=doomed, touched=now_ms)


def decode_pointer(data: bytes) -> str:
    """The id in the record of a name.  `LogDamaged`."""
    said = any_json(data, "the name of a cursor")
    found = said.get("cursor") if isinstance(said, dict) else None
    if not isinstance(found, str) or not found.isalnum() or not found.isascii():
        raise LogDamaged(f"the name of a cursor points at {str(found)[:80]!r}")
    return found
