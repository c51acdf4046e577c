"""
`quire messages import, export`: store directories of a RocketMQ broker, in and out.

Knows: what is told of a plan and of what was done.  Does not know: files, formats.

Safety: a source is only read; an export writes into an empty directory, or goes on in its own.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.log.naming import parsed
from quire.tools.commands.log.shared import name_of
from quire.tools.commands.messages.shared import Name, app, with_stores
from quire.tools.commands.messages.stores import Settings
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, command

if TYPE_CHECKING:
    from quire.messages.api import Plan, Report, StoreInfo, Stores

# SPDX-License-Identifier: Apache-2.0


@command(
    app,
    "quire messages import /var/rocketmq/store --into shop --dry-run",
    "quire messages import /var/rocketmq/store --into shop",
    "quire messages import n1 n2 --into fleet --group-size 3",
    name="import",
)
def import_(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="a store directory, or those of several nodes of one group")
    ],
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="the store that is made", callback=name_of)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only tell what would come in; creates nothing")] = False,
    single: Annotated[
        bool, typer.Option("--single", help="take one node of a DLedger group, acknowledged or not")
    ] = False,
    group_size: Annotated[
        int | None, typer.Option("--group-size", min=1, metavar="N", help="nodes of the DLedger group")
    ] = None,
    accept_tail: Annotated[
        bool, typer.Option("--accept-tail", help="leave out bytes behind the last valid record")
    ] = False,
    end: Annotated[
        int | None, typer.Option("--end", min=0, metavar="OFFSET", help="take only records below this offset")
    ] = None,
    commit_logs: Annotated[
        list[Path] | None,
        typer.Option("--commitlog", metavar="DIR", help="a further directory of commit-log files; may be repeated"),
    ] = None,
    address: Annotated[
        str,
        typer.Option("--address", metavar="HOST:PORT", help="store host of new records; of the last one if not given"),
    ] = "",
    settings: Settings = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies the store directory of a stopped RocketMQ broker into a new message store: plain, DLedger, or upgraded.

    The directory is only read. A run that was cut off goes on when the same command is given again; quire messages
    delete gives it up.
    """
    if single and group_size is not None:
        raise Usage("--single and --group-size exclude each other")
    chosen = parsed(settings or [])

    async def work(stores: "Stores") -> "tuple[Plan, StoreInfo | None]":
        with output.ProgressBar("reading", None, "bytes") as progress:
            plan = await stores.plan(
                [str(each) for each in directories],
                commit_logs=[str(each) for each in commit_logs or []],
                group_size=group_size,
                single=single,
                accept_tail=accept_tail,
                end=end,
                in_use=dry_run,
                told=Advancing(progress),
            )
        if dry_run:
            return plan, None
        for line in plan.reports:
            output.note(f"quire: {line}")
        with output.ProgressBar(into, plan.value_bytes, "bytes") as progress:
            return plan, await stores.carry_out(plan, into, address=address, settings=chosen, told=Advancing(progress))

    plan, info = with_stores(metadata, work)
    if info is None:
        output.document(json_wanted, plan.as_json(), plan_lines(plan))
        return
    found = {"store": into, "records": plan.records, "bytes": plan.value_bytes, "begin": plan.begin, "end": plan.end}
    text = f"{into}: {plan.records} records, {plan.value_bytes} bytes, offsets {plan.begin} to {plan.end}"
    if any(region.rule == "dledger" for region in plan.regions):
        output.note(
            "quire: a store with DLedger records that takes new messages can't be exported any more, for their 48-byte"
            " headers leave gaps"
        )
    output.document(json_wanted, found, text)


@command(
    app,
    "quire messages export shop /var/rocketmq/back",
    "quire messages export shop /var/rocketmq/tail --from 65536",
)
def export(
    store: Name,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="an empty directory, or one to be made")],
    start: Annotated[
        int | None, typer.Option("--from", min=0, metavar="OFFSET", help="the first file's offset; a multiple of F")
    ] = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Writes a directory that an unmodified RocketMQ broker starts on, and prints the lines that its broker.conf needs.

    A run that was cut off goes on when the same command is given again.
    """

    async def work(stores: "Stores") -> "Report":
        with output.ProgressBar(store, None, "bytes") as progress:
            return await stores.export(store, str(directory), start=start, told=Advancing(progress))

    report = with_stores(metadata, work)
    for text in report.as_found:
        output.note(f"quire: {text}: it was left as it was found")
    for topic, queue, position in report.unkept:
        output.note(f"quire: a broker will not go on at position {position} of queue {queue} of {topic!r}")
    found = {
        "store": store,
        "directory": str(directory),
        "begin": report.begin,
        "end": report.end,
        "files": report.files,
        "records": report.records,
        "settings": report.settings,
    }
    head = f"{store}: offsets {report.begin} to {report.end} in {directory}; its first start scans all of it"
    output.document(json_wanted, found, [head, "lines for broker.conf:", *report.settings])


class Advancing:
    """Moves a bar to what is done."""

    def __init__(self, progress: output.ProgressBar) -> None:
        self._progress = progress
        self._done = 0

    def __call__(self, done: int, _total: int) -> None:
        self._progress.advance(done - self._done)
        self._done = done


def plan_lines(plan: "Plan") -> list[str]:
    """A plan for people."""
    regions = ", ".join(f"{each.rule} from {each.begin}" for each in plan.regions)
    lines = [
        f"{plan.kind}{'' if plan.source.is_clean else ', not stopped cleanly'}: {plan.records} records in"
        f" {len(plan.files)} files of {plan.file_bytes} bytes",
        f"offsets {plan.begin} to {plan.end} ({regions})",
    ]
    topics: dict[str, Any] = plan.topics
    lines += [f"{name}: {count} records, {size} bytes" for name, (count, size) in sorted(topics.items())]
    lines.append(f"{len(plan.queues)} queues, {len(plan.offsets)} consumer offsets, {len(plan.documents)} documents")
    if plan.torn is not None:
        lines.append(f"bytes from {plan.torn} on are no record and are left out")
    return [*lines, *plan.reports]
