"""
`quire shell`: BookKeeper's own names for its commands, for people and scripts that know them.

Knows: where the words before a name end, and what `help` prints.
Does not know: what a name does.
"""

import argparse
import difflib
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from quire.tools.commands.shell import bookies, cluster, cookies, directories, ledgers
from quire.tools.commands.shell.context import ENTRY_FORMATS, LEDGER_FORMATS, Shell
from quire.tools.commands.shell.names import NAMES, Name, Parser, argument, name, value
from quire.tools.terminal.options import Usage, folded, single

# SPDX-License-Identifier: Apache-2.0

DECLARING = (cluster, bookies, cookies, ledgers, directories)  # their names, by being imported
LOCAL = "localbookie"
PREFIX = (
    value("ledgeridformat", metavar="|".join(LEDGER_FORMATS), choices=LEDGER_FORMATS, default=LEDGER_FORMATS[0]),
    value("entryformat", metavar="|".join(ENTRY_FORMATS), choices=ENTRY_FORMATS, default=ENTRY_FORMATS[0]),
    value("conf", metavar="FILE", type=Path),
    value(LOCAL, metavar="[ID]", nargs="?"),
)
USAGE = " ".join(["quire shell", *(each.text for each in PREFIX), "NAME …"])

app = single()


@name("help", argument("name", nargs="?"))
def help_(_shell: Shell, given: argparse.Namespace) -> None:
    """Lists the names, or says what one takes and does."""
    if given.name is None:
        print(overview())
    else:
        found = named(given.name)
        print(f"{found.usage}\n  {found.about}")


def named(word: str) -> Name:
    """`Usage` for a name that Apache's shell has not."""
    found = NAMES.get(word)
    if found is None:
        near = difflib.get_close_matches(word, NAMES, 1)
        hint = f"did you mean {near[0]}?" if near else "`quire shell help` lists the names"
        raise Usage(f"the shell has no {word!r}; {hint}")
    return found


def overview() -> str:
    """A line for each name, with what it takes, and below what it does."""
    lines = []
    for _word, each in sorted(NAMES.items()):
        lines += textwrap.wrap(each.usage, 76, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        lines += textwrap.wrap(each.about, 76, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def parted(words: Sequence[str]) -> tuple[Shell, list[str]]:
    """Splits the words before the name from the rest."""
    before: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest[0].lstrip("-")
        taken = 1 if option == "json" or "=" in option else 2
        if option == LOCAL and ":" not in "".join(rest[1:2]):  # no name has a colon
            taken = 1
        before, rest = before + rest[:taken], rest[taken:]
    parser = Parser(USAGE)
    for each in PREFIX:
        each.add_to(parser)
    given = parser.parse_args(before)
    made = Shell(given.metadata, given.conf, given.localbookie, given.ledgeridformat, given.entryformat, given.json)
    return made, rest


def shell(
    words: Annotated[list[str] | None, typer.Argument(metavar="[PREFIX]… NAME [OPTION]…", show_default=False)] = None,
) -> None:
    shell, rest = parted(words or [])
    if not rest:
        print(overview())
        raise typer.Exit(2)
    found = named(rest[0])
    given = found.given(rest[1:])
    shell.metadata = given.metadata if given.metadata is not None else shell.metadata
    shell.json = shell.json or given.json
    found.act(shell, given)


EXAMPLES = (
    "quire shell listledgers -meta",
    "quire shell -conf /etc/quire/bookie.conf lastmark",
    "quire shell -ledgeridformat hex -entryformat string readledger -ledgerid 1 -msg",
)
HELP = f"""
The names of BookKeeper's shell, with its options, each over a command of quire's (docs/comparison.md has a table).

A long option may have one dash or two. Before the name: -conf FILE (or BOOKIE_CONF), the configuration of this
machine's bookie, which also names the metadata store; -localbookie ID, its id; -ledgeridformat long, hex or uuid;
-entryformat string or hex. Anywhere: --metadata URI and --json.

Prints one record a line, `message key=value …`. Where Apache's prints something else that scripts read, it is that.

\b
Examples:
{chr(10).join(map(folded, EXAMPLES))}

\b
Names:
{overview()}
"""
RAW = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["--help"]}
app.command("shell", help=HELP, context_settings=RAW)(shell)
