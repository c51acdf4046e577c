"""
V2, the binary protocol: the data path (wire.md 2).

    request            bytes after the length field
    ADD                header 4, master key 20, entry body (at least 16 bytes)
    READ               header 4, ledger 8, entry 8, [master key 20 iff FENCE and version >= 2]
    BATCH_READ         header 4, ledger 8, first entry 8, request id 8, count max 4, bytes max 8, [master key 20 as
                       above]
    AUTH               header 4, AuthMessage (protobuf); the answer has the same form
    answer             bytes after the length field
    ADD                header 4, status 4, ledger 8, entry 8
    READ               header 4, status 4, ledger 8, entry 8, [entry body iff status is 0]
    BATCH_READ         header 4, status 4, ledger 8, first entry 8, request id 8, {length 4, entry body}*

Knows: these bytes, in both directions, in runs.  Does not know: connections, V3, what an operation means.

Safety: an answer echoes version, opcode and ids of its request; a status that V2 clients choke on (107) is never sent.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct

from quire.protocol import packets, schema
from quire.protocol.batch import AddBatch
from quire.protocol.digest import EqualBodies
from quire.protocol.errors import MalformedFrame, Status, UnknownOperation
from quire.protocol.frames import LENGTH, Receiver, frame_end
from quire.protocol.messages import (
    AUTH_DISABLED,
    HIGH_PRIORITY,
    AddAcks,
    AddRun,
    Auth,
    AuthReply,
    BatchRead,
    BatchReply,
    Read,
    ReadReply,
    Reply,
    Request,
)

# SPDX-License-Identifier: Apache-2.0


ADD_START = Struct(">I32sq")  # length; header, master key and ledger, which are equal all through a run; entry
READ_REQUEST = Struct(">IIqq")  # length, header, ledger, entry
BATCH_REQUEST = Struct(">IIqqqiq")  # length, header, ledger, first entry, request id, count max, bytes max
ANSWER = Struct(">IIiqq")  # length, header, status, ledger, entry
BATCH_ANSWER = Struct(">IIiqqq")  # length, header, status, ledger, first entry, request id
WORD_AT = Struct(">4xI")
BODY_LENGTH = Struct(">i")
assert (ADD_START.size, READ_REQUEST.size, BATCH_REQUEST.size, ANSWER.size, BATCH_ANSWER.size) == (44, 24, 44, 28, 36)

BODY_BYTES_MIN = 16  # a shorter add has no ids: the connection ends
STORABLE_BYTES_MIN = 24  # a shorter one has no LAC: EBADREQ
ADD_BYTES_MIN = 24 + STORABLE_BYTES_MIN
ANSWER_BYTES = ANSWER.size
PLAIN_READ = packets.header_word(packets.VERSION, packets.READ)
HIGH_READ = packets.header_word(packets.VERSION, packets.READ, packets.HIGH_PRIORITY)
CYCLE = bytes(range(256)) * 2
BY_NUMBER: dict[int, Status] = {int(status): status for status in Status}


def spoken(status: Status) -> int:
    """The number of a status on V2: every 4.17 client drops its connection at 107, so that one becomes EIO."""
    return int(Status.EIO if status is Status.EUNKNOWNLEDGERSTATE else status)


# --- a client's requests


def pack_adds(batch: AddBatch, entries: Sequence[int] | None = None) -> bytes:
    """The frames of the whole batch (packed once), or of those ids only.  Raises `IllegalOp` for a deferred sync."""
    return batch.frames() if entries is None else batch.frames_of(entries)


def _flags(fence: bool, priority: int) -> int:
    return (packets.FENCE if fence else 0) | (packets.HIGH_PRIORITY if priority else 0)


def _key(request: Read | BatchRead) -> bytes:
    return (request.master_key or b"") if request.fence and request.version >= packets.VERSION else b""


def pack_read(request: Read) -> bytes:
    if request.version == packets.VERSION and not request.fence:  # the usual one
        word = HIGH_READ if request.priority else PLAIN_READ
        return READ_REQUEST.pack(READ_REQUEST.size - 4, word, request.ledger, request.entry)
    key = _key(request)
    word = packets.header_word(request.version, packets.READ, _flags(request.fence, request.priority))
    return READ_REQUEST.pack(READ_REQUEST.size - 4 + len(key), word, request.ledger, request.entry) + key


def pack_batch_read(request: BatchRead) -> bytes:
    key = _key(request)
    word = packets.header_word(request.version, packets.BATCH_READ, _flags(request.fence, request.priority))
    length = BATCH_REQUEST.size - 4 + len(key)
    fields = (request.ledger, request.first, request.request_id, request.count_max, request.bytes_max)
    return BATCH_REQUEST.pack(length, word, *fields) + key


def pack_auth(request: Auth) -> bytes:
    return _auth(request.version, request.plugin, request.payload)


def _auth(version: int, plugin: str, payload: bytes) -> bytes:
    message: bytes = schema.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return LENGTH.pack(4 + len(message)) + LENGTH.pack(packets.header_word(version, packets.AUTH)) + message


# --- a bookie's answers


def _answers(word: int, status: int, ledger: int, first: int, count: int) -> bytes:
    """`count` answers for ascending ids: a template per 256, repeated, its last id byte filled by a strided slice."""
    pack = ANSWER.pack
    if count < 8:
        return b"".join([pack(ANSWER_BYTES - 4, word, status, ledger, entry) for entry in range(first, first + count)])
    out = bytearray()
    entry, stop = first, first + count
    while entry < stop:
        low = entry & 255
        block = min(256 - low, stop - entry)
        made = bytearray(pack(ANSWER_BYTES - 4, word, status, ledger, entry) * block)
        made[ANSWER_BYTES - 1 :: ANSWER_BYTES] = CYCLE[low : low + block]
        out += made
        entry += block
    return bytes(out)


def add_acks(run: AddRun, status: Status) -> bytes:
    """The answers to every entry of a run, as one object."""
    word = packets.header_word(run.version, packets.ADD, packets.READER_WAITS if run.reader_waits else 0)
    return _answers(word, spoken(status), run.ledger, run.first, len(run.bodies))


def read_reply(reply: ReadReply, request: Read) -> bytes:
    """The answer to a read; ids are the request's, the body goes only with EOK."""
    body = (reply.body or b"") if reply.status is Status.EOK else b""
    word = packets.header_word(request.version, packets.READ)
    return ANSWER.pack(ANSWER_BYTES - 4 + len(body), word, spoken(reply.status), request.ledger, request.entry) + body


