"""The manual page of the commands."""

from pathlib import Path

from quire.tools import main, manual

# SPDX-License-Identifier: Apache-2.0


def test_the_page_is_what_the_help_texts_say() -> None:
    """After a change of a command: `make manual`."""
    page = Path(__file__).parents[2] / "docs" / "commands.md"
    assert page.read_text(encoding="utf-8") == manual.page()


def test_the_page_of_keys_is_the_table() -> None:
    """After a change of what a key means: `make manual`."""
    page = Path(__file__).parents[2] / "docs" / "keys.md"
    assert page.read_text(encoding="utf-8") == manual.keys_page()


def test_every_command_has_its_section() -> None:
    """Groups by their commands, each with its options."""
    page = manual.page()
    for name in main.COMMANDS:
        assert f"\n## quire {name}\n" in page
    assert "\n### quire ledger write\n\n```\nUsage: quire ledger write [OPTIONS]" in page
