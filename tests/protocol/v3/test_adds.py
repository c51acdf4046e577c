"""V3 adds and their answers in runs, against protobuf one by one."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.protocol import v3
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.messages import AddAcks, AddRun, Read, Request
from quire.protocol.v3 import adds
from quire.protocol.wire import Requests
from tests.protocol import naive, samples
from tests.protocol.samples import KEY, fed, flat, framed, i64, pieces, txns

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"testPasswd")
EDGES = [0, 1, 5, 60, 91, 92, 100, 300, 1024, 16_300, 16_348, 16_349, 20_000]


def body(ledger: int, entry: int, size: int = 10) -> bytes:
    return struct.pack(">qqqq", ledger, entry, -1, size) + b"x" * size


def runs(data: bytes) -> list[AddRun]:
    receiver = Requests()
    out = receiver.feed(data)
    assert receiver.failure is None
    return [run for run in out if isinstance(run, AddRun)]


def naive_batch(batch: AddBatch, txn: int, entries: list[int] | None = None) -> bytes:
    bodies, key = batch.bodies(), batch.digest.master_key
    wanted = list(range(batch.first, batch.first + batch.count)) if entries is None else entries
    flags = {"priority": batch.priority, "recovery": batch.recovery, "deferred": batch.deferred_sync}
    return b"".join(
        naive.v3_add(txn + at, batch.ledger, entry, key, bodies[entry - batch.first], **flags)
        for at, entry in enumerate(wanted)
    )


# --- packing


@given(
    i64,
    st.one_of(st.integers(0, 20_000), st.integers(0, (1 << 63) - 40)),
    st.one_of(st.integers(0, 20_000), st.integers(0, (1 << 64) - 40)),
    st.lists(st.sampled_from(EDGES[:9]), min_size=1, max_size=20),
    st.booleans(),
    st.sampled_from([0, 1, 100, 300]),
    st.booleans(),
)
def test_packed_frames_are_protobufs(
    ledger: int, first: int, txn: int, sizes: list[int], recovery: bool, priority: int, deferred: bool
) -> None:
    """Byte for byte what protobuf writes, over every width of every number; and they come back as one run."""
    batch = AddBatch(DIGEST, ledger, first, first - 1, 7, [bytes(size) for size in sizes], recovery, priority, deferred)
    data = v3.pack_adds(batch, txn)
    assert data == naive_batch(batch, txn)
    (run,) = runs(data)
    assert run == AddRun(
        ledger,
        first,
        batch.bodies(),
        DIGEST.master_key,
        recovery,
        priority,
        deferred,
        None,
        list(range(txn, txn + len(sizes))),
        3,
    )
    backwards = [first + at for at in reversed(range(0, len(sizes), 2))]
    assert v3.pack_adds(batch, txn, backwards) == naive_batch(batch, txn, backwards)


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("first", [0, 120, 16_380, 2_097_150])
def test_widths_change_inside_a_run(size: int, first: int) -> None:
    """Lengths, txn and entry grow a byte in the middle of a batch."""
    batch = AddBatch(DIGEST, 1, first, -1, 0, [bytes(max(0, size - 8 + at)) for at in range(16)])
    data = v3.pack_adds(batch, first + 5)
    assert data == naive_batch(batch, first + 5)
    (run,) = runs(data)
    assert run.bodies == batch.bodies()
    assert run.txns == list(range(first + 5, first + 21))


# --- runs of adds


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (naive.v3_add(3, 2, 12, KEY, body(2, 12)), "another ledger"),
        (naive.v3_add(3, 1, 13, KEY, body(1, 13)), "a gap"),
        (naive.v3_add(3, 1, 11, KEY, body(1, 11)), "the same id again"),
        (naive.v3_add(3, 1, 12, b"k" * 20, body(1, 12)), "another key"),
        (naive.v3_add(3, 1, 12, b"k" * 19, body(1, 12)), "a short key"),
        (naive.v3_add(3, 1, 12, b"", body(1, 12)), "no key"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 12), recovery=True), "a recovery add"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 12), deferred=True), "another sync"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 12), priority=100), "another priority"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 12)[:23]), "a body without LAC"),
        (naive.v3_add(3, 1, 12, KEY, b""), "an empty body"),
        (naive.v3_add(3, 1, 12, KEY, body(9, 12)), "a body of another ledger"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 11)), "a body of another entry"),
        (naive.v3_add(3, 1, 99, KEY, body(1, 12)), "fields of another entry"),
        (naive.v3_add(3, 1, 12, KEY, body(1, 12)).replace(b"\x0a\x06\x08\x03", b"\x0a\x06\x08\x02"), "another version"),
    ],
)
def test_a_run_ends_where_anything_differs(odd: bytes, why: str) -> None:
    """Any difference of header, fields or body begins a new run, and each add is read correctly."""
    before = naive.v3_add(1, 1, 10, KEY, body(1, 10)) + naive.v3_add(2, 1, 11, KEY, body(1, 11))
    after = naive.v3_add(4, 1, 13, KEY, body(1, 13)) + naive.v3_add(5, 1, 14, KEY, body(1, 14))
    data = before + odd + after
    found = runs(data)
    assert [len(run.bodies) for run in found] == [2, 1, 2], why
    assert list(flat(found)) == [naive.v3_request(payload) for payload in naive.frames(data)]


def test_transactions_of_a_run_need_not_be_consecutive() -> None:
    """One counter serves all of a Java client's connections."""
    numbers = [1, 4, 7, 250, 120, 121, 122, 130, 1 << 40, (1 << 40) + 3]
    data = b"".join(naive.v3_add(txn, 1, at, KEY, body(1, at)) for at, txn in enumerate(numbers))
    (run,) = runs(data)
    assert run.txns == numbers
    assert v3.add_acks(run, Status.EOK) == b"".join(
        naive.v3_ack(txn, Status.EOK, 1, at) for at, txn in enumerate(numbers)
    )


