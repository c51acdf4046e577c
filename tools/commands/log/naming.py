"""
`quire log create, set, rename, list, show, delete`: which logs there are and what each is like.

Knows: what an operator sees of a log.  Does not know: how it is stored.

Safety: nothing here fences; `delete` asks.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.metadata.formats.json_text import parse_json
from quire.protocol.log_errors import NoSuchLog
from quire.tools.commands.log.partitioned import described, show_partitions
from quire.tools.commands.log.shared import Name, app, as_document, name_of, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, Yes, asked, command, refused

if TYPE_CHECKING:
    from quire.log.api import LogInfo, Logs, Segment, Unpublished

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {
    "name": 24,
    "state": 10,
    "partitions": 10,
    "epoch": 5,
    "owner": 20,
    "begin": 12,
    "end": 12,
    "segments": 8,
    "bytes": 15,
    "doomed": 0,
}
SEGMENT_COLUMNS = {"n": 6, "ledger": 10, "first": 12, "records": 10, "bytes": 13, "epoch": 6, "txn": 20, "last": 0}

New = Annotated[str, typer.Argument(metavar="NEW", help="the new name, percent-encoded or not", callback=name_of)]


@command(
    app,
    "quire log create orders",
    "quire log create orders/eu --ensemble 3 --set roll_bytes=67108864 --set retention_ms=604800000",
    "quire log create prices --set compaction=true",
    "quire log create visits --partitions 4",
)
def create(
    log: Name,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting; may be given several times")
    ] = None,
    ensemble: Annotated[int | None, typer.Option("--ensemble", min=1, help="bookies of each segment")] = None,
    write_quorum: Annotated[int | None, typer.Option("--write", min=1, help="copies of each entry")] = None,
    ack_quorum: Annotated[
        int | None, typer.Option("--ack", min=1, help="copies on disk before an append counts as stored")
    ] = None,
    digest: Annotated[str | None, typer.Option("--digest", metavar="NAME", help="CRC32C, CRC32 or MAC")] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="spread records by key over N logs, NAME/0 and so on"),
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Creates an empty log.

    Settings (docs/logs.md says what each is): roll_records roll_bytes roll_age_ms retention_ms retention_bytes
    quota_bytes quota_ms quota ttl_ms dedup compaction compaction_keyless merge_bytes lease_ms publish needs_snapshot
    compression rate_records rate_bytes use, and ensemble write ack digest partitions, which have options of their own;
    partition_of is what a partition has.
    """
    chosen: dict[str, Any] = parsed(settings or [])
    own = {"ensemble": ensemble, "write": write_quorum, "ack": ack_quorum, "digest": digest}
    own["partitions"] = partitions
    chosen |= {key: value for key, value in own.items() if value is not None}

    async def work(logs: "Logs") -> tuple["LogInfo", int]:
        return await logs.create(log, **chosen), len((await logs.bk.store.bookies()).writable)

    made, writable = with_logs(metadata, work)
    show_one(made, json_wanted)
    needed = made.settings["ensemble"]
    if writable < needed:
        output.note(
            f"quire: {log} needs {needed} bookies for a segment, and {writable} are writable: appends "
            "fail until there are more; `quire bookie list` shows them, `quire log set` changes a log"
        )


@command(
    app,
    "quire log set orders roll_bytes=134217728 retention_bytes=10000000000",
    "quire log set visits partitions=6 retention_ms=604800000",
    name="set",
)
def set_(
    log: Name,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="the settings that change")],
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Changes settings of a log. Those of storage (ensemble, write, ack, digest) count from the next segment on. Those of
    a partitioned log are those of its partitions, and it grows by a higher `partitions`.
    """
    chosen = parsed(settings)

    show_one(with_logs(metadata, lambda logs: logs.update(log, **chosen)), json_wanted)


@command(app, "quire log rename orders/eu orders/europe")
def rename(before: Name, after: New, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """Gives a log another name. Its owner and readers go on."""
    info = with_logs(metadata, lambda logs: logs.rename(before, after))
    output.document(json_wanted, {"log": before, "name": info.name, "id": info.id}, f"{before} is {info.name} now")


@command(app, "quire log list", "quire log list --long --json | jq .owner", name="list")
def list_(
    long: Annotated[bool, typer.Option("--long", help="with state, owner, ends and sizes")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Lists the logs: their names, or with --long what each is like."""
    table = output.Table(json_wanted, COLUMNS if long else {"name": 0})

    async def work(logs: "Logs") -> None:
        async for name in logs.names():
            if not long:
                table.row({"name": name})
                continue
            with suppress(NoSuchLog):  # deleted since its name was read
                info = await logs.info(name)
                table.row(as_document(info) | {"partitions": info.settings.get("partitions", 0)})

    with_logs(metadata, work)
    table.end("there are no logs; `quire log create NAME` makes one")


