"""
The command group `quire log`: which words there are, and where each is.

Knows: the order in which the help shows them.  Does not know: what they do.
"""

from collections.abc import Callable

from quire.tools.commands.log import bench, naming, owning, records, upkeep
from quire.tools.terminal.options import group

# SPDX-License-Identifier: Apache-2.0

app = group(
    "Create, list, show, append to, read, follow, own, rename and delete named logs.",
    "quire log append orders --lines -f orders.txt",
)
COMMANDS: dict[str, Callable[..., None]] = {
    "create": naming.create,
    "set": naming.set_,
    "rename": naming.rename,
    "list": naming.list_,
    "show": naming.show,
    "append": records.append,
    "read": records.read,
    "tail": records.tail,
    "seek": records.seek,
    "own": owning.own,
    "transfer": owning.transfer,
    "delete": naming.delete,
    "txns": owning.txns,
    "janitor": owning.janitor,
    "adopt": owning.adopt,
    "compact": upkeep.compact,
    "cursors": upkeep.cursors,
    "snapshots": upkeep.snapshots,
    "trim": upkeep.trim,
    "truncate": upkeep.truncate,
    "terminate": upkeep.terminate,
    "tidy": upkeep.tidy,
    "orphans": upkeep.orphans,
    "check": upkeep.check,
    "give-up": upkeep.give_up,
    "purge": upkeep.purge,
}
for word, command in COMMANDS.items():
    app.command(word)(command)
app.add_typer(bench.app, name="bench")
app.add_typer(upkeep.app, name="cursor")
