"""
`quire conf`: looks at files of configuration, and prints those to begin with.

Knows: which files an operator has: a bookie's, AutoRecovery's, a client's, of Apache BookKeeper, Pulsar or our own; and
that of a host of bookies; where the command is that a unit of systemd starts.
Does not know: what keys mean (`conf.treatment`).
"""

import shutil
import sys
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from quire.conf.properties import read
from quire.conf.shared_file import checked
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, command, group, refused

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"key": 42, "value": 24, "treatment": 9, "line": 4, "why": 0}
KINDS = "honoured", "differs", "ignored", "refused"

UNITS = files("quire.tools") / "units"
COMMAND = "/usr/local/bin/quire"  # in the units as they are kept

app = group("Files of configuration: look at them, begin them.", "quire conf check /etc/bookkeeper/bk_server.conf")


class Sample(StrEnum):
    """The owner of a configuration."""

    BOOKIE = "bookie"
    HOST = "host"
    AUTORECOVERY = "autorecovery"
    CLIENT = "client"


class Unit(StrEnum):
    """The process of a unit of systemd."""

    BOOKIE = "bookie"
    HOST = "host"
    AUTORECOVERY = "autorecovery"
    CONSOLE = "console"


@command(app, "quire conf sample bookie > bookie.conf")
def sample(of: Annotated[Sample, typer.Argument(help="whose configuration", show_default=False)]) -> None:
    """
    Prints a file of configuration to begin with: every key, what it means, and its default.
    """
    from quire.conf.sample_files import text_of

    print((UNITS / "host.conf").read_text() if of is Sample.HOST else text_of(f"{of}.conf"), end="")


@command(app, "quire conf unit bookie > quire-bookie.service")
def unit(of: Annotated[Unit, typer.Argument(help="what it starts", show_default=False)]) -> None:
    """
    Prints a unit of systemd, which starts this quire as the user `quire` with a file in /etc/quire.
    """
    beside = Path(sys.prefix, "bin", "quire")
    path = str(beside) if beside.exists() else shutil.which("quire") or COMMAND
    print((UNITS / f"quire-{of}.service").read_text().replace(COMMAND, path), end="")


@command(
    app,
    "quire conf check /etc/bookkeeper/bk_server.conf",
    "quire conf check /etc/bookkeeper/bk_server.conf --json | jq 'select(.treatment != \"honoured\")'",
)
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="of BookKeeper, Pulsar or quire", exists=True, dir_okay=False)
    ],
    json_wanted: Json = False,
) -> None:
    """
    Says of each key of a file whether it is honoured, differs (how), or is ignored (why).

    A key that differs has another effect than in BookKeeper; one that is ignored has none. Without --json the counts
    follow on standard error. What is refused would stop a start; then the exit status is 1.
    """
    rows = checked(read(str(file)))
    table = output.Table(json_wanted, COLUMNS)
    for item, treatment in rows:
        key, value, where = ("-", "-", "-") if item is None else (item.key, item.shown, item.where)
        where = where.removeprefix(f"{file}:")
        line = int(where) if where.isdecimal() else None
        table.row({"key": key, "value": value, "treatment": treatment.kind, "line": line, "why": treatment.why})
    table.end(f"{file} sets no key")
    counts = {kind: sum(treatment.kind == kind for _item, treatment in rows) for kind in KINDS}
    if not json_wanted:
        output.note(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if counts["refused"]:
        raise refused(f"{file} would stop a start: {counts['refused']} refused")
