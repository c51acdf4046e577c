"""
The command group `quire pulsar`: which words there are.

Knows: the order in which the help shows them.  Does not know: what they do.
"""

from quire.tools.commands.pulsar import exporting, listing, reading  # noqa: F401  # adds its commands
from quire.tools.commands.pulsar.shared import app

# SPDX-License-Identifier: Apache-2.0

COMMANDS = ("topics", "show", "read", "export")
app.registered_commands.sort(key=lambda each: COMMANDS.index(str(each.name)))
