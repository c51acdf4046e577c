"""Java's escapes in protobuf text format, for every byte (metadata-rules.md 4.3)."""

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from quire.metadata.formats.java_text import quote, unquote
from quire.metadata.formats.schema import LedgerMetadataFormat
from quire.protocol.errors import LedgerError, MetadataSerialization

# SPDX-License-Identifier: Apache-2.0


def test_named_escapes():
    """Bytes 7 to 13, both quotes and the backslash have names; the rest that isn't printable is octal."""
    assert quote(bytes(range(7, 14)) + b"\"'\\") == '"\\a\\b\\t\\n\\v\\f\\r\\"\\\'\\\\"'
    assert quote(b"\x00\x06\x0e\x1f\x7f\x80\xff ~") == '"\\000\\006\\016\\037\\177\\200\\377 ~"'
    assert quote("é") == '"\\303\\251"'


def test_printer_of_protobuf_agrees_but_for_four_bytes():
    """Python's own printer writes the same for all bytes except 7, 8, 11 and 12."""
    for byte in range(256):
        theirs = text_format.MessageToString(LedgerMetadataFormat(password=bytes([byte])), as_utf8=False)
        same = theirs == f"password: {quote(bytes([byte]))}\n"
        assert same is (byte not in {7, 8, 11, 12})


@given(st.binary(max_size=60))
def test_round_trip_and_their_parser(data):
    """We read what we write, and so does protobuf's parser."""
    assert unquote(quote(data)) == data
    message = LedgerMetadataFormat()
    text_format.Parse(f"password: {quote(data)}", message)
    assert message.password == data


def test_other_escapes_are_read():
    """Hexadecimal, short octal, question mark, single quotes and plain UTF-8 are legal text format too."""
    assert unquote("'\\x41\\7\\?é'") == b"A\x07?" + "é".encode()


@pytest.mark.parametrize("text", ["", '"', "abc", "\"abc'", '"\\"', '"\\q"', '"\\777"', '"\\x"'])
def test_broken_quotes(text):
    """Anything else is refused."""
    with pytest.raises(MetadataSerialization):
        unquote(text)


@given(st.text(max_size=20))
def test_junk(text):
    """Nothing but our own errors."""
    try:
        unquote(f'"{text}"')
    except LedgerError as error:
        assert isinstance(error, MetadataSerialization)  # noqa: PT017
