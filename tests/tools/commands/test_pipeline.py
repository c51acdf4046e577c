"""`quire pipeline`, as far as it goes without Spark; `tests/spark` has the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.conf.extras import installs
from quire.pipeline.jobs.findings import summed, write
from quire.replication.scrub.judge import Finding
from tests.tools.command import environment, ok, refused

# SPDX-License-Identifier: Apache-2.0


def test_help_shows_an_example() -> None:
    """Of each command, without Spark being loaded."""
    for command in ("export", "import"):
        said = ok("pipeline", command, "--help").out
        assert f"quire pipeline {command} /backup/orders" in said
        assert "--master" in said


def test_what_is_exported_has_to_be_named(tmp_path: Path) -> None:
    """Once."""
    for options in ((), ("--log", "a", "--ledgers", "7")):
        assert "either --log NAME or --ledgers IDS" in refused(2, "pipeline", "export", tmp_path / "x", *options)


@pytest.mark.parametrize("command", ["export --log a", "import --log a", "scrub", "report", "repair"])
def test_a_url_is_no_directory(command: str, tmp_path: Path) -> None:
    """It became a directory with that name in the present one, and the command succeeded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        error = refused(2, "pipeline", *command.split(), "s3://cold/orders")
    assert "'s3://cold/orders' is a URL" in " ".join(error.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_one_line(tmp_path: Path) -> None:
    """With the command that installs it."""
    words = ["pipeline", "export", str(tmp_path / "x"), "--log", "a", "--metadata", f"sqlite://{tmp_path}/x.db"]
    text = f"import sys; sys.modules['pyspark'] = None\nfrom quire.tools.main import main\nmain({words!r})"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 1
    assert installs("pipeline") in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_report_needs_no_cluster(tmp_path: Path) -> None:
    """Kinds, bookies and the first findings, as text, JSON and a page."""
    found = [
        Finding(9, 0, 1, "b1:3181", 5, 9, 5, "missing", -13, "not stored there"),
        Finding(2, 0, -1, "", -1, -1, 0, "length", 0, "too long"),
    ]
    write(tmp_path / "found", summed("full", 10, 300, 4096, found))
    said = ok("pipeline", "report", tmp_path / "found", "--chart", tmp_path / "chart.html").out
    assert "10 ledgers, 300 copies" in said
    assert "2 findings in 2 ledgers, 5 copies wrong" in said
    assert "ledger 9 entries 5 to 9 missing b1:3181: not stored there" in said
    assert "b1:3181: 5 copies" in (tmp_path / "chart.html").read_text()
    document = ok("pipeline", "report", tmp_path / "found", "--json").document
    assert document["kinds"] == {"length": 1, "missing": 1}
    assert document["bookies"] == {"b1:3181": 5}
    assert "quire pipeline scrub" in refused(1, "pipeline", "report", tmp_path)


def test_what_is_scrubbed_and_repaired_has_to_be_named(tmp_path: Path) -> None:
    """Before Spark is started; findings that are there are kept."""
    store = f"sqlite://{tmp_path}/x.db"
    assert "metadata, presence or full" in refused(2, "pipeline", "scrub", tmp_path, "--level", "all", metadata=store)
    write(tmp_path, summed("full", 1, 1, 1, []))
    assert "--overwrite" in refused(1, "pipeline", "scrub", tmp_path, metadata=store)
    assert "either DIR or --bookie" in refused(2, "pipeline", "repair", metadata=store)
    assert "either DIR or --bookie" in refused(2, "pipeline", "repair", tmp_path, "--bookie", "b:1", metadata=store)
    assert "needs --bookie" in refused(2, "pipeline", "repair", tmp_path, "--decommission", metadata=store)
    assert "quire pipeline scrub" in refused(1, "pipeline", "repair", tmp_path / "none", metadata=store)