def test_the_stored_ids_are_the_bodys_and_the_answered_ones_the_requests() -> None:
    """wire.md 3.5: storage goes by the body, the reply echoes the fields."""
    (run,) = runs(naive.v3_add(7, 1, 12, KEY, body(9, 3)))
    assert (run.ledger, run.first, run.answered_as) == (9, 3, (1, 12))
    assert v3.add_acks(run, Status.EOK) == naive.v3_ack(7, Status.EOK, 1, 12)


def test_adds_of_two_ledgers_in_turn_stay_in_order() -> None:
    """Alternating adds are read in the order of their frames."""
    frames = [naive.v3_add(at, 1 + at % 2, at // 2, KEY, body(1 + at % 2, at // 2)) for at in range(40)]
    found = runs(b"".join(frames))
    assert list(flat(found)) == [naive.v3_request(frame[4:]) for frame in frames]


def test_a_frame_above_the_limit_inside_a_run_closes() -> None:
    """Taken by comparison or not, a length is checked."""
    receiver = Requests(200)
    frames = [naive.v3_add(at, 1, at, KEY, body(1, at, size)) for at, size in enumerate((10, 10, 300))]
    assert [len(run.bodies) for run in receiver.feed(b"".join(frames)) if isinstance(run, AddRun)] == [2]
    assert receiver.failure is not None


def test_the_highest_entry_ends_a_run() -> None:
    """Entry ids do not wrap around within a run."""
    top = (1 << 63) - 1
    frames = [
        naive.v3_add(at, 1, entry, KEY, body(1, entry))
        for at, entry in enumerate((top - 1, top, -top - 1, -top, -1, 0, 1))
    ]
    found = runs(b"".join(frames))
    assert list(flat(found)) == [naive.v3_request(frame[4:]) for frame in frames]
    assert [len(run.bodies) for run in found] == [2, 2, 3]
    assert len(runs(frames[1] + frames[2])) == 2


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"priority": 100},
        {"recovery": True},
        {"deferred": True},
        {"priority": 100, "recovery": True, "deferred": True},
    ],
)
def test_any_changed_byte_of_a_run_is_noticed(flags: dict[str, int]) -> None:
    """Each byte of the third frame, changed in several ways: what comes out is what protobuf says, whatever that is."""
    frames = [naive.v3_add(200 + n, 300, 400 + n, KEY, body(300, 400 + n), **flags) for n in range(5)]
    before, third, after = b"".join(frames[:2]), frames[2], b"".join(frames[3:])
    for at, mask in itertools.product(range(4, len(third)), (1, 2, 3, 0x80, 0xFF)):
        changed = bytearray(third)
        changed[at] ^= mask
        expected = naive.v3_request(bytes(changed[4:]))
        found, failure = fed(Requests, [before + bytes(changed) + after])
        # no longer V3: the connection turns V2, where this means nothing (an unknown operation is let through)
        if expected is None:
            assert failure or found[2].operation > 12
        else:
            assert (found[2], failure) == (expected, ""), at
            assert len(found) == 5


@pytest.mark.parametrize("flags", [{}, {"recovery": True}])
def test_a_run_cut_anywhere(flags: dict[str, int]) -> None:
    """Also within the bytes by which a longer frame's fields are longer."""
    sizes = (91, 92, 300, 5, 16_349, 91)
    frames = [naive.v3_add(126 + n, 1, 126 + n, KEY, body(1, 126 + n, size), **flags) for n, size in enumerate(sizes)]
    data = b"".join(frames)
    expected = [naive.v3_request(frame[4:]) for frame in frames]
    starts = itertools.accumulate(map(len, frames), initial=0)
    for cut in {start + part for start in starts for part in range(130)}:
        assert fed(Requests, [data[:cut], data[cut:]]) == (expected, "")


