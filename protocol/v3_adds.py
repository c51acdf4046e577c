"""
V3 adds and their answers by hand: the hot part of the protobuf protocol, at nearly V2's speed.

An add frame as every known client serialises it (all in field order; `v` is a varint):

    4 length | 0a n: 08 version 10 02 18 v txn [20 v priority] | aa 06 v: 08 v ledger 10 v entry 1a 14 key 22 v body [28 v write flags] [a0 06 v flag]

Its answer:

    4 length | 0a n: 08 03 10 02 18 v txn | 10 v status | aa 06 v: 08 v status 10 v ledger 18 v entry

Frames that follow each other in a run differ in txn and entry only, and while both stay within one block of 128 only in the
low byte of either: so the rest is compared as three pieces cut by one `unpack_from`.  A frame of another form goes through protobuf.

Knows: these two messages.  Does not know: other operations.
Safety: what is taken by hand is exactly what protobuf would have read; all else is left to it.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from quire.protocol import varint
from quire.protocol.batch import AddBatch, check_within
from quire.protocol.errors import Status
from quire.protocol.frames import LENGTH
from quire.protocol.messages import AddAcks, AddRun, Reply

# SPDX-License-Identifier: Apache-2.0

ADD_ENTRY = 2
KEY_BYTES = 20
BODY_IDS = Struct(">qq")
STORABLE_BYTES_MIN = 24  # ids and LAC
LOW_BYTES = bytes(range(128, 256)) * 2
PLAIN_BYTES = bytes(range(128)) * 2


@lru_cache(maxsize=512)
def cut(one: int, two: int, three: int) -> Struct:
    """Three fixed pieces with one varying byte behind the first and the second, then an entry id."""
    return Struct(f">{one}sB{two}sB{three}sq")


class Add:
    """One add frame taken apart, and where its pieces lie (offsets in the chunk)."""

    __slots__ = ("body_at", "body_stop", "deferred_sync", "entry", "entry_at", "key", "ledger", "priority", "recovery", "txn", "txn_at", "version")

    version: int
    txn: int
    txn_at: int
    priority: int
    ledger: int
    entry: int
    entry_at: int
    key: bytes
    body_at: int
    body_stop: int
    deferred_sync: bool
    recovery: bool


def take_apart(chunk: bytes, at: int, stop: int) -> Add | None:
    """The add frame from `at` (its length field) to `stop`, or None when it has not the usual form."""
    decode = varint.decode
    header_stop = at + 6 + chunk[at + 5]
    if header_stop > stop or not chunk.startswith(b"\x10\x02\x18", at + 8) or chunk[at + 6] != 8 or not 1 <= chunk[at + 7] <= 3:
        return None
    add = Add()
    add.version = chunk[at + 7]
    add.txn_at = at + 11
    add.txn, place = decode(chunk, at + 11, header_stop)
    add.priority = 0
    if place != header_stop:
        if place < 0 or chunk[place] != 0x20:
            return None
        priority, place = decode(chunk, place + 1, header_stop)
        if place != header_stop:
            return None
        add.priority = priority & 0xFFFFFFFF
    if not chunk.startswith(b"\xaa\x06", place):
        return None
    length, place = decode(chunk, place + 2, stop)
    if place < 0 or place + length != stop or not chunk.startswith(b"\x08", place):
        return None
    ledger, place = decode(chunk, place + 1, stop)
    if place < 0 or not chunk.startswith(b"\x10", place):
        return None
    add.ledger = varint.signed(ledger)
    add.entry_at = place + 1
    entry, place = decode(chunk, place + 1, stop)
    if place < 0 or not chunk.startswith(b"\x1a\x14", place) or not chunk.startswith(b"\x22", place + 22):
        return None
    add.entry = varint.signed(entry)
    add.key = chunk[place + 2 : place + 22]
    length, place = decode(chunk, place + 23, stop)
    body_stop = place + length
    if place < 0 or body_stop > stop:
        return None
    add.body_at, add.body_stop = place, body_stop
    add.deferred_sync = add.recovery = False
    place = body_stop
    if chunk.startswith(b"\x28", place) and place < stop:
        flags, place = decode(chunk, place + 1, stop)
        if place < 0:
            return None
        add.deferred_sync = bool(flags & 1)
    if place != stop:
        if stop - place != 3 or not chunk.startswith(b"\xa0\x06\x01", place):
            return None
        add.recovery = True
    return add


def single(add: Add, body: bytes) -> AddRun:
    """A run of one.  Ledger and entry are those inside the body (spec wire-protocol.md 3.5), if it is long enough to have any."""
    ledger, entry, answered_as, malformed = add.ledger, add.entry, None, len(body) < STORABLE_BYTES_MIN
    if not malformed:
        ledger, entry = BODY_IDS.unpack_from(body)
        if (ledger, entry) != (add.ledger, add.entry):
            answered_as = (add.ledger, add.entry)
    return AddRun(
        ledger, entry, [body], add.key, add.recovery, add.priority, add.deferred_sync, None, [add.txn], add.version, malformed, answered_as
    )


def joins(run: AddRun, one: AddRun) -> bool:
    """Whether the run `one` of one entry continues `run`."""
    return (
        one.ledger == run.ledger
        and one.first == run.first + len(run.bodies)
        and one.master_key == run.master_key
        and one.recovery == run.recovery
        and one.priority == run.priority
        and one.deferred_sync == run.deferred_sync
        and one.version == run.version
        and not (run.malformed or one.malformed)
        and run.answered_as is None
        and one.answered_as is None
    )


def follow(chunk: bytes, at: int, end: int, add: Add, start: int, run: AddRun) -> int:
    """
    Appends to `run` the frames from `at` on that have the form and size of `add`, whose frame is chunk[start:at] and the
    run's last.  Returns where it stopped.
    """
    assert run.txns is not None
    size = at - start
    to_txn, to_entry, to_body, to_tail = add.txn_at - start, add.entry_at - start, add.body_at - start, add.body_stop - start
    form = cut(to_txn, to_entry - to_txn - 1, to_body + 8 - to_entry - 1)
    unpack = form.unpack_from
    one, txn_low, two, entry_low, three, entry = unpack(chunk, start)
    txn_base = add.txn - (txn_low & 127)
    txn_more = txn_low & 128
    tail = chunk[add.body_stop : at]
    bodies, txns = run.bodies.append, run.txns.append
    last = end - size
    while at <= last:
        entry += 1
        entry_low += 1
        if not entry & 127:
            break
        a, b, c, d, e, found = unpack(chunk, at)
        if found != entry or d != entry_low or e != three or c != two or a != one or b & 128 != txn_more:
            break
        if tail and chunk[at + to_tail : at + size] != tail:
            break
        bodies(chunk[at + to_body : at + to_tail])
        txns(txn_base + (b & 127))
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
    """What the frames of one batch have in common, and the pieces around txn and entry for each (payload size, widths)."""

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
            after = self._key + varint.encode(body)
            request = len(self._ledger) + entry_width + len(after) + body + len(self.tail)
            between = self._priority + b"\xaa\x06" + varint.encode(request) + self._ledger
            header = 5 + txn_width + len(self._priority)
            length = 2 + header + len(between) - len(self._priority) - len(self._ledger) + request
            before = LENGTH.pack(length) + bytes((0x0A, header)) + b"\x08\x03\x10\x02\x18"
            found = self._made[payload_bytes, txn_width, entry_width] = before, between, after
        return found


def pack_adds(batch: AddBatch, txn: int, entries: Sequence[int] | None = None) -> bytes:
    """
    The frames of the whole batch, or of those ids in that order; transaction ids are txn, txn + 1, … in order.
    Raises `IndexError` for an id outside the batch.
    """
    if entries is not None:
        return _pack_some(batch, txn, entries)
    shape, txns, ids = Shape(batch), Numbers(), Numbers()
    tail = b""
    prefix: list[bytes] = []
    for at, payload in enumerate(batch.payloads):
        one, two = txns.encode(txn + at), ids.encode(batch.first + at)
        before, between, after = shape.around(len(payload), len(one), len(two))
        prefix.append(b"".join((tail, before, one, between, two, after)))
        tail = shape.tail
    parts, _ = batch.digest.parts(prefix, batch.ledger, batch.first, batch.lac, batch.length, batch.payloads)
    if parts:
        parts.append(tail)
    return b"".join(parts)


def _pack_some(batch: AddBatch, txn: int, entries: Sequence[int]) -> bytes:
    check_within(batch, entries)
    shape, txns, ids = Shape(batch), Numbers(), Numbers()
    bodies = batch.bodies()
    parts: list[bytes] = []
    for number, entry in enumerate(entries, txn):
        body = bodies[entry - batch.first]
        one, two = txns.encode(number), ids.encode(entry)
        before, between, after = shape.around(len(body) - batch.digest.overhead, len(one), len(two))
        parts += (before, one, between, two, after, body, shape.tail)
    return b"".join(parts)


# --- answers to adds


def _ack(txn: int, status: int, ledger: int, entry: int) -> tuple[bytes, int, int]:
    """One answer and the offsets of the first byte of txn and of entry."""
    said, one = varint.encode(status), varint.encode(txn)
    two = b"\x10" + varint.encode(ledger) + b"\x18"
    three = varint.encode(entry)
    response = b"\x08" + said + two
    head = bytes((0x0A, 5 + len(one))) + b"\x08\x03\x10\x02\x18"
    middle = b"\x10" + said + b"\xaa\x06" + bytes((len(response) + len(three),)) + response
    length = len(head) + len(one) + len(middle) + len(three)
    return b"".join((LENGTH.pack(length), head, one, middle, three)), 4 + len(head), 4 + len(head) + len(one) + len(middle)


def _low(value: int, count: int) -> bytes:
    """The first varint bytes of `count` numbers from `value` on, within one block of 128."""
    at = value & 127
    return (LOW_BYTES if value >> 7 else PLAIN_BYTES)[at : at + count]


def acks(txns: Sequence[int], status: Status, ledger: int, first: int) -> bytes:
    """The answers to adds first, first + 1, … with these transaction ids: one template per block of 128, low bytes filled in by strided slices."""
    out = bytearray()
    at, count = 0, len(txns)
    while at < count:
        entry = first + at
        block = txns[at : min(count, at + 128 - (entry & 127))]
        upper = txns[at] >> 7
        if max(block) >> 7 != upper or min(block) >> 7 != upper:
            size = next(index for index, txn in enumerate(block) if txn >> 7 != upper)
            block = block[:size]
        size = len(block)
        one, txn_at, entry_at = _ack(block[0], status.v3, ledger, entry)
        if size == 1:
            out += one
        else:
            made = bytearray(one * size)
            stride = len(one)
            more = 128 if upper else 0
            made[txn_at::stride] = bytes([txn & 127 | more for txn in block])
            made[entry_at::stride] = _low(entry, size) if entry >= 0 else bytes([number & 127 | 128 for number in range(entry, entry + size)])
            out += made
        at += size
    return bytes(out)


def take_ack(chunk: bytes, at: int, stop: int) -> tuple[int, int, int, int] | None:
    """(txn, V3 status, ledger, entry) of the answer to an add at `at`, or None when it has not the usual form."""
    if not chunk.startswith(b"\x08\x03\x10\x02\x18", at + 6):
        return None
    decode = varint.decode
    header_stop = at + 6 + chunk[at + 5]
    txn, place = decode(chunk, at + 11, stop)
    if place != header_stop or not chunk.startswith(b"\x10", place):
        return None
    outer, place = decode(chunk, place + 1, stop)
    if place < 0 or not chunk.startswith(b"\xaa\x06", place):
        return None
    length, place = decode(chunk, place + 2, stop)
    if place < 0 or place + length != stop or not chunk.startswith(b"\x08", place):
        return None
    inner, place = decode(chunk, place + 1, stop)
    if place < 0 or inner != outer or not chunk.startswith(b"\x10", place):
        return None
    ledger, place = decode(chunk, place + 1, stop)
    if place < 0 or not chunk.startswith(b"\x18", place):
        return None
    entry, place = decode(chunk, place + 1, stop)
    return (txn, outer, varint.signed(ledger), varint.signed(entry)) if place == stop else None


def ack_run(chunk: bytes, at: int, end: int, size: int, txn: int, status: Status, ledger: int, entry: int) -> int:
    """How many answers from `at` on, each of `size` bytes, say the same of ascending txn and entry (at least 1)."""
    available = min((end - at) // size, 128 - (txn & 127), 128 - (entry & 127))
    one, txn_at, entry_at = _ack(txn, status.v3, ledger, entry)
    if available < 2 or len(one) != size:
        return 1
    made = bytearray(one * available)
    made[txn_at::size] = _low(txn, available)
    if entry >= 0:
        made[entry_at::size] = _low(entry, available)
    else:
        made[entry_at::size] = bytes([number & 127 | 128 for number in range(entry, entry + available)])
    found = chunk[at : at + available * size]
    if found == made:
        return available
    good, bad = 1, available  # the first frame is as it should be, all of them together are not
    while bad - good > 1:
        middle = (good + bad) // 2
        if found[: middle * size] == made[: middle * size]:
            good = middle
        else:
            bad = middle
    return good


def add_reply(out: list[Reply], reply: AddAcks) -> None:
    """Appends an answer, or lets the last one count more when it goes on from there."""
    if out:
        last = out[-1]
        if (
            isinstance(last, AddAcks)
            and last.txn is not None
            and reply.txn == last.txn + last.count
            and reply.status is last.status
            and reply.ledger == last.ledger
        ):
            last.count += reply.count
            return
    out.append(reply)
