"""The manual page of the commands."""

import re
from importlib import import_module
from pathlib import Path

import typer

from quire.tools import main, manual
from quire.tools.terminal.options import first_sentence, folded

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


def test_help_fits_a_terminal() -> None:
    """Of 80 columns: no line is wider, and no summary in the list of a group is cut."""
    texts = {"quire": main.overview()}
    for name, entry in main.COMMANDS.items():
        command = typer.main.get_command(getattr(import_module(entry.module), entry.entry))
        texts |= dict(manual.helps(command, f"quire {name}", groups=True))
    assert len(texts) > 80
    lines = [(words, line) for words, text in texts.items() for line in text.splitlines()]
    assert not [(words, line) for words, line in lines if len(line) > 80]
    assert not [(words, line) for words, line in lines if line.endswith("...") and not line.startswith("Usage")]


def test_a_wide_example_goes_on_in_the_next_line() -> None:
    """At an option or a pipe, never in a text in quotes; a shell takes both lines as one."""
    assert folded("quire log list") == "  quire log list"
    words = "quire ledger list --metadata zk://one.example:2181,two.example/ledgers --json | jq '.a | .b --c'"
    assert folded(words).splitlines() == [
        "  quire ledger list --metadata zk://one.example:2181,two.example/ledgers \\",
        "      --json | jq '.a | .b --c'",
    ]


def test_a_summary_is_the_first_sentence() -> None:
    """Or what is before its first colon or semicolon; a name with a dot is no end."""
    assert first_sentence("Shows a log: all of it.") == "Shows a log."
    assert first_sentence("Reads docs/logs.md,\nfor `--x`. And more.\n\nMore.") == "Reads docs/logs.md, for `--x`."


def test_long_pages_have_a_table_of_contents() -> None:
    """After a change of a heading: `make manual`."""
    for path in sorted(manual.PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert manual.with_contents(text) == text, path.name


def test_contents_are_sections_with_those_in_them() -> None:
    """Linked to as GitHub does; what stands in a block is no heading."""
    text = "# T\n\n## A `b`, c\n\n```sh\n## no\n```\n\n### One\n\n### Two\n\n## A b c\n"
    assert manual.contents(text).splitlines()[1:-1] == [
        "* [A `b`, c](#a-b-c): [One](#one), [Two](#two)",
        "* [A b c](#a-b-c-1)",
    ]
    assert manual.with_contents(text) == text
    long = text + "word " * manual.LONG_WORDS
    assert manual.with_contents(long).startswith("# T\n\n<!-- contents, by make manual -->\n* [A `b`")
    assert manual.with_contents(manual.with_contents(long)) == manual.with_contents(long)


def test_links_into_pages_lead_to_a_heading() -> None:
    """Of the manual, README and the changes."""
    root = manual.PAGES.parent
    pages = [root / "README.md", *manual.PAGES.rglob("*.md"), *(root / "changes").glob("*.md")]
    anchors: dict[Path, set[str]] = {}
    wrong = []
    for page in pages:
        for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            target = (page.parent / path).resolve() if path else page
            if target.suffix == ".md":
                if target not in anchors:
                    anchors[target] = {each for _, _, each in manual.headings(target.read_text(encoding="utf-8"))}
                if anchor not in anchors[target]:
                    wrong.append(f"{page.name}: {path}#{anchor}")
    assert not wrong
