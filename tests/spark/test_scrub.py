"""`quire pipeline scrub`, `report` and `repair`, by the command and by `spark-submit`."""

import json
import os
import subprocess
import sys
from pathlib import Path

from quire.pipeline.clients import Cluster
from tests.pipeline.jobs.faults import faulty
from tests.tools.command import ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]
MASTER = ("--master", "local[2]")


def test_scrub_repair_scrub(ours: Cluster, tmp_path: Path) -> None:
    """Faults are found, shown, counted by a dry run, made good, and not found again."""
    bookies = sorted(ours.wait(ours.client.store.bookies).writable)[:3]
    ledger, expected = faulty(ours, bookies, 5000)
    chart, to = tmp_path / "chart.html", tmp_path / "found"
    given = ("pipeline", "scrub", to, "--ledgers", ledger, "--chart", chart, *MASTER)
    said = quire(*given, "--json", metadata=ours.uri)
    assert said.code == 1
    assert said.document["findings"] == len(expected)
    assert f"quire: {len(expected)} findings" in said.err
    assert "<rect" in chart.read_text()
    report = ok("pipeline", "report", to, "--json", metadata=ours.uri).document
    assert report["kinds"] == {"damaged": 1, "differs": 1, "head": 1, "missing": 2, "stale": 1}
    assert (report["copies"], report["copies_wrong"]) == (15_000, 105)
    assert "--overwrite" in refused(1, *given, metadata=ours.uri)
    mend = ("pipeline", "repair", to, "--json", *MASTER)
    assert ok(*mend, "--dry-run", metadata=ours.uri).document["entries"] == 105
    done = ok(*mend, metadata=ours.uri).document
    assert (done["ledgers"], done["entries"], done["left"]) == ([ledger], 105, [])
    again = ok("pipeline", "scrub", to, "--overwrite", "--ledgers", ledger, "--json", *MASTER, metadata=ours.uri)
    assert again.document["findings"] == 0


def test_submitted(ours: Cluster, tmp_path: Path) -> None:
    """The same command as a job of `spark-submit`."""
    bookies = sorted(ours.wait(ours.client.store.bookies).writable)[:3]
    ledger, expected = faulty(ours, bookies, 300)
    submit = str(Path(sys.executable).parent / "spark-submit")
    program = ROOT / "tools" / "__main__.py"
    command = [submit, "--master", "local[2]", str(program), "pipeline", "scrub", str(tmp_path / "found")]
    done = subprocess.run(
        [*command, "--ledgers", str(ledger), "--json"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "QUIRE_METADATA": ours.uri,
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    (document,) = [line for line in done.stdout.splitlines() if line.startswith("{")]  # its messages are there, too
    assert json.loads(document)["findings"] == len(expected)
