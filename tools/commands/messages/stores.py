"""
`quire messages create, list, show, delete, check`: which stores there are and what each is like.

Knows: what an operator sees of a store.  Does not know: how it is stored.

Safety: nothing here fences; `delete` asks.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.protocol.message_errors import NoSuchStore
from quire.tools.commands.log.naming import parsed
from quire.tools.commands.messages.shared import Name, app, with_stores
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Yes, asked, command

if TYPE_CHECKING:
    from quire.messages.api import StoreInfo, Stores

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"name": 24, "state": 10, "master": 24, "begin": 16, "end": 16, "address": 0}
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="a setting of its logs, as of quire log create; may be repeated"),
]


@command(
    app,
    "quire messages create pay --address 10.0.0.5:10911",
    "quire messages create events --address 10.0.0.5:10911 --file-size 67108864 --set ensemble=4",
)
def create(
    store: Name,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="the store host of its records, part of message ids")
    ],
    file_bytes: Annotated[
        int, typer.Option("--file-size", metavar="BYTES", help="of a commit-log file: a multiple of 4096")
    ] = 1 << 30,
    max_body: Annotated[int, typer.Option("--max-body", min=0, metavar="BYTES", help="of a message's body")] = 4 << 20,
    record_crc: Annotated[
        bool, typer.Option("--record-crc", help="each record has a CRC of all of it among its properties")
    ] = False,
    settings: Settings = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Creates an empty message store: a named log, and a second one for the progress of consumers."""
    chosen = parsed(settings or [])

    info = with_stores(
        metadata,
        lambda stores: stores.create(
            store,
            address=address,
            file_bytes=file_bytes,
            max_body=max_body,
            record_crc=record_crc,
            **chosen,
        ),
    )
    output.document(json_wanted, info._asdict(), f"{store}: address {address} (`quire messages show {store}`)")


@command(app, "quire messages list", name="list")
def list_(metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Lists the message stores."""
    table = output.Table(json_wanted, COLUMNS)

    async def work(stores: "Stores") -> None:
        async for name in stores.names():
            with suppress(NoSuchStore):  # deleted since its name was read
                table.row(as_row(await stores.info(name)))

    with_stores(metadata, work)
    table.end("there are no message stores; `quire messages create` or `import` makes one")


@command(app, "quire messages show shop", "quire messages show shop --json | jq .regions")
def show(store: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Shows a store: state, master, settings, regions of its offset space, begin and end, and what was imported. Never
    fences. Its log is shown by quire log show.
    """
    info = with_stores(metadata, lambda stores: stores.info(store))
    found = info._asdict()
    if not json_wanted:
        found["regions"] = "; ".join(f"{each['rule']} from {each['begin']}" for each in info.regions)
        found["log"] = f"epoch {info.log['epoch']}, {info.log['segments']} segments, {info.log['bytes']} bytes"
    output.document(json_wanted, found)


@command(app, "quire messages delete events --yes")
def delete(store: Name, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes a store with all its messages and the progress of consumers, also one whose import has not ended. Asks,
    unless --yes.
    """
    asked(yes, f"The message store {store!r} will be deleted for good, with all its messages.")
    with_stores(metadata, lambda stores: stores.delete(store))
    output.document(json_wanted, {"deleted": store}, f"deleted {store}")


@command(app, "quire messages check shop")
def check(store: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Reads a whole store and verifies each record: its layout, sums, place and position in its queue. Changes nothing;
    exit status 1 if something is wrong.
    """
    flaws: list[dict[str, Any]] = []

    async def work(stores: "Stores") -> tuple[int, int]:
        info = await stores.info(store)
        records = size = 0
        with output.ProgressBar(store, info.log["bytes"] or None, "bytes") as progress:
            async for so_far in stores.check(store):
                progress.advance(so_far.bytes - size)
                records, size = so_far.records, so_far.bytes
                flaws.extend(flaw._asdict() for flaw in so_far.flaws)
        return records, size

    records, size = with_stores(metadata, work)
    found = {"store": store, "records": records, "bytes": size, "flaws": flaws}
    lines = [f"offset {flaw['offset']}: {flaw['text']}" for flaw in flaws]
    output.document(json_wanted, found, [*lines, f"{records} records, {size} bytes, {len(flaws)} flaws"])
    if flaws:
        raise typer.Exit(1)


def as_row(info: "StoreInfo") -> dict[str, Any]:
    """A store in a line of a table."""
    return {
        "name": info.name,
        "state": info.state,
        "master": info.master,
        "begin": info.begin,
        "end": info.end,
        "address": info.settings.get("address"),
    }
