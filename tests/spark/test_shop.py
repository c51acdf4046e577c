"""The worked example of the pipeline as its users run it: twice on one cluster, the page kept at the end."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from quire.pipeline.spark import SparkSession
from tests.manual.test_shop import AT, REASONS, SHOP, modules
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

PROGRAM = SHOP / "pipeline.py"
SAME = "logs, table and page have what plain Python counts"


def test_what_is_wrong(spark: SparkSession) -> None:
    """Spark finds the same reasons as plain Python."""
    need("matplotlib")
    rows = spark.createDataFrame(
        [(value, AT, AT) for value, _reason in REASONS], "value binary, time timestamp, stamp timestamp"
    )
    with modules() as shop:
        found = shop("pipeline").checked(spark, rows).collect()
    assert sorted((bytes(row.value), row.reason or "") for row in found) == sorted(
        (value, reason or "") for value, reason in REASONS
    )


@pytest.mark.timeout(900)
def test_what_runs_twice_counts_once(uri: str, tmp_path: Path) -> None:
    """The second run finds all done, and serves the page until SIGINT; each run has what plain Python counts."""
    need("matplotlib")
    command = [sys.executable, str(PROGRAM), "--metadata", uri, "--out", str(tmp_path), "--orders", "1500"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    assert SAME in done.stdout
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    first = json.loads((tmp_path / "sales.json").read_bytes())
    assert {row["category"] for row in first} == {"coffee", "tea", "chocolate", "equipment"}

    with subprocess.Popen([*command, "--serve"], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"(http://\S+) until Ctrl-C", line):
                with urllib.request.urlopen(f"{found[1]}sales.json", timeout=120) as answer:
                    assert json.loads(answer.read()) == first
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
    assert any("0 new records" in line for line in said)
    assert any(SAME in line for line in said)
