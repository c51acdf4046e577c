"""
Entry digests and the keys that come from a password (wire.md 5 and 6.1).

An entry body, as V2 and V3 carry it and a bookie stores it:

    offset  width  field
    0       8      ledger id
    8       8      entry id
    16      8      last add confirmed, as the writer knew it (-1: none)
    24      8      ledger length: payload bytes of entries 0 to this one, this one included
    32      D      digest over bytes 0 to 31, then the payload: DUMMY 0, CRC32C 4, CRC32 8 (upper half zero), MAC 20
    32 + D  …      payload

All integers are big-endian and signed.  An explicit LAC body is ledger id, LAC, and a digest over those 16 bytes.

Knows: how to make and check both.  Does not know: frames, who sends them.
"""

import hashlib
import hmac
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate, count, repeat
from typing import overload

from crc32c import crc32c as crc32c  # noqa: PLC0414  # for cores, too, which import no library

from quire.protocol.errors import DigestMatch

# SPDX-License-Identifier: Apache-2.0

HEADER = struct.Struct(">qqqq")  # ledger, entry, LAC, length
LAC_HEADER = struct.Struct(">qq")  # ledger, LAC
FIELD = struct.Struct(">q")  # one of these
SUM = struct.Struct(">I")  # of CRC32C
MANY = 16  # entries from which on whole columns are quicker than one entry after the other
ENTRY_ID_OFFSET, LAC_OFFSET, LENGTH_OFFSET = 8, 16, 24  # in an entry body
LAC_END = 24  # one that is shorter carries no LAC
EXPLICIT_LAC_OFFSET = 8
ENTRY_ID_MAX = (1 << 63) - 1
assert HEADER.size == 32
assert LAC_HEADER.size == 16


class DigestType(Enum):
    """The values are those that ledger metadata stores (metadata-rules.md 4.2)."""

    CRC32 = 1
    MAC = 2
    CRC32C = 3
    DUMMY = 4

    @classmethod
    def named(cls, name: "str | DigestType") -> "DigestType":
        """From a name as users type it; `ValueError` names the choices."""
        if isinstance(name, cls):
            return name
        try:
            return cls[str(name).upper().replace("HMAC", "MAC")]
        except KeyError:
            raise ValueError(
                f"no digest is named {name!r}: use one of {', '.join(kind.name for kind in cls)}"
            ) from None


