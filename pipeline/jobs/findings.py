"""
The findings of a scrub as a table: `findings.parquet`, a row for each finding, and `summary.parquet`, one row.

Knows: columns and files, what a summary counts.  Does not know: how anything was found.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import parquet

from quire.replication.scrub.judge import Finding

# SPDX-License-Identifier: Apache-2.0

FINDINGS, SUMMARY = "findings.parquet", "summary.parquet"
TYPES = {int: pa.int64(), str: pa.string(), float: pa.float64()}


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of what a scrub looked at, and what was wrong.   `copies`: entries times bookies."""

    level: str
    ledgers: int
    copies: int
    bytes: int
    findings: int
    ledgers_wrong: int
    copies_wrong: int


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A summary, and what it sums up."""

    summary: Summary
    findings: list[Finding]

    def by_kind(self) -> dict[str, int]:
        """Counts the findings of each kind."""
        return dict(sorted(Counter(each.kind for each in self.findings).items()))

    def by_bookie(self) -> dict[str, int]:
        """Counts the wrong copies of each bookie; only those that have any."""
        found: Counter[str] = Counter()
        for each in self.findings:
            if each.bookie:
                found[each.bookie] += each.entries
        return dict(sorted(found.items()))


Row = TypeVar("Row", Summary, Finding)


def summed(level: str, ledgers: int, copies: int, size: int, findings: Sequence[Finding]) -> Scrubbed:
    """Sums up findings, in the order of ledgers and entries."""
    found = sorted(findings, key=lambda each: (each.ledger, each.first, each.index, each.kind, each.bookie))
    wrong = len({each.ledger for each in found}), sum(each.entries for each in found)
    return Scrubbed(Summary(level, ledgers, copies, size, len(found), *wrong), found)


def refuse(to: Path, overwrite: bool) -> None:
    """`FileExistsError` for a directory that has findings, unless `overwrite`."""
    if (to / FINDINGS).exists() and not overwrite:
        raise FileExistsError(17, "findings are there already: name another directory, or give --overwrite", str(to))


def write(to: Path, done: Scrubbed) -> None:
    """Writes findings into a directory, which is made."""
    to.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table(Finding, done.findings), to / FINDINGS)
    parquet.write_table(table(Summary, [done.summary]), to / SUMMARY)


def read(source: Path) -> Scrubbed:
    """`FileNotFoundError` where there are none.  Columns that a newer version has are passed over."""
    if not (source / FINDINGS).exists() or not (source / SUMMARY).exists():
        raise FileNotFoundError(2, "there are no findings: `quire pipeline scrub` writes some", str(source))
    (summary,) = rows(Summary, source / SUMMARY)
    return Scrubbed(summary, rows(Finding, source / FINDINGS))


def rows(kind: type[Row], path: Path) -> list[Row]:
    """Reads rows as dataclass values."""
    table = parquet.read_table(path)
    known = [field.name for field in fields(kind) if field.name in table.column_names]
    return [kind(**row) for row in table.select(known).to_pylist()]


def table(kind: type, rows: Sequence[Any]) -> Any:
    """Makes a table of dataclass values."""
    schema = pa.schema([pa.field(field.name, TYPES[field.type]) for field in fields(kind)])  # type: ignore[index]  # no text
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema)
