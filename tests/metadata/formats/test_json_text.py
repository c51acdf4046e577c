"""JSON of others: a value, or one kind of error."""

import json

import pytest

from quire.metadata.formats.json_text import int64, parse_json

# SPDX-License-Identifier: Apache-2.0


def test_numbers_of_64_bits() -> None:
    """And no others, whatever they were."""
    for value, wanted in ((5, 5), (5.9, 5), ("7", 7), (-(1 << 63), -(1 << 63)), ((1 << 63) - 1, (1 << 63) - 1)):
        assert int64(value) == wanted
    for text in ("9223372036854775808", "-9223372036854775809", "1e30", "1" * 400, '"x"', "NaN", "-Infinity", "1e999"):
        with pytest.raises(ValueError, match=r"64 bits|invalid literal|no end|NaN"):
            int64(parse_json(text))
    with pytest.raises(TypeError):
        int64([])


def test_what_is_json_is_its_value() -> None:
    """Of bytes and of text."""
    assert parse_json(b' {"a": [1, 2.5, null, true, "\xc3\xa4"]} ') == {"a": [1, 2.5, None, True, "ä"]}
    assert parse_json('"ä"') == "ä"
    assert parse_json(b'"\\ud83d\\ude00 \\\\ud800"') == "\N{GRINNING FACE} \\ud800"
    assert parse_json('{"a": "ä"}'.encode("utf-16")) == parse_json(b'\xef\xbb\xbf{"a": "\xc3\xa4"}') == {"a": "ä"}


def test_what_was_read_can_be_written_deeper_down() -> None:
    """By whoever has more frames of Python behind him then; ids of 19 digits and long texts of digits are no matter."""

    def written(value: object, frames: int) -> str:
        return written(value, frames - 1) if frames else json.dumps(value)

    read = 0
    for depth in range(50, 1200):
        try:
            value = parse_json("[" * depth + "]" * depth)
        except ValueError:
            continue
        written(value, 40)
        read = depth
    assert read > 500
    assert parse_json(f'[{(1 << 63) - 1}, "{"9" * 50}", 0.{"1" * 50}]')[:2] == [(1 << 63) - 1, "9" * 50]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"1 2", "Extra data"),
        (b'"\xff"', "can't decode"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b"1" * 5_000, "digits"),
        (b'{"a": 9223372036854775808}', "64 bits"),
        (b"[-9223372036854775809]", "64 bits"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b'{"\\uDFFF": 1}', "surrogates not allowed"),
        (b'"\xed\xa0\x80"', "can't decode"),
    ],
)
def test_whatever_else_it_is_has_one_kind_of_error(data: bytes, why: str) -> None:
    """`ValueError`, the deep and the infinite among it."""
    with pytest.raises(ValueError, match=why):
        parse_json(data)
