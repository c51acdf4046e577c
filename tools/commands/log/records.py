"""
`quire log append, read, tail`: records in and out.

Knows: how input becomes records, and which of them are wanted.
Does not know: segments, ledgers.

Safety: read and tail never fence: they can be run beside an owner.  `append` takes the log from another owner only when
it is told to.
"""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from quire.tools.commands.log.partitioned import Partitions, one_of, only_for_one, parts_of, print_all
from quire.tools.commands.log.shared import Name, RecordPrinter, app, reactor_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.input import Input, Lines, UnderWay, opened
from quire.tools.terminal.options import Json, Metadata, PasswordFile, Protocol, Usage, command, password_of

if TYPE_CHECKING:
    from quire.log.api import Appended, Logs, Owner, PartitionedOwner, Seek

# SPDX-License-Identifier: Apache-2.0

FOREVER_S = 1e9
VALUE_BYTES_MAX = 63 << 20

Skip = Literal["raise", "skip"]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="N|TIME", help="an index, begin, end, or a time as 2024-05-31T18:00:00+02:00"),
]
Values = Annotated[bool, typer.Option("--values", help="values only, one a line")]
Compacted = Annotated[
    bool, typer.Option("--compacted", help="of what was compacted the newest record of each key only")
]
OnLoss = Annotated[str, typer.Option("--on-loss", metavar="WHAT", help="where a segment is gone: raise, or skip it")]
OnTrim = Annotated[str, typer.Option("--on-trim", metavar="WHAT", help="where records were trimmed: raise, or skip it")]


@command(
    app,
    "quire log append orders --lines -f orders.txt",
    "quire log append prices --lines --key-field 1 -f prices.txt",
    "tail -f access.log | quire log append orders --lines --key-field 1",
    "quire log append visits --lines --key-field 1 -f orders.txt",
)
def append(
    log: Name,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="what to append; standard input if not given")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="one record a line, without its line end")] = False,
    key_field: Annotated[
        int | None,
        typer.Option("--key-field", min=1, metavar="N", help="with --lines: the N-th word of a line is its key"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="take the log from another owner")] = False,
    password_file: PasswordFile = None,
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Owns a log, appends what it reads, resigns, prints which indexes that became.

    The whole input is one record, or with --lines each line is. Refuses while another one owns the log, unless --force.
    Of a partitioned log it owns all partitions; each record goes to that of its key, those without one take turns.
    """
    if key_field is not None and not lines:
        raise Usage("--key-field is for --lines: the key is a word of the line")
    password = password_of(password_file)
    descriptor = opened(file)

    async def work(logs: "Logs") -> dict[str, Any]:
        source = Input(reactor_of(logs), descriptor)
        owner: Owner | PartitionedOwner
        sending: Sending | Spreading
        if await parts_of(logs, log):
            owner = await logs.own_partitions(log, wait_s=0, force=force)
            output.note(f"appending to {log}, {owner.count} partitions")
            sending = Spreading(owner, key_field)
        else:
            owner = await logs.own(log, wait_s=0, force=force)
            output.note(f"appending to {log}, epoch {owner.epoch}")
            sending = Sending(owner, key_field)
        with output.ProgressBar(log, source.size, "bytes") as progress:
            try:
                await (append_lines if lines else append_whole)(source, sending, progress)
            finally:
                await owner.close()
            seconds = progress.elapsed
        return {"log": log, **sending.placed, "seconds": round(seconds, 3)}

    done = with_logs(metadata, work, protocol, password)
    placed = done.get("partitions", [done])
    named = [(f"{log}/{each['partition']}: " if "partition" in each else "", each) for each in placed]
    text = "\n".join(f"{name}{each['first']} to {each['last']}" for name, each in named)
    output.document(json_wanted, done, text if done["records"] else "no record")


class Sending(UnderWay):
    """Appends of one command, as many under way as the owner's window takes."""

    def __init__(self, owner: "Owner", key_field: int | None) -> None:
        super().__init__()
        self._owner = owner
        self._key_field = key_field
        self.records = self.bytes = 0
        self.first: int | None = None
        self.last: int | None = None

    @property
    def placed(self) -> dict[str, Any]:
        """Says what was appended, and where it is."""
        return {
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "bytes": self.bytes,
            "epoch": self._owner.epoch,
        }

    async def send(self, values: list[bytes]) -> None:
        """Appends when there is room; raises what an earlier batch failed with."""
        keys = keys_of(values, self._key_field)
        size = sum(map(len, values))
        await self._owner.ready(len(values), size + sum(len(key) for key in keys or () if key))
        self.check()
        self.records += len(values)
        self.bytes += size
        self.add(self._owner.append_many(values, keys=keys).addCallback(self._placed))

    def _placed(self, done: "Appended") -> None:
        self.first = done.indexes[0] if self.first is None else min(self.first, done.indexes[0])
        self.last = done.indexes[-1] if self.last is None else max(self.last, done.indexes[-1])


