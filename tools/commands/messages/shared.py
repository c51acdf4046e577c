"""
The name of a store, an open cluster, and messages as text: common to all commands of message stores.

Knows: how a name looks on a command line, columns, the keys of documents.  Does not know: any command.
"""

import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from quire.tools.commands.log.shared import name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import group

if TYPE_CHECKING:
    from quire.log.api import Logs
    from quire.messages.api import Store, StoredMessage, Stores

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

app = group(
    "Keep, search and move messages in RocketMQ's storage format, on named logs.",
    "quire messages import /var/rocketmq/store --into shop",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="the store's name, percent-encoded or not", callback=name_of)]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="the topic")]
DerivedDir = Annotated[
    Path | None,
    typer.Option(
        "--derived-dir",
        metavar="DIR",
        help="where queues and index are kept on this machine; quire/messages below your state directory if not given",
    ),
]


def with_stores(
    metadata: str | None,
    work: "Callable[[Stores], Awaitable[T]]",
    derived_dir: Path | None = None,
    protocol: str | None = None,
    password: bytes = b"",
) -> T:
    """Runs `work(stores)` with the message stores of the cluster at `metadata`; masters resign afterwards."""

    async def whole(logs: "Logs") -> T:
        from quire.conf.messages import MessageOptions
        from quire.messages.api import Stores

        stores = Stores(logs, MessageOptions() if derived_dir is None else MessageOptions(derived_dir=derived_dir))
        try:
            return await work(stores)
        finally:
            await stores.close()

    return with_logs(metadata, whole, protocol, password)


async def with_rows(stores: "Stores", name: str, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Runs `work(store)` once the rows have all that can be read now; shows how many are missing meanwhile."""
    store = await stores.open(name)
    try:
        async with aclosing(store.catching_up()) as steps:
            async for _done, total in steps:
                with output.ProgressBar(f"rows of {name}", total, "records") as progress:
                    before = 0
                    async for done, _total in steps:
                        progress.advance(done - before)
                        before = done
        return await work(store)
    finally:
        await store.close()


def as_document(message: "StoredMessage") -> dict[str, Any]:
    """A message as JSON: its body as text where it is UTF-8, else as `hex:…`; without its raw bytes."""
    return {
        "topic": message.topic,
        "queue": message.queue,
        "position": message.position,
        "offset": message.offset,
        "id": message.message_id,
        "store_time": output.iso_time(message.store_ms),
        "store_host": message.store_host,
        "born_time": output.iso_time(message.born_ms),
        "born_host": message.born_host,
        "tags": message.tags,
        "keys": message.keys,
        "unique_id": message.unique_id,
        "properties": dict(message.properties),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_offset,
        "body": message.body,
    }


def print_message(message: "StoredMessage", json_wanted: bool) -> None:
    """Prints one message, a member a line."""
    output.document(json_wanted, as_document(message))


def print_line(message: "StoredMessage", json_wanted: bool) -> None:
    """Prints one message in a line: position, offset, store time, keys and body, parted by tabs."""
    if json_wanted:
        output.document(True, as_document(message))
        return
    body = message.body if message.body.endswith(b"\n") else message.body + b"\n"
    head = f"{message.position}\t{message.offset}\t{output.iso_time(message.store_ms)}\t{message.keys or '-'}\t"
    sys.stdout.buffer.write(head.encode() + body)
    sys.stdout.buffer.flush()
