"""The words after `quire log`; that each has help with an example: tests/tools/test_main.py."""

from quire.tools.commands.log.group import COMMANDS
from tests.tools.command import ok, quire

# SPDX-License-Identifier: Apache-2.0


def test_each_command_is_in_the_help() -> None:
    """With a line about it, in the order of the table."""
    lines = ok("log", "--help").out.partition("Commands:\n")[2].splitlines()
    listed = [line.split()[0] for line in lines if not line.startswith("   ")]  # a sentence may go on in the next line
    assert listed == [*COMMANDS, "bench", "cursor"]


def test_a_word_that_is_none() -> None:
    """Wrong usage."""
    assert quire("log", "dance").code == 2
