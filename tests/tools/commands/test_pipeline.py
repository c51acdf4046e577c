"""`quire pipeline`, as far as it goes without Spark; `tests/spark/test_jobs.py` has the rest."""

import subprocess
import sys
from pathlib import Path

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


def test_a_missing_extra_is_one_line(tmp_path: Path) -> None:
    """With the command that installs it."""
    words = ["pipeline", "export", str(tmp_path / "x"), "--log", "a", "--metadata", f"sqlite://{tmp_path}/x.db"]
    text = f"import sys; sys.modules['pyspark'] = None\nfrom quire.tools.main import main\nmain({words!r})"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'quire[pipeline]'" in done.stderr
    assert done.stderr.count("\n") == 1
