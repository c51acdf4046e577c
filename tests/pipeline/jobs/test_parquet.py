"""What an import takes of a file; `tests/spark/test_jobs.py` has exports and imports."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from quire.pipeline.jobs.parquet import read_as, rows_of, written, written_as

# SPDX-License-Identifier: Apache-2.0


def test_columns() -> None:
    """Those that a log takes; of two values the one that is named so."""
    assert written(["index", "stamp", "key", "value"]) == ["key", "value"]
    assert written(["ledger_id", "entry_id", "payload"]) == ["payload"]
    assert written(["payload", "value"]) == ["value"]
    with pytest.raises(ValueError, match="no column `value` or `payload`, only key, colour"):
        written(["key", "colour"])


def test_names_of_directories() -> None:
    """Hadoop decodes no percent signs, and takes what it reads for a pattern; `tests/spark/test_jobs.py` asks it."""
    assert written_as(Path("/a b/50%/ü*")) == "file:///a b/50%/ü*"
    assert read_as(Path("/a b/50%/ü*")) == "file:///a b/50%/ü\\*"
    assert read_as(Path("/{a,b}[c]?\\")) == "file:///\\{a,b\\}\\[c\\]\\?\\\\"


def test_rows_of_a_file(tmp_path: Path) -> None:
    """As its foot says."""
    parquet.write_table(pa.table({"value": [b"a", b"b", b"c"]}), tmp_path / "x.parquet")
    assert rows_of(tmp_path / "x.parquet") == 3
