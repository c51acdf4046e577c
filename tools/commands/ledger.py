"""
`quire ledger`: write, read, follow, show, list, delete, recover and check ledgers.

Knows: what an operator asks of a ledger, and how its entries look on a terminal.
Does not know: how they are stored or found; that is the client's.

Safety: read, tail, show and check never fence: they can be run beside a writer.  Only `recover` takes a ledger
away from its writer, and says so.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import NoCluster, WrongCluster
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerFenced, MetadataSerialization, Security
from quire.tools.terminal import output
from quire.tools.terminal.input import BLOCK_BYTES, PAYLOAD_BYTES_MAX, Appender, Blocks, Input, Lines, opened
from quire.tools.terminal.ledger_text import Printer, as_document, check_lines, custom_text, summary, value_text
from quire.tools.terminal.options import (
    Json,
    Metadata,
    PasswordFile,
    Protocol,
    Usage,
    Yes,
    asked,
    client_options,
    command,
    group,
    metadata_uri,
    password_of,
)
from quire.tools.terminal.running import with_client, with_store

if TYPE_CHECKING:
    from quire.client.api import Client, Writer
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

FOREVER_S = 1e9
READ_AT_ONCE = 256

app = group(
    "Write, read, follow, show, list, delete, recover and check ledgers.", "quire ledger write --lines -f access.log"
)

LedgerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="the ledger's id")]
Hex = Annotated[bool, typer.Option("--hex", help="payloads as hexadecimal digits, one a line")]
Raw = Annotated[bool, typer.Option("--raw", help="payloads joined, with nothing between them")]


@command(
    app,
    "quire ledger write --lines -f access.log",
    "tar c photos | quire ledger write --ensemble 3 --write 2 --ack 2",
)
def write(
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="what to write; standard input if not given")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="one entry a line, its line end included; 1 MiB at most")
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            "--size", min=1, max=PAYLOAD_BYTES_MAX, metavar="N", help="one entry per N bytes; 65536 if not given"
        ),
    ] = None,
    ensemble: Annotated[int, typer.Option("--ensemble", min=1, help="bookies of the ledger")] = 3,
    write_quorum: Annotated[int, typer.Option("--write", min=1, help="copies of each entry")] = 3,
    ack_quorum: Annotated[
        int, typer.Option("--ack", min=1, help="copies on disk before an entry counts as written")
    ] = 2,
    digest: Annotated[str, typer.Option("--digest", metavar="NAME", help="CRC32C, CRC32, MAC or DUMMY")] = "CRC32C",
    password_file: PasswordFile = None,
    keep_open: Annotated[bool, typer.Option("--keep-open", help="do not close the ledger at the end")] = False,
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Creates a ledger, appends what it reads, closes it, prints its id.

    A ledger has one writer for life: there is no way to append to an old one.
    """
    if lines and size is not None:
        raise Usage("--lines and --size exclude each other: an entry is a line, or a block of bytes")
    if not ack_quorum <= write_quorum <= ensemble:
        raise Usage(f"--ack {ack_quorum} <= --write {write_quorum} <= --ensemble {ensemble} must hold")
    password = password_of(password_file)
    descriptor = opened(file)
    cutter = Lines() if lines else Blocks(size or BLOCK_BYTES)

    async def work(reactor: "ProcessReactor", client: "Client") -> dict[str, Any]:
        source = Input(reactor, descriptor)
        writer = await client.create_ledger(
            ensemble_size=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, password=password, digest=digest
        )
        output.note(f"writing ledger {writer.id}")
        try:
            entries, seconds = await append_all(reactor, source, cutter, writer)
        except Exception as error:
            if not isinstance(error, LedgerFenced):  # the one who fenced it closes it
                output.note(
                    f"ledger {writer.id} stays open: `quire ledger recover {writer.id}` closes it behind what was "
                    "acknowledged"
                )
            raise
        if keep_open:
            await writer.write_lac()  # or only a recovery could read the last batch
        else:
            await writer.close()
        return {
            "ledger": writer.id,
            "entries": entries,
            "bytes": writer.length,
            "seconds": round(seconds, 3),
            "ensemble_changes": writer.ensemble_changes,
            "closed": not keep_open,
        }

    done = with_client(metadata_uri(metadata), work, client_options(protocol))
    output.document(json_wanted, done, str(done["ledger"]))


