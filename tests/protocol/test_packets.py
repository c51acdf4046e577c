"""The V2 header word (wire.md 2.1)."""

from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import packets

# SPDX-License-Identifier: Apache-2.0


def test_known_words() -> None:
    """Version, operation and flags form the header words of wire.md 2.1."""
    assert packets.header_word(2, packets.ADD) == 0x02010000
    assert packets.header_word(2, packets.ADD, packets.RECOVERY_ADD | packets.HIGH_PRIORITY) == 0x02010006
    assert packets.header_word(2, packets.READ, packets.FENCE) == 0x02020001
    assert packets.header_word(2, packets.BATCH_READ) == 0x02070000
    assert packets.header_word(0, packets.READ) == 2


def test_version_0_is_the_opcode_and_nothing_else() -> None:
    """Its flags are 0 whatever the middle bytes say, and its opcode is the low byte."""
    assert packets.split_word(0x00000002) == (0, 2, 0)
    assert packets.split_word(0x00070402) == (0, 2, 0)


def test_flags_have_no_place_in_version_0() -> None:
    """A word of version 0 has the operation alone."""
    assert packets.header_word(0, packets.READ, packets.FENCE) == packets.READ


@given(st.integers(1, 255), st.integers(0, 255), st.integers(0, 0xFFFF))
def test_a_word_splits_into_what_it_was_made_of(version: int, operation: int, flags: int) -> None:
    """Splitting returns version, operation and flags of any word."""
    word = packets.header_word(version, operation, flags)
    assert packets.split_word(word) == (version, operation, flags)
    assert word.to_bytes(4, "big") == bytes((version, operation)) + flags.to_bytes(2, "big")
