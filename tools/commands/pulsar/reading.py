"""
`quire pulsar read`: messages of a topic, up to its end or as they come.

Knows: what is printed of a message.  Does not know: entries, ledgers.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from quire.tools.commands.pulsar.shared import (
    Compacted,
    From,
    Of,
    Root,
    To,
    Topic,
    Unconfirmed,
    app,
    options_of,
    tell,
    with_topics,
)
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, command

if TYPE_CHECKING:
    from quire.pulsar.api import Message, MessageBatch, Schema, Topics

# SPDX-License-Identifier: Apache-2.0

FOREVER_S = 1e9


@command(
    app,
    "quire pulsar read orders | head",
    "quire pulsar read orders --from 2026-05-31T18:00:00+02:00 --json",
    "quire pulsar read orders --subscription billing --values",
    "quire pulsar read orders --from latest --follow --timeout 1",
)
def read(
    topic: Topic,
    start: From = "earliest",
    end: To = "latest",
    subscription: Of = None,
    compacted: Compacted = False,
    follow: Annotated[bool, typer.Option("--follow", help="go on with messages as they are confirmed")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="S", help="with --follow: end after so much silence")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="messages at most")] = None,
    values: Annotated[bool, typer.Option("--values", help="values only, one a line")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="with --json: values by the schemas of the topic's registry")
    ] = False,
    unconfirmed: Unconfirmed = False,
    root: Root = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Prints messages of a topic and its partitions: position, publish time, key, value.

    Ends at what is confirmed when it begins. What is passed over is noted on standard error: messages of transactions
    that were aborted or are open, and messages in chunks that lack some.
    """
    if follow and (compacted or end != "latest"):
        raise Usage("--follow has no end and reads no compacted ledger: leave out --to and --compacted")
    if timeout is not None and not follow:
        raise Usage("--timeout is for --follow")
    if values and json_wanted:
        raise Usage("--values and --json exclude each other")
    if decode and not json_wanted:
        raise Usage("--decode is for --json")
    options = options_of(root, unconfirmed)

    async def batches(topics: "Topics") -> "AsyncGenerator[MessageBatch, None]":
        if follow:
            silence = FOREVER_S if timeout is None else timeout
            found = topics.follow(topic, silence, start=start, subscription=subscription)
        else:
            found = topics.batches(
                await topics.plan(topic, start=start, end=end, subscription=subscription, compacted=compacted)
            )
        async with aclosing(found):
            async for batch in found:
                yield batch

    async def work(topics: "Topics") -> None:
        printer = Printer(topics, topic, values, json_wanted, decode)
        left = most
        async with aclosing(batches(topics)) as found:
            async for batch in found:
                tell(batch.passed)
                await printer.write(batch, left)
                if left is not None:
                    left -= min(left, len(batch))
                    if not left:
                        break

    with_topics(metadata, options, work)


class Printer:
    """Writes messages to standard output, a batch at a time."""

    def __init__(self, topics: "Topics", topic: str, values: bool, json_wanted: bool, decode: bool) -> None:
        self._topics, self._topic = topics, topic
        self._values, self._json, self._decode = values, json_wanted, decode
        self._schemas: dict[bytes, Schema] = {}
        self._out = sys.stdout.buffer

    async def write(self, batch: "MessageBatch", most: int | None) -> None:
        """One message a line, `most` of them."""
        from quire.pulsar.documents import lines, versions

        if self._json:
            if self._decode:
                for version in versions(batch) - self._schemas.keys():
                    self._schemas[version] = await self._topics.schema(self._topic, version)
            made = lines(batch, self._schemas).splitlines(keepends=True)[:most]
        else:
            made = [(as_value if self._values else as_line)(each) for each in batch.messages()[:most]]
        self._out.write(b"".join(made))
        self._out.flush()


def as_value(message: "Message") -> bytes:
    """The value alone, with a line end if it has none; nothing of a message without a value."""
    value = message.value
    return b"" if value is None else value if value.endswith(b"\n") else value + b"\n"


def as_line(message: "Message") -> bytes:
    """Position, time, key and value, parted by tabs; the position of a partition with its number before it."""
    part = message.topic.rpartition("-partition-")[2] if "-partition-" in message.topic else ""
    place = f"{part}/{message.position}" if part else str(message.position)
    key = b"-" if message.key is None else message.key
    value = b"-\n" if message.value is None else as_value(message)
    return b"%s\t%s\t%s\t%s" % (place.encode(), output.time_text(message.publish_ms).encode(), key, value)