async def append_all(
    reactor: "ProcessReactor", source: Input, cutter: Lines | Blocks, writer: "Writer"
) -> tuple[int, float]:
    """Appends all that comes from `source`, in entries that `cutter` makes; returns their number and the seconds."""
    appender = Appender(writer, None if source.size is not None else reactor)
    entries = 0
    with output.ProgressBar(f"ledger {writer.id}", source.size, "bytes") as progress:
        while chunk := await source.chunk():
            payloads = cutter.feed(chunk)
            entries += len(payloads)
            if payloads:
                await appender.send(payloads)
            progress.advance(len(chunk))
        payloads = cutter.rest()
        entries += len(payloads)
        if payloads:
            await appender.send(payloads)
        await appender.flush()
        return entries, progress.elapsed


@command(app, "quire ledger read 1 --from 1000 --to 1099", "quire ledger read 1 --raw > copy")
def read(
    ledger: LedgerId,
    first: Annotated[int, typer.Option("--from", min=0, metavar="N", help="the first entry")] = 0,
    last: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="N", help="the last entry; the ledger's last confirmed one if not given"),
    ] = None,
    raw: Raw = False,
    hexadecimal: Hex = False,
    password_file: PasswordFile = None,
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Prints the payloads of a ledger, one a line. Never fences: a ledger that is still written is read up to what is
    confirmed.
    """
    show = Printer(raw, hexadecimal, json_wanted)
    password = password_of(password_file)
    if last is not None and last < first:
        raise Usage(f"--to {last} is before --from {first}")

    async def work(reactor: "ProcessReactor", client: "Client") -> None:
        reader = await client.open_ledger(ledger, password, recover=False)
        end = reader.last_entry_id
        if last is not None and last > end:
            raise Usage(f"ledger {ledger} ends at entry {end}: --to {last} is past it")
        async for entries in reader.stream(first, last):
            show.entries(entries)
        await reader.close()

    with_client(metadata_uri(metadata), work, client_options(protocol))


@command(app, "quire ledger tail 1 --from 0")
def tail(
    ledger: LedgerId,
    first: Annotated[
        int | None, typer.Option("--from", min=0, metavar="N", help="the first entry; what comes next if not given")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0, metavar="S", help="end after this many seconds of silence; 0 waits until it is closed"
        ),
    ] = 0,
    raw: Raw = False,
    hexadecimal: Hex = False,
    password_file: PasswordFile = None,
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Follows a ledger while it is written, until it is closed. Never fences."""
    show = Printer(raw, hexadecimal, json_wanted)
    password = password_of(password_file)

    async def work(reactor: "ProcessReactor", client: "Client") -> None:
        reader = await client.open_ledger(ledger, password, recover=False)
        start = reader.last_entry_id + 1 if first is None else first
        async for entries in reader.tail(timeout or FOREVER_S, start):
            show.entries(entries)
        await reader.close()

    with_client(metadata_uri(metadata), work, client_options(protocol))


