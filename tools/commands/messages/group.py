"""
The command group `quire messages`: which words there are.

Knows: the order in which the help shows them.  Does not know: what they do.
"""

from quire.tools.commands.messages import directories, putting, reading, stores  # noqa: F401  # adds its commands
from quire.tools.commands.messages.shared import app

# SPDX-License-Identifier: Apache-2.0

COMMANDS = (
    *("create", "put", "import", "list", "show", "get", "pull", "query", "queues"),
    *("check", "export", "delete"),
)
app.registered_commands.sort(key=lambda each: COMMANDS.index(str(each.name)))
