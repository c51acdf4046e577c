"""
`quire log cursors`, `quire log cursor seek, delete` and `quire log snapshots`: where consumers and replicas go on.

Knows: what an operator is shown and asked.  Does not know: how a cursor is kept, how a snapshot is made.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quire.tools.commands.log.shared import Name, Yes, asked, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, group

if TYPE_CHECKING:
    from quire.log.api import Logs

# SPDX-License-Identifier: Apache-2.0

app = group("Move or delete a durable cursor of a log.", "quire log cursor seek orders billing 1000")
SNAPSHOT_COLUMNS = {"index": 12, "ledger": 12, "bytes": 12, "entries": 8, "epoch": 6, "machine": 0}
COLUMNS = {"cursor": 24, "mark": 12, "records": 12, "bytes": 14, "ms": 12, "touched_ms": 0}

Cursor = Annotated[str, typer.Argument(metavar="CURSOR", help="the cursor's name")]


def cursors(name: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists the durable cursors of a log: the first record that each is not done with, as its holder last wrote it, and
    the records, bytes and ms from there to the end. Disturbs nobody.

    \b
    Example:
      quire log cursors orders
    """
    log = name_of(name)

    table = output.Table(json_wanted, COLUMNS)

    async def work(logs: "Logs") -> None:
        async for each in logs.cursors(log):
            row = {"cursor": each.name, "mark": each.mark, **each.backlog._asdict(), "touched_ms": each.touched_ms}
            table.row(row)

    with_logs(metadata, work)


def snapshots(name: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists the snapshots that replicas of a log begin from, the oldest first: the first record that is not in each.

    \b
    Example:
      quire log snapshots config
    """
    log = name_of(name)
    table = output.Table(json_wanted, SNAPSHOT_COLUMNS)

    async def work(logs: "Logs") -> None:
        for each in await logs.snapshots(log):
            table.row({column: getattr(each, column) for column in SNAPSHOT_COLUMNS})

    with_logs(metadata, work)


@app.command()
def seek(
    name: Name,
    cursor: Cursor,
    index: Annotated[str, typer.Argument(metavar="INDEX", help="the first record to be given out, begin, or end")],
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Moves a cursor: all records below the index are done, none from it on. Opens the cursor, which ends its consumer.
    Asks, unless --yes.

    \b
    Example:
      quire log cursor seek orders billing 1000
    """
    log, to = name_of(name), place_of(index)
    asked(yes, f"The consumer of the cursor {cursor!r} of the log {log!r} will end; the next one begins at {index}.")

    async def work(logs: "Logs") -> int:
        held = await logs.cursor(log, cursor, create=False)
        await held.seek(to)
        return held.mark

    mark = with_logs(metadata, work)
    output.document(json_wanted, {"log": log, "cursor": cursor, "mark": mark}, f"{cursor} is at index {mark}")


def place_of(text: str) -> int | Literal["begin", "end"]:
    """Reads INDEX; exit status 2 when it can't be understood."""
    if text == "begin":
        return "begin"
    if text == "end":
        return "end"
    if not text.isascii() or not text.isdecimal():
        raise Usage(f"a cursor is moved to an index, begin or end, not to {text!r}")
    return int(text)


@app.command()
def delete(name: Name, cursor: Cursor, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes a cursor for good: nothing of the log is kept for it any more, and its consumer ends. Asks, unless --yes.

    \b
    Example:
      quire log cursor delete orders billing
    """
    log = name_of(name)
    asked(yes, f"The cursor {cursor!r} of the log {log!r} will be deleted for good, with what was acknowledged.")

    with_logs(metadata, lambda logs: logs.delete_cursor(log, cursor))
    output.document(json_wanted, {"log": log, "deleted": cursor}, f"deleted {cursor}")