class Spreading:
    """Appends of one command to all partitions of a log."""

    def __init__(self, owner: "PartitionedOwner", key_field: int | None) -> None:
        self._owner = owner
        self._key_field = key_field
        self._records = self._bytes = 0
        self._ends: dict[int, tuple[int, int, int]] = {}  # first and last index, and records

    @property
    def placed(self) -> dict[str, Any]:
        """Says what was appended, and where it is in each partition that has some of it."""
        partitions = [
            {"partition": number, "first": first, "last": last, "records": count}
            for number, (first, last, count) in sorted(self._ends.items())
        ]
        return {"records": self._records, "bytes": self._bytes, "partitions": partitions}

    async def send(self, values: list[bytes]) -> None:
        """Appends, as far as there is room."""
        done = await self._owner.append_many(values, keys=keys_of(values, self._key_field))
        self._records += len(values)
        self._bytes += sum(map(len, values))
        for partition, index in zip(done.partitions, done.indexes, strict=True):
            first, last, count = self._ends.get(partition, (index, index, 0))
            self._ends[partition] = min(first, index), max(last, index), count + 1

    async def drain(self) -> None:
        """Nothing is under way between two calls."""


def keys_of(lines: list[bytes], field: int | None) -> list[bytes | None] | None:
    """The keys of lines, of which the `field`-th word is one."""
    return None if field is None else [key_of(line, field - 1) for line in lines]


def key_of(line: bytes, word: int) -> bytes | None:
    """A word of a line, counted from 0; None where it has fewer."""
    words = line.split(maxsplit=word + 1)
    return words[word] if word < len(words) else None


async def append_lines(source: Input, sending: Sending | Spreading, progress: output.ProgressBar) -> None:
    """A record for each line."""
    cutter = Lines(VALUE_BYTES_MAX)
    while chunk := await source.chunk():
        if values := cutter.feed(chunk):
            await sending.send([value.removesuffix(b"\n") for value in values])
        progress.advance(len(chunk))
    if values := cutter.rest():
        await sending.send(values)
    await sending.drain()


async def append_whole(source: Input, sending: Sending | Spreading, progress: output.ProgressBar) -> None:
    """One record; none of an empty input."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await source.chunk():
        chunks.append(chunk)
        size += len(chunk)
        if size > VALUE_BYTES_MAX:
            raise Usage(f"a record has at most {VALUE_BYTES_MAX} bytes; with --lines each line is one")
        progress.advance(len(chunk))
    if chunks:
        await sending.send([b"".join(chunks)])
    await sending.drain()


@command(
    app,
    "quire log read orders --from 1000 --to 1099",
    "quire log read orders --values > copy",
    "quire log read prices --compacted",
    "quire log read visits --partition 1",
)
def read(
    log: Name,
    partition: Partitions = None,
    first: From = None,
    last: Annotated[
        int | None, typer.Option("--to", min=0, metavar="N", help="the last index; what is there now if not given")
    ] = None,
    values: Values = False,
    compacted: Compacted = False,
    on_loss: OnLoss = "raise",
    on_trim: OnTrim = "raise",
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Prints the records of a log that are there now: index, time, key and value of each. Never fences.

    Of a partitioned log each line begins with the partition; the records of each come in order, and there is no order
    among partitions.
    """
    start = start_of(first, "begin")
    printer = RecordPrinter(values, json_wanted)
    skip = skips(on_loss, on_trim)
    if last is not None and isinstance(start, int) and last < start:
        raise Usage(f"--to {last} is before --from {start}")

    async def work(logs: "Logs") -> None:
        one = await one_of(logs, log, partition)
        if one is None:
            only_for_one(
                log, {"--from with an index": type(start) is int, "--to": last is not None, "--compacted": compacted}
            )
            whole = await logs.read_partitions(log, start, partitions=partition, on_loss=skip[0], on_trim=skip[1])
            await print_all(whole, printer, None)
            return
        reader = await logs.read(one, start, compacted=compacted, on_loss=skip[0], on_trim=skip[1])
        if last is not None and last < reader.index:
            return
        async for batch in reader.batches():
            printer.records([each for each in batch.records() if last is None or each.index <= last])
            if last is not None and batch.end > last:
                break

    with_logs(metadata, work, protocol)


