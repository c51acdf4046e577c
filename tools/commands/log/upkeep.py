"""
`quire log trim, compact, truncate, terminate, give-up, tidy, orphans, check, purge`: what goes, what is wrong;
`cursors`, `cursor seek, delete` and `snapshots`: where consumers and replicas go on.

Knows: what an operator is shown and asked.  Does not know: how something is found, kept or deleted.

Safety: what deletes says what it will do and asks.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quire.tools.commands.log.partitioned import cursor_rows, only_for_one
from quire.tools.commands.log.shared import Name, app, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, Yes, asked, command, group

if TYPE_CHECKING:
    from quire.log.api import Logs

# SPDX-License-Identifier: Apache-2.0

ORPHAN_COLUMNS = {"ledger": 10, "name": 24, "component": 14, "age_s": 10, "deleted": 7, "log": 0}


@command(app, "quire log trim orders --before 1000 --yes")
def trim(
    log: Name,
    before: Annotated[int, typer.Option("--before", min=0, metavar="N", help="the first index that stays")],
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Removes the records below an index; those that stay keep theirs. Never above what a cursor, a snapshot or another
    hold needs. Asks, unless --yes.
    """
    asked(yes, f"The records of the log {log!r} below index {before} will be removed for good.")

    begin = with_logs(metadata, lambda logs: logs.trim(log, before))
    output.document(json_wanted, {"log": log, "begin": begin}, f"{log} begins at index {begin}")