SIZES: dict[DigestType, int] = {DigestType.CRC32: 8, DigestType.MAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


def master_key(password: bytes) -> bytes:
    """The 20 bytes that every add, fence and LAC write carries, for each digest type."""
    return hashlib.sha1(b"ledger" + password).digest()


def mac_key(password: bytes) -> bytes:
    return hashlib.sha1(b"mac" + password).digest()


class EqualBodies(Sequence[bytes]):
    """Entry bodies of one size as they lie in a frame, each behind its size of 4 bytes; cut when asked for."""

    __slots__ = ("_begin", "_each", "_end", "_frame")

    def __init__(self, frame: bytes, begin: int, end: int, size: int) -> None:
        self._frame = frame
        self._begin = begin
        self._end = end
        self._each = 4 + size

    def __len__(self) -> int:
        return (self._end - self._begin) // self._each

    def __iter__(self) -> Iterator[bytes]:
        frame, each = self._frame, self._each
        for at in range(self._begin, self._end, each):
            yield frame[at + 4 : at + each]

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        frame, each = self._frame, self._each
        at = range(self._begin, self._end, each)[index]
        return frame[at + 4 : at + each] if isinstance(at, int) else [frame[one + 4 : one + each] for one in at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # what compares as a list is no key

    def crc32c_payloads(self, ledger: int, first: int) -> list[bytes] | None:
        """
        The payloads, where all are the CRC32C entries `first`, `first` + 1, … of the ledger; else None.  Half the time
        that it takes to cut each body and to open it.
        """
        payload_bytes = self._each - 40
        if payload_bytes < 0:
            return None
        bodies = memoryview(self._frame)[self._begin : self._end]
        ids = struct.Struct(f">4xqq{16 + 4 + payload_bytes}x").iter_unpack(bodies)
        if not all(map(tuple.__eq__, ids, zip(repeat(ledger), count(first)))):
            return None
        out: list[bytes] = []
        for header, expected, payload in struct.Struct(f">4x32sI{payload_bytes}s").iter_unpack(bodies):
            if expected != crc32c(payload, crc32c(header)):
                return None
            out.append(payload)
        return out


class Digest:
    """Makes and checks the entries of one password and digest type."""

    __slots__ = ("_keyed", "kind", "master_key", "overhead", "size")

    def __init__(self, kind: DigestType, password: bytes) -> None:
        self.kind = kind
        self.size = SIZES[kind]
        self.overhead = HEADER.size + self.size  # bytes before the payload
        self.master_key = master_key(password)
        self._keyed = hmac.new(mac_key(password), digestmod=hashlib.sha1) if kind is DigestType.MAC else None

    def of(self, header: bytes, payload: bytes | memoryview = b"") -> bytes:
        """The digest field for these header bytes and this payload."""
        kind = self.kind
        if kind is DigestType.CRC32C:
            return crc32c(payload, crc32c(header)).to_bytes(4, "big")
        if kind is DigestType.CRC32:
            return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8, "big")
        if self._keyed is not None:
            made = self._keyed.copy()  # half the time of a new one
            made.update(header)
            made.update(payload)
            return made.digest()
        return b""

    def entry(self, ledger: int, entry: int, lac: int, length: int, payload: bytes) -> bytes:
        """One entry body.  `length` includes this payload."""
        header = HEADER.pack(ledger, entry, lac, length)
        return header + self.of(header, payload) + payload

    def parts(
        self, prefix: Sequence[bytes], ledger: int, first: int, lac: int, length: int, payloads: Iterable[bytes]
    ) -> tuple[list[bytes], int]:
        """The pieces of consecutive entries, each behind `prefix[i]`; and the new length.  `length`: the one before."""
        pack = HEADER.pack
        if self.kind is DigestType.CRC32C and len(prefix) >= MANY:  # without a step of the interpreter per entry
            lengths = list(accumulate(map(len, payloads := list(payloads)), initial=length))
            count = len(payloads)
            headers = list(map(pack, repeat(ledger), range(first, first + count), repeat(lac), lengths[1:]))
            pieces = [b""] * (4 * count)
            pieces[::4], pieces[1::4], pieces[3::4] = prefix, headers, payloads
            pieces[2::4] = map(SUM.pack, map(crc32c, payloads, map(crc32c, headers)))
            return pieces, lengths[-1]
        out: list[bytes] = []
        extend = out.extend
        entry = first
        if self.kind is DigestType.CRC32C:  # the default, so without a call per entry
            for before, payload in zip(prefix, payloads, strict=True):
                length += len(payload)
                header = pack(ledger, entry, lac, length)
                extend((before, header, crc32c(payload, crc32c(header)).to_bytes(4, "big"), payload))
                entry += 1
            return out, length
        for before, payload in zip(prefix, payloads, strict=True):
            length += len(payload)
            header = pack(ledger, entry, lac, length)
            extend((before, header, self.of(header, payload), payload))
            entry += 1
        return out, length

    def open(self, ledger: int, entry: int, body: bytes) -> bytes:
        """The checked payload of a body; `entry` -1: any id.  `DigestMatch`: too short, or another digest or id."""
        start = self.overhead
        if len(body) < start:
            raise DigestMatch(
                f"entry {entry} of ledger {ledger}: {len(body)} bytes are too few for a {self.kind.name} entry"
            )
        header, payload = body[:32], body[start:]
        if self.kind is DigestType.CRC32C:  # the default, so without a call more
            intact = crc32c(payload, crc32c(header)).to_bytes(4, "big") == body[32:start]
        else:
            intact = hmac.compare_digest(self.of(header, payload), body[32:start])  # a MAC is secret until shown
        if not intact:
            raise DigestMatch(f"entry {entry} of ledger {ledger}: its {self.kind.name} digest does not match its bytes")
        found_ledger, found_entry, _lac, _length = HEADER.unpack(header)
        if found_ledger != ledger or (entry not in (found_entry, -1)):
            raise DigestMatch(
                f"entry {entry} of ledger {ledger}: the bookie sent entry {found_entry} of ledger {found_ledger}"
            )
        return payload

    def open_run(self, ledger: int, first: int, bodies: Sequence[bytes]) -> list[bytes]:
        """
        The payloads of consecutive entries, up to the first that fails its check (so perhaps fewer than `bodies`).
        """
        out: list[bytes] = []
        if self.kind is not DigestType.CRC32C:
            try:
                for entry, body in enumerate(bodies, first):
                    out.append(self.open(ledger, entry, body))
            except DigestMatch:
                pass
            return out
        if isinstance(bodies, EqualBodies) and (payloads := bodies.crc32c_payloads(ledger, first)) is not None:
            return payloads
        head = struct.Struct(">qq16xI").unpack_from
        for entry, body in enumerate(bodies, first):
            if len(body) < 36:
                break
            payload = body[36:]
            its_ledger, its_entry, expected = head(body)
            if its_entry != entry or its_ledger != ledger or expected != crc32c(payload, crc32c(body[:32])):
                break
            out.append(payload)
        return out

    def intact(self, ledger: int, first: int, bodies: Sequence[bytes]) -> int:
        """How many of these consecutive entries, from the first on, pass their check; no payload is kept."""
        entry = first
        if self.kind is not DigestType.CRC32C:
            try:
                for body in bodies:
                    self.open(ledger, entry, body)
                    entry += 1
            except DigestMatch:
                pass
            return entry - first
        ids = struct.Struct(">qq").unpack_from
        expected = struct.Struct(">I").unpack_from
        for body in bodies:
            if (
                len(body) < 36
                or ids(body) != (ledger, entry)
                or expected(body, 32)[0] != crc32c(body[36:], crc32c(body[:32]))
            ):
                break
            entry += 1
        return entry - first

    def lac_body(self, ledger: int, lac: int) -> bytes:
        """The body of an explicit LAC write."""
        header = LAC_HEADER.pack(ledger, lac)
        return header + self.of(header)

    def open_lac(self, ledger: int, body: bytes) -> int:
        """The LAC inside an explicit LAC body, checked; raises `DigestMatch`."""
        header = body[:16]
        if len(body) != 16 + self.size or self.of(header) != body[16:]:
            raise DigestMatch(
                f"explicit LAC of ledger {ledger}: its {self.kind.name} digest does not match its {len(body)} bytes"
            )
        found, lac = LAC_HEADER.unpack(header)
        if found != ledger:
            raise DigestMatch(f"explicit LAC of ledger {ledger}: the bookie sent that of ledger {found}")
        return int(lac)


def entry_id(body: bytes) -> int:
    """The entry id of an entry body."""
    return int(FIELD.unpack_from(body, ENTRY_ID_OFFSET)[0])


def last_add_confirmed(body: bytes) -> int:
    """The LAC field of an entry body of at least `LAC_END` bytes."""
    return int(FIELD.unpack_from(body, LAC_OFFSET)[0])


def ledger_length(body: bytes) -> int:
    """The payload bytes of the ledger up to an entry, with it, of which this is the body."""
    return int(FIELD.unpack_from(body, LENGTH_OFFSET)[0])


def explicit_lac(body: bytes) -> int:
    """The LAC in an explicit LAC body of at least `LAC_HEADER.size` bytes."""
    return int(FIELD.unpack_from(body, EXPLICIT_LAC_OFFSET)[0])
