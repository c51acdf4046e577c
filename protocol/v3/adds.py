"""
V3 adds and their answers in runs: the hot part of the protobuf protocol, at nearly V2's speed.

An add frame as every known client serialises it, in field order; `v` is a varint:

    N | 0a v 08 version 10 02 18 v:txn [20 v:priority] | aa 06 v 08 v:ledger 10 v:entry 1a 14 key 22 v body [28 01] [a0
    06 01]

Its answer:

    N | 0a v 08 03 10 02 18 v:txn | 10 v:status | aa 06 v 08 v:status 10 v:ledger 18 v:entry [c0 3e 01]

Protobuf decodes the first of a run.  From its values follows what the next ones must look like: they differ in lengths,
txn and entry only, and of txn and entry only in the low byte while both stay in one block of 128.  So one `unpack_from`
cuts the next frame into pieces that are compared with what they must be.  A frame that differs anywhere is left to
protobuf.  The first answer of a run is taken by a pattern if the add was: those of many ledgers make no runs.

Knows: these two messages.  Does not know: other operations.
Safety: what is taken by comparison is, byte for byte, what protobuf would write for those values; what is taken by the
pattern is what protobuf would read from those bytes.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quire.protocol.batch import AddBatch, check_within
from quire.protocol.errors import Status
from quire.protocol.frames import LENGTH
from quire.protocol.messages import AddAcks, AddRun, Reply, Request
from quire.protocol.varint import LOW, ONE, SIZES, Ascending, encode, low_bytes, size_within, value_of

# SPDX-License-Identifier: Apache-2.0

BODY_IDS = Struct(">qq")
STORABLE_BYTES_MIN: Final = 24  # a body's ids and LAC
TXN_AT: Final = 11  # from the start of a frame, in adds and answers
IDS_WITHIN: Final = 128  # bytes from the start of an add frame that contain its body's ids
ENTRY_MAX: Final = (1 << 63) - 1
FORMS_KEPT: Final = 1024
SHAPES_KEPT: Final = 4096  # ledgers written to by turns; half a KiB each
ADD_TAG: Final = b"\xaa\x06"
DEFERRED_SYNC: Final = b"\x28\x01"
RECOVERY: Final = b"\xa0\x06\x01"
READER_WAITS: Final = b"\xc0\x3e\x01"  # field 1000
NUMBER = rb"([\x80-\xff]{0,8}[\0-\x7f])"
# An answer of status 0 behind N: size of the header, txn, size of the sub-message, ledger, entry.
TAKEN = rb"\x0a(.)\x08\x03\x10\x02\x18" + NUMBER + rb"\x10\0\xaa\x06(.)\x08\0\x10" + NUMBER + rb"\x18" + NUMBER
taken = re.compile(TAKEN, re.DOTALL).fullmatch


class Add(NamedTuple):
    """One add as its message says."""

    ledger: int
    entry: int
    body: bytes
    master_key: bytes
    recovery: bool
    priority: int
    deferred_sync: bool
    txn: int
    version: int

    def __repr__(self) -> str:
        """All but body and key."""
        return f"Add(ledger={self.ledger}, entry={self.entry}, recovery={self.recovery}, txn={self.txn})"


def append_add(out: list[Request], add: Add) -> AddRun | None:
    """
    Lets the last run go on with this add, or appends a new one.  Returns that run, or None when nothing may join it.
    Ledger and entry are those inside the body (wire.md 3.5), if it is long enough to have any.
    """
    ledger, entry, body, key, recovery, priority, deferred_sync, txn, version = add
    if len(body) < STORABLE_BYTES_MIN:
        out.append(
            AddRun(ledger, entry, [body], key, recovery, priority, deferred_sync, None, [txn], version, malformed=True)
        )
        return None
    inside, first = BODY_IDS.unpack_from(body)
    if inside != ledger or first != entry:
        named = (ledger, entry)
        out.append(
            AddRun(
                inside, first, [body], key, recovery, priority, deferred_sync, None, [txn], version, answered_as=named
            )
        )
        return None
    run = out[-1] if out else None
    if (
        isinstance(run, AddRun)
        and run.first + len(run.bodies) == entry
        and run.ledger == ledger
        and run.txns is not None
        and run.master_key == key
        and (run.recovery, run.priority, run.deferred_sync, run.version) == (recovery, priority, deferred_sync, version)
        and not run.malformed
        and run.answered_as is None
    ):
        run.bodies.append(body)
        run.txns.append(txn)
        return run
    run = AddRun(ledger, entry, [body], key, recovery, priority, deferred_sync, None, [txn], version)
    out.append(run)
    return run


class Shape:
    """The bytes that the add frames of one run or batch share, whatever their lengths, txn and entry."""

    __slots__ = ("before_body", "before_length", "behind_body", "header_bytes", "ledger", "ledger_inside")

    def __init__(self, ledger: int, key: bytes, priority: int, recovery: bool, deferred_sync: bool) -> None:
        priority_field = b"\x20" + encode(priority) if priority else b""
        self.header_bytes = 5 + len(priority_field)  # without txn
        self.before_length = priority_field + ADD_TAG
        self.ledger = b"\x08" + encode(ledger) + b"\x10"
        self.ledger_inside = ledger.to_bytes(8, "big", signed=True)  # the body's first 8 bytes
        self.before_body = b"\x1a" + SIZES[len(key)] + key + b"\x22"
        self.behind_body = (DEFERRED_SYNC if deferred_sync else b"") + (RECOVERY if recovery else b"")

    def header(self, version: int, txn_width: int) -> bytes:
        """From behind N to txn: 7 bytes."""
        return b"\x0a%c\x08%c\x10\x02\x18" % (self.header_bytes + txn_width, version)

    def received(
        self, size: int, txn: bytes, entry: bytes, before_entry: int, before_inside: int
    ) -> tuple[bytes, bytes, int]:
        """
        For a frame of `size` bytes, and encoded numbers whose upper bytes it shares: what must be between the first
        byte of txn and that of entry, what between that and the entry id inside the body, and the body's offset.  The
        last two arguments are guesses at the lengths of the first two.
        """
        before_length, ledger, before_body = self.before_length, self.ledger, self.before_body
        place = TXN_AT + len(txn) + len(before_length)
        length = size_within(size - place, before_entry - len(txn) + 1 - len(before_length) - len(ledger))
        place += len(length) + len(ledger) + len(entry) + len(before_body)
        body_length = size_within(
            size - place - len(self.behind_body), before_inside - len(entry) + 1 - len(before_body) - 8
        )
        return (
            txn[1:] + before_length + length + ledger,
            entry[1:] + before_body + body_length + self.ledger_inside,
            place + len(body_length),
        )


shape_of = lru_cache(maxsize=SHAPES_KEPT)(Shape)  # of single adds each is a batch, and its ledger's shape the same


class Forms(dict[tuple[int, int], Struct]):
    """
    How to cut a frame: N and header; txn's first byte; a piece of the first width; entry's first byte; a piece of the
    second; the id inside.
    """

    def __missing__(self, widths: tuple[int, int]) -> Struct:
        if len(self) >= FORMS_KEPT:
            self.clear()
        made = self[widths] = Struct(f">{TXN_AT}sB{widths[0]}sB{widths[1]}sq")
        return made


FORMS = Forms()


def follow(chunk: bytes, at: int, end: int, payload_bytes_max: int, run: AddRun) -> int:
    """Appends to `run` the frames from `at` on that go on from its last one.  Returns where it stopped."""
    txns, bodies = run.txns, run.bodies
    assert txns is not None
    entry = run.first + len(bodies)
    if entry > ENTRY_MAX or chunk.find(BODY_IDS.pack(run.ledger, entry), at, at + IDS_WITHIN) < 0:
        return at  # the usual case for interleaved ledgers, so found out cheaply
    shape = Shape(run.ledger, run.master_key, run.priority, run.recovery, run.deferred_sync)
    txn_bytes, entry_bytes = encode(txns[-1]), encode(entry)
    txn_base, txn_more, entry_low = txns[-1] & ~127, len(txn_bytes) > 1, entry_bytes[0]
    header, tail = shape.header(run.version, len(txn_bytes)), shape.behind_body
    head = before_entry = before_inside = b""
    to_body = to_tail = size = 0
    widths = (
        len(txn_bytes) + len(shape.before_length) + len(shape.ledger),
        len(entry_bytes) + len(shape.before_body) + 8,
    )
    form = FORMS[widths]
    unpack, room = form.unpack_from, end - form.size
    add_body, add_txn = bodies.append, txns.append
    while at <= room:
        one, low, two, three, four, inside = unpack(chunk, at)
        if one != head:  # another size: what its lengths must be follows from N
            size = LENGTH.unpack_from(one)[0] + 4
            before_entry, before_inside, to_body = shape.received(size, txn_bytes, entry_bytes, len(two), len(four))
            to_tail = size - len(tail)
            if not one.endswith(header) or to_tail - to_body < STORABLE_BYTES_MIN or size - 4 > payload_bytes_max:
                break
            head = one
            if len(before_entry) != len(two) or len(before_inside) != len(four):
                form = FORMS[len(before_entry), len(before_inside)]
                unpack, room = form.unpack_from, end - form.size
                if at > room:
                    break
                one, low, two, three, four, inside = unpack(chunk, at)
        if (
            inside != entry
            or two != before_entry
            or four != before_inside
            or three != entry_low
            or (low > 127) != txn_more
        ):
            break
        if at + size > end or (tail and chunk[at + to_tail : at + size] != tail):
            break
        add_body(chunk[at + to_body : at + to_tail])
        add_txn(txn_base + (low & 127))
        at += size
        entry += 1
        entry_low += 1  # where the upper bytes change, nothing can match any more
    return at


# --- packing adds


class Packing:
    """The pieces of a batch's frames around txn and entry, kept for each (payload size, widths)."""

    __slots__ = ("_made", "_overhead", "_shape", "behind_body")

    def __init__(self, batch: AddBatch) -> None:
        digest = batch.digest
        self._shape = shape_of(batch.ledger, digest.master_key, batch.priority, batch.recovery, batch.deferred_sync)
        self._overhead = digest.overhead
        self.behind_body = self._shape.behind_body
        self._made: dict[tuple[int, int, int], tuple[bytes, bytes, bytes]] = {}

    def around(self, payload_bytes: int, txn_width: int, entry_width: int) -> tuple[bytes, bytes, bytes]:
        """The bytes before txn, between txn and entry, and between entry and body."""
        found = self._made.get((payload_bytes, txn_width, entry_width))
        if found is None:
            shape = self._shape
            body = self._overhead + payload_bytes
            before_body = shape.before_body + SIZES[body]
            message = len(shape.ledger) + entry_width + len(before_body) + body + len(shape.behind_body)
            before_entry = shape.before_length + SIZES[message] + shape.ledger
            length = 7 + txn_width + len(before_entry) - len(shape.ledger) + message
            before_txn = LENGTH.pack(length) + shape.header(3, txn_width)
            found = self._made[payload_bytes, txn_width, entry_width] = before_txn, before_entry, before_body
        return found