def batch_reply(reply: BatchReply, request: BatchRead) -> bytes:
    bodies = reply.bodies if reply.status is Status.EOK else []
    sizes = list(map(len, bodies))
    length = BATCH_ANSWER.size - 4 + sum(sizes) + 4 * len(bodies)
    word = packets.header_word(request.version, packets.BATCH_READ)
    head = BATCH_ANSWER.pack(length, word, spoken(reply.status), request.ledger, request.first, request.request_id)
    if sizes and min(sizes) == max(sizes):
        return sizes[0].to_bytes(4, "big").join([head, *bodies])
    parts = [b""] * (2 * len(bodies))
    parts[::2] = [size.to_bytes(4, "big") for size in sizes]
    parts[1::2] = bodies
    return head + b"".join(parts)


def auth_reply(reply: AuthReply, request: Auth) -> bytes:
    """The answer to AUTH; "authentication is disabled" always has version 2."""
    return _auth(packets.VERSION if reply.plugin == AUTH_DISABLED else request.version, reply.plugin, reply.payload)


# --- decoding requests


def decode_requests(chunk: bytes, payload_bytes_max: int, out: list[Request], at: int = 0) -> int:
    """
    Appends the requests of all whole frames of `chunk` from `at` on; returns where the first unfinished one starts.
    Raises `WireError` when the connection must close; `out` then holds what came before.
    """
    end = len(chunk)
    while at < end and (stop := frame_end(chunk, at, end, payload_bytes_max)):
        length = stop - at - 4
        if length < 4:
            raise MalformedFrame(f"a V2 packet of {length} bytes has no header")
        version, operation, flags = packets.split_word(WORD_AT.unpack_from(chunk, at)[0])
        if operation == packets.ADD:
            if length < 24 + BODY_BYTES_MIN:
                raise MalformedFrame(f"an ADD packet of {length} bytes has no ids")
            at = _adds(chunk, at, end, payload_bytes_max, out)
            continue
        if operation == packets.READ:
            out.append(_read(chunk, at, length, version, flags))
        elif operation == packets.BATCH_READ and version != 10:
            out.append(_batch_read(chunk, at, length, version, flags))
        elif operation == packets.AUTH:
            message = schema.parsed(schema.AuthMessage, chunk[at + 8 : stop])
            if message is None:
                raise MalformedFrame(f"an AUTH packet of {length} bytes does not decode")
            out.append(Auth(schema.text(message.authPluginName), message.payload, version=version))
        else:
            raise UnknownOperation(f"V2 operation {operation} (version {version})")
        at = stop
    return at


