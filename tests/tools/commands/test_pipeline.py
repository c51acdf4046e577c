"""`quire pipeline`, as far as it goes without Spark; `tests/spark/test_jobs.py` has the rest."""

from pathlib import Path

from tests.tools.command import ok, refused

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
