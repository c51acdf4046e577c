"""The settings of a Spark session; `tests/spark` has sessions."""

from pathlib import Path

import pytest

from quire.pipeline.session import cores, logging, settings

# SPDX-License-Identifier: Apache-2.0


def test_settings(tmp_path: Path) -> None:
    """On one machine Java starts quickly; on a cluster it is left to compile all it wants."""
    here = settings("local[2]", tmp_path)
    assert here["spark.python.unix.domain.socket.enabled"] == "true"
    assert here["spark.sql.python.filterPushdown.enabled"] == "true"
    assert "TieredStopAtLevel=1" in here["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in settings("spark://x:7077", tmp_path)["spark.driver.extraJavaOptions"]


def test_few_tasks_behind_a_shuffle(tmp_path: Path) -> None:
    """On one machine, for each makes a ledger of each batch; on a cluster it is Spark's own number."""
    name = "spark.sql.shuffle.partitions"
    assert settings("local[2]", tmp_path)[name] == settings("local[ 2, 3 ]", tmp_path)[name] == "4"
    assert int(settings("local[*]", tmp_path)[name]) == 2 * cores("local[*]") >= 2
    assert name not in settings("spark://x:7077", tmp_path)


def test_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Becomes one from the root: Java takes a URI, and may be elsewhere."""
    monkeypatch.chdir(tmp_path)
    made = settings("local[2]", Path("logs"))
    assert (
        f"-Dlog4j2.configurationFile=file://{tmp_path}/logs/log4j2.properties" in made["spark.driver.extraJavaOptions"]
    )
    assert made["spark.sql.warehouse.dir"] == f"{tmp_path}/logs/warehouse"
    assert f"fileName = {tmp_path}/logs/spark.log" in (tmp_path / "logs/log4j2.properties").read_text()


def test_sparks_messages_go_to_a_file(tmp_path: Path) -> None:
    """In a directory that is made."""
    text = logging(tmp_path / "logs").read_text()
    assert f"appender.file.fileName = {tmp_path}/logs/spark.log" in text
    assert "layout.pattern = %d{ISO8601}" in text
