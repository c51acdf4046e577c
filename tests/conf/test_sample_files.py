"""The samples that come with quire are the code's own words."""

from pathlib import Path

from quire.conf.sample_files import DIRECTORY, text_of, write_all

# SPDX-License-Identifier: Apache-2.0


def test_what_is_written_is_what_is_there(tmp_path: Path) -> None:
    """`python -m quire.conf.sample_files` makes them again."""
    write_all(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (DIRECTORY / path.name).read_bytes(), path.name
    assert (tmp_path / "bookie.conf").read_text() == text_of("bookie.conf")


def test_every_key_has_a_line_of_explanation() -> None:
    """The line before each key of the sample is a comment."""
    lines = text_of("bookie.conf").splitlines()
    for number, line in enumerate(lines):
        if "=" in line and not line.startswith("# "):
            assert lines[number - 1].startswith("# "), line
