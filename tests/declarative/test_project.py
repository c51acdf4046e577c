"""The example of Spark's Declarative Pipelines, run as its users run it: twice, with more records in between."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from quire.pipeline.clients import Cluster, cluster
from quire.tools.local_cluster.cluster import LocalCluster
from tests.pipeline.written import values_of
from tests.spark.installed import ROOT, installed
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

PROJECT = ROOT / "docs" / "examples" / "declarative"
VALUES = [b"%d" % number for number in range(240)]
KEYS = [b"k%d" % (number % 3) for number in range(240)]


def appended(ours: Cluster, first: int, end: int) -> None:
    async def story() -> None:
        owner = await ours.logs.own("history")
        await owner.append_many(VALUES[first:end], keys=KEYS[first:end])
        await owner.close()

    ours.wait(story)


def project(place: Path) -> Path:
    """A copy, with the streams' own storage beside it."""
    made = place / "project"
    shutil.copytree(PROJECT, made)
    settings = made / "spark-pipeline.yml"
    text = settings.read_text()
    assert "file:///tmp/quire-declarative" in text
    settings.write_text(text.replace("file:///tmp/quire-declarative", (place / "storage").as_uri()))
    return made


def test_each_run_brings_all_up_to_date(tmp_path: Path) -> None:
    """The table, the report and the other log have each record once."""
    with LocalCluster(tmp_path / "cluster", 3, "zookeeper", SMALL) as bookies:
        ours, made = cluster(bookies.uri), project(tmp_path)
        environment = {**installed(tmp_path), "SPARK_CONF_DIR": str(made), "QUIRE_METADATA": bookies.uri}
        ours.wait(lambda: ours.logs.create("history", roll_records=50))
        for first, end in ((0, 120), (120, 240)):
            appended(ours, first, end)
            command = [str(Path(sys.executable).parent / "spark-pipelines"), "run"]
            done = subprocess.run(
                command, cwd=made, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert sorted(values_of(ours, "history again")) == sorted(VALUES[:end])
            table = pq.read_table(made / "spark-warehouse" / "history")
            assert sorted(table["index"].to_pylist()) == list(range(end))
            report = pq.read_table(made / "spark-warehouse" / "by_key").to_pylist()
            assert {row["key"]: row["records"] for row in report} == dict.fromkeys(("k0", "k1", "k2"), end // 3)
