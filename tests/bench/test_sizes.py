"""What `make sizes` counts."""

import subprocess
import sys

from bench.sizes import ROOT, Summary, counted

TEXT = '''"""A module."""

# a comment
import os


class Shelf:
    """Holds books."""

    def add(self):
        """Puts one there."""
        return os.sep

    def _sort(self):
        pass


async def read():
    return 1
'''


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    """Eight lines of the sample do something."""
    file = counted("x.py", TEXT)
    assert file.lines == len(TEXT.splitlines())
    assert file.code_lines == 8


def test_docstrings_are_counted_over_public_names() -> None:
    """The module, Shelf, add and read are public; read says nothing; what begins with an underscore does not count."""
    file = counted("x.py", TEXT)
    assert (file.public, file.documented) == (4, 3)


def test_functions_have_their_length() -> None:
    """Methods and coroutines too."""
    assert [(function.name, function.lines) for function in counted("x.py", TEXT).functions] == [("read", 2), ("add", 3), ("_sort", 2)]


def test_a_folder_is_summed_up() -> None:
    """Empty files do not count; the longest is named."""
    found = Summary.of("shelf", [counted("a.py", TEXT), counted("b.py", "x = 1\n"), counted("c.py", "")])
    assert (found.files, found.code_lines, found.longest_file) == (2, 9, f"{len(TEXT.splitlines())} a.py")


def test_the_command_prints_a_table() -> None:
    """With the ratio of test to code below it."""
    told = subprocess.run([sys.executable, "bench/sizes.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "protocol" in told
    assert "test to code:" in told