@command(app, "quire log show orders", "quire log show orders --segments", "quire log show orders --raw | jq .doomed")
def show(
    log: Name,
    segments: Annotated[bool, typer.Option("--segments", help="with each segment, its ledger and its records")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="the manifest as it is stored, and nothing else")] = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Shows a log: state, owner, epoch, first and end index, sizes, settings, what holds it, so that it can't be trimmed,
    and what publishers wrote and have not published. Never fences.

    The end is that of the closed segments; `quire log read` reads what is behind it in an open one, too. Of a
    partitioned log there is a row for each partition.
    """
    if raw and segments:
        raise Usage("--raw and --segments exclude each other: the manifest names the segments")

    async def work(logs: "Logs") -> tuple[dict[str, Any], str]:
        if raw:
            return {}, (await logs.manifest(log)).decode(errors="replace")
        found = as_document(await logs.info(log))
        found["holds"] = [hold._asdict() for hold in await logs.holds(log)]
        found["unpublished"] = [as_waiting(each) async for each in logs.unpublished(log)]
        if parts := await described(logs, log):
            found["partitions"] = parts
        if segments:
            found["segments"] = [as_segment(segment) async for segment in logs.segments(log)]
        return found, ""

    found, text = with_logs(metadata, work)
    if raw:
        print(as_one_line(text) if json_wanted else text, flush=True)
        return
    listed = found["segments"] if segments else []
    holds = "; ".join(f"{hold['what']} needs it from index {hold['needs']} on" for hold in found["holds"])
    waiting = "; ".join(
        f"{each['parts']} parts, {each['ledgers']} ledgers of the txn {each['txn']} since {each['since']}"
        for each in found["unpublished"]
    )
    plain = found | {"segments": len(listed) if segments else found["segments"], "holds": holds or "none"}
    plain["unpublished"] = waiting or "none"
    plain["origins"] = "; ".join(map(as_origin, found["origins"])) or "none"
    parts = plain.pop("partitions", [])
    output.document(json_wanted, found if json_wanted else plain)
    if parts and not json_wanted:
        show_partitions(parts)
    if segments and not json_wanted:
        table = output.Table(False, SEGMENT_COLUMNS)
        for segment in listed:
            table.row(segment)
        table.end(f"{log} has no segments yet: nothing was appended")


@command(app, "quire log delete orders/europe --yes")
def delete(log: Name, yes: Yes = False, metadata: Metadata = None, json_wanted: Json = False) -> None:
    """
    Deletes a log, with its partitions: its name is free at once, its ledgers go with upkeep. Asks, unless --yes.
    """
    asked(yes, f"The log {log!r} will be deleted for good, with all its records.")

    async def work(logs: "Logs") -> "LogInfo":
        info = await logs.info(log)
        await logs.delete(log)
        return info

    info = with_logs(metadata, work)
    output.document(json_wanted, {"deleted": info.name, "id": info.id}, f"deleted {info.name}")


def parsed(settings: list[str]) -> dict[str, Any]:
    """KEY=VALUE words as settings."""
    found: dict[str, Any] = {}
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Usage(f"a setting is KEY=VALUE, not {word!r}")
        found[key] = value
    return found


def show_one(info: "LogInfo", json_wanted: bool) -> None:
    """A log that was made or changed: what differs from the defaults; with --json all."""
    from quire.conf.log import LogSettings

    defaults = LogSettings().model_dump()
    other = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"  # as --set takes it
        for key, value in info.settings.items()
        if value != defaults.get(key)
    ]
    settings = f"{', '.join(other)}; all else as by default" if other else "all settings as by default"
    output.document(json_wanted, as_document(info), f"{info.name}: {settings} (`quire log show {info.name}`)")


def as_waiting(each: "Unpublished") -> dict[str, Any]:
    """The parts of one publisher that are not published."""
    since = output.iso_time(each.since_ms)
    return {"txn": each.txn, "run": each.run, "parts": each.parts, "ledgers": each.ledgers, "since": since}


def as_origin(each: dict[str, Any]) -> str:
    """Says which log's records these are."""
    if each["end"] is None:
        return f"a copy of {each['name']} at {each['uri']} ({each['log']}), from index {each['start']} on"
    return f"a copy of {each['name']} at {each['uri']} ({each['log']}) up to index {each['end']}"


def as_segment(segment: "Segment") -> dict[str, Any]:
    """One segment as a row."""
    return {
        "n": segment.n,
        "ledger": segment.ledger,
        "first": segment.first,
        "at": segment.at,
        "records": segment.records,
        "bytes": segment.bytes,
        "entries": segment.entries,
        "epoch": segment.epoch,
        "txn": segment.txn,
        "batch": segment.batch,
        "part": segment.part,
        "lost": segment.lost,
        "merged": segment.merged,
        "last": None if segment.t is None else output.iso_time(segment.t[1]),
    }


def as_one_line(manifest: str) -> str:
    """`typer.Exit` when it is damaged."""
    try:
        return json.dumps(parse_json(manifest), ensure_ascii=False)
    except ValueError as error:
        raise refused(f"the manifest is no JSON ({error}); without --json it is shown as it is") from None
