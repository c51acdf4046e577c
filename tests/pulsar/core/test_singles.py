"""Messages of batches: whatever the bytes are, the fast readers give what the parser of protobuf gives."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from quire.pulsar.core.singles import RUN_MIN, Rows, add_batch, add_run
from tests.pulsar import made, reference

# SPDX-License-Identifier: Apache-2.0

TEXTS = some.one_of(some.sampled_from(["", "a", "k\N{EURO SIGN}", "k" * 127, "k" * 128]), some.text(max_size=6))
NUMBERS = some.one_of(some.integers(0, 3), some.sampled_from([127, 128, 16_383, 16_384, (1 << 63) - 1, -1]))
NOW = 1_764_000_000_000
FIELDS = some.sampled_from(
    [(4, 1), (5, 9), (5, NOW), (5, 0), (6, 1), (6, 0), (7, b"o"), (9, 1), (10, 1), (99, b"x"), (3, 2)]
)
STRETCHES = some.tuples(
    some.integers(1, 3 * RUN_MIN),
    some.sampled_from([0, 1, 5, 127, 128, 20_000]),
    some.none() | TEXTS,
    some.none() | NUMBERS,
    some.none() | some.dictionaries(TEXTS, TEXTS, max_size=3),
    some.lists(FIELDS, max_size=2),
    some.booleans(),
)
CHANGE = some.tuples(some.integers(0, 1 << 12), some.integers(0, 255), some.sampled_from("sid"))
CHANGES = some.lists(CHANGE, max_size=4)


def messages(stretches):
    """Stretches of messages that are alike, or not if they say so: then keys and values differ in size."""
    found = []
    for count, size, key, number, properties, more, alike in stretches:
        for index in range(count):
            its = key if key is None or alike else key + "x" * (index % 3)
            value = bytes([index]) * (size if alike else size + index % 5)
            sequence = number if number is None or number < 0 else min(number + index, (1 << 63) - 1)
            found.append(made.single(value, sequence=sequence, key=its, properties=properties, more=more))
    return found


def changed(data, changes):
    """Bytes set, put in, or taken out."""
    found = bytearray(data)
    for at, byte, how in changes:
        at %= len(found) + 1
        found[at : at + (how != "i")] = b"" if how == "d" else bytes([byte])
    return bytes(found)


@settings(max_examples=150, deadline=None)
@given(some.lists(STRETCHES, max_size=4), CHANGES, some.integers(-1, 1))
@example([(40, 5, "key", 100, {"a": "b", "c": ""}, [], True)], [], 0)
@example([(40, 5, None, None, None, [], True)], [(44, 0x40, "s")], 0)
@example([(40, 5, "YQ==", 100, {"a": "b"}, [(5, NOW), (6, 1)], True)], [], 0)
@example([(40, 5, "YQ==", 100, None, [(5, 0), (6, 0)], True)], [], 0)
@example([(40, 5, "YQ==", None, None, [(6, 1)], False)], [], 0)
@example([(40, 0, "k", 16_370, {"a": "b"}, [], True)], [(900, 0, "d")], 0)
def test_the_fast_readers_beside_the_parser(stretches, changes, more):
    """Equal, or refused by both, also of batches with other bytes in them and of sizes that are not theirs."""
    parts = messages(stretches)
    payload = changed(b"".join(parts), changes)
    size = max(0, len(parts) + more)
    assert reference.fast(payload, size, 3) == reference.batch(payload, size, 3)


@settings(max_examples=300, deadline=None)
@given(some.binary(max_size=80), some.integers(0, 40))
def test_any_bytes(data, size):
    """The same of bytes that nobody wrote, once and many times after each other."""
    for payload in (data, data * RUN_MIN):
        assert reference.fast(payload, size, 3) == reference.batch(payload, size, 3)


ALL = {"key": "k", "properties": {"a": "1", "bb": ""}, "more": [(5, NOW), (6, 0)]}


@pytest.mark.parametrize("named", [{}, {"key": "k1"}, {"key": ""}, ALL])
def test_messages_of_one_shape_are_cut_by_slices(named):
    """All at once, up to where the number has one digit more."""
    payload = b"".join(made.single(b"v%d" % (index % 10), sequence=120 + index, **named) for index in range(50))
    rows = Rows()
    assert add_run(rows, payload, 0, 0, 50, 0) == (0, 0)  # eight are too few
    assert len(rows) == 0
    add_batch(rows, payload, 50, 0)
    assert rows.sequences == [120 + index for index in range(50)]
    begin = sum(len(made.single(b"v0", sequence=120 + index, **named)) for index in range(8))
    rows = Rows()
    count, end = add_run(rows, payload, begin, 8, 42, 0)
    assert (count, end) == (42, len(payload))
    assert rows.values == [b"v%d" % (index % 10) for index in range(8, 50)]


@pytest.mark.parametrize("bad", [b"", b"\0\0\0", b"\0\0\0\5", b"\xff\xff\xff\xff", b"\0\0\0\2\x18\5abc"])
def test_what_ends_too_early_is_refused(bad):
    """With the number of the message."""
    with pytest.raises(ValueError, match=r"message 1$"):
        add_batch(Rows(), made.single(b"one") + bad, 2, 0)
