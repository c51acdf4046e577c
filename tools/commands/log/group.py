"""
The command group `quire log`: which words there are.

Knows: the order in which the help shows them.  Does not know: what they do.
"""

from quire.tools.commands.log import (  # noqa: F401  # they add their commands
    bench,
    merging,
    mirroring,
    moving,
    naming,
    owning,
    records,
    upkeep,
)
from quire.tools.commands.log.shared import app

# SPDX-License-Identifier: Apache-2.0

COMMANDS = (
    *("create", "set", "rename", "list", "show", "append", "read", "tail", "seek", "own", "transfer", "move", "delete"),
    *("txns", "janitor", "adopt", "compact", "merge", "mirror", "cursors", "snapshots", "trim", "truncate"),
    *("terminate", "tidy", "orphans", "check", "give-up", "purge"),
)
app.registered_commands.sort(key=lambda each: COMMANDS.index(str(each.name)))
app.add_typer(bench.app, name="bench")
app.add_typer(upkeep.cursor_app, name="cursor")
