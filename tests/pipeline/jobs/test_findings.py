"""Findings as a table: what is written is read again, and what a summary counts."""

from pathlib import Path

import pytest
from pyarrow import parquet

from quire.pipeline.jobs.findings import read, refuse, summed, write
from quire.replication.scrub.judge import Finding

# SPDX-License-Identifier: Apache-2.0

FOUND = [
    Finding(9, 0, 1, "b1", 5, 9, 5, "missing", -13, "not stored there"),
    Finding(2, 0, -1, "", -1, -1, 0, "metadata", 0, "can't be"),
    Finding(2, 0, 0, "b0", 3, 3, 1, "misplaced", -7, "no such ledger there; b4 has it", "b4"),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """In the order of ledgers; any reader of Parquet sees rows with names."""
    done = summed("full", 10, 300, 4096, FOUND)
    write(tmp_path / "a" / "b", done)
    assert read(tmp_path / "a" / "b") == done
    assert [each.ledger for each in done.findings] == [2, 2, 9]
    assert (done.summary.findings, done.summary.ledgers_wrong, done.summary.copies_wrong) == (3, 2, 6)
    assert done.by_kind() == {"metadata": 1, "misplaced": 1, "missing": 1}
    assert done.by_bookie() == {"b0": 1, "b1": 5}
    row = parquet.read_table(tmp_path / "a" / "b" / "findings.parquet").to_pylist()[2]
    assert (row["bookie"], row["kind"], row["first"], row["last"], row["code"]) == ("b1", "missing", 5, 9, -13)


def test_columns_of_a_newer_version(tmp_path: Path) -> None:
    """Are passed over; one that an older version did not write has its default."""
    done = summed("full", 10, 300, 4096, FOUND[:2])
    write(tmp_path, done)
    for file in tmp_path.iterdir():
        table = parquet.read_table(file)
        parquet.write_table(table.append_column("more", [[1] * table.num_rows]), file)
    assert read(tmp_path) == done
    findings = tmp_path / "findings.parquet"
    parquet.write_table(parquet.read_table(findings).drop_columns("holder"), findings)
    assert read(tmp_path) == done


def test_no_findings_are_a_table_too(tmp_path: Path) -> None:
    """With its columns."""
    done = summed("presence", 10, 300, 0, [])
    write(tmp_path, done)
    assert read(tmp_path) == done
    assert "detail" in parquet.read_schema(tmp_path / "findings.parquet").names


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    """Unless it may be replaced; a directory without findings says what makes some."""
    with pytest.raises(FileNotFoundError, match="quire pipeline scrub"):
        read(tmp_path)
    refuse(tmp_path, overwrite=False)
    write(tmp_path, summed("full", 1, 1, 1, []))
    refuse(tmp_path, overwrite=True)
    with pytest.raises(FileExistsError, match="--overwrite"):
        refuse(tmp_path, overwrite=False)
