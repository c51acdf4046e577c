"""
`quire conf`: looks at files of configuration.

Knows: which files an operator has: a bookie's, AutoRecovery's, a client's, of Apache BookKeeper, Pulsar or our own; and
that of a host of bookies.
Does not know: what keys mean (`conf.treatment`).
"""

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

app = group("Look at files of configuration.", "quire conf check /etc/bookkeeper/bk_server.conf")


@app.callback()
def files() -> None:
    """Keeps `check` a word of its own: the only command of a group would take the group's place."""


@command(
    app,
    "quire conf check /etc/bookkeeper/bk_server.conf",
    "quire conf check conf/bookkeeper.conf --json | jq 'select(.treatment != \"honoured\")'",
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
    counts = {kind: sum(treatment.kind == kind for _item, treatment in rows) for kind in KINDS}
    if not json_wanted:
        output.note(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if counts["refused"]:
        raise refused(f"{file} would stop a start: {counts['refused']} refused")
