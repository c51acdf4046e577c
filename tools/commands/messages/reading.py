"""
`quire messages get, pull, query, queues`: messages out.

Knows: what is printed of a message.  Does not know: rows, records.

Safety: nothing here fences: all can be run beside a master.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.log.records import moment_of
from quire.tools.commands.messages.shared import (
    DerivedDir,
    Name,
    Topic,
    app,
    print_line,
    print_message,
    with_rows,
    with_stores,
)
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, command

if TYPE_CHECKING:
    from quire.messages.api import Store, StoredMessage, Stores

# SPDX-License-Identifier: Apache-2.0

QUEUE_COLUMNS = {"topic": 32, "queue": 6, "min": 14, "max": 14, "committed": 14, "lag": 0}


@command(
    app,
    "quire messages get shop 7F0000010000AB050000000000000000",
    "quire messages get shop 237 --raw > record",
)
def get(
    store: Name,
    place: Annotated[str, typer.Argument(metavar="OFFSET|ID", help="a physical offset, or a message id in hex")],
    raw: Annotated[bool, typer.Option("--raw", help="the record as it is stored, and nothing else")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Prints the message at a physical offset, or with a message id."""
    if raw and json_wanted:
        raise Usage("--raw and --json exclude each other")

    async def work(stores: "Stores") -> "StoredMessage":
        opened = await stores.open(store, rows=False)
        if place.isdecimal() and len(place) < len("7F0000010000AB050000000000000000"):
            return await opened.reads.get(int(place))
        return await opened.reads.by_id(place)

    message = with_stores(metadata, work)
    if raw:
        sys.stdout.buffer.write(message.raw)
        sys.stdout.buffer.flush()
    else:
        print_message(message, json_wanted)


@command(
    app,
    "quire messages pull shop T 0",
    "quire messages pull shop T 0 10 --max 10 --tags 'TagA || TagB'",
)
def pull(
    store: Name,
    topic: Topic,
    queue: Annotated[int, typer.Argument(min=0, max=(1 << 31) - 1, metavar="QUEUE", help="the number of the queue")],
    position: Annotated[int, typer.Argument(metavar="POSITION", help="where to begin in the queue")] = 0,
    most: Annotated[int, typer.Option("--max", min=1, metavar="N", help="messages at most")] = 32,
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAGS", help="only of these: A || B")] = None,
    derived_dir: DerivedDir = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Prints messages of a queue from a position on: position, offset, store time, keys, body of each. What a consumer
    would be answered beside them (status, next position, first and last of the queue) goes to standard error, also
    with --json, which prints one document for each message.
    """

    async def work(opened: "Store") -> Any:
        return await opened.reads.pull(topic, queue, position, max_messages=most, tags=tags)

    async def whole(stores: "Stores") -> Any:
        return await with_rows(stores, store, work)

    found = with_stores(metadata, whole, derived_dir)
    for message in found.messages:
        print_line(message, json_wanted)
    output.note(f"{found.status}: next {found.next}, the queue has {found.min} to before {found.max}")


@command(app, "quire messages query shop T k1", "quire messages query shop T k1 --begin 2026-11-01T00:00:00Z")
def query(
    store: Name,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="a key, or a unique id with --unique")],
    begin: Annotated[str | None, typer.Option("--begin", metavar="TIME", help="stored at this time or later")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="stored at this time or earlier")] = None,
    most: Annotated[int, typer.Option("--max", min=1, max=64, metavar="N", help="messages at most, the newest")] = 64,
    unique: Annotated[bool, typer.Option("--unique", help="KEY is a unique id")] = False,
    derived_dir: DerivedDir = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Prints the newest messages of a topic with a key: position, offset, store time, keys, body of each."""
    if unique and (begin or end):
        raise Usage("--unique goes without --begin and --end: a unique id is of one message or batch")
    begin_ms, end_ms = ms_of(begin, "--begin") or 0, ms_of(end, "--end")

    async def work(opened: "Store") -> "list[StoredMessage]":
        if unique:
            return await opened.reads.by_unique_id(topic, key)
        return await opened.reads.query(topic, key, begin_ms, end_ms, most)

    async def whole(stores: "Stores") -> "list[StoredMessage]":
        return await with_rows(stores, store, work)

    found = with_stores(metadata, whole, derived_dir)
    for message in found:
        print_line(message, json_wanted)
    output.note(f"{len(found)} messages")


@command(app, "quire messages queues shop", "quire messages queues shop T --group again")
def queues(
    store: Name,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="one topic; all if not given")] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="G", help="with what this consumer group has committed")
    ] = None,
    derived_dir: DerivedDir = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Lists queues: the first position that is still there, the next one, and with --group what was consumed."""
    table = output.Table(json_wanted, QUEUE_COLUMNS)

    async def work(opened: "Store") -> None:
        for name in [topic] if topic else await opened.reads.topics():
            for queue, each in (await opened.reads.queues(name)).items():
                row = {"topic": name, "queue": queue, "min": each.first, "max": each.next}
                if group is not None:
                    row["committed"] = done = await opened.committed(group, name, queue)
                    row["lag"] = None if done is None else each.next - done
                table.row(row)

    async def whole(stores: "Stores") -> None:
        await with_rows(stores, store, work)

    with_stores(metadata, whole, derived_dir)
    table.end(f"{store} has no queue" + (f" of the topic {topic}" if topic else ""))


def ms_of(given: str | None, option: str) -> int | None:
    """A time on the command line, in ms since 1970."""
    if given is None:
        return None
    moment = moment_of(given)
    if moment is None:
        raise Usage(f"{option} takes a time as 2024-05-31T18:00:00, not {given!r}")
    return round(moment.timestamp() * 1000)
