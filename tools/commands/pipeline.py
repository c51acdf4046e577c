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