def pack_adds(batch: AddBatch, txn: int, entries: Sequence[int] | None = None) -> bytes:
    """The frames of the batch, or of those ids in order; transactions from txn on.  `IndexError`: an outside id."""
    packing = Packing(batch)
    around, behind_body = packing.around, packing.behind_body
    if batch.count == 1 and entries is None:
        one, two = encode(txn), encode(batch.first)
        before_txn, before_entry, before_body = around(batch.bytes, len(one), len(two))
        (body,) = batch.bodies()
        return b"".join((before_txn, one, before_entry, two, before_body, body, behind_body))
    if entries is not None:
        txns, ids = Ascending(), Ascending()
        check_within(batch, entries)
        bodies = batch.bodies()
        some: list[bytes] = []
        for number, entry in enumerate(entries, txn):
            body = bodies[entry - batch.first]
            one, two = txns.encode(number), ids.encode(entry)
            before_txn, before_entry, before_body = around(len(body) - batch.digest.overhead, len(one), len(two))
            some += (before_txn, one, before_entry, two, before_body, body, behind_body)
        return b"".join(some)
    if not batch.count:
        return b""
    sizes = set(map(len, batch.payloads))
    prefix = _prefixes(packing, batch, txn) if len(sizes) > 1 else _prefixes_alike(packing, batch, txn, sizes.pop())
    parts, _ = batch.digest.parts(prefix, batch.ledger, batch.first, batch.lac, batch.length, batch.payloads)
    parts.append(behind_body)
    return b"".join(parts)


