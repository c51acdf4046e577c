"""
Renders `docs/commands.md`, the manual page of every command, from the help texts: `python -m quire.tools.manual >
docs/commands.md`; `docs/keys.md`, BookKeeper's keys without an option, from their table: `… keys > docs/keys.md`; and
the tables of contents of long pages, in their places: `… contents`.

Knows: how to walk the commands and to fix the width of their help; how a page's headings are linked to.  Does not know:
any command, any key, or what a page says.
"""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from quire.conf.treatment import FAMILIES, INSTEAD_NAMES
from quire.tools.main import COMMANDS, EXAMPLES

# SPDX-License-Identifier: Apache-2.0

WIDTH = 80  # a terminal's
HEAD = """# The commands

Made from the help texts by `make manual`; `quire COMMAND --help` says the same.

Every command takes `--help`. Results go to standard output, everything else to standard error; `--json` prints one
document, or one a line for lists. The metadata store is named by `--metadata`, by `QUIRE_METADATA`, or by
`metadataServiceUri` in `~/.config/quire/client.conf`.

What will be gone for good is said and asked about first, unless there is `--yes`; without a terminal nothing is done
without it. `metadata destroy` and `metadata set-back --accept` want the cluster's id instead.

Examples can be tried one after the other, down this page, on a cluster that begins with one ledger on all its bookies.
The ids in them stand for those of your bookies (`10.0.0.7:3181` is one that is down), `/etc/quire` and the like for
your places; what one example turns off the next one turns on.
"""
STATUS = """## Exit status

* 0: done. `bookie start`, `host start`, `autorecovery start` and `local` end so by Ctrl-C and SIGTERM, too.
* 1: failed, or what was checked is not in order. Also where standard output can't be written, or nobody reads it any
  more: `quire ledger read 7 | head` prints no error, and is 1 with `set -o pipefail`.
* 2: wrong usage or configuration, or an input that can't be taken.
* 130: ended by Ctrl-C or SIGTERM, after what was begun was put away, for which it takes 10 s at most.
"""


KEYS_HEAD = """# BookKeeper's keys that have no option here

Made from the code's table by `make manual`; `quire conf check FILE` says the same of the keys of a file, and of those
that it honours. All other keys of BookKeeper are options: `quire conf sample bookie` prints each with its meaning.

A value in the table is what happens here: the key is honoured with it, and differs with any other. A key without one is
ignored, whatever it says.

| keys | instead |
|---|---|
"""


PAGES = Path(__file__).resolve().parents[1] / "docs"
LONG_WORDS = 1500  # from so many on a page has a table of contents
CONTENTS = re.compile(r"<!-- contents, by make manual -->\n.*?<!-- end of contents -->\n", re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(##+) (.+)$", re.MULTILINE)


def headings(text: str) -> list[tuple[int, str, str]]:
    """(level, heading, anchor) of each heading below a page's title, in order."""
    found: list[tuple[int, str, str]] = []
    for marks, heading in HEADING.findall(FENCED.sub("", text)):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        before = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for _level, _text, other in found)
        found.append((len(marks), heading.strip(), f"{anchor}-{before}" if before else anchor))
    return found


def contents(text: str) -> str:
    """The table of contents of a page: its sections, each with those in it."""
    lines: list[str] = []
    for level, heading, anchor in headings(text):
        link = f"[{heading}](#{anchor})"
        if level == 2 or not lines:
            lines.append(f"* {link}")
        else:
            lines[-1] += f"{', ' if ': [' in lines[-1] else ': '}{link}"
    return "\n".join(["<!-- contents, by make manual -->", *lines, "<!-- end of contents -->", ""])


def with_contents(text: str) -> str:
    """A page with its table of contents as it has to be; a long one without the place for it gets it, a short none."""
    if CONTENTS.search(text) is not None:
        return CONTENTS.sub(lambda _found: contents(text), text)
    first = HEADING.search(text)
    if first is None or len(text.split()) < LONG_WORDS:
        return text
    return f"{text[: first.start()]}{contents(text)}\n{text[first.start() :]}"


def page() -> str:
    """The page of the commands."""
    parts = [HEAD, "```", EXAMPLES, "```", "", STATUS]
    for name, entry in COMMANDS.items():
        parts += [f"## quire {name}", "", f"{entry.about[0].upper()}{entry.about[1:]}.", ""]
        app = getattr(import_module(entry.module), entry.entry)
        for words, text in helps(typer.main.get_command(app), f"quire {name}"):
            if words != f"quire {name}":
                parts += [f"### {words}", ""]
            parts += ["```", text, "```", ""]
    return with_contents("\n".join(parts))


def helps(command: Any, words: str, groups: bool = False) -> Iterator[tuple[str, str]]:
    """(the words that call it, its help) of each command below, and of the groups of commands only if asked."""
    context = typer.Context(command, info_name=words, terminal_width=WIDTH, max_content_width=WIDTH)
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from helps(each, f"{words} {name}", groups)
    if groups or not below:
        yield words, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def keys_page() -> str:
    """The page of the keys that mean something else or nothing, by what happens instead."""
    rows = {why: [f"`{name.replace('|', '` or `')}`" for name in names.split()] for why, names in INSTEAD_NAMES.items()}
    for start, why in FAMILIES.items():
        rows.setdefault(why, []).append(f"`{start}…`")
    return KEYS_HEAD + "".join(f"| {', '.join(keys)} | {why} |\n" for why, keys in rows.items())


def main(asked: list[str]) -> None:
    """Writes what is asked for."""
    if asked == ["contents"]:
        for path in sorted(PAGES.glob("*.md")):
            text = path.read_text(encoding="utf-8")
            if (wanted := with_contents(text)) != text:
                path.write_text(wanted, encoding="utf-8")
        return
    sys.stdout.write(keys_page() if asked == ["keys"] else page())


if __name__ == "__main__":
    main(sys.argv[1:])
