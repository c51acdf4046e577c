"""
One job of Spark as a command begins it: its session, its progress, a file with its figures.

Knows: how tasks are shown, that the figures are written however the job ends.
Does not know: what the job does.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.metadata.clock import time_of_day
from quire.metrics import job_file
from quire.tools.terminal import output
from quire.tools.terminal.options import refused

if TYPE_CHECKING:
    from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0


def metrics_file(path: Path | None) -> Path | None:
    """A file that node_exporter will read.  `typer.BadParameter` for one that it will not."""
    if path is not None and path.suffix != job_file.ENDING:
        raise typer.BadParameter(f"'{path}' would not be read: name a file that ends in {job_file.ENDING}")
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no directory '{path.parent}': make it, or name another")
    return path


Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="where Spark runs; by default all cores of this machine")
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        callback=metrics_file,
        help="gets the job's figures for Prometheus; a name that ends in .prom, in the directory of node_exporter's "
        "textfile collector",
    ),
]


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], object]]:
    """Shows tasks; the function that it yields hears of them: (done, known)."""
    with output.ProgressBar(title, None, "tasks") as bar:

        def told(done: int, known: int) -> None:
            bar.total = known
            bar.advance(done - bar.done)

        yield told


@contextmanager
def session(master: str | None) -> Iterator["SparkSession"]:
    """A Spark session for one command."""
    from quire.pipeline import session as begin
    from quire.pipeline.session import JavaMissing

    try:
        spark = begin(master)
    except (ImportError, JavaMissing) as error:
        raise refused(str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


@dataclass
class Work:
    """One command's Spark session; `told` hears of its tasks, `figures` are what it has done."""

    spark: "SparkSession"
    told: Callable[[int, int], object]
    figures: dict[str, float] = field(default_factory=dict)


@contextmanager
def work(command: str, of: str, master: str | None, metrics: Path | None) -> Iterator[Work]:
    """A Spark session and progress for one command; its figures go to `metrics`, however it ends."""
    began, done = time.monotonic(), None
    try:
        with session(master) as spark, progress(command) as told:
            given = Work(spark, told)
            yield given
        done = given.figures
    finally:
        if metrics is not None:
            job_file.write(metrics, command, of, done, time.monotonic() - began, time_of_day())