unusual = st.sampled_from(
    [
        lambda p: p + b"\xc2\x0c\x06\x0a\x01k\x12\x01v",  # a request context
        lambda p: p + b"\xca\x3e\x01x",  # an unknown field
        lambda p: p.replace(b"\x0a\x06\x08\x03\x10\x02", b"\x0a\x06\x10\x02\x08\x03", 1),  # fields in another order
        # a longer form of a number
        lambda p: bytes((10, p[1] + 1)) + p[2:].replace(b"\x10\x02\x18", b"\x10\x82\x00\x18", 1),
        lambda p: p,
    ]
)
some_adds = st.builds(
    lambda change, txn, ledger, entry, key, size, flags: change(
        naive.v3_add(txn, ledger, entry, key, body(ledger, entry, size), **flags)[4:]
    ),
    st.one_of(st.just(lambda p: p), unusual),
    st.integers(100, 140),
    st.sampled_from([1, 1, 1, 200]),
    st.integers(124, 131),
    st.sampled_from([KEY, KEY, KEY, b"short"]),
    st.sampled_from([5, 5, 5, 80, 120]),
    st.sampled_from([{}, {}, {}, {"recovery": True}, {"priority": 100}]),
)


@settings(max_examples=200)
@given(st.lists(some_adds, max_size=12), st.lists(st.integers(0, 3000), max_size=4))
def test_streams_of_adds_against_the_slow_twin(payloads: list[bytes], cuts: list[int]) -> None:
    """Random streams of adds are read like by a naive reader, however they are divided."""
    data = b"".join(map(framed, payloads))
    assert fed(Requests, pieces(data, cuts)) == ([naive.v3_request(payload) for payload in payloads], "")


@settings(max_examples=100)
@given(
    st.integers(100, 300),
    st.integers(100, 300),
    st.lists(st.sampled_from([0, 5, 91, 92, 93, 300]), min_size=2, max_size=60),
    st.sampled_from([1, 3]),
)
def test_long_runs_against_the_slow_twin(txn: int, first: int, sizes: list[int], step: int) -> None:
    """Runs over several blocks of 128, sizes mixed, transactions in steps."""
    payloads = [
        naive.v3_add(txn + at * step, 1, first + at, KEY, body(1, first + at, size))[4:]
        for at, size in enumerate(sizes)
    ]
    found = runs(b"".join(map(framed, payloads)))
    assert len(found) == 1
    assert list(flat(found)) == [naive.v3_request(payload) for payload in payloads]


# --- answers


stepped = st.builds(
    lambda first, step, count: [first + at * step for at in range(count)], txns, st.integers(1, 3), st.integers(1, 300)
)


@given(st.one_of(st.lists(txns, min_size=1, max_size=6), stepped), i64, i64, st.sampled_from(list(Status)))
def test_acks_are_protobufs(numbers: list[int], ledger: int, first: int, status: Status) -> None:
    """Byte for byte, over every carry of txn and entry; and every txn comes back once, in order."""
    numbers = [number & (1 << 64) - 1 for number in numbers]
    first = min(first, (1 << 63) - 301)
    run = AddRun(ledger, first, [b""] * len(numbers), KEY, txns=numbers, version=3)
    data = v3.add_acks(run, status)
    assert data == b"".join(naive.v3_ack(txn, status, ledger, first + at) for at, txn in enumerate(numbers))
    receiver = v3.Replies()
    found = list(flat(receiver.feed(data)))
    assert receiver.failure is None
    assert found == [("ack", ledger, status, txn) for txn in numbers]


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 1000])
@pytest.mark.parametrize("first", [0, 100, 16_300])
def test_acks_of_consecutive_transactions_are_one(count: int, first: int) -> None:
    """Packed acknowledgements of a run are read as one, at the limits of varints."""
    run = AddRun(5, first, [b""] * count, KEY, txns=list(range(77, 77 + count)), version=3)
    assert v3.Replies().feed(v3.add_acks(run, Status.EOK)) == [AddAcks(5, first, count, Status.EOK, 77)]
    run.reader_waits = True
    assert v3.Replies().feed(v3.add_acks(run, Status.EOK)) == [AddAcks(5, first, count, Status.EOK, 77, True)]


