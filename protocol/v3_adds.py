"""
V3 adds and their answers by hand: the hot part of the protobuf protocol, at nearly V2's speed.

An add frame as every known client serialises it, in field order; `v` is a varint:

    N | 0a v 08 version 10 02 18 v:txn [20 v:priority] | aa 06 v 08 v:ledger 10 v:entry 1a 14 key 22 v body [28 v:write flags] [a0 06 01]

Its answer:

    N | 0a v 08 03 10 02 18 v:txn | 10 v:status | aa 06 v 08 v:status 10 v:ledger 18 v:entry

The adds of a run differ in lengths, txn and entry only; and of txn and entry only in the low byte, while both stay in one
block of 128.  So one `unpack_from` cuts such a frame into pieces that are compared with what they must be.  The first frame
of a run or block is taken apart field by field.  A frame of any other form is left to protobuf.

Knows: these two messages.  Does not know: other operations.
Safety: what is taken by hand is exactly what protobuf would have read.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from quire.protocol import varint
from quire.protocol.batch import AddBatch, check_within
from quire.protocol.errors import STATUS_OF_V3, Status
from quire.protocol.frames import LENGTH
from quire.protocol.messages import AddAcks, AddRun, Reply, Request
from quire.protocol.varint import length_within

# SPDX-License-Identifier: Apache-2.0

BODY_IDS = Struct(">qq")
STORABLE_BYTES_MIN: Final = 24  # a body's ids and LAC
TXN_AT: Final = 11  # from the start of the frame, as long as the header has the usual form

VARINT: Final = varint.PATTERN
ADD = re.compile(  # groups: 1 version, 2 txn, 3 priority, 4 sub-message length, 5 ledger, 6 entry, 7 key, 8 body length
    rb"\x0a([\x06-\x1f])\x08([\x01-\x03])\x10\x02\x18" + VARINT + rb"(?:\x20" + VARINT + rb")?"
    rb"\xaa\x06" + VARINT + rb"\x08" + VARINT + rb"\x10" + VARINT + rb"\x1a\x14(.{20})\x22" + VARINT,
    re.DOTALL,
)
ACK = re.compile(  # groups: 1 header length, 2 txn, 3 status, 4 sub-message length, 5 status, 6 ledger, 7 entry
    rb"\x0a([\x06-\x1f])\x08\x03\x10\x02\x18" + VARINT + rb"\x10" + VARINT + rb"\xaa\x06([\x00-\x7f])"
    rb"\x08" + VARINT + rb"\x10" + VARINT + rb"\x18" + VARINT,
)
TAILS: dict[bytes, tuple[bool, bool]] = {  # what may follow a body -> deferred sync, recovery
    b"": (False, False),
    b"\x28\x01": (True, False),
    b"\xa0\x06\x01": (False, True),
    b"\x28\x01\xa0\x06\x01": (True, True),
}
LOW_BYTES = bytes(range(128, 256))
PLAIN_BYTES = bytes(range(128))


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


def append_add(out: list[Request], add: Add) -> AddRun | None:
    """
    Lets the last run go on with this add, or appends a new one.  Returns that run, or None when nothing may join it.
    Ledger and entry are those inside the body (spec wire-protocol.md 3.5), if it is long enough to have any.
    """
    ledger, entry, body, key, recovery, priority, deferred_sync, txn, version = add
    if len(body) < STORABLE_BYTES_MIN:
        out.append(AddRun(ledger, entry, [body], key, recovery, priority, deferred_sync, None, [txn], version, malformed=True))
        return None
    inside, first = BODY_IDS.unpack_from(body)
    if inside != ledger or first != entry:
        named = (ledger, entry)
        out.append(AddRun(inside, first, [body], key, recovery, priority, deferred_sync, None, [txn], version, answered_as=named))
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


def take_adds(chunk: bytes, at: int, stop: int, end: int, payload_bytes_max: int, out: list[Request]) -> int:
    """
    Takes the add from `at` (its length field) to `stop`, and those that follow in its run.  Returns the offset behind them,
    or `at` itself when this is not an add of the usual form.
    """
    found = ADD.match(chunk, at + 4, stop)
    if found is None:
        return at
    header, version, txn, priority, length, ledger, entry, key, body_length = found.groups()
    _, _, _, (_, behind_txn), (_, behind_priority), (length_at, behind_length), _, (entry_at, behind_entry), _, (_, body_at) = found.regs
    body_stop = body_at + varint.number(body_length)
    tail = chunk[body_stop:stop]
    header_stop = behind_txn if priority is None else behind_priority
    if header_stop != at + 6 + header[0] or behind_length + varint.number(length) != stop or body_stop > stop or tail not in TAILS:
        return at
    deferred_sync, recovery = TAILS[tail]
    add = Add(
        varint.signed(ledger),
        varint.signed(entry),
        chunk[body_at:body_stop],
        key,
        recovery,
        0 if priority is None else varint.number(priority) & 0xFFFFFFFF,
        deferred_sync,
        varint.number(txn),
        version[0],
    )
    run = append_add(out, add)
    if run is None or end == stop:
        return stop
    pieces = Pieces(
        chunk[behind_txn:length_at],
        chunk[behind_length:entry_at],
        chunk[behind_entry : behind_entry + 23],
        chunk[body_at : body_at + 8],
        tail,
        len(txn),
        len(entry),
    )
    return _follow(chunk, at, stop, end, payload_bytes_max, run, pieces)


class Pieces(NamedTuple):
    """What the frames of a run have in common while txn and entry stay in their blocks of 128."""

    before_length: bytes  # priority, if any, and the sub-message's tag
    ledger: bytes
    before_body: bytes  # key
    ledger_inside: bytes  # as the body says it
    tail: bytes
    txn_width: int
    entry_width: int

    def sized(self, size: int, before_entry: int, before_ids: int) -> tuple[bytes, bytes, int]:
        """
        For a frame of `size` bytes: what stands between txn and entry, between entry and the body's entry id, and the body's
        offset.  The last two arguments are guesses at the lengths of the first two.
        """
        before_length, ledger, before_body, ledger_inside, tail, txn_width, entry_width = self
        place = TXN_AT + txn_width + len(before_length)
        length = length_within(size - place, before_entry - len(before_length) - len(ledger))
        place += len(length) + len(ledger) + entry_width + len(before_body)
        body_length = length_within(size - place - len(tail), before_ids - len(before_body) - 8)
        return before_length + length + ledger, before_body + body_length + ledger_inside, place + len(body_length)


@lru_cache(maxsize=512)
def _form(txn_width: int, before_entry: int, entry_width: int, before_ids: int) -> Struct:
    """N and header up to txn; txn's first byte, its others; up to entry; entry's first byte, its others; up to the body's entry id; that id."""
    return Struct(f">{TXN_AT}sB{txn_width - 1}s{before_entry}sB{entry_width - 1}s{before_ids}sq")


