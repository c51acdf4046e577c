"""RocksDB as a bookie opens it."""

from pathlib import Path

import pytest

from quire.bookie.index.rocks import open_read_only, open_rows
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0


def test_a_damaged_store_is_refused_with_the_command_that_rebuilds_it(tmp_path: Path) -> None:
    """Whether it is opened to write or to look."""
    path = str(tmp_path / "rows")
    open_rows(path).close()
    (tmp_path / "rows" / "CURRENT").write_text("nothing\n")
    for opens in (open_rows, open_read_only):
        with pytest.raises(StorageError, match=f"{path}/CURRENT at offset 0: damaged.*`quire bookie rebuild-index"):
            opens(path)