def _adds(chunk: bytes, at: int, end: int, payload_bytes_max: int, out: list[Request]) -> int:
    """One run: the add at `at` and all that follow with the same header, key and ledger and ascending ids."""
    start = at
    unpack = ADD_START.unpack_from
    length, prefix, first = unpack(chunk, at)
    version, _, flags = packets.split_word(int.from_bytes(prefix[:4], "big"))
    bodies: list[bytes] = []
    append = bodies.append
    entry = first
    malformed = length < ADD_BYTES_MIN
    while True:
        stop = at + 4 + length
        append(chunk[at + 28 : stop])
        at = stop
        if end - at < 44 or malformed:
            break
        entry += 1
        length, same, found = unpack(chunk, at)
        if (
            found != entry
            or same != prefix
            or not ADD_BYTES_MIN <= length <= payload_bytes_max
            or at + 4 + length > end
        ):
            break
    out.append(
        AddRun(
            ledger=int.from_bytes(prefix[24:], "big", signed=True),
            first=first,
            bodies=bodies,
            master_key=prefix[4:24],
            recovery=bool(flags & packets.RECOVERY_ADD),
            priority=HIGH_PRIORITY if flags & packets.HIGH_PRIORITY else 0,
            frames=chunk[start:at],
            version=version,
            malformed=malformed,
        )
    )
    return at


def _fence_key(chunk: bytes, at: int, length: int, fixed: int, version: int, fence: bool) -> bytes | None:
    """The master key behind a fixed part of `fixed` bytes (length field included), where the rule says there is one."""
    wanted = fence and version >= packets.VERSION
    if 4 + length < fixed + (packets.KEY_BYTES if wanted else 0):
        raise MalformedFrame(f"a V2 read packet of {length} bytes is too short")
    return chunk[at + fixed : at + fixed + packets.KEY_BYTES] if wanted else None


def _read(chunk: bytes, at: int, length: int, version: int, flags: int) -> Read:
    fence = bool(flags & packets.FENCE)
    key = _fence_key(chunk, at, length, READ_REQUEST.size, version, fence)
    _, _, ledger, entry = READ_REQUEST.unpack_from(chunk, at)
    return Read(ledger, entry, fence, key, HIGH_PRIORITY if flags & packets.HIGH_PRIORITY else 0, version=version)


def _batch_read(chunk: bytes, at: int, length: int, version: int, flags: int) -> BatchRead:
    fence = bool(flags & packets.FENCE)
    key = _fence_key(chunk, at, length, BATCH_REQUEST.size, version, fence)
    _, _, ledger, first, request_id, count_max, bytes_max = BATCH_REQUEST.unpack_from(chunk, at)
    priority = HIGH_PRIORITY if flags & packets.HIGH_PRIORITY else 0
    return BatchRead(ledger, first, request_id, count_max, bytes_max, fence, key, priority, version)


def split_frames(frames: bytes | memoryview) -> list[AddRun]:
    """Decodes verbatim add frames again, as a journal keeps them.  Raises `WireError` for anything else."""
    chunk = bytes(frames)
    out: list[Request] = []
    at = decode_requests(chunk, (1 << 32) - 1, out)
    runs = [run for run in out if isinstance(run, AddRun)]
    if at != len(chunk) or len(runs) != len(out):
        raise MalformedFrame(f"{len(chunk)} bytes that should be add frames hold something else")
    return runs


# --- decoding answers