def _follow(chunk: bytes, start: int, at: int, end: int, payload_bytes_max: int, run: AddRun, pieces: Pieces) -> int:
    """
    Appends to `run` the frames from `at` on that go on from its last one, which is chunk[start:at] and is made of `pieces`.
    Returns where it stopped.
    """
    assert run.txns is not None
    size, tail = at - start, pieces.tail
    before_entry, before_ids, to_body = pieces.sized(size, 0, 0)
    form = _form(pieces.txn_width, len(before_entry), pieces.entry_width, len(before_ids))
    head, txn_low, txn_upper, _, entry_low, entry_upper, _, entry = form.unpack_from(chunk, start)
    header = head[4:]
    txn_base, txn_more = run.txns[-1] - (txn_low & 127), txn_low > 127
    unpack, room, to_tail = form.unpack_from, end - form.size, size - len(tail)
    bodies, txns = run.bodies.append, run.txns.append
    while at <= room:
        entry += 1
        entry_low += 1
        if not entry & 127:
            break
        one, low, two, three, four, five, six, found = unpack(chunk, at)
        if one != head:  # another size: what its lengths must be follows from N
            size = LENGTH.unpack_from(one)[0] + 4
            before_entry, before_ids, to_body = pieces.sized(size, len(before_entry), len(before_ids))
            to_tail = size - len(tail)
            if not one.endswith(header) or to_tail - to_body < STORABLE_BYTES_MIN or size - 4 > payload_bytes_max:
                break
            head = one
            other = _form(pieces.txn_width, len(before_entry), pieces.entry_width, len(before_ids))
            if other is not form:
                form, unpack, room = other, other.unpack_from, end - other.size
                if at > room:
                    break
                one, low, two, three, four, five, six, found = unpack(chunk, at)
        if found != entry or four != entry_low or two != txn_upper or five != entry_upper or (low > 127) != txn_more:
            break
        if three != before_entry or six != before_ids or at + size > end or (tail and chunk[at + to_tail : at + size] != tail):
            break
        bodies(chunk[at + to_body : at + to_tail])
        txns(txn_base + (low & 127))
        at += size
    return at