@command(app, "quire ledger show 1")
def show(ledger: LedgerId, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Shows a ledger's metadata with its fragments: which bookies hold which entries."""

    async def work(store: MetadataStore) -> dict[str, Any]:
        return as_document(ledger, (await store.read_ledger(ledger)).value)

    value = with_store(metadata_uri(metadata), work)
    lines = [f"{key + ':':<15} {value_text(value[key])}" for key in value if key != "fragments"]
    lines += [
        "fragments:",
        *(
            f"  {part['first']} to {value_text(part['last'])}: {', '.join(part['bookies'])}"
            for part in value["fragments"]
        ),
    ]
    output.document(json_wanted, value, lines)


@command(app, "quire ledger list --json | jq .ledger", name="list")
def list_(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Lists the ledgers with their state, end and size."""
    columns = {"ledger": 12, "state": 11, "entries": 12, "bytes": 15, "copies": 6, "fragments": 9, "created": 0}
    table = output.Table(json_wanted, columns)

    async def work(store: MetadataStore) -> None:
        await store.cluster()
        after = -1
        while page := await store.ledger_ids(after):
            for start in range(0, len(page), READ_AT_ONCE):
                for row in await summaries(store, page[start : start + READ_AT_ONCE]):
                    if "why" in row:
                        output.note(f"ledger {row['ledger']}: {row['why']}")
                    table.row({name: row.get(name) for name in columns})
            after = page[-1]

    with_store(metadata_uri(metadata), work)
    table.end("there are no ledgers; `quire ledger write` makes one")


async def summaries(store: MetadataStore, ledgers: Sequence[int]) -> list[dict[str, Any]]:
    """
    Makes the rows of some ledgers, without those that are gone, with `custom` besides what is listed.  One that can't
    be read is UNREADABLE, and has `why`.
    """
    try:
        found = await store.read_ledgers(ledgers)
    except MetadataSerialization as error:
        if len(ledgers) > 1:
            return [row for ledger in ledgers for row in await summaries(store, [ledger])]
        return [{"ledger": ledgers[0], "state": "UNREADABLE", "why": str(error)}]
    pairs = zip(ledgers, found, strict=True)
    return [
        {**summary(ledger, stored.value), "custom": custom_text(stored.value.custom)}
        for ledger, stored in pairs
        if stored is not None
    ]


@command(app, "quire ledger delete 2 3 --yes")
def delete(
    ledgers: Annotated[list[int], typer.Argument(metavar="ID…", help="the ledgers' ids")],
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="do not ask; also those of logs")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Deletes ledgers: their metadata at once, their entries when the bookies collect garbage. Refuses those that are a
    named log's. Asks, unless --yes.
    """
    asked(yes or force, f"For good go: ledger {', '.join(map(str, ledgers))}.")

    async def work(store: MetadataStore) -> list[int]:
        for ledger in ledgers:
            with suppress(MetadataSerialization):  # it is there
                found = (await store.read_ledger(ledger)).value  # a mistyped id fails before anything is deleted
                if not force:
                    await refuse_of_log(store, ledger, found)
        for ledger in ledgers:
            await store.delete_ledger(ledger)
        return ledgers

    gone = with_store(metadata_uri(metadata), work)
    output.document(json_wanted, {"deleted": gone}, [f"deleted {ledger}" for ledger in gone])


async def refuse_of_log(store: MetadataStore, ledger: int, metadata: LedgerMetadata) -> None:
    """`LogError` when the ledger was made for a log, or a log took it in."""
    from quire.log.store.ledgers import refuse

    with suppress(NoCluster, WrongCluster):  # no logs, or those of a former cluster
        await refuse(store.records, ledger, metadata)


@command(app, "quire ledger recover 1")
def recover(ledger: LedgerId, protocol: Protocol = None, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Fences a ledger, finds its end and closes it there. Its writer, if one lives, loses it."""

    async def work(_reactor: "ProcessReactor", client: "Client") -> dict[str, Any]:
        found = await client.recover_ledger(ledger)
        return {"ledger": ledger, "state": found.state.name, "last_entry": found.last_entry, "bytes": found.length}

    value = with_client(metadata_uri(metadata), work, client_options(protocol))
    text = f"ledger {ledger} is closed at entry {value['last_entry']}, {output.size_text(value['bytes'])}"
    output.document(json_wanted, value, text)


@command(app, "quire ledger check 1")
def check(
    ledgers: Annotated[list[int], typer.Argument(metavar="ID…", help="the ledgers' ids")],
    protocol: Protocol = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Reads every copy of every entry, verifies the digests, compares the copies, and prints which are missing, damaged or
    different, by fragment and bookie, and why. Never fences.

    Exit status 1 when any is, or could not be asked for. `quire recover BOOKIE` makes good what a lost bookie held.
    """
    faulty: list[int] = []
    refused_in: list[int] = []

    async def work(_reactor: "ProcessReactor", client: "Client") -> None:
        for ledger in ledgers:
            found = await checked(client, ledger)
            output.document(json_wanted, found, check_lines(found))
            codes = {part["code"] for part in found["missing"]}
            if Security.code in codes:
                refused_in.append(ledger)
            if codes - {Security.code}:
                faulty.append(ledger)

    with_client(metadata_uri(metadata), work, client_options(protocol))
    if faulty:
        output.note(
            f"quire: copies are missing in ledger {', '.join(map(str, faulty))}; `quire recover BOOKIE` makes good "
            "what a lost bookie held"
        )
    if refused_in:
        output.note(
            f"quire: nothing is known of some copies in ledger {', '.join(map(str, refused_in))}: bookies and this "
            "client do not trust each other; docs/security.md says what each refusal means"
        )
    if faulty or refused_in:
        raise typer.Exit(1)


async def checked(client: "Client", ledger: int) -> dict[str, Any]:
    """A ledger's copies, counted by reading them."""
    from quire.replication.checker import CheckProgress, check_ledger

    with output.ProgressBar(f"check ledger {ledger}", None, "copies") as progress:

        def seen(now: CheckProgress) -> None:
            progress.total = now.expected
            progress.advance(now.copies - progress.done)

        found = await check_ledger(client, ledger, seen)
    return {
        "ledger": ledger,
        "state": found.state.name,
        "entries": found.last + 1,
        "copies": found.copies_expected,
        "good": found.copies_expected - found.copies_missing,
        "missing": [
            {
                "fragment": fragment,
                "bookie": part.bookie,
                "first": part.first,
                "last": part.first + part.entries - 1,
                "why": part.why,
                "code": part.code,
            }
            for fragment, parts in found.by_fragment().items()
            for part in parts
        ],
    }
