"""
AutoRecovery in a process of its own: its part in the cluster's repair, and its HTTP server.

Knows: the order of its start, and that the metadata store may be away for any time.
Does not know: how the process begins and ends; see `lifetime`, `process`.
"""

import json
import os
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.lifecycle.ids import ANY_ADDRESS, IdentityError, any_host, derive_id
from quire.protocol.errors import LedgerError
from quire.tools.daemons.front import Front
from quire.tools.daemons.lifetime import Lifetime
from quire.tools.daemons.process import settle_memory
from quire.tools.daemons.recovering import Recovering
from quire.tools.daemons.settings import Settings

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


class Standalone(Lifetime):
    """AutoRecovery in this process."""

    log = Logger(namespace="quire.autorecovery")
    name = "AutoRecovery"
    failures = (IdentityError, LedgerError, OSError)

    def __init__(self, reactor: "ProcessReactor", settings: Settings, as_json: bool) -> None:
        super().__init__(reactor)
        self._options = settings.options
        self._as_json = as_json
        self._recovering = Recovering(reactor, settings)

    async def serve(self) -> None:
        options = self._options
        host = any_host(options)  # a label here: nobody connects to it
        bookie = derive_id(options, host, options.port)
        front = Front(self._reactor, self._recovering, options, host)
        port = front.listen(options.metrics_host, options.metrics_port)
        self.to_stop += [front.close, self._recovering.stop]
        await self._recovering.start(bookie)
        self.started = True
        settle_memory()
        seen_at = host if options.metrics_host in ANY_ADDRESS else options.metrics_host
        scheme = "https" if options.http_tls else "http"
        announce(bookie, f"{scheme}://{seen_at}:{port}/metrics", self._as_json)
        await Deferred()  # it ends by a signal only


def announce(bookie: str, url: str, as_json: bool) -> None:
    """The ready line."""
    if as_json:
        print(json.dumps({"ready": bookie, "metrics": url, "pid": os.getpid()}), flush=True)
    else:
        print(f"ready {bookie} {url}", flush=True)