# --- packing adds


class Numbers:
    """Encodes ascending numbers; what lies above the low 7 bits is encoded once per 128."""

    __slots__ = ("_upper", "_upper_bytes")

    def __init__(self) -> None:
        self._upper = -1
        self._upper_bytes = b""

    def encode(self, value: int) -> bytes:
        if value < 128:
            return varint.encode(value)
        if value >> 7 != self._upper:
            self._upper = value >> 7
            self._upper_bytes = varint.encode(self._upper)
        return varint.LOW[value & 127] + self._upper_bytes


class Shape:
    """What the add frames of one batch have in common, and the pieces around txn and entry for each (payload size, widths)."""

    __slots__ = ("_key", "_ledger", "_made", "_overhead", "_priority", "tail")

    def __init__(self, batch: AddBatch) -> None:
        self._priority = b"\x20" + varint.encode(batch.priority) if batch.priority else b""
        self._ledger = b"\x08" + varint.encode(batch.ledger) + b"\x10"
        self._key = b"\x1a\x14" + batch.digest.master_key + b"\x22"
        self._overhead = batch.digest.overhead
        self.tail = (b"\x28\x01" if batch.deferred_sync else b"") + (b"\xa0\x06\x01" if batch.recovery else b"")
        self._made: dict[tuple[int, int, int], tuple[bytes, bytes, bytes]] = {}

    def around(self, payload_bytes: int, txn_width: int, entry_width: int) -> tuple[bytes, bytes, bytes]:
        """The bytes before txn, between txn and entry, and between entry and body."""
        found = self._made.get((payload_bytes, txn_width, entry_width))
        if found is None:
            body = self._overhead + payload_bytes
            after = self._key + varint.size(body)
            request = len(self._ledger) + entry_width + len(after) + body + len(self.tail)
            sized = b"\xaa\x06" + varint.size(request)
            header = 5 + txn_width + len(self._priority)
            before = LENGTH.pack(2 + header + len(sized) + request) + bytes((0x0A, header)) + b"\x08\x03\x10\x02\x18"
            found = self._made[payload_bytes, txn_width, entry_width] = before, self._priority + sized + self._ledger, after
        return found


def pack_adds(batch: AddBatch, txn: int, entries: Sequence[int] | None = None) -> bytes:
    """
    The frames of the whole batch, or of those ids in that order; transaction ids are txn, txn + 1, … in order.
    Raises `IndexError` for an id outside the batch.
    """
    shape, txns, ids = Shape(batch), Numbers(), Numbers()
    around, tail = shape.around, shape.tail
    if entries is not None:
        check_within(batch, entries)
        bodies = batch.bodies()
        some: list[bytes] = []
        for number, entry in enumerate(entries, txn):
            body = bodies[entry - batch.first]
            one, two = txns.encode(number), ids.encode(entry)
            before, between, after = around(len(body) - batch.digest.overhead, len(one), len(two))
            some += (before, one, between, two, after, body, tail)
        return b"".join(some)
    prefix: list[bytes] = []
    behind = b""  # of the entry before
    for at, payload in enumerate(batch.payloads):
        one, two = txns.encode(txn + at), ids.encode(batch.first + at)
        before, between, after = around(len(payload), len(one), len(two))
        prefix.append(b"".join((behind, before, one, between, two, after)))
        behind = tail
    parts, _ = batch.digest.parts(prefix, batch.ledger, batch.first, batch.lac, batch.length, batch.payloads)
    parts.append(behind)
    return b"".join(parts)


# --- answers to adds


