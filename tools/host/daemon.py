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

from quire.tools.daemons.process import HOST, WRONG_USAGE, complain, lived, parser, without_assertions

if TYPE_CHECKING:
    from quire.tools.daemons.process import Service
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LOG_NAME = "host.log"


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the bookies until their stop is asked for, and exits."""
    sys.exit(status(argv))


def status(argv: Sequence[str] | None) -> int:
    """The exit status of one run."""
    refused = without_assertions(HOST)
    if refused is not None:
        return refused
    about = "Runs the bookies of this machine in the foreground until SIGTERM."
    known = parser(HOST, about, f"{LOG_NAME} in the first journal directory of bookie 0")
    known.add_argument("--bookies", type=int, metavar="N", help="overrides hostBookies: how many")
    arguments = known.parse_args(argv)
    from quire.conf.properties import ConfigurationError, Property
    from quire.tools.host.division import load

    extra = [Property("metadataServiceUri", arguments.metadata, "--metadata")] if arguments.metadata else []
    try:
        division = load(arguments.conf, os.environ, extra, arguments.bookies)
    except ConfigurationError as failure:
        return complain(WRONG_USAGE, str(failure))

    def make(reactor: "ProcessReactor") -> "Service":
        from quire.tools.host.serving import Host

        return Host(reactor, division, arguments.json)

    log = division.parts[0].conf.with_name(LOG_NAME)
    reloads = any(part.options.reads_again for part in division.parts)
    return lived(HOST, arguments, str(log), division.warnings, make, reloads)


if __name__ == "__main__":
    main()
