"""
The process of the console: `python -m quire.console.daemon`.

Knows: its command line, where its options come from, what it serves on which port and with which tokens.
Does not know: pages; how a process begins and ends (`quire.tools.daemons`).

When it serves, one line goes to standard output: `ready`, its address, and the file with the token that opens it.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.admin.gate import TOKEN_NAME, gated
from quire.client.api import connect
from quire.conf.client import ClientOptions, from_conf_file, store_named
from quire.conf.parts.http import HttpOptions
from quire.conf.properties import URI
from quire.conf.shared_file import load_shared
from quire.console.cluster import Cluster
from quire.console.pages import Pages
from quire.console.views import Views
from quire.metadata.store import HTTP_ENDPOINT, Endpoint
from quire.protocol.errors import LedgerError
from quire.tools.daemons.lifetime import Lifetime, adopted, announce
from quire.tools.daemons.process import CONSOLE, Prepared, parser, settle_memory, status
from quire.tools.terminal.options import TOKEN_FILE_OPTION, TOKEN_FILE_VARIABLE, value_in
from quire.tools.terminal.running import bounded

if TYPE_CHECKING:
    from argparse import Namespace

    from quire.conf.properties import Property
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

HOST, PORT = "127.0.0.1", 8480
OWN_DIRECTORY = "~/.config/quire"  # of the token that it makes, where none is named


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the console until its stop is asked for, and exits."""
    known = parser(CONSOLE, "Shows a cluster in a browser until SIGTERM.", "console.log in this directory")
    known.add_argument("--host", default=HOST)
    known.add_argument("--port", type=int, default=PORT)
    known.add_argument(TOKEN_FILE_OPTION)
    known.add_argument("--allow-changes", action="store_true")
    sys.exit(status(CONSOLE, known, argv, prepare))


def prepare(arguments: "Namespace", extra: "list[Property]") -> Prepared:
    """Reads the configuration of a client, as all commands do, and that of an HTTP port."""
    http, _ = load_shared(HttpOptions, arguments.conf, os.environ)
    client, warnings = from_conf_file()
    uri = store_named(arguments.metadata or (value_in(Path(arguments.conf), URI) if arguments.conf else None))
    shown = arguments.token_file or os.environ.get(TOKEN_FILE_VARIABLE) or None
    at = {"http_server": False, "metrics_host": arguments.host, "metrics_port": arguments.port}
    keys = {"admin_token_file": shown or http.admin_token_file, "metrics_token_file": None}
    plan = Plan(
        uri,
        client,
        http.model_copy(update={**at, **keys}),
        None if shown is None else Path(shown),
        arguments.allow_changes,
    )
    views = Views()
    return Prepared("console.log", warnings, lambda reactor: Console(reactor, plan, views, arguments.json))


class Plan(NamedTuple):
    """
    Where the cluster is and how it is reached, the HTTP port, the file of a token that bookies are shown, and whether
    pages may change something.
    """

    uri: str
    client: ClientOptions
    http: HttpOptions
    token_file: Path | None
    changes: bool


class Console(Lifetime):
    """The console in this process."""

    log = Logger(namespace="quire.console")
    name = "the console"
    failures = (LedgerError, OSError)

    def __init__(self, reactor: "ProcessReactor", plan: Plan, views: Views, as_json: bool = False) -> None:
        super().__init__(reactor)
        self._plan = plan
        self._views = views
        self._as_json = as_json

    async def serve(self) -> None:
        plan, http, reactor = self._plan, self._plan.http, self._reactor
        at, given = http.http_address, http.admin_token_file
        directory = own_directory() if given is None and http.http_trust is None else None
        client = await bounded(reactor, connect(reactor, plan.uri, plan.client), plan.uri)
        self.to_stop.append(client.close)
        cluster = Cluster(client, plan.token_file)
        pages = Pages(cluster, self._views, plan.changes)
        server = gated(reactor, http, [pages.routes], [at.host], directory, browser=True)
        listening, port = adopted(reactor, server, at.host, at.port, "--port names another")

        async def close() -> None:
            await listening.stopListening()
            server.abort_all()

        self.to_stop += [close, cluster.stop]
        cluster.start()
        self.started = True
        settle_memory()
        url = Endpoint(HTTP_ENDPOINT, at.host, port, "https" if http.http_tls else "http").url("/")
        token = given if directory is None else os.path.join(directory, TOKEN_NAME)
        announce(self._as_json, f"{url} {token or ''}".rstrip(), ready=url, token_file=token)
        await Deferred()  # it ends by a signal only


def own_directory() -> str:
    """Returns the directory of this user's configuration, which is made where there is none."""
    path = os.path.expanduser(OWN_DIRECTORY)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


if __name__ == "__main__":
    main()