def _ack(txn: int, status: int, ledger: int, entry: int) -> tuple[bytes, int]:
    """One answer, and the offset of entry in it (txn's is `TXN_AT`)."""
    encode = varint.encode
    said, one, three = encode(status), encode(txn), encode(entry)
    inner = b"\x08%b\x10%b\x18" % (said, encode(ledger))
    before = b"\x0a%c\x08\x03\x10\x02\x18%b\x10%b\xaa\x06%c%b" % (5 + len(one), one, said, len(inner) + len(three), inner)
    return b"%b%b%b" % (LENGTH.pack(len(before) + len(three)), before, three), 4 + len(before)


def _low(value: int, count: int) -> bytes:
    """The first varint bytes of `count` numbers from `value` on, within one block of 128."""
    at = value & 127
    return (LOW_BYTES if value >> 7 else PLAIN_BYTES)[at : at + count]


def acks(txns: Sequence[int], status: Status, ledger: int, first: int) -> bytes:
    """
    The answers to adds first, first + 1, … with these transaction ids: one template per block of 128, repeated, and the low
    bytes of txn and entry filled in by strided slices.
    """
    out = bytearray()
    at, count = 0, len(txns)
    while at < count:
        entry = first + at
        block = txns[at : at + 128 - (entry & 127)]
        upper = block[0] >> 7
        if max(block) >> 7 != upper or min(block) >> 7 != upper:
            block = block[: next(index for index, txn in enumerate(block) if txn >> 7 != upper)]
        one, entry_at = _ack(block[0], status.v3, ledger, entry)
        size = len(block)
        if size > 1:
            stride = len(one)
            made = bytearray(one * size)
            more = 128 if upper else 0
            made[TXN_AT::stride] = bytes([txn & 127 | more for txn in block])
            made[entry_at::stride] = _low(entry, size)
            out += made
        else:
            out += one
        at += size
    return bytes(out)


def take_acks(chunk: bytes, at: int, stop: int, end: int, out: list[Reply]) -> int:
    """
    Takes the answer from `at` to `stop`, and those that follow with ascending txn and entry.  Returns the offset behind
    them, or `at` itself when this is not an answer to an add in the usual form.
    """
    found = ACK.match(chunk, at + 4, stop)
    if found is None:
        return at
    header, txn_bytes, outer, length, inner, ledger_bytes, entry_bytes = found.groups()
    header_stop, inner_at, entry_at = found.end(2), found.start(5) - 1, found.start(7)
    status = STATUS_OF_V3.get(varint.number(outer))
    if header_stop != at + 6 + header[0] or inner_at + length[0] != stop or found.end() != stop or inner != outer or status is None:
        return at
    txn, ledger, entry, size = varint.number(txn_bytes), varint.signed(ledger_bytes), varint.signed(entry_bytes), stop - at
    count = min((end - at) // size, 128 - (txn & 127), 128 - (entry & 127))
    if count > 1 and (chunk[stop + TXN_AT], chunk[entry_at + size]) == (chunk[at + TXN_AT] + 1, chunk[entry_at] + 1):
        count = _ack_run(chunk, at, count, size, txn, status.v3, ledger, entry)
    else:
        count = 1
    append_acks(out, AddAcks(ledger, entry, count, status, txn))
    return at + count * size


def _ack_run(chunk: bytes, at: int, count: int, size: int, txn: int, number: int, ledger: int, entry: int) -> int:
    """How many of `count` answers of `size` bytes from `at` on are those of ascending txn and entry (at least 1: the first)."""
    one, entry_at = _ack(txn, number, ledger, entry)
    if len(one) != size:
        return 1
    made = bytearray(one * count)
    made[TXN_AT::size] = _low(txn, count)
    made[entry_at::size] = _low(entry, count)
    found = chunk[at : at + count * size]
    if found == made:
        return count
    good, bad = 1, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if found[: middle * size] == made[: middle * size]:
            good = middle
        else:
            bad = middle
    return good


def append_acks(out: list[Reply], acks: AddAcks) -> None:
    """Appends answers, or lets the last ones count more when the transactions go on from there (the entries need not)."""
    last = out[-1] if out else None
    if isinstance(last, AddAcks) and last.txn is not None and acks.txn == last.txn + last.count and acks.status is last.status and acks.ledger == last.ledger:
        last.count += acks.count
    else:
        out.append(acks)
