"""The entries of a log's ledger: every column round-trips, and what contradicts the format is refused."""

import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.core import frame
from quire.log.core.batch import HEADERS, KEYS, NO_TIME, VALUES, ProducerRun, Records, encode_body, unpack_headers
from quire.log.core.frame import Assembler, Compression, Kind, TableRow, pack_entries
from quire.log.core.packed import Packed
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


def inflate(compression, stored, size):
    """What a process with zlib alone decompresses."""
    try:
        return zlib.decompress(stored if compression == Compression.ZLIB else b"")
    except zlib.error as error:
        raise LogDamaged(f"it can't be decompressed: {error}") from None


@st.composite
def record_lists(draw):
    """Records with any of the columns."""
    count = draw(st.integers(1, 8))

    def column(members):
        return draw(st.none() | st.lists(members, min_size=count, max_size=count))

    first = draw(st.integers(0, count - 1))
    runs = draw(st.sampled_from([(), (ProducerRun(draw(names), first, count - first, draw(st.integers(0, 2**60))),)]))
    return Records(
        draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count)),
        column(st.none() | st.binary(max_size=6)),
        column(st.none() | st.integers(-(2**62), 2**62)),
        column(st.lists(st.tuples(names, st.binary(max_size=5)), max_size=3).map(tuple)),
        runs,
        column(st.integers(0, 1000)),
        column(st.integers(0, 2**63)),
    )


def packed(records, ordinal=7, offset=100, **options):
    """The entries of a batch, and the length of what it completes."""
    return pack_entries(
        Kind.BATCH,
        encode_body(records),
        ordinal=ordinal,
        offset=offset,
        stamp=1_700_000_000_000,
        records=len(records.values),
        value_bytes=records.size,
        **options,
    )


@given(record_lists(), st.integers(1, 60), st.booleans())
def test_a_batch_round_trips(records, part_bytes, compressed):
    """Whole or in parts, compressed or not, each column is what was given."""
    options = {"compression": Compression.ZLIB, "compress": zlib.compress} if compressed else {}
    entries = packed(records, part_bytes=part_bytes, **options)
    assembler = Assembler(inflate, 7, 100)
    found = [assembler.feed(entry) for entry in entries]
    assert found[:-1] == [None] * (len(entries) - 1)
    batch = found[-1]
    assert (batch.first, batch.offset, batch.count, batch.stamp) == (7, 100, len(records.values), 1_700_000_000_000)
    assert batch.values == list(records.values)
    assert batch.keys == records.keys
    assert batch.times == records.times
    assert batch.headers == records.headers
    assert batch.packed(VALUES) == batch.values
    assert batch.packed(KEYS) == batch.keys
    assert (batch.packed(HEADERS) is None) is (batch.headers is None)
    if batch.headers is not None:
        assert list(map(unpack_headers, batch.packed(HEADERS))) == batch.headers
    found = batch.packed_times
    assert (None if found is None else [None if each == NO_TIME else each for each in found]) == batch.times
    again = replace(
        records, values=Packed.of(records.values), keys=records.keys and Packed.of(records.keys), times=found
    )
    assert (encode_body(again), again.weight, again.beside()) == (
        encode_body(records),
        records.weight,
        records.beside(),
    )
    assert tuple(batch.producers) == tuple(records.producers)
    assert batch.skips == (None if records.skips is None else tuple(records.skips))
    assert batch.indexes == (None if records.indexes is None else tuple(records.indexes))
    assert (assembler.progress.ordinal, assembler.progress.offset) == (7 + batch.count, 100 + records.size)
    offset = 100
    for value, skip, at in zip(batch.values, batch.skips or [0] * batch.count, batch.offsets, strict=True):
        assert at == offset + skip
        offset = at + len(value)


