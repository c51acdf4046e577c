"""`quire pipeline export` and `import`, by the command."""

from pathlib import Path

from quire.pipeline.clients import Cluster
from quire.pipeline.jobs.running import watched
from quire.pipeline.spark import SparkSession
from tests.metrics.test_job_file import read
from tests.pipeline.written import NAMES, ledger, log, values_of
from tests.tools.command import ok, quire

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"%d" % number for number in range(3000)]
MASTER = ("--master", "local[2]")
ODD = "50% of {a,b} [c]* bücher?#"  # a folder's name, none of which is a pattern or an escape


def test_a_log_goes_out_and_comes_back(ours: Cluster, tmp_path: Path) -> None:
    """In its order, keys included; a dry run appends nothing; a directory that is there is refused."""
    keys = [b"k%d" % number for number in range(3000)]
    source, sink = log(ours, VALUES, 700, keys=keys), next(NAMES)
    chart, metrics = tmp_path / "chart.html", tmp_path / "orders.prom"
    given = ("pipeline", "export", tmp_path / ODD, "--log", source, "--chart", chart, "--metrics", metrics, *MASTER)
    done = ok(*given, "--json", metadata=ours.uri)
    assert done.document["rows"] == 3000
    assert done.document["bytes"] > 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [ODD, "chart.html", "orders.prom"]
    assert "<rect" in chart.read_text()
    assert read(metrics)["quire_pipeline_rows"] == (3000.0, {"command": "export", "of": source})
    assert "export: " in done.err
    again = quire(*given, metadata=ours.uri)
    assert (again.code, again.raw) == (1, b"")
    assert "--overwrite" in again.err.splitlines()[-1]
    # A header without a frame was seen, of a process of Spark's, it seems, that was ended while it began.
    assert "Traceback (most recent call last):\n  " not in again.err, again.err
    given = ("pipeline", "import", tmp_path / ODD, "--log", sink, "--create", *MASTER)
    assert "3,000 rows would be appended" in ok(*given, "--dry-run", metadata=ours.uri).out
    assert ok(*given, "--json", metadata=ours.uri).document == {"rows": 3000, "log": sink, "appended": True}
    assert values_of(ours, sink) == VALUES


def test_ledgers_become_a_log(ours: Cluster, tmp_path: Path) -> None:
    """In the order of their numbers."""
    one, two, sink = ledger(ours, VALUES), ledger(ours, VALUES[:7], close=False), next(NAMES)
    ok("pipeline", "export", tmp_path / ODD, "--ledgers", f"{two},{one}", *MASTER, metadata=ours.uri)
    ok("pipeline", "import", tmp_path / ODD, "--log", sink, "--create", *MASTER, metadata=ours.uri)
    assert values_of(ours, sink) == VALUES + VALUES[:7]


def test_progress(spark: SparkSession) -> None:
    """Counts the tasks of the work, at its end all of them; what the work raises goes on."""
    heard: list[tuple[int, int]] = []
    rows = spark.range(100, numPartitions=7)
    assert watched(spark, rows.rdd.count, lambda *tasks: heard.append(tasks)) == 100
    assert heard[-1][0] == heard[-1][1] >= 7
