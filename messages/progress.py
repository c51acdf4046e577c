"""
The progress of consumers and the documents of a broker, beside a message store: the keys and values of a second log.

That log is compacted, so the newest value of each key stays.  Big-endian:

    o 01 group 01 topic 01 queue    i64, the next position that the group consumes
    h 01 document                   JSON: its size, the numbers of its pieces, CRC-32C of the whole
    p 01 document 01 number         a piece, of 1 MiB but for the last

A piece of zeros is left out, and its number is not in the head: timer files are nearly all zeros.  The pieces of a
document come before its head.

Knows: these keys and values, and what they add up to.  Does not know: logs, files.
Safety: a document is given only if its pieces have the size and sum that its head says.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from crc32c import crc32c

from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0

END = b"\x01"
OFFSET, HEAD, PIECE = b"o", b"h", b"p"
LONG = struct.Struct(">q")
PIECE_BYTES = 1 << 20


class Consumed(NamedTuple):
    """A queue, and a group that consumes it."""

    group: str
    topic: str
    queue: int


class DocumentHead(NamedTuple):
    """The size of a document, the numbers of its pieces that are not zeros, and its CRC-32C."""

    size: int
    pieces: tuple[int, ...]
    crc: int

    def encode(self) -> bytes:
        return json.dumps({"size": self.size, "pieces": self.pieces, "crc": self.crc}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "DocumentHead":
        """`StoreDamaged`."""
        try:
            found = json.loads(data)
            head = cls(int(found["size"]), tuple(map(int, found["pieces"])), int(found["crc"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            head = cls(-1, (), 0)
        if head.size < 0:
            raise StoreDamaged(f"the head of a document is {data[:80]!r}")
        return head


def offset_key(consumed: Consumed) -> bytes:
    return END.join((OFFSET, consumed.group.encode(), consumed.topic.encode(), str(consumed.queue).encode()))


def head_key(document: str) -> bytes:
    return END.join((HEAD, document.encode()))


def piece_key(document: str, number: int) -> bytes:
    return END.join((PIECE, document.encode(), str(number).encode()))


def document_records(document: str, pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The records of a document, in order.  `pieces`: all of its bytes, each of `PIECE_BYTES` but the last."""
    size = crc = 0
    kept = []
    for number, piece in enumerate(pieces):
        size += len(piece)
        crc = crc32c(piece, crc)
        if piece != bytes(len(piece)):
            kept.append(number)
            yield piece_key(document, number), piece
    yield head_key(document), DocumentHead(size, tuple(kept), crc).encode()


class Progress:
    """
    The records of a progress log, applied in order.  `with_documents`: pieces are kept; without, their names and sizes.
    """

    def __init__(self, with_documents: bool = False) -> None:
        self.offsets: dict[Consumed, int] = {}
        self.heads: dict[str, DocumentHead] = {}
        self._pieces: dict[tuple[str, int], bytes] | None = {} if with_documents else None

    def apply(self, key: bytes, value: bytes) -> None:
        """The next record; keys of a newer version are passed over.  `StoreDamaged`."""
        kind, *names = key.split(END)
        try:
            if kind == OFFSET and len(names) == 3:
                group, topic, queue = (name.decode() for name in names)
                self.offsets[Consumed(group, topic, int(queue))] = LONG.unpack(value)[0]
            elif kind == HEAD and len(names) == 1:
                self.heads[names[0].decode()] = DocumentHead.decode(value)
            elif kind == PIECE and len(names) == 2 and self._pieces is not None:
                self._pieces[names[0].decode(), int(names[1])] = value
        except (ValueError, struct.error):
            raise StoreDamaged(f"the progress log has a record with the key {key[:80]!r} that can't be read") from None

    def document(self, name: str) -> Iterator[bytes]:
        """The document's bytes, piece by piece; `StoreDamaged` behind the last if they are not as they came in."""
        head = self.heads[name]
        assert self._pieces is not None
        kept, crc = set(head.pieces), 0
        damaged = StoreDamaged(f"the document {name} is not as it came in: a piece is missing, or another one's")
        for number, at in enumerate(range(0, head.size, PIECE_BYTES)):
            size = min(PIECE_BYTES, head.size - at)
            piece = self._pieces.get((name, number), b"") if number in kept else bytes(size)
            if len(piece) != size:
                raise damaged
            crc = crc32c(piece, crc)
            yield piece
        if crc != head.crc:
            raise damaged

    def documents(self) -> Mapping[str, int]:
        """The size of each document, by name."""
        return {name: head.size for name, head in sorted(self.heads.items())}
