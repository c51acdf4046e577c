"""
The process of AutoRecovery: `python -m quire.tools.daemons.autorecovery --conf FILE`.

Knows: its command line and its configuration; `process` has what all daemons do, with their exit statuses.
Does not know: what it does; `standalone` starts and stops it.

It imports neither typer nor rich, so that the process stays small; `quire autorecovery start` replaces itself by this
one.  When it takes part in the cluster's repair, one line goes to standard output:

    ready BOOKIE-ID METRICS-URL
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from quire.tools.daemons.process import AUTORECOVERY, Prepared, parser, status

if TYPE_CHECKING:
    from argparse import Namespace

    from quire.conf.properties import Property
    from quire.tools.daemons.lifetime import Lifetime
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LOG_NAME = "autorecovery.log"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs AutoRecovery until its stop is asked for, and exits."""
    about = "Repairs a cluster's ledgers in the foreground until SIGTERM."
    sys.exit(status(AUTORECOVERY, parser(AUTORECOVERY, about, f"{LOG_NAME} in this directory"), argv, prepare))


def prepare(arguments: "Namespace", extra: "list[Property]") -> Prepared:
    """Reads the configuration."""
    from quire.conf.shared_file import Settings

    settings, warnings = Settings.load(arguments.conf, os.environ, extra)

    def make(reactor: "ProcessReactor") -> "Lifetime":
        from quire.tools.daemons.recovering import Standalone

        return Standalone(reactor, settings, arguments.json)

    own = settings.options
    return Prepared(LOG_NAME, warnings, make, settings.client.tls or own.http_tls, own.permitted_users)


if __name__ == "__main__":
    main()