def test_batches_follow_each_other():
    """The next entry continues ordinal and offset; tables, barriers and unknown kinds between complete nothing."""
    one, two = Records([b"ab", b"c"]), Records([b"def"])
    table = frame.encode_table({"p": TableRow(5, 1, 9)})
    entries = [
        *packed(one, 0, 0),
        *pack_entries(Kind.TABLE, table, ordinal=2, offset=3, stamp=1),
        *pack_entries(Kind.BARRIER, b"", ordinal=2, offset=3, stamp=1),
        *pack_entries(9, b"of later", ordinal=2, offset=3, stamp=1),
        *packed(two, 2, 3),
    ]
    assembler = Assembler(inflate)
    assert [batch.values for batch in frame.batches(entries, assembler)] == [[b"ab", b"c"], [b"def"]]
    for missing in (0, 4):
        assembler = Assembler(inflate)
        with pytest.raises(LogDamaged, match="it begins at record"):
            list(frame.batches([*entries[:missing], *entries[missing + 1 :], *packed(one, 9, 9)], assembler))


def test_an_incomplete_group_has_no_records():
    """Parts of a large batch without the last complete nothing; a part that is missing within is damage."""
    entries = packed(Records([bytes(300)]), 0, 0, part_bytes=100)
    assert len(entries) == 4
    assembler = Assembler(inflate)
    assert not list(frame.batches(entries[:-1], assembler))
    assert assembler.progress.ordinal == 0
    for wrong in (
        entries[1:],
        [entries[0], entries[2]],
        [entries[0], entries[0]],
        [entries[0][:39] + b"\1" + entries[0][40:], *entries[1:]],  # which says that it completes bytes of values
        [entries[0], *packed(Records([b"x"]), 0, 0)],
    ):
        with pytest.raises(LogDamaged, match="part"):
            list(frame.batches(wrong, Assembler(inflate)))


def test_a_large_batch_is_no_larger_than_it_says():
    """However many parts it says to have: nothing more of it is kept."""
    entries = packed(Records([bytes(300)]), 0, 0, part_bytes=100)
    ids = slice(frame.HEADER_BYTES, frame.HEADER_BYTES + frame.PART.size)
    for parts in (0, 1 << 31):
        assembler, taken = Assembler(inflate), 0
        entry = bytearray(entries[0])
        with suppress(LogDamaged):
            while taken < 1000:
                entry[ids] = frame.PART.pack(taken, parts, 300)
                assembler.feed(bytes(entry))
                taken += 1
        assert taken == (3 if parts else 0)


def test_a_table_round_trips():
    """Of each producer the highest sequence, its index and stamp; a body that is cut is damage."""
    rows = {"a": TableRow(2**64 - 1, 0, -1), "ö": TableRow(0, 2**63, 5)}
    body = frame.encode_table(rows)
    assert frame.decode_table(body) == rows
    for wrong in (body[:-1], body + b"x", b"", b"\0\0\0\2" + body[4 : 4 + (len(body) - 4) // 2]):
        with pytest.raises(LogDamaged, match="producers' table"):
            frame.decode_table(wrong)


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (0, b"x", LogDamaged),
        (4, b"\2", UnknownFormat),
        (5, b"\4", UnknownFormat),
        (5, b"\3", LogDamaged),
        (7, b"\x10", UnknownFormat),
        (44, b"\xff", LogDamaged),
    ],
)
def test_a_header_that_is_not_understood_is_refused(offset, value, error):
    """Another magic is damage; a version, flag of the high half or kind that completes records is a newer quire's."""
    (entry,) = packed(Records([b"a"]), 0, 0)
    with pytest.raises(error):
        Assembler(inflate).feed(entry[:offset] + value + entry[offset + 1 :])


def test_unknown_flags_of_the_low_half_are_ignored():
    """A newer version may set them for itself."""
    (entry,) = packed(Records([b"a"]), 0, 0)
    assert Assembler(inflate).feed(entry[:7] + b"\x0f" + entry[8:]).values == [b"a"]


@given(record_lists(), st.data())
def test_no_flipped_byte_gives_an_error_of_its_own(records, data):
    """A digest covers the entry; without it a byte may become another value, but never an error that names nothing."""
    (entry,) = packed(records, 0, 0, part_bytes=1 << 20)
    at = data.draw(st.integers(0, len(entry) - 1))
    broken = bytearray(entry)
    broken[at] ^= data.draw(st.integers(1, 255))
    try:
        batch = Assembler(inflate).feed(bytes(broken[: data.draw(st.integers(1, len(broken)))]))
        if batch is not None:
            assert len(batch.values) == batch.count
            _ = batch.keys, batch.times, batch.headers, batch.producers, batch.indexes, batch.offsets
    except (LogDamaged, UnknownFormat):
        pass