@command(app, "quire log tail orders", "quire log tail orders --from begin --values --timeout 1")
def tail(
    log: Name,
    partition: Partitions = None,
    first: From = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="end after this many seconds of silence; 0: never")
    ] = 0,
    values: Values = False,
    on_loss: OnLoss = "raise",
    on_trim: OnTrim = "raise",
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Follows a log, whoever writes it: what comes next, or what is there from --from on and then what comes. Ends at the
    end of a terminated log. Never fences. Of a partitioned log each line begins with the partition.
    """
    start = start_of(first, "end")
    printer = RecordPrinter(values, json_wanted)
    skip = skips(on_loss, on_trim)

    async def work(logs: "Logs") -> None:
        one = await one_of(logs, log, partition)
        if one is None:
            only_for_one(log, {"--from with an index": type(start) is int})
            whole = await logs.read_partitions(log, start, partitions=partition, on_loss=skip[0], on_trim=skip[1])
            await print_all(whole, printer, timeout or FOREVER_S)
            return
        reader = await logs.read(one, start, on_loss=skip[0], on_trim=skip[1])
        async for batch in reader.tail(timeout or FOREVER_S):
            printer.records(batch.records())

    with_logs(metadata, work, protocol)


@command(app, "quire log seek orders 2024-05-31T18:00:00Z")
def seek(
    log: Name,
    time: Annotated[str, typer.Argument(metavar="TIME", help="as 2024-05-31T18:00:00+02:00, or ms since 1970")],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Prints the index of the first record that is not older than a time, or of the end; of a partitioned log that of each
    partition. Never fences.
    """
    moment = None if time.isdecimal() else moment_of(time)
    if moment is None and not time.isdecimal():
        raise Usage(f"a time is as 2024-05-31T18:00:00, or ms since 1970, not {time!r}")
    ms = int(time) if moment is None else round(moment.timestamp() * 1000)

    async def work(logs: "Logs") -> "list[tuple[str, Seek]]":
        return [(name, await logs.seek(name, ms)) for name in await logs.partitions(log)]

    for name, found in with_logs(metadata, work):
        if found.trimmed:
            output.note(f"what is older than the first record of {name} was trimmed")
        text = str(found.index) if name == log else f"{name}: {found.index}"
        output.document(json_wanted, {"log": name, "index": found.index, "trimmed": found.trimmed}, text)


def start_of(given: str | None, default: str) -> Any:
    """Where a reader begins: an index, "begin", "end", or a time."""
    if given is None or given in {"begin", "end"}:
        return given or default
    if given.isdecimal():
        return int(given)
    moment = moment_of(given)
    if moment is None:
        raise Usage(f"--from takes an index, begin, end, or a time as 2024-05-31T18:00:00, not {given!r}")
    return moment


def moment_of(given: str) -> datetime | None:
    """A time, which is of this machine's zone if it names none; None for what is no time."""
    try:
        return datetime.fromisoformat(given).astimezone()
    except ValueError:
        return None


def skips(on_loss: str, on_trim: str) -> tuple[Skip, Skip]:
    """--on-loss and --on-trim."""
    for option, given in (("--on-loss", on_loss), ("--on-trim", on_trim)):
        if given not in {"raise", "skip"}:
            raise Usage(f"{option} is raise or skip, not {given!r}")
    return cast("Skip", on_loss), cast("Skip", on_trim)