def test_acks_of_a_stripe_are_one_too() -> None:
    """Entries 0, 3, 6 with consecutive transactions: the client goes by those."""
    data = b"".join(naive.v3_ack(50 + at, Status.EOK, 5, at * 3) for at in range(4))
    assert v3.Replies().feed(data) == [AddAcks(5, 0, 4, Status.EOK, 50)]


@pytest.mark.parametrize("broken", [0, 1, 2, 25, 48, 49])
def test_a_run_of_acks_ends_where_one_differs(broken: int) -> None:
    """Another status, ledger, transaction or entry is read on its own."""
    good = [naive.v3_ack(150 + at, Status.EOK, 9, 200 + at) for at in range(50)]
    for odd in (
        naive.v3_ack(150 + broken, Status.EFENCED, 9, 200 + broken),
        naive.v3_ack(150 + broken, Status.EOK, 8, 200 + broken),
        naive.v3_ack(7, Status.EOK, 9, 200 + broken),
        naive.v3_ack(150 + broken, Status.EOK, 9, 7),
        bytes.fromhex("0000000c0a070803100218960110f603"),  # a bare one
    ):
        data = b"".join([*good[:broken], odd, *good[broken + 1 :]])
        found = list(flat(v3.Replies().feed(data)))
        assert found == [naive.v3_ack_of(payload) for payload in naive.frames(data)]


def test_an_ack_of_another_form_does_not_mislead_about_the_next() -> None:
    """One with an unknown field, so longer than the ones behind it."""
    odd = framed(naive.v3_ack(150, Status.EOK, 9, 200)[4:] + b"\xca\x3e\x01x")
    data = odd + b"".join(naive.v3_ack(151 + at, Status.EOK, 9, 201 + at) for at in range(20))
    assert v3.Replies().feed(data) == [AddAcks(9, 200, 21, Status.EOK, 150)]


def test_an_ack_with_any_byte_changed_says_what_protobuf_says() -> None:
    """The pattern takes an answer only where protobuf reads the same from it; lengths inside included."""
    taken = 0
    for numbers in ((5, 1, 0), (150, 300, 200), (3_000_000, 20_000, 16_400), ((1 << 63) - 1,) * 3):
        good = naive.v3_ack(numbers[0], Status.EOK, numbers[1], numbers[2])[4:]
        for at, byte in itertools.product(range(len(good)), range(256)):
            odd = good[:at] + bytes([byte]) + good[at + 1 :]
            found = adds.ack_of(odd, 0, len(odd))
            if found is not None:
                taken += 1
                assert found == v3.decode_reply(odd)
    assert taken > 1000
    assert adds.ack_of(good[:-1], 0, len(good) - 1) is None
    assert adds.ack_of(good + b"\0", 0, len(good) + 1) is None


some_acks = st.builds(
    naive.v3_ack,
    st.integers(120, 132),
    st.sampled_from([Status.EOK, Status.EOK, Status.EIO]),
    st.just(1),
    st.integers(125, 130),
)


@settings(max_examples=150)
@given(st.lists(some_acks, max_size=30), st.lists(st.integers(0, 1000), max_size=4))
def test_streams_of_acks_against_the_slow_twin(frames: list[bytes], cuts: list[int]) -> None:
    """Random streams of acknowledgements are read like by a naive reader."""
    data = b"".join(frames)
    expected = [naive.v3_ack_of(frame[4:]) for frame in frames]
    assert fed(v3.Replies, pieces(data, cuts)) == (expected, "")


def test_other_requests_stand_between_runs_in_order() -> None:
    """A read between adds ends the run before it."""
    data = naive.v3_add(1, 1, 0, KEY, body(1, 0)) + samples.v3("READ") + naive.v3_add(2, 1, 1, KEY, body(1, 1))
    assert [type(request) for request in Requests().feed(data)] == [AddRun, Read, AddRun]


def test_kept_forms_are_bounded() -> None:
    """Never more forms are kept than the maximum."""
    forms = adds.Forms()
    for width in range(adds.FORMS_KEPT + 10):
        assert forms[width, 5].size == adds.TXN_AT + 1 + width + 1 + 5 + 8
        assert len(forms) <= adds.FORMS_KEPT


def test_a_run_that_may_not_be_joined_is_not() -> None:
    """A malformed add, and one whose fields and body disagree, remain runs of their own."""
    out: list[Request] = []
    plain = adds.Add(1, 5, body(1, 5), KEY, False, 0, False, 9, 3)
    assert adds.append_add(out, plain._replace(body=b"short")) is None
    assert adds.append_add(out, plain._replace(ledger=2)) is None
    run = adds.append_add(out, plain)
    assert run is out[-1]
    assert adds.append_add(out, plain._replace(entry=6, body=body(1, 6), txn=1)) is run
    assert len(out) == 3
