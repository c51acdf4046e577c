"""Batches of adds: ids, lengths, bodies and the shared V2 frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import v2, v3
from quire.protocol.batch import AddBatch
from quire.protocol.digest import HEADER, Digest, DigestType
from quire.protocol.errors import IllegalOp
from tests.protocol import naive
from tests.protocol.samples import ENTRY, SECOND, i64, rows
from tests.protocol.samples import v2 as frame_v2

# SPDX-License-Identifier: Apache-2.0


def batch(payloads: list[bytes], first: int = 0, lac: int = -1, length: int = 0, **flags: int) -> AddBatch:
    return AddBatch(Digest(DigestType.CRC32C, b"testPasswd"), 1, first, lac, length, payloads, **flags)


def test_a_known_add() -> None:
    """A batch of one entry packs to a known frame, with flags and offsets."""
    assert batch([b"hello"]).frames() == frame_v2("ADD")
    assert batch([b"hello"], recovery=True, priority=100).frames() == frame_v2("recovery ADD")
    assert batch([b"abc"], first=1, lac=0, length=5).bodies() == [SECOND]
    assert batch([b"hello"]).bodies() == [ENTRY]


def test_every_captured_add_frame() -> None:
    """Batches pack to the frames that a real client sent, for every digest."""
    for row in rows("digests"):
        payload = bytes.fromhex(row["body"])
        digest = Digest(DigestType.named(row["digest"]), bytes.fromhex(row["password_hex"]))
        made = AddBatch(
            digest,
            row["ledger_id"],
            row["entry_id"],
            row["last_add_confirmed"],
            row["length"] - len(payload),
            [payload],
        )
        assert made.frames().hex() == row["v2_add_frame"]


def test_a_batch_knows_its_extent() -> None:
    """Count, ids, bytes and the length after it follow from the payloads."""
    made = batch([b"", b"abc", b"de"], first=7, length=100)
    assert (made.count, made.first, made.last, made.bytes) == (3, 7, 9, 5)
    assert [HEADER.unpack_from(body) for body in made.bodies()] == [(1, 7, -1, 100), (1, 8, -1, 103), (1, 9, -1, 105)]


def test_an_empty_batch_has_no_frames() -> None:
    """It packs to no bytes in V2 and V3."""
    made = batch([], first=7)
    assert (made.count, made.last, made.bytes) == (0, 6, 0)
    assert made.frames() == b""
    assert v3.pack_adds(made, 1) == b""


def test_a_fan_out_packs_once() -> None:
    """All bookies of a write set get the same object until it is released."""
    made = batch([b"one", b"two"])
    once = made.frames()
    assert made.frames() is once
    assert v2.pack_adds(made) is once
    made.release()
    assert made.frames() is not once
    assert made.frames() == once


@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=10), st.data(), i64, st.booleans(), st.sampled_from([0, 100])
)
def test_a_stripe_is_the_frames_of_its_ids(
    payloads: list[bytes], data: st.DataObject, ledger: int, recovery: bool, priority: int
) -> None:
    """The frames of any chosen ids equal those packed one by one."""
    digest = Digest(DigestType.CRC32, b"x")
    made = AddBatch(digest, ledger, 40, 39, 1000, payloads, recovery, priority)
    flags = (2 if recovery else 0) | (4 if priority else 0)
    each = [naive.v2_add(ledger, 40 + at, digest.master_key, body, flags) for at, body in enumerate(made.bodies())]
    assert made.frames() == b"".join(each)
    some = data.draw(st.lists(st.integers(0, len(payloads) - 1), max_size=10))
    assert v2.pack_adds(made, [40 + at for at in some]) == b"".join(each[at] for at in some)
    assert v2.pack_adds(made, []) == b""


@pytest.mark.parametrize("entries", [[39], [42], [40, 41, 42]])
def test_ids_outside_the_batch_are_refused(entries: list[int]) -> None:
    """They raise `IndexError` with the range of the batch."""
    made = batch([b"a", b"b"], first=40)
    with pytest.raises(IndexError, match="40 to 41"):
        v2.pack_adds(made, entries)
    with pytest.raises(IndexError, match="40 to 41"):
        v3.pack_adds(made, 1, entries)


def test_v2_has_no_deferred_sync() -> None:
    """It would be acknowledged only after a sync, which is not what was asked for; V3 carries it."""
    made = batch([b"a"], deferred_sync=True)
    with pytest.raises(IllegalOp):
        made.frames()
    with pytest.raises(IllegalOp):
        v2.pack_adds(made, [0])
    assert v3.pack_adds(made, 1).endswith(b"\x28\x01")
