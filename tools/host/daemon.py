"""
The process of a host, the bookies of one machine: `python -m quire.tools.host.daemon --conf FILE`.

Knows: its command line and its configuration; `daemons.process` has what all daemons do, with their exit statuses.
Does not know: what it does; `serving` starts and stops it.

When all bookies serve, one line goes to standard output:

    ready HOST METRICS-URL
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from quire.tools.daemons.process import HOST, Prepared, parser, status

if TYPE_CHECKING:
    from argparse import Namespace

    from quire.conf.properties import Property
    from quire.tools.daemons.lifetime import Lifetime
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LOG_NAME = "host.log"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the bookies until their stop is asked for, and exits."""
    about = "Runs the bookies of this machine in the foreground until SIGTERM."
    known = parser(HOST, about, f"{LOG_NAME} in the first journal directory of bookie 0")
    known.add_argument("--bookies", type=int, metavar="N", help="overrides hostBookies: how many")
    sys.exit(status(HOST, known, argv, prepare))


def prepare(arguments: "Namespace", extra: "list[Property]") -> Prepared:
    """Reads the configuration."""
    from quire.tools.host.division import load

    division = load(arguments.conf, os.environ, extra, arguments.bookies)

    def make(reactor: "ProcessReactor") -> "Lifetime":
        from quire.tools.host.page import Host

        return Host(reactor, division, arguments.json)

    log = division.parts[0].conf.with_name(LOG_NAME)
    return Prepared(str(log), division.warnings, make, any(part.options.reads_again for part in division.parts))


if __name__ == "__main__":
    main()
