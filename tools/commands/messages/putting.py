"""
`quire messages put`: messages in.

Knows: how input becomes messages.  Does not know: queues, records.

Safety: waits until this process is master, puts, resigns; another one that leads is not fenced.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.protocol.log_errors import NotOwner
from quire.tools.commands.log.naming import parsed
from quire.tools.commands.log.records import VALUE_BYTES_MAX
from quire.tools.commands.log.shared import reactor_of
from quire.tools.commands.messages.shared import Name, Topic, app, with_stores
from quire.tools.terminal import output
from quire.tools.terminal.input import Input, Lines, UnderWay, opened
from quire.tools.terminal.options import Json, Metadata, PasswordFile, Protocol, Usage, command, password_of

if TYPE_CHECKING:
    from quire.messages.api import Message, Put, Store, Stores

# SPDX-License-Identifier: Apache-2.0


@command(
    app,
    "echo hello | quire messages put pay T --queue 3 --tags A --keys 'k1 k2'",
    "quire messages put pay T --lines -f orders.txt --property source=shop",
)
def put(
    store: Name,
    topic: Topic,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="what to put; standard input if not given")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="one message a line, without its line end")] = False,
    queue: Annotated[
        int, typer.Option("--queue", min=0, max=(1 << 31) - 1, metavar="N", help="the number of the queue")
    ] = 0,
    tags: Annotated[str, typer.Option("--tags", metavar="TAGS", help="the tag of each message")] = "",
    keys: Annotated[str, typer.Option("--keys", metavar="KEYS", help="words by which each message is found")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="a property; may be repeated")
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, metavar="S", help="how long to wait until this process is master")
    ] = 30,
    password_file: PasswordFile = None,
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Stands until it is master of a store, puts what it reads, resigns, prints what that became.

    The whole input is one message, or with --lines each line is. While another process is master, it waits --wait
    seconds at most.
    """
    named = parsed(properties or [])
    descriptor = opened(file)

    async def work(stores: "Stores") -> dict[str, Any]:
        source = Input(reactor_of(stores.logs), descriptor)
        opened_store = await stores.open(store, stand=True, rows=False)
        if not await opened_store.leads(wait_s):
            raise NotOwner(
                f"this process was not master of {store!r} within {wait_s:g} s: `quire messages show {store}` names"
                " who is, --wait waits longer"
            )
        sending = Sending(opened_store, lambda body: message_of(topic, body, queue, tags, keys, named))
        with output.ProgressBar(store, source.size, "bytes") as progress:
            await (put_lines if lines else put_whole)(source, sending, progress)
            seconds = progress.elapsed
        first, last = sending.first, sending.last
        return {
            "store": store,
            "topic": topic,
            "queue": queue,
            "messages": sending.messages,
            "first": None if first is None else first._asdict(),
            "last": None if last is None else last._asdict(),
            "seconds": round(seconds, 3),
        }

    done = with_stores(metadata, work, None, protocol, password_of(password_file))
    if not done["messages"]:
        text = "no message"
    elif done["messages"] == 1:
        text = f"{done['first']['message_id']}: position {done['first']['position']}, offset {done['first']['offset']}"
    else:
        text = f"{done['messages']} messages: positions {done['first']['position']} to {done['last']['position']}"
    output.document(json_wanted, done, text)


class Sending(UnderWay):
    """Puts of one command, as many under way as the window takes.  `make`: the message of a body."""

    def __init__(self, store: "Store", make: "Callable[[bytes], Message]") -> None:
        super().__init__()
        self._store, self._make = store, make
        self.messages = 0
        self.first: Put | None = None
        self.last: Put | None = None

    async def send(self, bodies: list[bytes]) -> None:
        """Puts when there is room; raises what an earlier call failed with."""
        made = self._store.drafts(list(map(self._make, bodies)))
        await self._store.room(len(made), sum(map(len, made)))
        self.check()
        self.messages += len(made)
        self.add(self._store.send(made).addCallback(self._placed))

    def _placed(self, done: "list[Put]") -> None:
        if self.first is None or done[0].offset < self.first.offset:
            self.first = done[0]
        if self.last is None or done[-1].offset > self.last.offset:
            self.last = done[-1]


def message_of(topic: str, body: bytes, queue: int, tags: str, keys: str, properties: dict[str, str]) -> "Message":
    from quire.messages.message import Message

    return Message(topic, body, queue=queue, tags=tags, keys=keys, properties=properties)


async def put_lines(source: Input, sending: Sending, progress: output.ProgressBar) -> None:
    """A message for each line."""
    cutter = Lines(VALUE_BYTES_MAX)
    while chunk := await source.chunk():
        if bodies := cutter.feed(chunk):
            await sending.send([body.removesuffix(b"\n") for body in bodies])
        progress.advance(len(chunk))
    if bodies := cutter.rest():
        await sending.send(bodies)
    await sending.drain()


async def put_whole(source: Input, sending: Sending, progress: output.ProgressBar) -> None:
    """One message; none of an empty input."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await source.chunk():
        chunks.append(chunk)
        size += len(chunk)
        if size > VALUE_BYTES_MAX:
            raise Usage(f"a message has at most {VALUE_BYTES_MAX} bytes; with --lines each line is one")
        progress.advance(len(chunk))
    if chunks:
        await sending.send([b"".join(chunks)])
    await sending.drain()
