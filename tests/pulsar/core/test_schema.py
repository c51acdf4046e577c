"""The tables of Pulsar's messages, beside bytes made field by field."""

import pytest

from quire.protocol.pulsar_errors import MessageDamaged
from quire.pulsar.core import schema
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


def test_what_is_read():
    """Unknown fields are passed over, new values of enums are numbers, and wrong text is replaced."""
    raw = made.metadata((8, 99), (19, 5), producer="p") + made.proto((4, made.proto((1, b"\xff"), (2, "v"))), (99, 1))
    found = schema.read(schema.MessageMetadata, raw, "this")
    assert (found.compression, schema.text(found.producer_name)) == (99, "p")
    assert schema.texts(found.properties) == {"\N{REPLACEMENT CHARACTER}": "v"}


def test_what_lacks_a_field_is_refused():
    """By what it is, and the message it should be."""
    with pytest.raises(MessageDamaged, match=r"this: 2 bytes are no MessageMetadata"):
        schema.read(schema.MessageMetadata, b"\x10\x01", "this")
    assert schema.damaged((1, 2), "why").position == (1, 2)
