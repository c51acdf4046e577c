"""The metadata of entries: whatever the bytes are, the fast reader gives what the parser of protobuf gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from quire.pulsar.core.entry import decode_broker
from quire.pulsar.core.head import decode_metadata, key_of, quick_metadata, varint
from tests.pulsar import made, reference
from tests.pulsar.core.test_singles import CHANGES, NUMBERS, TEXTS, changed

# SPDX-License-Identifier: Apache-2.0

NOW = 1_764_000_000_000
PAIRS = some.builds(lambda key, value: (4, made.proto((1, key), (2, value))), TEXTS, TEXTS)
MORE = some.sampled_from(
    [
        *[(5, b"r"), (8, 1), (9, 500), (11, 10), (12, 5), (13, made.proto((1, "k"))), (13, b""), (16, b"v"), (17, 1)],
        *[(18, b"o"), (20, 21), (22, 1), (23, 2), (25, 1), (26, b"u"), (27, 2), (28, 9), (29, 1), (30, 1)],
        *[(1, b"again"), (2, 0), (2, 1), (3, 0), (3, 1), (4, made.proto((1, "a"), (2, "b"))), (4, b""), (6, b"again")],
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    TEXTS,
    NUMBERS,
    some.sampled_from([0, 127, 1 << 34, 1 << 35, NOW, 1 << 42, (1 << 63) - 1, -1]),
    some.lists(PAIRS, max_size=3),
    some.none() | TEXTS,
    some.lists(MORE, max_size=3),
    CHANGES,
)
def test_the_fast_reader_beside_the_parser(producer, number, time, pairs, key, more, changes):
    """Equal, or refused by both, also of metadata with other bytes in it."""
    keys = [] if key is None else [(6, key)]
    raw = changed(made.proto((1, producer), (2, number), (3, time), *pairs, *keys, *more), changes)
    assert decode_metadata(raw) == reference.metadata(raw)


@settings(max_examples=300)
@given(some.binary(max_size=40))
def test_any_bytes(raw):
    """The same of bytes that nobody wrote."""
    for each in (raw, made.metadata(publish=NOW) + raw):
        assert decode_metadata(each) == reference.metadata(each)


def test_usual_metadata_is_read_fast():
    """Without the parser but for what is the same in the next entry."""
    for more in ({}, {"key": "k"}, {"properties": {"a": "b"}}, {"key": "", "properties": {"a": "b", "c": ""}}):
        for fields in ([], [(11, 9)], [(8, 1), (9, 500), (16, b"v")]):
            head = made.metadata(*fields, publish=NOW, sequence=300, **more)
            assert quick_metadata(head) == reference.metadata(head)
    first, second = (quick_metadata(made.metadata((11, 9), sequence=each, publish=NOW)) for each in (1, 2))
    assert first[0] is second[0]


@pytest.mark.parametrize("number", [0, 127, 128, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_numbers(number):
    """Up to where they are no longer read here."""
    raw = made.varint(number)
    assert varint(raw, 0, len(raw)) == ((number, len(raw)) if number < 1 << 63 else (0, -1))
    assert varint(raw, 0, len(raw) - 1)[1] == -1
    assert decode_broker(made.proto((1, number), (2, number))) == (number, number)


def test_what_a_broker_adds():
    """Either field may be missing; broken bytes are none."""
    assert decode_broker(b"") == (None, None)
    assert decode_broker(made.proto((1, 5))) == (5, None)
    assert decode_broker(made.proto((2, 5))) == (None, 5)
    assert decode_broker(made.proto((1, 5), (2, 6), (1, 7))) == (7, 6)
    assert decode_broker(b"\x08") is None


def test_keys():
    """As they are, or of base64, which may be none."""
    assert key_of(b"YQ==", False, False) == b"YQ=="
    assert key_of(b"YQ==", True, False) == b"a"
    assert key_of(b"Y", True, False) == b"Y"
    assert key_of(b"YQ==", True, True) is None
