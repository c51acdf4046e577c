"""
`quire log merge`: runs of small segments become large ones; and what `quire pipeline merge` says of the same.

Knows: what an operator is shown.  Does not know: which segments, and how.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from quire.tools.commands.log.shared import Name, app, with_logs
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command

if TYPE_CHECKING:
    from quire.log.api import Logs, Merging

# SPDX-License-Identifier: Apache-2.0

ToBytes = Annotated[
    int | None,
    typer.Option(
        "--to-bytes", min=1, metavar="BYTES", help="size to merge to; by default the log's merge_bytes, or roll_bytes"
    ),
]
RunMin = Annotated[int, typer.Option("--run", min=2, metavar="N", help="segments that are worth it, at least")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only says what would be merged")]
LEFT_TOLD_MAX = 20


@command(app, "quire log merge orders --dry-run", "quire log merge orders --to-bytes 67108864 --rate 50000000")
def merge(
    log: Name,
    to_bytes: ToBytes = None,
    run_min: RunMin = 8,
    at_once: Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="runs merged at the same time")] = 2,
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=1, metavar="BYTES", help="written in a second, at most; any if not given"),
    ] = None,
    dry_run: DryRun = False,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """
    Writes runs of small closed segments again as large ones, with the same records at the same indexes; the small ones
    go. Readers, cursors, publishers and owners go on. May be run at any time, also again after it was killed. With the
    setting `merge_bytes` upkeep does it by itself; `quire pipeline merge` does it in the tasks of a Spark job.
    """

    async def work(logs: "Logs") -> "Merging":
        from quire.log.api import Merging

        done = Merging()
        for each in await logs.partitions(log):
            merges, limits = await logs.merging(each, to_bytes, run_min, rate or -1)
            if dry_run:
                await merges.plan(limits, done)
                continue
            with output.ProgressBar(f"merge {each}", None, "runs") as bar:

                def told(done: "Merging", bar: output.ProgressBar = bar) -> None:
                    bar.total = len(done.planned)
                    bar.advance(len(done.merged) + len(done.left) - bar.done)

                await merges.run(limits, at_once, told, done)
        return done

    say(log, with_logs(metadata, work), dry_run, json_wanted)


def say(log: str, done: "Merging", dry_run: bool, json_wanted: bool) -> None:
    """A summary; exit status 1 when runs were left."""
    runs = done.planned if dry_run else [each.run for each in done.merged]
    segments, size = sum(each.segments for each in runs), sum(each.bytes for each in runs)
    records = sum(each.records for each in runs)
    found = {"log": log, "dry_run": dry_run, "segments": segments, "into": len(runs), "records": records, "bytes": size}
    found |= {"runs": [each._asdict() for each in runs], "left": done.left}
    would = "would become" if dry_run else "became"
    text = f"{segments:,} segments {would} {len(runs):,}: {records:,} records, {output.size_text(size)}"
    if not runs and not done.left:
        text = "no run of small segments is long enough: nothing to merge"
    output.document(json_wanted, found, f"{log}: {text}")
    for why in done.left[:LEFT_TOLD_MAX]:
        output.note(f"quire: {why}")
    if done.left:
        raise typer.Exit(1)
