"""The bytes of a journal: feet, blocks, names; whether a group is whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bookie.journal import format as form
from quire.bookie.journal.format import Position
from tests.bookie.fakes.disk import frame_of

# SPDX-License-Identifier: Apache-2.0


@given(start=st.integers(0, 1 << 40), salt=st.integers(0, (1 << 64) - 1), at=st.integers(0, 511), bit=st.integers(0, 7))
def test_a_foot_is_whole_or_none(start: int, salt: int, at: int, bit: int) -> None:
    """Its salt is given out for the segment it was made for, and not after any bit of it changed, padding included."""
    foot = bytearray(form.segment_foot(start, salt))
    assert form.salt_of(bytes(foot), start) == salt
    assert form.salt_of(bytes(foot), start + 1) is None
    assert form.salt_of(bytes(foot[:-1]), start) is None
    foot[at] ^= 1 << bit
    assert form.salt_of(bytes(foot), start) is None


@given(st.lists(st.binary(min_size=16, max_size=60), min_size=1, max_size=40), st.binary(max_size=30))
def test_frames_and_bodies_are_split_as_they_were_joined(bodies: list[bytes], before: bytes) -> None:
    """Equal and unequal sizes, anywhere in a buffer; a count or an end that does not fit is refused."""
    frames = b"".join(frame_of(body) for body in bodies)
    joined = form.join_bodies(bodies)
    for data, split in ((frames, form.split_frames), (joined, form.split_bodies)):
        buffer = before + data + b"behind"
        begin, end = len(before), len(before) + len(data)
        assert split(buffer, begin, end, len(bodies)) == bodies
        for wrong in ((begin, end - 1, len(bodies)), (begin, end, len(bodies) + 1), (begin, end + 1, len(bodies))):
            with pytest.raises(ValueError, match="do not fill"):
                split(buffer, *wrong)


def test_names_of_segments() -> None:
    """Sixteen digits and a suffix; anything else is not a segment."""
    assert form.segment_name(0x1A0) == "00000000000001a0.qj"
    assert form.segment_start("00000000000001a0.qj") == 0x1A0
    for name in (
        "1a0.qj",
        "00000000000001A0.qj",
        "00000000000001a0.txn",
        "spare-00000000000.qj",
        "00000000000001a0.qj.tmp",
        "../0000000000001a0.qj",
    ):
        assert form.segment_start(name) is None


def test_blocks_refuse_to_leave_their_group() -> None:
    """A length that points past the group is an error, not a read of what lies behind."""
    good = form.BLOCK.pack(form.KEY, 0, 5, 3) + b"key"
    data = bytes(24) + good
    assert [data[begin:end] for _k, _c, _l, begin, end in form.blocks(data, 0, len(data))] == [b"key"]
    for bad in (form.BLOCK.pack(form.KEY, 0, 5, 4) + b"key", good + b"\x03"):
        with pytest.raises(ValueError, match="past its group"):
            list(form.blocks(bytes(24) + bad, 0, 24 + len(bad)))


@pytest.mark.parametrize("at", [0, 512, 128 << 10, (128 << 10) - 512, (256 << 10) + 512, (512 << 10) - 1024])
def test_a_later_group_is_found_among_zeros(at: int) -> None:
    """Wherever it lies; from behind it on there is none, and the foot is not searched."""
    size, salt = 512 << 10, 77
    position = Position(9, at)
    group = form.group_header(form.GROUP.size + 4, position, salt, [b"abcd"]) + b"abcd"
    data = bytearray(size)
    data[at : at + len(group)] = group
    assert form.later_group(bytes(data), 0, 0, salt, 5) == at
    assert form.later_group(bytes(data), at, 0, salt, 9) == at
    assert form.later_group(bytes(data), at + 512, 0, salt, 5) is None
    assert form.later_group(bytes(data), 0, 0, salt, 10) is None
    assert form.later_group(bytes(data), 0, 0, salt + 1, 5) is None
