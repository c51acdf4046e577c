"""
Messages as JSON documents, one a line.

Knows: the names in a document, how bytes are shown.  Does not know: files, terminals.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from quire.pulsar.core.batch import Message, MessageBatch
from quire.pulsar.schemas import Schema

# SPDX-License-Identifier: Apache-2.0

ALWAYS = frozenset({"topic", "position", "publish_time", "key", "value"})


def shown(value: bytes) -> str:
    """Bytes as text where they are UTF-8, else `hex:…`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"


@lru_cache(1024)  # those of a batch are the same
def moment(ms: int | None) -> str | None:
    """A time in UTC; a number of ms that is no time of a calendar as it is."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def document(message: Message, value: Any) -> dict[str, Any]:
    """A message, with its value as it is or decoded; what it has not is left out, but for key and value."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "position": str(message.position),
        "publish_time": moment(message.publish_ms),
        "event_time": moment(message.event_ms),
        "key": message.key,
        "ordering_key": message.ordering_key,
        "value": value,
        "properties": dict(message.properties),
        "producer": message.producer,
        "sequence_id": message.sequence_id,
        "schema_version": None if message.schema_version is None else message.schema_version.hex(),
        "topic_index": message.topic_index,
        "broker_time": moment(message.broker_ms),
        "replicated_from": message.replicated_from,
        "encrypted": message.encrypted,
    }
    return {name: each for name, each in found.items() if each or name in ALWAYS or type(each) is int}


def lines(batch: MessageBatch, schemas: Mapping[bytes, Schema] | None = None) -> bytes:
    """The messages of a batch, one a line; values by their schemas where these are given.  `MessageDamaged`."""
    known = schemas or {}
    made = [document(each, valued(each, known)) for each in batch.messages()]
    return b"".join(json.dumps(each, default=plain, ensure_ascii=False).encode() + b"\n" for each in made)


def valued(message: Message, schemas: Mapping[bytes, Schema]) -> Any:
    """The value of a message, by its schema if it is among these."""
    schema = schemas.get(message.schema_version or b"")
    if schema is None or message.value is None or message.encrypted:
        return message.value
    return schema.value(message.value)


def versions(batch: MessageBatch) -> set[bytes]:
    """The versions of schemas that the messages of a batch have."""
    return {each for each in batch.of_entries("schema_version") if each}


def plain(value: object) -> object:
    """Makes JSON of what is none: bytes, and times, decimals and the like of Avro as text."""
    return shown(bytes(value)) if isinstance(value, bytes | bytearray) else str(value)
