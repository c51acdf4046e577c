"""The settings of a Spark session; `tests/spark` has sessions."""

from pathlib import Path

from quire.pipeline.session import logging, settings

# SPDX-License-Identifier: Apache-2.0


def test_settings(tmp_path: Path) -> None:
    """On one machine Java starts quickly; on a cluster it is left to compile all it wants."""
    here = settings("local[2]", tmp_path)
    assert here["spark.python.unix.domain.socket.enabled"] == "true"
    assert here["spark.sql.python.filterPushdown.enabled"] == "true"
    assert "TieredStopAtLevel=1" in here["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in settings("spark://x:7077", tmp_path)["spark.driver.extraJavaOptions"]


def test_sparks_messages_go_to_a_file(tmp_path: Path) -> None:
    """In a directory that is made."""
    text = logging(tmp_path / "logs").read_text()
    assert f"appender.file.fileName = {tmp_path}/logs/spark.log" in text
    assert "layout.pattern = %d{ISO8601}" in text
