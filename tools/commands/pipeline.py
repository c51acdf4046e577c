"""
`quire pipeline`: Spark jobs over ledgers and logs.

Knows: options, progress, what is printed.  Does not know: Spark; `quire.pipeline.jobs` does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, Usage, group, metadata_uri, refused

if TYPE_CHECKING:
    from quire.pipeline.offload.wishes import Done
    from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

app = group(
    "Spark jobs over ledgers and logs; need the extra `pipeline`.",
    "quire pipeline export /backup/orders --log orders --master 'local[4]'",
)
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="where Spark runs; by default all cores of this machine")
]
Chart = Annotated[Path | None, typer.Option("--chart", metavar="FILE", help="a page (HTML) with a chart of the result")]

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """Of an age: `90s`, `10m`, `4h`, `7d`."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS_S or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is no age: write 90s, 10m, 4h or 7d")
    return float(number) * UNITS_S[unit]


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], object]]:
    """What hears of tasks: (done, known)."""
    with output.Progress(title, None, "tasks") as bar:

        def told(done: int, known: int) -> None:
            bar.total = known
            bar.advance(done - bar.done)

        yield told


@contextmanager
def session(master: str | None) -> Iterator["SparkSession"]:
    """A Spark session for one command."""
    from quire.pipeline import session as begin
    from quire.pipeline.java import JavaMissing

    try:
        spark = begin(master)
    except (ImportError, JavaMissing) as error:
        raise refused(str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


@app.command()
def export(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="the directory for the files; must not be there yet")],
    log: Annotated[str | None, typer.Option("--log", metavar="NAME", help="a named log")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replaces the directory")] = False,
    metadata: Metadata = None,
    master: Master = None,
    chart: Chart = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies a log, or ledgers, to Parquet files.  Ledgers that are still written are read up to the last add confirmed.

    \b
    Example:
      quire pipeline export /backup/orders --log orders --chart orders.html
    """
    if (log is None) == (ledgers is None):
        raise Usage("name what is exported: either --log NAME or --ledgers IDS")
    kind, what = ("log", {"log": log}) if log is not None else ("ledger", {"ledgers": ledgers})
    options = {"metadata": metadata_uri(metadata), **{name: str(value) for name, value in what.items()}}
    with session(master) as spark, progress("export") as told:
        from quire.pipeline.jobs import chart as charts
        from quire.pipeline.jobs import parquet

        done = parquet.export(spark, kind, options, to, overwrite, told)
    if chart is not None:
        facts = [("rows", f"{done.rows:,}"), ("bytes", f"{done.bytes:,}"), ("files", str(done.files))]
        chart.write_text(charts.page(f"{log or f'ledgers {ledgers}'}: rows", done.bars, "rows", facts))
    output.document(
        json_wanted,
        {"rows": done.rows, "bytes": done.bytes, "files": done.files, "directory": str(to)},
        f"{done.rows:,} rows, {output.size_text(done.bytes)} in {done.files} files in {to}",
    )


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="Parquet files, as `export` writes them")],
    log: Annotated[str, typer.Option("--log", metavar="NAME", help="the log that they are appended to")],
    create: Annotated[bool, typer.Option("--create", help="makes the log if it is not there")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only counts the rows")] = False,
    metadata: Metadata = None,
    master: Master = None,
    json_wanted: Json = False,
) -> None:
    """
    Appends the rows of Parquet files to a log: all of them become visible in one step, or none.  Of what was exported
    the order is kept.

    \b
    Example:
      quire pipeline import /backup/orders --log orders-again --create
    """
    options = {"metadata": metadata_uri(metadata), "log": log, "create": str(create)}
    with session(master) as spark, progress("import") as told:
        from quire.pipeline.jobs import parquet

        rows = parquet.import_(spark, source, options, dry_run, told)
    output.document(
        json_wanted,
        {"rows": rows, "log": log, "appended": not dry_run},
        f"{rows:,} rows {'would be ' if dry_run else ''}appended to the log {log!r}",
    )


@app.command()
def offload(
    to: Annotated[
        str,
        typer.Option("--to", metavar="URI", help="where copies go: a directory, s3://bucket/path, gs://…, hdfs://…"),
    ],
    log: Annotated[str | None, typer.Option("--log", metavar="NAME", help="the closed segments of a named log")] = None,
    ledgers: Annotated[str | None, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")] = None,
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="AGE", parser=seconds, help="only older ones: 90s, 10m, 4h, 7d")
    ] = "0s",  # type: ignore[assignment]  # typer gives it to the parser
    delete: Annotated[
        bool, typer.Option("--delete", help="bookies lose what an earlier run offloaded, once it is verified again")
    ] = False,
    deletion_lag: Annotated[
        float, typer.Option("--deletion-lag", metavar="AGE", parser=seconds, help="so long after it was offloaded")
    ] = "4h",  # type: ignore[assignment]  # typer gives it to the parser
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only says what would be done")] = False,
    metadata: Metadata = None,
    master: Master = None,
    json_wanted: Json = False,
) -> None:
    """
    Copies closed ledgers, or the closed segments of a log, to Parquet files, reads them back, and marks them.  With
    --delete a later run takes from the bookies what was offloaded longer ago than the lag.  It may be run again at any
    time, also after one that was killed.

    \b
    Examples:
      quire pipeline offload --log orders --to s3://cold/ledgers --older-than 7d
      quire pipeline offload --log orders --to s3://cold/ledgers --older-than 7d --delete
      quire pipeline offload --ledgers all --to /backup/ledgers --delete --dry-run
    """
    from quire.pipeline.offload.wishes import Wish

    if (log is None) == (ledgers is None):
        raise Usage("name what is offloaded: either --log NAME or --ledgers IDS")
    wish = Wish(metadata_uri(metadata), to, ledgers, log, older_than, delete, deletion_lag, dry_run)
    with session(master) as spark, progress("offload") as told:
        from quire.pipeline.jobs import offload as job

        done = job.offload(spark, wish, told)
    would = "would be " if dry_run else ""
    say(done, "offloaded", json_wanted, [f"{len(done.deleted):,} ledgers {would}deleted from bookies"], would)


@app.command()
def restore(
    source: Annotated[str, typer.Argument(metavar="URI", help="where `offload` put the copies")],
    ledgers: Annotated[str, typer.Option("--ledgers", metavar="IDS", help="`7,9-20`, or `all`")],
    metadata: Metadata = None,
    master: Master = None,
    json_wanted: Json = False,
) -> None:
    """
    Brings offloaded ledgers back to bookies, with their numbers and each entry bit for bit, also in another cluster.
    Ledgers that are there are left alone, and those of logs: their logs read the copies.  The copies stay.

    \b
    Example:
      quire pipeline restore /backup/ledgers --ledgers 7,9-20
    """
    with session(master) as spark, progress("restore") as told:
        from quire.pipeline.jobs import offload as job

        done = job.restore(spark, metadata_uri(metadata), source, ledgers, told)
    say(done, "restored", json_wanted, [], "")


def say(done: "Done", verb: str, json_wanted: bool, more: list[str], would: str) -> None:
    """A summary; exit status 1 when there were problems."""
    size = output.size_text(done.bytes)
    lines = [f"{len(done.offloaded):,} ledgers {would}{verb}: {done.entries:,} entries, {size}", *more]
    if done.waiting:
        lines.append(f"{len(done.waiting):,} offloaded ledgers are on bookies, too")
    lines += [f"{count:,} left alone: {why}" for why, count in done.left.items()]
    for problem in done.problems:
        output.note(f"ledger {problem.ledger}: {problem.what}")
    facts = {
        verb: done.offloaded,
        "entries": done.entries,
        "bytes": done.bytes,
        "deleted": done.deleted,
        "waiting": done.waiting,
        "left": done.left,
        "problems": [problem._asdict() for problem in done.problems],
    }
    output.document(json_wanted, facts, lines)
    if done.problems:
        raise typer.Exit(1)
