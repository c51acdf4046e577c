"""
The documents of a broker: its configuration and timer files, kept byte for byte, and the two that are understood.

A broker's JSON is not JSON: integer keys are bare, `"T@again":{0:1,1:4}`.  Here they are ints, and are written bare.

Knows: that form, consumer offsets (`config/consumerOffset.json`), topics (`config/topics.json`).
Does not know: where documents are kept.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from quire.messages.progress import PIECE_BYTES, Consumed
from quire.messages.rocketmq.source import DocumentFile, Tree
from quire.protocol.message_errors import ImportRefused

# SPDX-License-Identifier: Apache-2.0

OFFSETS, TOPICS = "config/consumerOffset.json", "config/topics.json"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<![\w.])(-?\d++)(?=\s*+:)', re.DOTALL)
BARE = "\x01"  # before the digits of a key that was bare
UNDERSTOOD_BYTES_MAX = 256 << 20


def read(data: bytes) -> Any:
    """The value of a broker's JSON; `ValueError`."""
    quoted = TOKEN.sub(lambda found: f'"\\u0001{found[1]}"' if found[1] else found[0], data.decode())
    try:
        return json.loads(quoted, object_pairs_hook=_with_ints)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _with_ints(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {int(key[1:]) if key.startswith(BARE) else key: value for key, value in pairs}


def write(value: Any) -> bytes:
    """A value in the form of a broker's JSON; `ValueError` for one that is nested too deeply."""
    try:
        return "".join(_written(value)).encode(errors="surrogatepass")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _written(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for number, (key, inner) in enumerate(value.items()):
            yield "," if number else ""
            yield f"{key}:" if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}:"
            yield from _written(inner)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, inner in enumerate(value):
            yield "," if number else ""
            yield from _written(inner)
        yield "]"
    else:
        yield json.dumps(value, ensure_ascii=False)


def offsets_of(document: Any) -> dict[Consumed, int]:
    """The next position of each group and queue in `consumerOffset.json`; `ValueError` says what is wrong."""
    found: dict[Consumed, int] = {}
    for name, queues in _member(document, "offsetTable").items():
        topic, at, group = str(name).partition("@")
        if not (topic and at and group and isinstance(queues, dict)):
            raise ValueError(f"the member {name!r} of offsetTable is no topic@group with its queues")
        for queue, position in queues.items():
            if not str(queue).isdecimal() or not isinstance(position, int):
                raise ValueError(f"{name!r} has the position {position!r} of the queue {queue!r}")
            found[Consumed(group, topic, int(queue))] = position
    return found


def with_offsets(document: Any, offsets: Mapping[Consumed, int]) -> dict[str | int, Any]:
    """The document with these positions beside those that it has, of which they take the place."""
    table = {name: dict(queues) for name, queues in _member(document, "offsetTable").items()}
    for consumed, position in sorted(offsets.items()):
        table.setdefault(f"{consumed.topic}@{consumed.group}", {})[consumed.queue] = position
    return {**(document or {}), "offsetTable": table}


def topics_of(document: Any) -> dict[str, dict[str, Any]]:
    """The members of `topics.json`, by topic; `ValueError`."""
    return {str(name): member for name, member in _member(document, "topicConfigTable").items()}


def with_topics(document: Any, queues: Mapping[str, int]) -> dict[str | int, Any]:
    """The document with a member for each of these topics that it lacks, with so many queues."""
    table = dict(_member(document, "topicConfigTable"))
    for topic, count in sorted(queues.items()):
        table.setdefault(
            topic,
            {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            },
        )
    return {**(document or {}), "topicConfigTable": table}


def _member(document: Any, name: str) -> dict[str | int, Any]:
    """A table of a document; an empty one where there is no document or no such member."""
    found = {} if document is None else document.get(name, {}) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"the member {name} is no table")
    return found


def pieces_of(tree: Tree, document: DocumentFile) -> Iterator[bytes]:
    """The bytes of a document, as they are stored.  `ImportRefused`: SourceChanged."""
    for at in range(0, document.size, PIECE_BYTES):
        wanted = min(PIECE_BYTES, document.size - at)
        piece = tree.read(document.path, at, wanted)
        if len(piece) < wanted:
            raise ImportRefused(
                "SourceChanged",
                f"it ends at byte {at + len(piece)} and had {document.size}: import from a directory that nobody "
                "writes to",
                file=document.path,
                offset=at + len(piece),
            )
        yield piece


def consumed_in(tree: Tree, documents: tuple[DocumentFile, ...]) -> dict[Consumed, int]:
    """The consumer offsets that the documents of a source say; `ValueError` when theirs can't be understood."""
    for document in documents:
        if document.name == OFFSETS and document.size:
            if document.size > UNDERSTOOD_BYTES_MAX:
                raise ValueError(f"it has {document.size} bytes, more than {UNDERSTOOD_BYTES_MAX}")
            return offsets_of(read(b"".join(pieces_of(tree, document))))
    return {}
