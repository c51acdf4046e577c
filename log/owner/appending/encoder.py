"""
Encodes an owner's appends for the present segment: entries, with their place in the ledger and in the log.

Knows: the ordinal, offset and stamp of the next entry, and the index of its first record.
Does not know: when entries are sent, what becomes of them.

Safety: stamps never fall; an index is what the records of closed segments and of this ledger's entries add up to.
Copied records are stored at the place that they have in the other log, or not at all.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, sub
from typing import NamedTuple

from quire.conf.extras import installs
from quire.log.core.batch import Original, Records, encode_body
from quire.log.core.frame import Compress, Compression, Kind, TableRow, encode_table, pack_entries
from quire.log.core.values import Counts, Segment
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """The values that a hook lets an append store, and by how many bytes the position advances before each."""

    values: Sequence[bytes]
    skips: Sequence[int] | None = None


Hook = Callable[[int, int, int, Sequence[bytes]], Sequence[bytes] | Prepared]


class Placed(NamedTuple):
    """Where an append is: index of the first record, byte position of each and of the end; its stamp."""

    first: int
    positions: list[int]
    end: int
    stamp: int = 0


def compressor(name: str) -> tuple[Compression, Compress | None]:
    """`ValueError` names the command that installs what is missing."""
    if name == "zlib":
        return Compression.ZLIB, lambda body: zlib.compress(body, 1)
    if name == "zstd":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"zstd is not installed: {installs('zstd')}") from None
        return Compression.ZSTD, zstandard.ZstdCompressor().compress
    return Compression.NONE, None


def decompress(compression: int, stored: bytes, size: int) -> bytes:
    """The body of an entry, of `size` bytes or few more; `LogDamaged`, `UnknownFormat`."""
    if compression == Compression.ZSTD:
        return _of_zstd(stored, size)
    if compression != Compression.ZLIB:
        raise UnknownFormat(f"its compression {compression} is unknown: a newer quire reads it")
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(stored, size + 1)
    except zlib.error as error:
        raise LogDamaged(f"it can't be decompressed: {error}") from None
    if len(body) <= size and not inflate.eof:
        raise LogDamaged("it can't be decompressed: it is cut off")
    return body


def _of_zstd(stored: bytes, size: int) -> bytes:
    """A frame that says how long its content is gets as much memory, whatever else is asked for: so it is looked at."""
    try:
        import zstandard
    except ImportError:
        raise UnknownFormat(f"it is compressed with zstd, which is not installed: {installs('zstd')}") from None
    try:
        said = zstandard.frame_content_size(stored)
        if said > size:
            raise LogDamaged(f"it can't be decompressed: its zstd frame has {said} bytes, not {size}")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    except zstandard.ZstdError as error:
        raise LogDamaged(f"it can't be decompressed: {error}") from None


class Encoder:
    """The next entry of one segment."""

    __slots__ = (
        "_at",
        "_compress",
        "_compression",
        "_first",
        "entries",
        "offset",
        "ordinal",
        "part_bytes",
        "stamp",
        "table_at",
    )

    def __init__(self, segment: Segment, stamp: int, part_bytes: int, compression: str) -> None:
        """`stamp`: no record gets a lower one."""
        self.ordinal = 0
        self.offset = 0
        self.entries = 0
        self.stamp = stamp
        self.part_bytes = part_bytes
        self.table_at: int | None = None  # the entry of the newest table of producers
        self._first = segment.first
        self._at = segment.at
        self._compression, self._compress = compressor(compression)

    @classmethod
    def of_ledger(cls, part_bytes: int, compression: str) -> "Encoder":
        """Makes the encoder of a ledger whose place in a log is not known yet."""
        return cls(Segment(0, 0, 0, 0, 0), 0, part_bytes, compression)

    @property
    def index(self) -> int:
        """The index of the next record."""
        return self._first + self.ordinal

    @property
    def position(self) -> int:
        """The byte position of the next record."""
        return self._at + self.offset

    @property
    def counts(self) -> Counts:
        """The content of the ledger when all entries so far are in it."""
        return Counts(self.ordinal, self.offset, self.entries, self.stamp)

    def encode(self, records: Records, now_ms: int) -> tuple[list[bytes], Placed]:
        """The entries of an append, and its place; `ValueError` when it is too large."""
        first, at = self.index, self.position
        if records.original is not None:
            self._check_place(records.original)
        entries = self.entries_of(records, now_ms)
        lengths, skips = records.lengths, records.skips
        if skips is None:
            positions = list(accumulate(lengths[:-1], initial=at))
        else:
            ends = accumulate(map(add, lengths, skips), initial=at)
            next(ends)
            positions = list(map(sub, ends, lengths))
        return entries, Placed(first, positions, at + records.size, self.stamp)

    def entries_of(self, records: Records, now_ms: int) -> list[bytes]:
        """The entries of an append, as `encode`."""
        original = records.original
        stamp = max(self.stamp, now_ms) if original is None else original.stamp
        entries = pack_entries(
            Kind.BATCH,
            encode_body(records) if original is None else original.body or encode_body(records),
            ordinal=self.ordinal,
            offset=self.offset,
            stamp=stamp,
            records=len(records.lengths),
            value_bytes=records.size,
            table=self._back,
            part_bytes=self.part_bytes,
            compression=self._compression,
            compress=self._compress,
        )
        self.stamp = stamp
        self.ordinal += len(records.lengths)
        self.offset += records.size
        self.entries += len(entries)
        return entries

    def _check_place(self, original: Original) -> None:
        """`ValueError` unless copied records get the place and the stamp that they have where they are copied from."""
        if (self.index, self.position) != original[:2] or original.stamp < self.stamp:
            raise ValueError(
                f"the records from index {original.index}, byte {original.at}, stamp {original.stamp} of another log "
                f"would come to index {self.index}, byte {self.position}, behind stamp {self.stamp}: they were not sent"
            )

    def nothing(self) -> list[bytes]:
        """An entry that completes no record."""
        self.entries += 1
        return self._packed(Kind.BARRIER, b"")

    def table(self, rows: Mapping[str, TableRow]) -> list[bytes]:
        """The entry of a table of producers."""
        self.table_at, self.entries = self.entries, self.entries + 1
        return self._packed(Kind.TABLE, encode_table(rows))

    @property
    def _back(self) -> int:
        """How many entries the next one is behind the newest table."""
        return 0 if self.table_at is None else self.entries - self.table_at

    def _packed(self, kind: Kind, body: bytes) -> list[bytes]:
        """An entry without records, which is counted already."""
        return pack_entries(
            kind,
            body,
            ordinal=self.ordinal,
            offset=self.offset,
            stamp=self.stamp,
            table=max(0, self._back - 1),
            compression=self._compression,
            compress=self._compress if body else None,
        )
