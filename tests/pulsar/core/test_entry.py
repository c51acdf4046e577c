"""Entries, whole and broken."""

from contextlib import suppress

import pytest

from quire.protocol.pulsar_errors import MessageDamaged, NotRead
from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.entry import decode_compacted, decode_entry
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


def said(frame):
    return frame.txn, frame.is_marker, frame.head.is_batch, frame.is_chunk, frame.head.encrypted


def test_what_the_head_of_an_entry_says():
    """The broker's time and number, a transaction, a marker, a chunk, keys of encryption."""
    key = made.proto((1, "rsa"), (2, b"secret"))
    frame = decode_entry(made.entry(made.metadata(), b"v", broker=(7, 8)), 1, 2)
    assert (frame.position, frame.payload, frame.broker_ms, frame.topic_index) == ((1, 2, -1), b"v", 7, 8)
    assert said(frame) == (None, *[False] * 4)
    head = made.metadata((11, 1), (13, key), (20, 21), (22, 5), (23, 6), (26, "u"), (27, 2), (28, 9), (29, 0))
    frame = decode_entry(made.entry(head, b""), 1, 2)
    assert said(frame) == ((6, 5), *[True] * 4)
    assert not frame.head.plain
    assert (frame.broker_ms, frame.topic_index) == (None, None)


def test_an_entry_of_a_compacted_ledger():
    """It stands under its old position."""
    kept = made.batch([made.single(b"a", sequence=0), made.single(b"", more=[(4, 1)])])
    place = made.proto((1, 5), (2, 9), (4, 0))
    raw = len(place).to_bytes(4, "big") + place + len(kept).to_bytes(4, "big") + kept
    frame = decode_compacted(raw, 30, 0)
    assert frame.position == (5, 9, -1)
    for broken in (raw + b"x", raw[:-1], raw[:3], b"\0\0\0\0" + raw):
        with pytest.raises(MessageDamaged, match=r"30:0|5:9"):
            decode_compacted(broken, 30, 0)


@pytest.mark.parametrize("summed", [True, False])
def test_damaged_entries_are_named(summed):
    """With a sum each change of a byte is found, and without one nothing but an error of ours is raised."""
    raw = made.batch([made.single(b"value", sequence=index, key="k") for index in range(3)], method=made.LZ4)
    if not summed:
        raw = raw[6:]
    for at in range(len(raw)):
        broken = bytearray(raw)
        broken[at] ^= 0x41
        if summed and at >= 2:
            with pytest.raises(MessageDamaged, match="7:3") as caught:
                opened(bytes(broken))
            assert caught.value.position == (7, 3)
        else:
            with suppress(MessageDamaged, NotRead):
                opened(bytes(broken))
    for end in range(len(raw)):
        with pytest.raises(MessageDamaged):
            opened(raw[:end])


def opened(raw: bytes) -> None:
    """Reads all of an entry."""
    MessageBatch().add("t", decode_entry(raw, 7, 3), decompress)