def decode_replies(chunk: bytes, payload_bytes_max: int, out: list[Reply]) -> int:
    """Like `decode_requests`, for answers."""
    at, end = 0, len(chunk)
    while at < end:
        if end - at >= ANSWER_BYTES:  # the usual ones, to adds and reads, without a call for each field
            length, word, number, ledger, entry = ANSWER.unpack_from(chunk, at)
            stop = at + 4 + length
            if ANSWER_BYTES - 4 <= length <= payload_bytes_max and stop <= end and number in BY_NUMBER:
                status = BY_NUMBER[number]
                operation = word >> 16 & 0xFF if word >> 24 else word & 0xFF
                if operation == packets.ADD and length == ANSWER_BYTES - 4:
                    count = 1 if end - stop < ANSWER_BYTES else _ack_run(chunk, at, end, word, number, ledger, entry)
                    waits = word & packets.READER_WAITS != 0
                    out.append(AddAcks(ledger, entry, count, status, None, waits))
                    at += count * ANSWER_BYTES
                    continue
                if operation == packets.READ:
                    body = chunk[at + ANSWER_BYTES : stop] if status is Status.EOK else None
                    out.append(ReadReply(status, ledger, entry, body))
                    at = stop
                    continue
        if not (stop := frame_end(chunk, at, end, payload_bytes_max)):
            break
        length = stop - at - 4
        if length < 4:
            raise MalformedFrame(f"a V2 packet of {length} bytes has no header")
        version, operation, _ = packets.split_word(WORD_AT.unpack_from(chunk, at)[0])
        if operation == packets.AUTH:
            message = schema.parsed(schema.AuthMessage, chunk[at + 8 : stop])
            if message is None:
                raise MalformedFrame(f"an AUTH answer of {length} bytes does not decode")
            out.append(AuthReply(schema.text(message.authPluginName), message.payload))
        elif operation in (packets.ADD, packets.READ, packets.BATCH_READ):
            if length < (BATCH_ANSWER.size if operation == packets.BATCH_READ else ANSWER_BYTES) - 4:
                raise MalformedFrame(f"a V2 answer of {length} bytes is too short")
            _, word, number, ledger, entry = ANSWER.unpack_from(chunk, at)
            if number not in BY_NUMBER:
                raise MalformedFrame(f"V2 status {number} is unknown")
            if operation == packets.ADD:
                out.append(AddAcks(ledger, entry, 1, BY_NUMBER[number]))
            else:
                out.append(_batch_answer(chunk, at, stop, BY_NUMBER[number]))
        else:
            raise UnknownOperation(f"V2 operation {operation} (version {version}) in an answer")
        at = stop
    return at


Replies = partial(Receiver[Reply], decode_replies)  # a client's receiving end of a V2 connection


def _ack_run(chunk: bytes, at: int, end: int, word: int, number: int, ledger: int, entry: int) -> int:
    """How many answers from `at` on say the same of ascending ids, compared at once with what should be there."""
    count = (end - at) // ANSWER_BYTES
    unpack = ANSWER.unpack_from
    fields = (ANSWER_BYTES - 4, word, number, ledger)

    def follows(index: int) -> bool:
        found = unpack(chunk, at + index * ANSWER_BYTES)
        return found[:4] == fields and found[4] == entry + index

    if count >= 8 and not follows(count - 1):  # look for the last that follows; the comparison below is what counts
        good, bad = 0, count - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            if follows(middle):
                good = middle
            else:
                bad = middle
        count = bad
    if count >= 8 and chunk[at : at + count * ANSWER_BYTES] == _answers(word, number, ledger, entry, count):
        return count
    for index in range(1, count):
        if not follows(index):
            return index
    return count


def _batch_answer(chunk: bytes, at: int, stop: int, status: Status) -> BatchReply:
    _, _, _, ledger, first, request_id = BATCH_ANSWER.unpack_from(chunk, at)
    reply = BatchReply(status, ledger, first, request_id)
    if status is not Status.EOK:
        return reply
    at += BATCH_ANSWER.size
    if stop - at >= 4 and (equal := _equal_bodies(chunk, at, stop)) is not None:
        reply.bodies = equal
        return reply
    bodies: list[bytes] = []
    unpack = BODY_LENGTH.unpack_from
    append = bodies.append
    while stop - at >= 4:
        (length,) = unpack(chunk, at)
        at += 4
        if length < 0 or length > stop - at:
            raise MalformedFrame(f"an entry of {length} bytes in a batch answer with {stop - at} left")
        append(chunk[at : at + length])
        at += length
    if at != stop:
        raise MalformedFrame(f"{stop - at} stray bytes behind the entries of a batch answer")
    reply.bodies = bodies
    return reply


def _equal_bodies(chunk: bytes, at: int, stop: int) -> EqualBodies | None:
    """The bodies of a batch answer where all have one size; the bytes of all lengths are compared at once."""
    (size,) = BODY_LENGTH.unpack_from(chunk, at)
    if size < 0 or (stop - at) % (4 + size):
        return None
    length, each, count = chunk[at : at + 4], 4 + size, (stop - at) // (4 + size)
    if any(chunk[at + index : stop : each] != length[index : index + 1] * count for index in range(4)):
        return None
    return EqualBodies(chunk, at, stop, size)
