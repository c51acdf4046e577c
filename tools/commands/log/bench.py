"""
`quire log bench`: throughput and latency of a log.

Knows: the options, and what is appended and read.  The report is that of `quire bench`, with records for entries.
Does not know: how the load is made or measured (`load`).
"""

from collections.abc import AsyncGenerator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.bench import Pids, measured, numbers, report, show
from quire.tools.commands.log.shared import name_of, reactor_of, with_logs
from quire.tools.load import ClosedLoop, Latencies, Operation, Streaming
from quire.tools.terminal.options import Json, Metadata, Protocol, Usage, command, group

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from quire.log.api import Appended, LogReader, Logs, Owner

# SPDX-License-Identifier: Apache-2.0

KEYS = 1000  # different ones
KEY_DIGITS = 8

app = group("Throughput and latency percentiles of a log.", "quire log bench append --record-size 1024")

Log = Annotated[
    str | None,
    typer.Option("--log", metavar="NAME", help="which log; without it one is made first, and deleted afterwards"),
]
Size = Annotated[int, typer.Option("--record-size", min=0, max=4 << 20, metavar="BYTES", help="bytes of a value")]
Records = Annotated[int, typer.Option("--records", min=1, metavar="N", help="how many records")]
Window = Annotated[int, typer.Option("--window", min=1, metavar="N", help="records under way at most")]
Batch = Annotated[int, typer.Option("--batch", min=1, metavar="N", help="records per call")]
Key = Annotated[bool, typer.Option("--key", help="each record has a key, one of a thousand of 8 bytes")]


@command(
    app,
    "quire log bench append --record-size 100 --records 100000",
    "quire log bench append --window 1 --batch 1 --records 1000 --key",
)
def append(
    log: Log = None,
    size: Size = 1024,
    records: Records = 200_000,
    window: Window = 10_000,
    batch: Batch = 50,
    key: Key = False,
    protocol: Protocol = None,
    pids: Pids = "",
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Owns a log and appends records, each acknowledged when it is on disk on the ack quorum.

    Latency is that of a call, to its last acknowledgement.
    """
    processes = numbers(pids)

    async def work(logs: "Logs") -> tuple[dict[str, Any], Latencies]:
        reactor = reactor_of(logs)
        name = await given_or_new(logs, log)
        owner = await logs.own(name, wait_s=0)
        operate = appending(owner, size, key)
        await operate(batch)  # makes a segment and connects; not measured
        load = ClosedLoop(reactor, operate, records, window, batch)
        before, seconds, after = await measured(reactor, logs.bk, load, processes, f"append to {name}", records)
        await owner.close()
        copies = (await logs.info(name)).settings["write"]
        if log is None:
            await remove(logs, name)
        shape = {"size": size, "entries": records, "window": window, "batch": batch}
        return report(load.latencies, seconds, shape, before, after, copies) | {"key": key}, load.latencies

    show("append", *with_logs(metadata, work, protocol), json_wanted)


@command(app, "quire log bench read --record-size 100 --records 100000", "quire log bench read --log orders")
def read(
    log: Log = None,
    size: Size = 1024,
    records: Records = 200_000,
    batch: Batch = 50,
    key: Key = False,
    protocol: Protocol = None,
    pids: Pids = "",
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Reads a log from its first record on, in order. --batch is how it is written, where none is named."""
    processes = numbers(pids)

    async def work(logs: "Logs") -> tuple[dict[str, Any], Latencies]:
        reactor = reactor_of(logs)
        name = await given_or_new(logs, log)
        if log is None:
            owner = await logs.own(name)
            await ClosedLoop(reactor, appending(owner, size, key), records, 10_000, batch).run()
            await owner.close()
        info = await logs.info(name)
        end = (await logs.read(name, "end")).index
        if end == info.begin:
            raise Usage(f"the log {name!r} is empty; give another --log")
        wanted = min(records, end - info.begin)
        reader = await logs.read(name)
        load = Streaming(reactor, lambda: values(reader, info.begin + wanted), wanted)
        before, seconds, after = await measured(reactor, logs.bk, load, processes, f"read {name}", wanted)
        if log is None:
            await remove(logs, name)
        mean = round(info.bytes / ((info.end or end) - info.begin)) if log is not None else size
        shape = {"size": mean, "entries": load.ended, "window": 1, "batch": batch}
        return report(load.latencies, seconds, shape, before, after, 1) | {"key": key}, load.latencies

    show("read", *with_logs(metadata, work, protocol), json_wanted)


async def given_or_new(logs: "Logs", given: str | None) -> str:
    """The log of the run."""
    if given is not None:
        return name_of(given)
    name = f"quire bench {logs.bk.random.getrandbits(64):016x}"
    await logs.create(name)
    return name


async def remove(logs: "Logs", name: str) -> None:
    """A log that was made for the run, with its ledgers."""
    ledgers = [segment.ledger async for segment in logs.segments(name)]
    await logs.delete(name)
    for ledger in ledgers:
        await logs.bk.delete_ledger(ledger)


def appending(owner: "Owner", size: int, key: bool) -> Operation:
    """The operation "append `count` records"."""
    value = b"x" * size
    keys = [b"%0*d" % (KEY_DIGITS, number) for number in range(KEYS)]

    def operate(count: int) -> "Deferred[Appended]":
        chosen = list(chain.from_iterable([keys] * -(-count // KEYS)))[:count] if key else None
        return owner.append_many([value] * count, keys=chosen)

    return operate


async def values(reader: "LogReader", end: int) -> AsyncGenerator[list[bytes], None]:
    """Yields the values below an index, an entry at a time."""
    async for batch in reader.batches():
        yield batch.values[: end - batch.index]
        if batch.end >= end:
            return
