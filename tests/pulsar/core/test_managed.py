"""Nodes of topics and cursors."""

import pytest

from quire.protocol.pulsar_errors import MessageDamaged
from quire.pulsar.codecs import decompress
from quire.pulsar.core.managed import CursorPlace, LedgerPart, decode_cursor, decode_place, decode_topic
from quire.pulsar.core.positions import Position
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

OFFLOADED = (5, made.proto((3, 1), (4, 1), (6, made.proto((1, "filesystem")))))
COPIED = (5, made.proto((3, 1), (6, made.proto((1, "aws-s3")))))
BEGUN = (5, made.proto((1, 1), (6, made.proto((1, "aws-s3")))))
NODE = made.proto(
    made.ledger_info(3, 10, 100, 5, OFFLOADED),
    made.ledger_info(4, 20, 200, 6, COPIED),
    made.ledger_info(5, 1, 2, 7, BEGUN),
    made.ledger_info(9),
    (3, made.proto((1, "a"), (2, "b"))),
)


@pytest.mark.parametrize("method", [None, made.NONE, made.LZ4, made.ZLIB, made.ZSTD, made.SNAPPY])
def test_a_topic(method):
    """Ledgers in order, with what offloaders have; plain or compressed."""
    found = decode_topic(NODE if method is None else made.node(NODE, method), decompress)
    assert found.ledgers == (
        LedgerPart(3, 10, 100, 5, "filesystem", True),
        LedgerPart(4, 20, 200, 6, "aws-s3", False),
        LedgerPart(5, 1, 2, 7),
        LedgerPart(9, 0, 0, 0),
    )
    assert (found.terminated, found.properties) == (None, {"a": "b"})
    assert decode_topic(NODE + made.proto((2, made.place(9, 4))), decompress).terminated == (9, 4, -1)


def test_what_is_no_node():
    """Neither plain nor compressed."""
    good = made.node(NODE, made.ZLIB)
    wrong_size = b"\x47\x78\xff\xff\xff\xff" + good[6:]
    for raw in (b"\x08", b"\x47\x78", good[:8], good[:-9], wrong_size, good[:6] + b"\x08\x01"):
        with pytest.raises(MessageDamaged):
            decode_topic(raw, decompress)


def test_cursors():
    """A node has the place itself, or names the ledger that has it."""
    gone = made.proto((1, made.place(3, 5)), (2, made.place(3, 7)))
    bits = made.proto((1, made.place(4, 1)), (2, 0b101), (2, -1))
    compacted = made.proto((1, "CompactedTopicLedger"), (2, 77))
    raw = made.proto((1, -1), (2, 3), (3, 4), (4, gone), (5, compacted), (7, bits))
    found = decode_cursor(raw, decompress)
    place = CursorPlace(Position(3, 4), (((3, 5), (3, 7)),), {(4, 1): (5, -1)}, {"CompactedTopicLedger": 77})
    assert (found.ledger, found.place) == (-1, place)
    written = made.proto((1, 3), (2, 4), (3, gone), (4, compacted), (5, bits))
    assert decode_place(written) == place
    assert decode_cursor(made.proto((1, 12)), decompress).ledger == 12


def test_acknowledged_ranges_as_words():
    """Each bit that is 1 is an entry that was acknowledged."""
    words = made.proto((1, 8), (2, 0b1100110), (2, 1))
    place = decode_place(made.proto((1, 8), (2, 0), (6, words)))
    assert place.ranges == (((8, 0), (8, 2)), ((8, 4), (8, 6)), ((8, 63), (8, 64)))
    assert place.wanted(8, 0, 70) == [(3, 4), (7, 63), (65, 70)]


def test_what_a_subscription_has_left():
    """Beside entry by entry: behind the mark, without the ranges, which may cross ledgers."""
    place = CursorPlace(Position(3, 1), (((3, 2), (3, 4)), ((3, 8), (5, 1)), ((5, 2), (5, 3))))
    assert place.wanted(2, 0, 9) == []
    assert place.wanted(3, 0, 9) == [(2, 2), (5, 8)]
    assert place.wanted(3, 0, 1) == []
    assert place.wanted(4, 0, 9) == []
    assert place.wanted(5, 0, 9) == [(2, 2), (4, 9)]
    assert place.wanted(6, 0, 9) == [(0, 9)]
    for ledger in range(2, 8):
        for entry in range(10):
            assert place.holds(ledger, entry) == (not place.wanted(ledger, entry, entry))