def _prefixes(packing: Packing, batch: AddBatch, txn: int) -> list[bytes]:
    """Makes what is before each body, with what is behind the one before it."""
    txns, ids = Ascending(), Ascending()
    prefix: list[bytes] = []
    behind = b""  # the entry before
    for at, payload in enumerate(batch.payloads):
        one, two = txns.encode(txn + at), ids.encode(batch.first + at)
        before_txn, before_entry, before_body = packing.around(len(payload), len(one), len(two))
        prefix.append(b"".join((behind, before_txn, one, before_entry, two, before_body)))
        behind = packing.behind_body
    return prefix


def _prefixes_alike(packing: Packing, batch: AddBatch, txn: int, size: int) -> list[bytes]:
    """Makes the same for payloads of one size: within a block of 128 only the low bytes of txn and entry differ."""
    prefix: list[bytes] = []
    at, count = 0, batch.count
    while at < count:
        number, entry = txn + at, batch.first + at
        one, two = encode(number), encode(entry)
        before_txn, before_entry, before_body = packing.around(size, len(one), len(two))
        some = min(count - at, 128 - (number & 127), 128 - (entry & 127))
        middle, end = one[1:] + before_entry, two[1:] + before_body
        head = packing.behind_body + before_txn
        lows = zip(low_bytes(number, some), low_bytes(entry, some), strict=True)
        prefix += [b"%b%c%b%c%b" % (head, low, middle, other, end) for low, other in lows]
        at += some
    prefix[0] = prefix[0][len(packing.behind_body) :]
    return prefix


