"""Variable-length integers against protobuf's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import schema, varint
from tests.protocol.samples import i64, txns

# SPDX-License-Identifier: Apache-2.0

EDGES = [0, 1, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152, (1 << 28) - 1, 1 << 28, (1 << 63) - 1]


def by_protobuf(value: int) -> bytes:
    message = schema.CLASSES["ReadLacRequest"]()
    message.ledgerId = value
    return bytes(message.SerializeToString()[1:])


@pytest.mark.parametrize("value", [*EDGES, -1, -128, -(1 << 63)])
def test_the_edges_of_each_width(value: int) -> None:
    """Numbers at the edges of each width have protobuf's bytes."""
    assert varint.encode(value) == by_protobuf(value)


def test_minus_one_takes_ten_bytes() -> None:
    """A negative number is encoded as 64 bits."""
    assert varint.encode(-1).hex() == "ffffffffffffffffff01"


@given(i64)
def test_signed_numbers(value: int) -> None:
    """Any signed number has protobuf's bytes."""
    assert varint.encode(value) == by_protobuf(value)


@given(txns)
def test_unsigned_numbers(value: int) -> None:
    """Any transaction id has protobuf's bytes."""
    header = schema.CLASSES["BKPacketHeader"](version=3, operation=2, txnId=value)
    assert varint.encode(value) == header.SerializeToString()[5:]


@given(st.lists(st.one_of(st.integers(0, 1000), st.integers(0, 1 << 40), i64), max_size=50))
def test_ascending_is_only_faster(values: list[int]) -> None:
    """It remembers the upper bytes of the last number, so any order must come out right, negative ones too."""
    ascending = varint.Ascending()
    assert [ascending.encode(value) for value in values] == [varint.encode(value) for value in values]


@given(st.integers(1, 1 << 30), st.integers(-3, 6))
def test_a_length_field_counts_itself_out(total: int, guess: int) -> None:
    """Where the field and what it counts fill `total` bytes, whatever width was guessed."""
    for width in range(1, 6):
        if len(varint.encode(total - width)) == width and total >= width:
            assert varint.size_within(total, width) == varint.encode(total - width)
            if len(varint.encode(total - guess)) == width:
                assert varint.size_within(total, guess) == varint.encode(total - width)
            break


@pytest.mark.parametrize("value", [0, 5, 127, 128, 1 << 40, -200, -128])
def test_the_low_bytes_of_a_block(value: int) -> None:
    """They are the first bytes of the consecutive numbers of the block."""
    count = 128 - (value & 127)
    assert varint.low_bytes(value, count) == b"".join(
        varint.encode(number)[:1] for number in range(value, value + count)
    )


def test_kept_sizes_are_bounded() -> None:
    """Never more encodings are kept than the maximum."""
    sizes = varint.Sizes()
    for value in range(varint.SIZES_KEPT * 2 + 5):
        assert sizes[value] == varint.encode(value)
        assert len(sizes) <= varint.SIZES_KEPT


@given(st.integers(0, (1 << 64) - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_a_number_is_read_where_it_is(value: int, before: bytes, after: bytes) -> None:
    """Decoding gives the number and the offset after it, whatever is around it."""
    data = before + varint.encode(value)
    assert varint.decode(data + after, len(before)) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\x80" * 10 + b"\x00"])
def test_a_number_that_is_cut_off_or_too_long_is_refused(data: bytes) -> None:
    """No number has more than 10 bytes."""
    with pytest.raises(ValueError, match="cut off or longer"):
        varint.decode(data)
