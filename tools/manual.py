"""
Renders `docs/commands.md`, the manual page of every command, from the help texts: `python -m quire.tools.manual >
docs/commands.md`; and `docs/keys.md`, BookKeeper's keys without an option, from their table: `… keys > docs/keys.md`.

Knows: how to walk the commands and to fix the width of their help.  Does not know: any command, or any key.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
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


def page() -> str:
    parts = [HEAD, "```", EXAMPLES, "```", "", STATUS]
    for name, entry in COMMANDS.items():
        parts += [f"## quire {name}", "", f"{entry.about[0].upper()}{entry.about[1:]}.", ""]
        app = getattr(import_module(entry.module), entry.entry)
        for words, text in helps(typer.main.get_command(app), f"quire {name}"):
            if words != f"quire {name}":
                parts += [f"### {words}", ""]
            parts += ["```", text, "```", ""]
    return "\n".join(parts)


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


if __name__ == "__main__":
    sys.stdout.write(keys_page() if sys.argv[1:] == ["keys"] else page())
