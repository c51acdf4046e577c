"""The file with the figures of a job, as Prometheus' parser reads it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire.metrics import job_file

# SPDX-License-Identifier: Apache-2.0


def read(path: Path) -> dict[str, tuple[float, dict[str, str]]]:
    """Each sample's value and labels by its name."""
    families = text_string_to_metric_families(path.read_text())
    return {each.name: (each.value, each.labels) for family in families for each in family.samples}


def test_a_job_that_ended_and_one_that_failed(tmp_path: Path) -> None:
    """The second replaces what the first said."""
    path, labels = tmp_path / "orders.prom", {"command": "export", "of": 'a "log"'}
    job_file.write(path, "export", 'a "log"', {"rows": 3000, "bytes": 7.0}, 12.5, 1e9)
    assert read(path) == {
        "quire_pipeline_succeeded": (1.0, labels),
        "quire_pipeline_seconds": (12.5, labels),
        "quire_pipeline_ended_time_seconds": (1e9, labels),
        "quire_pipeline_rows": (3000.0, labels),
        "quire_pipeline_bytes": (7.0, labels),
    }
    job_file.write(path, "export", 'a "log"', None, 1.0, 2e9)
    assert read(path) == {
        "quire_pipeline_succeeded": (0.0, labels),
        "quire_pipeline_seconds": (1.0, labels),
        "quire_pipeline_ended_time_seconds": (2e9, labels),
    }
    assert [each.name for each in tmp_path.iterdir()] == ["orders.prom"]


def test_a_place_that_takes_none_is_named(tmp_path: Path) -> None:
    """As the system names it."""
    with pytest.raises(OSError, match="gone"):
        job_file.write(tmp_path / "gone" / "x.prom", "export", "", None, 1.0, 2.0)
