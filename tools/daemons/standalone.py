"""
AutoRecovery in a process of its own: its part in the cluster's repair, and its HTTP server.

    GET /metrics, /healthz, /heartbeat     as a bookie's; /healthz is 503 until the metadata store has answered
                                           (there is a token only where `adminTokenFile` or `metricsTokenFile` is set)
    …   /api/v1/autorecovery/…             see `quire.bookie.admin.recovery_paths`

Knows: the order of its start, that the metadata store may be away for any time, its port.
Does not know: how the process begins and ends; see `lifetime`, `process`.
"""

import json
import os
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.admin.gate import METRICS, Routes, gated
from quire.bookie.admin.http import Answer, Asked
from quire.bookie.admin.metrics import CONTENT_TYPE, Metrics
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.bookie.lifecycle.ids import ANY_ADDRESS, IdentityError, any_host, derive_id
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.protocol.errors import LedgerError
from quire.tools.daemons.lifetime import Lifetime, adopted
from quire.tools.daemons.process import settle_memory
from quire.tools.daemons.recovering import Recovering, RecoveryCollector
from quire.tools.daemons.settings import Settings

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


class Front:
    """The HTTP server of one process."""

    def __init__(
        self, reactor: "ProcessReactor", recovering: Recovering, options: AutoRecoveryOptions, host: str
    ) -> None:
        """`host`: how it is called by others.  `ConfigurationError` for files that can't be used."""
        self._reactor = reactor
        self._recovering = recovering
        metrics = Metrics(RecoveryCollector(recovering.status))
        own: Routes = {
            ("GET", METRICS): lambda _: Answer(200, metrics.text(), CONTENT_TYPE),
            ("GET", "/healthz"): self._health,
            ("GET", "/heartbeat"): lambda _: Answer(200, b"OK\n"),
        }
        paths = RecoveryPaths(lambda: None if recovering.client is None else recovering.client.store, recovering)
        self._server = gated(reactor, options, [own, paths.routes], [host, options.metrics_host])
        self._listening: Any = None

    def listen(self, host: str, port: int) -> int:
        """Listens; returns the port, a free one for 0.  `OSError` says where another is set."""
        remedy = "autoRecoveryHttpPort gives AutoRecovery another port than a bookie with the same file has"
        self._listening, number = adopted(self._reactor, self._server, host, port, remedy)
        return number

    async def close(self) -> None:
        await self._listening.stopListening()
        self._server.abort_all()

    def _health(self, asked: Asked) -> Answer:
        if self._recovering.client is None:
            return Answer(503, b"it waits for the metadata store; the log says why\n")
        return Answer(200, b"OK\n")


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
