"""What several tests of commands work on."""

from pathlib import Path

import pytest

from tests.bookie.fakes.apache_files import Here, unpack

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The configuration of a bookie that Apache left killed and that quire took over and stopped."""
    root = unpack("rocksdb_bookie0_killed", tmp_path)
    Here(root).close()
    path = tmp_path / "bookie.conf"
    keys = {
        "metadataServiceUri": f"sqlite://{tmp_path}/metadata.db",
        "journalDirectories": root / "journal",
        "ledgerDirectories": root / "ledgers",
        "indexDirectories": root / "index",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path
