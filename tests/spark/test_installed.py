"""The wheel as users install it: Spark finds the sources by itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from quire.pipeline.clients import Cluster
from tests.pipeline.written import ledger, log

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
_, uri, ledger, log = sys.argv
print("ledger", spark.read.format("ledger").options(metadata=uri, ledgers=ledger).load().count())
print("log", spark.read.format("log").options(metadata=uri, log=log).load().count())
print("files", spark.read.format("bookiefiles").load("tests/vectors").count())
"""


def test_sources_are_found(ours: Cluster, tmp_path: Path) -> None:
    """In a session that knows nothing of this package."""
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "tests", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(tmp_path / "site"), str(source)], check=True, capture_output=True)
    assert {"pyspark_ledger", "pyspark_log", "pyspark_bookiefiles", "quire"} <= set(os.listdir(tmp_path / "site"))
    files = tmp_path / "files" / "0.log"
    files.parent.mkdir()
    files.write_bytes(b"BKLO".ljust(1024, b"\0"))
    program = PROGRAM.replace("tests/vectors", str(files))
    done = subprocess.run(
        [sys.executable, "-c", program, ours.uri, str(ledger(ours, [b"a", b"b"])), log(ours, [b"c"])],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path / "site"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["ledger", "2", "log", "1", "files", "0"], done.stderr[-3000:]
