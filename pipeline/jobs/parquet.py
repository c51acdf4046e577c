"""
Ledgers and logs to Parquet files, and Parquet files into a log.

Knows: which columns go which way, and that a log keeps the order of what it was exported from.
Does not know: how a table is read or written.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quire.pipeline.jobs.running import watched
from quire.pipeline.spark import SparkSession

# SPDX-License-Identifier: Apache-2.0

Told = Callable[[int, int], object]
ORDERS = (("index",), ("ledger_id", "entry_id"))  # columns by which rows that were exported are in order
WRITTEN = ("key", "time", "headers", "value", "payload")


class Exported(NamedTuple):
    """Counts of what was exported; `bars`: (label, rows) for a chart."""

    rows: int
    bytes: int
    files: int
    bars: list[tuple[str, float]]


def export(spark: SparkSession, kind: str, options: dict[str, str], to: Path, overwrite: bool, told: Told) -> Exported:
    """Writes all rows of `format(kind)` as Parquet to the directory `to`; Spark's error if it is there already."""
    rows = spark.read.format(kind).options(**options).load()
    mode = "overwrite" if overwrite else "errorifexists"
    watched(spark, lambda: rows.write.mode(mode).parquet(written_as(to)), told)
    files = sorted(to.glob("*.parquet"))
    bars = watched(spark, lambda: counts(spark.read.parquet(read_as(to)), kind), lambda *_tasks: None)
    return Exported(sum(rows_of(file) for file in files), sum(map(os.path.getsize, files)), len(files), bars)


def written_as(path: Path) -> str:
    """Returns the URI that Spark writes to: Hadoop decodes no percent signs, so none are made."""
    return f"file://{path.absolute()}"


def read_as(path: Path) -> str:
    """Returns the URI that Spark reads, where it looks for patterns."""
    return re.sub(r"[]{}[*?\\]", r"\\\g<0>", written_as(path))


def rows_of(file: Path) -> int:
    """Reads the number of rows from the file's foot."""
    from pyarrow import parquet

    return int(parquet.ParquetFile(file).metadata.num_rows)


def counts(rows: Any, kind: str) -> list[tuple[str, float]]:
    """Rows by ledger, or by hour."""
    by = "cast(ledger_id as string)" if kind == "ledger" else "date_format(stamp, 'yyyy-MM-dd HH:00')"
    found = rows.selectExpr(f"{by} as label").groupBy("label").count().collect()
    return sorted((str(row["label"]), float(row["count"])) for row in found)


def import_(spark: SparkSession, source: Path, log: dict[str, str], dry_run: bool, told: Told) -> int:
    """
    The rows of the Parquet files at `source` into a log, exactly once, in the order of `index`, or of `ledger_id` and
    `entry_id`, where there are such columns: how many.  `dry_run`: only counts them.
    """
    if not source.exists():
        raise FileNotFoundError(2, "there is nothing to import", str(source))
    rows = spark.read.parquet(read_as(source))
    names = written(rows.columns)
    for order in ORDERS:
        if set(order) <= set(rows.columns):
            rows = rows.orderBy(*order)
            break
    count = int(watched(spark, rows.count, lambda *_tasks: None))
    if not dry_run:
        chosen = rows.select(*names)
        watched(spark, lambda: chosen.write.format("log").options(**log).mode("append").save(), told)
    return count


def written(columns: Sequence[str]) -> list[str]:
    """Chooses the columns that a log takes.  `ValueError` when there is no value among them."""
    found = [name for name in WRITTEN if name in columns]
    if "value" in found and "payload" in found:
        found.remove("payload")
    if not {"value", "payload"} & set(found):
        raise ValueError(f"there is no column `value` or `payload`, only {', '.join(columns)}")
    return found
