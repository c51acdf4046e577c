"""How a command begins a job of Spark, as far as it goes without Spark; `tests/spark` has the rest."""

import sys
from pathlib import Path

import pytest
import typer

from quire.tools.terminal.jobs import work
from tests.metrics.test_job_file import read
from tests.tools.command import refused

# SPDX-License-Identifier: Apache-2.0


def test_a_job_that_could_not_begin_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file says so: what ran yesterday is not what it shows."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for loaded in [name for name in sys.modules if name.startswith("quire.pipeline")]:
        monkeypatch.delitem(sys.modules, loaded)
    path = tmp_path / "orders.prom"
    with pytest.raises(typer.Exit), work("export", "orders", None, path):
        raise AssertionError("it began")
    assert read(path)["quire_pipeline_succeeded"] == (0.0, {"command": "export", "of": "orders"})


def test_a_file_that_nobody_would_read_is_refused(tmp_path: Path) -> None:
    """Before Spark is started: another ending, no directory."""
    for path, why in ((tmp_path / "orders.txt", "ends in .prom"), (tmp_path / "gone" / "orders.prom", "no directory")):
        error = refused(2, "pipeline", "export", tmp_path / "x", "--log", "orders", "--metrics", path)
        assert why in " ".join(error.replace("│", " ").split())
