"""The wheel as users install it: Spark finds the sources by itself."""

import subprocess
import sys
from pathlib import Path

from quire.pipeline.clients import Cluster
from tests.pipeline.written import ledger, log
from tests.spark.installed import installed

# SPDX-License-Identifier: Apache-2.0

PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
_, uri, ledger, log, files = sys.argv
print("ledger", spark.read.format("ledger").options(metadata=uri, ledgers=ledger).load().count())
print("log", spark.read.format("log").options(metadata=uri, log=log).load().count())
print("files", spark.read.format("bookiefiles").load(files).count())
"""


def test_sources_are_found(ours: Cluster, tmp_path: Path) -> None:
    """In a session that knows nothing of this package."""
    files = tmp_path / "files" / "0.log"
    files.parent.mkdir()
    files.write_bytes(b"BKLO".ljust(1024, b"\0"))
    words = [ours.uri, str(ledger(ours, [b"a", b"b"])), log(ours, [b"c"]), str(files)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=installed(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["ledger", "2", "log", "1", "files", "0"], done.stderr[-3000:]
