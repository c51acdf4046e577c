"""
The process of one bookie: `python -m quire.tools.daemons.bookie --conf FILE`.

Knows: its command line and its configuration; `process` has what all daemons do, with their exit statuses.
Does not know: what a bookie does; `serving` starts and stops it.

It imports neither typer nor rich, so that the process stays small; `quire bookie start` replaces itself by this one.
When the bookie serves, one line goes to standard output:

    ready BOOKIE-ID HOST:PORT METRICS-URL
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from quire.tools.daemons.process import BOOKIE, Prepared, parser, status

if TYPE_CHECKING:
    from argparse import Namespace

    from quire.conf.properties import Property
    from quire.tools.daemons.lifetime import Lifetime
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LOG_NAME = "bookie.log"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a bookie until its stop is asked for, and exits."""
    known = parser(
        BOOKIE, "Runs a bookie in the foreground until SIGTERM.", f"{LOG_NAME} in the first journal directory"
    )
    known.add_argument(
        "--restore",
        action="store_true",
        help="directories that are empty now were lost: copy what they held from other bookies first",
    )
    sys.exit(status(BOOKIE, known, argv, prepare))


def prepare(arguments: "Namespace", extra: "list[Property]") -> Prepared:
    """Reads the configuration."""
    from quire.conf.bookie import BookieOptions
    from quire.conf.shared_file import Settings, load_shared

    options, warnings = load_shared(BookieOptions, arguments.conf, os.environ, extra)
    asks = options.auto_recovery or options.tls or options.authentication or options.client_authentication
    settings = Settings.load(arguments.conf, os.environ, extra)[0] if asks else None

    def make(reactor: "ProcessReactor") -> "Lifetime":
        from quire.tools.daemons.serving import Serving

        return Serving(reactor, options, arguments.restore, arguments.json, settings)

    return Prepared(
        os.path.join(options.journal_directories[0], LOG_NAME),
        warnings,
        make,
        options.reads_again,
        options.permitted_users,
    )


if __name__ == "__main__":
    main()
