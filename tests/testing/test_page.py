"""docs/testing.md: each block that is a test module, or the program that it tests, runs as shown in a fresh pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.manual.blocks import ROOT, blocks

# SPDX-License-Identifier: Apache-2.0

PAGE = ROOT / "docs" / "testing.md"
NO_CACHE = ("-p", "no:cacheprovider")


def written(folder: Path, word: str) -> list[str]:
    """Writes the page's blocks of that word to the files that their first lines name; the names, in order."""
    wanted = [each for each in blocks(PAGE) if each.language == "python" and each.word == word]
    found = {each.text.split()[1]: each.text for each in wanted}
    for name, text in found.items():
        (folder / name).write_text(text)
    return list(found)


def test_the_page_runs(tmp_path: Path) -> None:
    """In a directory and a process of its own, by the plugin that pytest finds by itself."""
    names = written(tmp_path, "pytest")
    assert names[:2] == ["notes.py", "test_notes.py"], "the first test comes first"
    command = [sys.executable, "-m", "pytest", *NO_CACHE, "--strict-markers", "-rA", *names[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    assert " 8 passed" in done.stdout


def test_the_options_are_those_of_the_plugin(pytester: pytest.Pytester) -> None:
    """Each that the page names, and the mark."""
    helped = pytester.runpytest_inprocess("--help").stdout.str()
    text = PAGE.read_text(encoding="utf-8")
    for name in ("--quire-image", "--quire-zookeeper-image"):
        assert name in helped
        assert name in text
    assert "@pytest.mark.quire(bookies=4" in pytester.runpytest_inprocess("--markers").stdout.str()
