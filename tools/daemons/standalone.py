"""
AutoRecovery in a process of its own: its part in the cluster's repair, and a small HTTP server.

    GET /metrics, /healthz, /heartbeat     as a bookie's; /healthz is 503 until the metadata store has answered
    …   /api/v1/autorecovery/…             see `quire.bookie.admin.recovery_paths`

Knows: the order of its start, and that the metadata store may be away for any time.
Does not know: how the process begins and ends; see `lifetime`, `process`.
"""

import json
import os
import socket
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.bookie.admin.http import Answer, Asked, HttpServer
from quire.bookie.admin.metrics import CONTENT_TYPE, Metrics
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.bookie.lifecycle.ids import ANY_ADDRESS, IdentityError, derive_id, own_host
from quire.protocol.errors import LedgerError
from quire.tools.daemons.lifetime import Lifetime
from quire.tools.daemons.process import settle_memory
from quire.tools.daemons.recovering import Recovering, RecoveryCollector, Settings

if TYPE_CHECKING:
    from quire.metadata.records import RecordStore
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
        self._paths = RecoveryPaths(self._store, self._recovering)
        self._metrics = Metrics(RecoveryCollector(self._recovering.status))
        self._over: Deferred[None] = Deferred()

    async def serve(self) -> None:
        options = self._options
        host = own_host(options)
        bookie = derive_id(options, host, options.port)
        port = self._listen()
        self.to_stop.append(self._recovering.stop)
        await self._recovering.start(bookie)
        self.started = True
        settle_memory()
        seen_at = host if options.metrics_host in ANY_ADDRESS else options.metrics_host
        announce(bookie, f"http://{seen_at}:{port}/metrics", self._as_json)
        await self._over  # it ends by a signal only

    def _listen(self) -> int:
        """The HTTP server's port."""
        host, port = self._options.metrics_host, self._options.metrics_port
        try:
            bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as failure:
            raise OSError(
                f"{host}:{port} can't be listened on: {failure.strerror or failure}; autoRecoveryHttpPort gives "
                "AutoRecovery another port than a bookie with the same file has"
            ) from failure
        bound.setblocking(False)
        server = HttpServer(self._reactor, self._serve)
        listening = self._reactor.adoptStreamPort(bound.fileno(), bound.family, server)
        number: int = bound.getsockname()[1]
        bound.close()  # the reactor has its own handle

        async def close() -> None:
            await listening.stopListening()
            server.abort_all()

        self.to_stop.append(close)
        return number

    def _store(self) -> "RecordStore | None":
        return None if self._recovering.client is None else self._recovering.client.store

    def _serve(self, asked: Asked) -> Answer | Deferred[Answer]:
        if asked.path in self._paths.paths:
            return self._paths.serve(asked)
        if asked.path not in ("/metrics", "/healthz", "/heartbeat"):
            return Answer(404, b"there is /metrics, /healthz and /api/v1/autorecovery/status\n")
        if asked.method != "GET":
            return Answer(405, f"{asked.method} means nothing here\n".encode())
        if asked.path == "/metrics":
            return Answer(200, self._metrics.text(), CONTENT_TYPE)
        if asked.path == "/healthz" and not self.started:
            return Answer(503, b"it waits for the metadata store\n")
        return Answer(200, b"OK\n")


def announce(bookie: str, url: str, as_json: bool) -> None:
    """The ready line."""
    if as_json:
        print(json.dumps({"ready": bookie, "metrics": url, "pid": os.getpid()}), flush=True)
    else:
        print(f"ready {bookie} {url}", flush=True)
