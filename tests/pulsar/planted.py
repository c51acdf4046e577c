"""
The kept topics of a real broker (`vectors/topics.jsonl`, made by `tests.interop.pulsar.capture`), on any cluster.

Knows: how to make their nodes and ledgers, and how Pulsar's own reader described a message.
Does not know: what is in entries.
"""

import base64
import json
import pathlib
from functools import cache
from typing import Any

from quire.client.api import Client
from quire.metadata.store import ANY
from quire.pulsar import Message

# SPDX-License-Identifier: Apache-2.0

FILE = pathlib.Path(__file__).with_name("vectors") / "topics.jsonl"


@cache
def kept() -> list[dict[str, Any]]:
    """All rows; a test changes none."""
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def rows(kind: str, interceptors: bool = False) -> list[dict[str, Any]]:
    """The rows of a kind: one, or one for each partition."""
    return [row for row in kept() if row["kind"] == kind and row["interceptors"] == interceptors]


async def plant(client: Client, row: dict[str, Any]) -> str:
    """Makes the nodes and the ledgers of a topic; its name.  Ledgers that were open stay so, all of them confirmed."""
    tree = client.store.tree
    root = client.store.root.rpartition("/")[0]
    for path, data in row["znodes"].items():
        whole = root
        for name in path.strip("/").split("/"):
            whole += f"/{name}"
            await tree.ensure(whole)
        await tree.set(whole, base64.b64decode(data), ANY)
    for ledger, entries in row["ledgers"].items():
        writer = await client.create_ledger(ledger_id=int(ledger))
        await writer.append_many([base64.b64decode(entry) for entry in entries])
        if int(ledger) in row["open"]:
            await writer.write_lac()
        else:
            await writer.close()
    return str(row["topic"])


Description = dict[str, Any]  # of a message, in words that are the same for both


def of_peer(row: dict[str, Any]) -> Description:
    """A message as Pulsar's reader got it (`Topics.java`)."""

    def raw(name: str) -> bytes | None:
        return None if row[name] is None else bytes.fromhex(row[name])

    return {
        **{name: raw(name) for name in ("key", "value", "ordering_key", "schema_version")},
        **{name: row[name] for name in ("producer", "sequence_id", "publish_ms", "event_ms", "encrypted")},
        "properties": row["properties"],
        "position": (row["ledger"], row["entry"], row["batch"]),
        "topic_index": row["index"],
        "broker_ms": row["broker_publish_ms"],
    }


def of_ours(message: Message) -> Description:
    """A message as `quire.pulsar` gives it."""
    found = message._asdict()
    names = ("key", "value", "ordering_key", "schema_version", "producer", "sequence_id", "publish_ms", "event_ms")
    return {
        **{name: found[name] for name in (*names, "encrypted", "topic_index", "broker_ms")},
        "properties": dict(message.properties),
        "position": (message.ledger, message.entry, message.batch_index),
    }