@command(app, "quire log compact prices")
def compact(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Writes the newest record of each key in the closed segments of a log to ledgers of its own, for `read --compacted`.
    The log must have the setting `compaction`; its owner does this by itself once enough has changed.
    """
    done = with_logs(metadata, lambda logs: logs.compact(log))
    if done is None:
        output.document(json_wanted, {"log": log, "horizon": None}, f"{log} has nothing new, or is being compacted")
        return
    records, size = sum(each.records for each in done.ledgers), sum(each.bytes for each in done.ledgers)
    found = {"log": log, "horizon": done.horizon, "records": records, "bytes": size, "ledgers": len(done.ledgers)}
    output.document(json_wanted, found, f"{log} has {records} records, {size} bytes, up to index {done.horizon}")


@command(app, "quire log truncate archive --yes")
def truncate(log: Name, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Removes all records of a log; it goes on with the same index. Cursors move to its end. Asks, unless --yes."""
    asked(yes, f"All records of the log {log!r} will be removed for good.")

    begin = with_logs(metadata, lambda logs: logs.truncate(log))
    output.document(json_wanted, {"log": log, "begin": begin}, f"{log} is empty and goes on at index {begin}")


@command(app, "quire log terminate archive --yes")
def terminate(log: Name, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Ends a log for good: it takes nothing more, and its readers end there. Takes it from its owner. Asks, unless --yes.
    """
    asked(yes, f"The log {log!r} will take nothing more, for ever; what is in it stays.")

    end = with_logs(metadata, lambda logs: logs.terminate(log))
    output.document(json_wanted, {"log": log, "end": end.index, "at": end.at}, f"{log} ends at index {end.index}")


@command(app, "quire log give-up orders 17 --yes", name="give-up")
def give_up(
    log: Name,
    segment: Annotated[int, typer.Argument(metavar="SEGMENT", min=0, help="its number, from the error or from `show`")],
    records: Annotated[
        int | None,
        typer.Option("--records", min=0, metavar="N", help="how many it may have had, if it was open"),
    ] = None,
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Goes on without a segment whose ledger is gone. Its indexes are not used again; readers fail there, or pass over it
    with --on-loss skip. With `dedup`, appends of its producers that are sent again may be stored twice. Asks, unless
    --yes.
    """
    asked(yes, f"Segment {segment} of the log {log!r} will be given up for good, with all its records.")

    lost = with_logs(metadata, lambda logs: logs.give_up(log, segment, records))
    found = {"log": log, "segment": segment, "first": lost.start, "end": lost.stop}
    output.document(json_wanted, found, f"{log} goes on at index {lost.stop}; {lost.start} to {lost.stop - 1} are lost")


@command(app, "quire log tidy --dry-run", "quire log tidy orders")
def tidy(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="the log; all logs if not given")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show which ledgers and logs would go")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="also delete ledgers whose bookies can't be asked; asks, unless --yes")
    ] = False,
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    A round of upkeep, which owners make for their logs by themselves: deletes ledgers that were taken out, what is left
    of deleted logs, and what publishers left. May be run at any time. Exit status 1 when a log or ledger could not be
    tidied.
    """
    log = None if name is None else name_of(name)
    if abandon and not dry_run:
        asked(
            yes, "Ledgers that were taken out will be deleted, too, where their bookies can't be asked to fence them."
        )

    report = with_logs(metadata, lambda logs: logs.tidy(log, dry_run, abandon))
    found = asdict(report) | {"dry_run": dry_run}
    would = "would be " if dry_run else ""
    text = (
        f"{report.logs} logs: {len(report.deleted)} ledgers {would}deleted, {len(report.removed)} deleted logs "
        f"{would}removed, {report.parts} parts, {report.txns} publishers, {report.chunks} chunks, "
        f"{len(report.expired)} logs begin later by their retention"
    )
    output.document(json_wanted, found, text)
    for ledger, why in report.stayed.items():
        output.note(f"quire: ledger {ledger} stays: {why}")
    for each, why in report.failed.items():
        output.note(f"quire: the log {each} could not be tidied: {why}")
    if report.stayed or report.failed:
        raise typer.Exit(1)


@command(app, "quire log orphans", "quire log orphans --delete --yes")
def orphans(
    delete: Annotated[bool, typer.Option("--delete", help="delete those that are older than a day")] = False,
    really: Annotated[bool, typer.Option("--really", help="also when they are suspiciously many")] = False,
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Lists ledgers that were made for logs and that no log names: of tasks and owners that were killed. Ledgers of others
    are never touched. With --delete those older than a day are deleted; asks, unless --yes.
    """
    if really and not delete:
        raise Usage("--really is for --delete")
    if delete:
        asked(yes, "Ledgers of logs that no log names and that are older than a day will be deleted for good.")
    table = output.Table(json_wanted, ORPHAN_COLUMNS)

    async def work(logs: "Logs") -> None:
        async for orphan in logs.orphans(delete, really=really):
            age_s = None if orphan.age_s is None else round(orphan.age_s)
            table.row(orphan._asdict() | {"age_s": age_s})

    with_logs(metadata, work)
    table.end("there are no orphans: every ledger that was made for a log is named by one")


@command(app, "quire log check orders")
def check(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Looks whether a log is whole: its segments follow each other, and each one's ledger is there and holds what the
    manifest says. Changes nothing, never fences. Prints what does not hold; exit status 1 then.

    `quire ledger check` reads every copy of a ledger's entries.
    """
    columns = {"segment": 8, "ledger": 10, "what": 0}

    async def work(logs: "Logs") -> int:
        count = 0
        names = await logs.partitions(log)
        table = output.Table(json_wanted, columns if names == [log] else {"log": 24} | columns)
        for name in names:
            async for finding in logs.check(name):
                count += 1
                table.row(finding._asdict() if name == log else {"log": name} | finding._asdict())
        return count

    if with_logs(metadata, work):
        raise typer.Exit(1)
    output.note(f"{log} is whole")


@command(app, "quire log purge --of 6f1c2a9e-0d53-4d9c-8f5e-2f6f1f0a7c11 --yes")
def purge(
    instance_id: Annotated[str, typer.Option("--of", metavar="INSTANCE-ID", help="the id of the former cluster")],
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Removes the names and manifests of logs that a former cluster left, which was at the same place before it was
    formatted; their ledgers are gone with it. Until then logs fail with `WrongCluster`. Asks, unless --yes.
    """
    asked(yes, f"All names and manifests of logs of the former cluster {instance_id} will be removed for good.")

    with_logs(metadata, lambda logs: logs.purge(instance_id))
    output.document(json_wanted, {"purged": instance_id}, f"the logs of {instance_id} are gone")


cursor_app = group("Move or delete a durable cursor of a log.", "quire log cursor seek orders billing 1000")
SNAPSHOT_COLUMNS = {"index": 12, "ledger": 12, "bytes": 12, "entries": 8, "epoch": 6, "machine": 0}
COLUMNS = {"cursor": 24, "mark": 12, "records": 12, "bytes": 14, "ms": 12, "touched_ms": 0}
PARTITIONS = {"partition": 10} | COLUMNS

Cursor = Annotated[str, typer.Argument(metavar="CURSOR", help="the cursor's name")]


@command(app, "quire log cursors orders")
def cursors(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Lists the durable cursors of a log: the first record that each is not done with, as its holder last wrote it, and
    the records, bytes and ms from there to the end; of a partitioned log those of each partition. Disturbs nobody.
    """

    async def work(logs: "Logs") -> list[dict[str, Any]]:
        return [row async for row in cursor_rows(logs, log)]

    rows = with_logs(metadata, work)
    table = output.Table(json_wanted, PARTITIONS if rows and "partition" in rows[0] else COLUMNS)
    for row in rows:
        table.row(row)
    table.end(f"{log} has no cursors")


@command(app, "quire log snapshots orders")
def snapshots(log: Name, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Lists the snapshots that replicas of a log begin from, the oldest first: the first record that is not in each."""
    table = output.Table(json_wanted, SNAPSHOT_COLUMNS)

    async def work(logs: "Logs") -> None:
        for each in await logs.snapshots(log):
            table.row({column: getattr(each, column) for column in SNAPSHOT_COLUMNS})

    with_logs(metadata, work)
    table.end(f"{log} has no snapshots")


@command(cursor_app, "quire log cursor seek orders billing 1000 --yes")
def seek(
    log: Name,
    cursor: Cursor,
    index: Annotated[str, typer.Argument(metavar="INDEX", help="the first record to be given out, begin, or end")],
    yes: Yes = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Moves a cursor: all records below the index are done, none from it on. Opens the cursor, which ends its consumer.
    Of a partitioned log begin and end move it in all partitions. Asks, unless --yes.
    """
    to = place_of(index)
    asked(yes, f"The consumer of the cursor {cursor!r} of the log {log!r} will end; the next one begins at {index}.")

    async def work(logs: "Logs") -> list[tuple[str, int]]:
        names, marks = await logs.partitions(log), list[tuple[str, int]]()
        if names != [log] and isinstance(to, int):
            only_for_one(log, {"an index": True})
        for name in names:
            held = await logs.cursor(name, cursor, create=False)
            await held.seek(to)
            marks.append((name, held.mark))
        return marks

    for name, mark in with_logs(metadata, work):
        where = cursor if name == log else f"{name}: {cursor}"
        output.document(json_wanted, {"log": name, "cursor": cursor, "mark": mark}, f"{where} is at index {mark}")


def place_of(text: str) -> int | Literal["begin", "end"]:
    """Reads INDEX; exit status 2 when it can't be understood."""
    if text == "begin":
        return "begin"
    if text == "end":
        return "end"
    if not text.isascii() or not text.isdecimal():
        raise Usage(f"a cursor is moved to an index, begin or end, not to {text!r}")
    return int(text)


@command(cursor_app, "quire log cursor delete orders billing --yes")
def delete(log: Name, cursor: Cursor, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes a cursor for good: nothing of the log is kept for it any more, and its consumer ends. Asks, unless --yes.
    """
    asked(yes, f"The cursor {cursor!r} of the log {log!r} will be deleted for good, with what was acknowledged.")

    with_logs(metadata, lambda logs: logs.delete_cursor(log, cursor))
    output.document(json_wanted, {"log": log, "deleted": cursor}, f"deleted {cursor}")
