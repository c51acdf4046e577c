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

from quire.tools.daemons.process import AUTORECOVERY, WRONG_USAGE, complain, lived, parser, without_assertions

if TYPE_CHECKING:
    from quire.tools.daemons.process import Service
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LOG_NAME = "autorecovery.log"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs AutoRecovery until its stop is asked for, and exits."""
    sys.exit(status(argv))


def status(argv: Sequence[str] | None) -> int:
    """The exit status of one run."""
    refused = without_assertions(AUTORECOVERY)
    if refused is not None:
        return refused
    about = "Repairs a cluster's ledgers in the foreground until SIGTERM."
    arguments = parser(AUTORECOVERY, about, f"{LOG_NAME} in this directory").parse_args(argv)
    from quire.conf.properties import ConfigurationError, Property
    from quire.tools.daemons.settings import Settings

    extra = [Property("metadataServiceUri", arguments.metadata, "--metadata")] if arguments.metadata else []
    try:
        settings, warnings = Settings.load(arguments.conf, os.environ, extra)
    except ConfigurationError as failure:
        return complain(WRONG_USAGE, str(failure))

    tls = settings.client.tls or settings.options.http_tls

    def make(reactor: "ProcessReactor") -> "Service":
        from quire.tools.daemons.standalone import Standalone

        return Standalone(reactor, settings, arguments.json)

    return lived(AUTORECOVERY, arguments, LOG_NAME, warnings, make, tls)


if __name__ == "__main__":
    main()