# --- answers to adds


def _ack(txn: int, status: Status, ledger: int, entry: int, reader_waits: bool) -> tuple[bytes, int]:
    """One answer, and the offset of entry in it (txn's is `TXN_AT`)."""
    said, one, three = encode(status.v3), encode(txn), encode(entry)
    if reader_waits:
        three += READER_WAITS
    inner = b"\x08%b\x10%b\x18" % (said, encode(ledger))
    before = b"\x0a%c\x08\x03\x10\x02\x18%b\x10%b\xaa\x06%c%b" % (
        5 + len(one),
        one,
        said,
        len(inner) + len(three),
        inner,
    )
    return b"%b%b%b" % (LENGTH.pack(len(before) + len(three)), before, three), 4 + len(before)


def acks(txns: Sequence[int], status: Status, ledger: int, first: int, reader_waits: bool = False) -> bytes:
    """
    The answers to adds first, first + 1, … with these transaction ids: one template per block of 128, repeated, and the
    low bytes of txn and entry filled in by strided slices.
    """
    out = bytearray()
    at, count = 0, len(txns)
    while at < count:
        entry = first + at
        block = txns[at : at + 128 - (entry & 127)]
        upper = block[0] >> 7
        if max(block) >> 7 != upper or min(block) >> 7 != upper:
            block = block[: next(index for index, txn in enumerate(block) if txn >> 7 != upper)]
        one, entry_at = _ack(block[0], status, ledger, entry, reader_waits)
        size = len(block)
        if size > 1:
            stride = len(one)
            made = bytearray(one * size)
            more = 128 if upper else 0
            made[TXN_AT::stride] = bytes([txn & 127 | more for txn in block])
            made[entry_at::stride] = low_bytes(entry, size)
            out += made
        else:
            out += one
        at += size
    return bytes(out)


def ack_of(chunk: bytes, at: int, stop: int) -> AddAcks | None:
    """Reads the message between two offsets if it is the answer to an add that was taken; else None."""
    found = taken(chunk, at, stop)
    if found is None:
        return None
    header, txn, inner, ledger, entry = found.groups()
    if header[0] != 5 + len(txn) or inner[0] != 4 + len(ledger) + len(entry):
        return None
    return AddAcks(value_of(ledger), value_of(entry), 1, Status.EOK, value_of(txn))


def follow_acks(chunk: bytes, at: int, end: int, size: int, acks: AddAcks) -> int:
    """
    Lets `acks` (of one answer, which takes `size` bytes before `at`) count the answers from `at` on with ascending txn
    and entry and the same status.  Returns where it stopped.
    """
    assert acks.txn is not None
    txn, entry = acks.txn + 1, acks.first + 1
    if at + TXN_AT >= end or (chunk[at + TXN_AT] ^ txn) & 127:
        return at  # the usual case for interleaved ledgers, so found out cheaply
    count = min((end - at) // size, 128 - (txn & 127), 128 - (entry & 127))
    if count == 0 or chunk[at + TXN_AT] != (LOW if txn >> 7 else ONE)[txn & 127][0]:
        return at
    one, entry_at = _ack(txn, acks.status, acks.ledger, entry, acks.reader_waits)
    if len(one) != size or not chunk.startswith(one, at):
        return at
    made = bytearray(one * count)
    made[TXN_AT::size] = low_bytes(txn, count)
    made[entry_at::size] = low_bytes(entry, count)
    found = chunk[at : at + count * size]
    if found != made:
        good, bad = 1, count
        while bad - good > 1:
            middle = (good + bad) // 2
            if found[: middle * size] == made[: middle * size]:
                good = middle
            else:
                bad = middle
        count = good
    acks.count += count
    return at + count * size


def append_acks(out: list[Reply], acks: AddAcks) -> None:
    """Appends answers, or counts them in the last ones when transactions go on there (entries need not)."""
    last = out[-1] if out else None
    if (
        isinstance(last, AddAcks)
        and last.txn is not None
        and acks.txn == last.txn + last.count
        and acks.status is last.status
        and acks.ledger == last.ledger
    ):
        last.count += acks.count
        last.reader_waits |= acks.reader_waits
    else:
        out.append(acks)
