"""
The nodes of a topic and of its cursors.

    plain       protobuf
    compressed  4778, then 4 bytes: the size of a header in protobuf (method, size), the header, the compressed protobuf

Knows: what the nodes hold, and the entries in which a cursor keeps its place.
Does not know: how they were read.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quire.protocol.pulsar_errors import MessageDamaged
from quire.pulsar.core import schema
from quire.pulsar.core.positions import Position

# SPDX-License-Identifier: Apache-2.0

# method, data, size of what comes out -> that; `NotRead`, `ValueError`
Decompress = Callable[[int, bytes, int], bytes]

COMPRESSED = b"\x47\x78"
HEADER = struct.Struct(">hi")
COMPACTION = "__compaction"
COMPACTED_LEDGER = "CompactedTopicLedger"
INFO_BYTES_MAX = 256 << 20  # of a node that is decompressed
WORD_BITS = 64


class LedgerPart(NamedTuple):
    """
    A ledger of a topic.  `entries`, `size` and `closed_ms` are 0 while it is open; `offloaded`: the driver that has a
    whole copy, "" where none has; `deleted`: the bookies no longer have it.
    """

    ledger: int
    entries: int
    size: int
    closed_ms: int
    offloaded: str = ""
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """The ledgers of a topic, in order.  `terminated`: the last position of a topic that takes nothing more."""

    ledgers: tuple[LedgerPart, ...]
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CursorNode:
    """A cursor as its node has it.  `ledger`: where its place is written, -1: only here."""

    ledger: int
    place: "CursorPlace"


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """
    Tells what a subscription has acknowledged: all up to `mark`, and behind that `ranges` (first excluded, last
    included) and of batches the messages whose bits are 0 in `bits`.  `properties`: numbers by name.
    """

    mark: Position
    ranges: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()
    bits: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    properties: Mapping[str, int] = field(default_factory=dict)

    def holds(self, ledger: int, entry: int) -> bool:
        """True if an entry is acknowledged as a whole."""
        at = ledger, entry
        below = bisect_left(self.ranges, (at,))  # so many begin before it, of which only the last one may reach it
        return at <= self.mark.place or (below > 0 and at <= self.ranges[below - 1][1])

    def wanted(self, ledger: int, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges of entries of a ledger that are not acknowledged as a whole."""
        if (ledger, last) <= self.mark.place:
            return []
        begin = max(first, self.mark.entry + 1) if ledger == self.mark.ledger else first
        found = []
        for low, high in self.ranges:  # ascending
            if high[0] < ledger or low[0] > ledger:
                continue
            gone = low[1] + 1 if low[0] == ledger else 0, high[1] if high[0] == ledger else last
            if begin < gone[0]:
                found.append((begin, min(gone[0] - 1, last)))
            begin = max(begin, gone[1] + 1)
            if begin > last:
                break
        if begin <= last:
            found.append((begin, last))
        return [each for each in found if each[0] <= each[1]]


def decode_topic(data: bytes, decompress: Decompress) -> TopicLedgers:
    """The ledgers of a topic; `MessageDamaged`, `NotRead`."""
    info = schema.read(schema.ManagedLedgerInfo, plain(data, decompress), "the node of a topic")
    parts = tuple(map(_part, info.ledgerInfo))
    end = info.terminatedPosition
    terminated = Position(end.ledgerId, end.entryId) if info.HasField("terminatedPosition") else None
    return TopicLedgers(parts, terminated, schema.texts(info.properties))


def _part(info: Any) -> LedgerPart:
    context = info.offloadContext
    driver = ""
    if info.HasField("offloadContext") and context.complete:
        driver = schema.text(context.driverMetadata.name) or "an offloader that is not named"
    return LedgerPart(
        info.ledgerId, info.entries, info.size, info.timestamp, driver, bool(driver) and context.bookkeeperDeleted
    )


def decode_cursor(data: bytes, decompress: Decompress) -> CursorNode:
    """A cursor's node; `MessageDamaged`, `NotRead`."""
    info = schema.read(schema.ManagedCursorInfo, plain(data, decompress), "the node of a cursor")
    place = CursorPlace(
        Position(info.markDeleteLedgerId, info.markDeleteEntryId)
        if info.HasField("markDeleteLedgerId")
        else Position(-1, -1),
        _ranges(info.individualDeletedMessages),
        _bits(info.batchedEntryDeletionIndexInfo),
        _numbers(info.properties),
    )
    return CursorNode(info.cursorsLedgerId, place)


def decode_place(data: bytes) -> CursorPlace:
    """The place of a cursor, as an entry of its ledger has it; `MessageDamaged`."""
    info = schema.read(schema.PositionInfo, data, "an entry of a cursor's ledger")
    ranges = _ranges(info.individualDeletedMessages)
    if info.individualDeletedMessageRanges:
        ranges = _ranges_of_words((each.key, each.values) for each in info.individualDeletedMessageRanges)
    mark = Position(info.ledgerId, info.entryId)
    return CursorPlace(mark, ranges, _bits(info.batchedEntryDeletionIndexInfo), _numbers(info.properties))


def _ranges(given: Any) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    found = [
        (
            (each.lowerEndpoint.ledgerId, each.lowerEndpoint.entryId),
            (each.upperEndpoint.ledgerId, each.upperEndpoint.entryId),
        )
        for each in given
    ]
    return tuple(sorted(found))


def _ranges_of_words(
    given: Iterable[tuple[int, Iterable[int]]],
) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Entries whose bits are 1, by ledger."""
    found = []
    for ledger, words in given:
        number = bits_of(words)
        at = 0
        while number:
            skipped = (number & -number).bit_length() - 1
            number >>= skipped
            run = (~number & (number + 1)).bit_length() - 1
            at += skipped
            found.append(((ledger, at - 1), (ledger, at + run - 1)))
            number >>= run
            at += run
    return tuple(sorted(found))


def bits_of(words: Iterable[int]) -> int:
    """Words of 64 bits, the lowest first, as one number."""
    return sum((word & ((1 << WORD_BITS) - 1)) << (WORD_BITS * at) for at, word in enumerate(words))


def _bits(given: Any) -> dict[tuple[int, int], tuple[int, ...]]:
    return {(each.position.ledgerId, each.position.entryId): tuple(each.deleteSet) for each in given}


def _numbers(given: Any) -> dict[str, int]:
    return {schema.text(each.name): each.value for each in given}


def plain(data: bytes, decompress: Decompress) -> bytes:
    """The protobuf of a node."""
    if not data.startswith(COMPRESSED):
        return data
    if len(data) < HEADER.size:
        raise MessageDamaged(f"a compressed node has only {len(data)} bytes")
    _magic, size = HEADER.unpack_from(data)
    end = HEADER.size + size
    if not 0 <= size <= len(data) - HEADER.size:
        raise MessageDamaged(f"a compressed node of {len(data)} bytes names a header of {size}")
    header = schema.read(schema.ManagedInfoMetadata, data[HEADER.size : end], "the header of a compressed node")
    if not 0 <= header.uncompressedSize <= INFO_BYTES_MAX:
        raise MessageDamaged(f"a compressed node names {header.uncompressedSize} bytes")
    try:
        return decompress(header.compressionType, data[end:], header.uncompressedSize)
    except ValueError as error:
        raise MessageDamaged(f"a compressed node can't be decompressed: {error}") from None
