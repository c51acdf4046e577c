"""The documents of a broker: its kind of JSON, read and written, and the two that are understood."""

import re

import pytest

from quire.messages.progress import Consumed
from quire.messages.rocketmq.documents import (
    consumed_in,
    offsets_of,
    pieces_of,
    read,
    topics_of,
    with_offsets,
    with_topics,
    write,
)
from quire.messages.rocketmq.source import DocumentFile, Tree, open_source
from quire.protocol.message_errors import ImportRefused
from tests.messages.archives import BROKERS, unpack

# SPDX-License-Identifier: Apache-2.0


def test_json_with_bare_keys():
    """Bare integer keys are ints, quoted ones stay text, and both are written as they were."""
    text = '{"T@a":{0:1,1:-4,-1:2},"5":{"0":"a: 7:","\\"1:":[1,{2:3}]},"x":1.5,"y":null,"z":[true,"\u4e2d"]}'
    value = read(text.encode())
    assert value["T@a"] == {0: 1, 1: -4, -1: 2}
    assert value["5"] == {"0": "a: 7:", '"1:': [1, {2: 3}]}
    assert write(value).decode() == text
    assert read(write(value)) == value


@pytest.mark.parametrize("name", BROKERS)
def test_every_json_document_of_the_archives(tmp_path, name):
    """Each is read, and what is written is read as the same."""
    source = open_source(Tree(), str(unpack(name, tmp_path)))
    for each in source.documents:
        if each.name.endswith(".json"):
            value = read(b"".join(pieces_of(Tree(), each)))
            assert read(write(value)) == value


def test_consumer_offsets(tmp_path):
    """Those of the archive; others are put beside them, and take the place of the same ones."""
    source = open_source(Tree(), str(unpack("plain-clean", tmp_path)))
    found = consumed_in(Tree(), source.documents)
    assert found == {
        Consumed("again", "T", 0): 1,
        Consumed("again", "T", 1): 4,
        Consumed("again", "%RETRY%again", 0): 1,
    }
    document = read((tmp_path / "plain-clean/config/consumerOffset.json").read_bytes())
    changed = with_offsets(document, {Consumed("again", "T", 1): 9, Consumed("g", "T", 0): 3})
    assert offsets_of(read(write(changed))) == {**found, Consumed("again", "T", 1): 9, Consumed("g", "T", 0): 3}
    assert {name: changed[name] for name in document if name != "offsetTable"} == {
        name: document[name] for name in document if name != "offsetTable"
    }
    assert offsets_of(read(write(with_offsets(None, {Consumed("g", "T", 0): 3})))) == {Consumed("g", "T", 0): 3}


@pytest.mark.parametrize(
    "text", ['{"offsetTable":[]}', '{"offsetTable":{"T":{0:1}}}', '{"offsetTable":{"T@g":{"a":1}}}', "[]", "{", "\x00"]
)
def test_offsets_that_are_not_understood(tmp_path, text):
    """`ValueError` says what is wrong."""
    path = tmp_path / "consumerOffset.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"."):
        consumed_in(Tree(), (DocumentFile("config/consumerOffset.json", str(path), len(text)),))


def test_topics(tmp_path):
    """A topic that the document lacks gets a member of the broker's form; others stay as they are."""
    document = read((unpack("plain-clean", tmp_path) / "config/topics.json").read_bytes())
    before = topics_of(document)
    after = topics_of(read(write(with_topics(document, {"T": 99, "new": 3}))))
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"new"}
    assert set(after["new"]) == set(before["T"])
    assert (after["new"]["readQueueNums"], after["new"]["topicName"]) == (3, "new")


def test_a_document_that_became_shorter(tmp_path):
    """Its import is refused by name."""
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with pytest.raises(ImportRefused, match=re.escape(f"SourceChanged: {path}, offset 3")):
        list(pieces_of(Tree(), DocumentFile("config/a", str(path), 5)))
