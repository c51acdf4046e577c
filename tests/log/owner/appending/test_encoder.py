"""What an owner's appends become: places, stamps, parts, compression."""

import struct
import sys

import pytest
import zstandard

from quire.log.core.batch import Records, encode_body
from quire.log.core.frame import Assembler, unpack_header
from quire.log.core.values import Counts, Segment
from quire.log.owner.appending.encoder import Encoder, Placed, compressor, decompress
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

FRAME, EMPTY_BLOCK = b"\x28\xb5\x2f\xfd\xe0", b"\x01\0\0"  # of zstd, one segment, with 8 bytes of content size
SEGMENT = Segment(3, 70, 1, 100, 1000)


def test_places_continue_the_segment():
    """Index and position begin where the segment does, and skips move the position."""
    encoder = Encoder(SEGMENT, 0, 1 << 20, "none")
    assert encoder.encode(Records([b"ab", b"cde"]), 50)[1] == Placed(100, [1000, 1002], 1005, 50)
    assert encoder.encode(Records([b"f", b"g"], skips=[10, 1]), 50)[1] == Placed(102, [1015, 1017], 1018, 50)
    assert (encoder.index, encoder.position) == (104, 1018)
    assert encoder.counts == Counts(4, 18, 2, 50)


def test_stamps_never_fall():
    """A clock that is set back gives the stamp of before, as does a log that is ahead."""
    encoder = Encoder(SEGMENT, 500, 1 << 20, "none")
    assembler = Assembler(decompress)
    stamps = []
    for now in (100, 600, 300, 700):
        ((entry,), _) = encoder.encode(Records([b"x"]), now)
        stamps.append(assembler.feed(entry).stamp)
    assert stamps == [500, 600, 600, 700]


@pytest.mark.parametrize("name", ["none", "zlib", "zstd"])
def test_large_batches_are_cut(name):
    """Into parts, of which the last completes all records; the count of entries goes with them."""
    encoder = Encoder(SEGMENT, 0, 100, name)
    values = [bytes(range(256)) * 4, b"end"]
    entries, _ = encoder.encode(Records(values), 1)
    assert encoder.entries == len(entries) > 1
    assembler = Assembler(decompress)
    *before, batch = [assembler.feed(entry) for entry in entries]
    assert before == [None] * (len(entries) - 1)
    assert batch.values == values


def test_an_entry_of_nothing():
    """It takes no index and no bytes, and has the stamp of what came before."""
    encoder, assembler = Encoder(SEGMENT, 0, 100, "none"), Assembler(decompress)
    ((first,), _) = encoder.encode(Records([b"one"]), 7)
    (between,) = encoder.nothing()
    ((last,), _) = encoder.encode(Records([b"two"]), 7)
    assert [each and each.values for each in map(assembler.feed, (first, between, last))] == [[b"one"], None, [b"two"]]
    assert (encoder.entries, unpack_header(between).stamp, encoder.ordinal) == (3, 7, 2)


def test_compression_that_is_not_there(monkeypatch):
    """Neither to write nor to read, and the error says what installs it."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ValueError, match=r"pip install .*\[zstd\]"):
        compressor("zstd")
    with pytest.raises(UnknownFormat, match=r"pip install .*\[zstd\]"):
        decompress(2, b"", 1)
    with pytest.raises(UnknownFormat, match="compression 7"):
        decompress(7, b"", 1)


@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_bytes_that_do_not_decompress(name):
    """Damage: other bytes, fewer, another length."""
    kind, compress = compressor(name)
    body = encode_body(Records([bytes(range(256)) * 40]))
    stored = compress(body)
    assert decompress(kind, stored, len(body)) == body
    with pytest.raises(LogDamaged, match="can't be decompressed"):
        decompress(kind, b"neither zlib nor zstd", 100)
    for wrong in (stored[:-1], stored[:-5], stored[: len(stored) // 2], b""):
        with pytest.raises(LogDamaged, match="can't be decompressed"):
            decompress(kind, wrong, len(body))


def test_never_more_is_made_of_bytes_than_was_announced():
    """However much is in them, or they say that there is."""
    body = bytes(1 << 20)
    assert len(decompress(1, compressor("zlib")[1](body), 100)) == 101
    for stored in (compressor("zstd")[1](body), FRAME + struct.pack("<Q", 1 << 45) + EMPTY_BLOCK):
        with pytest.raises(LogDamaged, match="its zstd frame has"):
            decompress(2, stored, 100)
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    assert decompress(2, unsaid, len(body)) == body
    with pytest.raises(LogDamaged):
        decompress(2, unsaid, 100)
