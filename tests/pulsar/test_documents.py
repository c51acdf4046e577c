"""Messages as documents."""

import json

from quire.pulsar.codecs import decompress
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.entry import decode_entry
from quire.pulsar.documents import lines, moment, versions
from quire.pulsar.schemas import Schema
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


def test_a_line_for_each_message():
    """Bytes as text where they are, values by the schema of their version, nothing of what is not there."""
    batch = MessageBatch()
    entries = [
        made.entry(made.metadata((12, 5), (16, b"v1"), properties={"a": "b"}, key="k"), b"\0\0\0\5"),
        made.entry(made.metadata((25, 1)), b""),
        made.entry(made.metadata((13, made.proto((1, "rsa"), (2, b"s"))), (16, b"v1")), b"\xff"),
    ]
    for number, entry in enumerate(entries):
        batch.add("t", decode_entry(entry, 7, number), decompress)
    assert versions(batch) == {b"v1"}
    found = [json.loads(line) for line in lines(batch, {b"v1": Schema("INT32", 0, b"", {})}).splitlines()]
    assert found[0] == {
        "topic": "t",
        "position": "7:0",
        "publish_time": "1970-01-01T00:00:01.000+00:00",
        "event_time": "1970-01-01T00:00:00.005+00:00",
        "key": "k",
        "value": 5,
        "properties": {"a": "b"},
        "producer": "p",
        "sequence_id": 0,
        "schema_version": "7631",
    }
    assert (found[1]["key"], found[1]["value"]) == (None, None)
    assert (found[2]["value"], found[2]["encrypted"]) == ("hex:ff", True)
    assert json.loads(lines(batch).splitlines()[0])["value"] == "\0\0\0\5"


def test_times_that_are_none():
    """A number that no calendar has is shown as it is."""
    assert (moment(None), moment(1 << 62)) == (None, f"{1 << 62} ms")
