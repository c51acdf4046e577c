"""
What AutoRecovery in a process of its own answers over HTTP.

    GET /metrics, /healthz, /heartbeat     as a bookie's; /healthz is 503 until the metadata store has answered
    …   /api/v1/autorecovery/…             see `quire.bookie.admin.recovery_paths`

Knows: paths, its port.  Does not know: what AutoRecovery does.
"""

import socket
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from quire.bookie.admin.http import Answer, Asked, HttpServer
from quire.bookie.admin.metrics import CONTENT_TYPE, Metrics
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.tools.daemons.recovering import Recovering
from quire.tools.daemons.recovery_metrics import RecoveryCollector

if TYPE_CHECKING:
    from quire.metadata.records import RecordStore
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


class Front:
    """The HTTP server of one process."""

    def __init__(self, reactor: "ProcessReactor", recovering: Recovering) -> None:
        self._reactor = reactor
        self._recovering = recovering
        self._paths = RecoveryPaths(self._store, recovering)
        self._metrics = Metrics(RecoveryCollector(recovering.status))
        self._server = HttpServer(reactor, self.serve)
        self._listening: Any = None

    def listen(self, host: str, port: int) -> int:
        """Its port, a free one for 0.  `OSError` says where another is set."""
        try:
            bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as failure:
            raise OSError(
                f"{host}:{port} can't be listened on: {failure.strerror or failure}; autoRecoveryHttpPort gives "
                "AutoRecovery another port than a bookie with the same file has"
            ) from failure
        bound.setblocking(False)
        self._listening = self._reactor.adoptStreamPort(bound.fileno(), bound.family, self._server)
        number: int = bound.getsockname()[1]
        bound.close()  # the reactor has its own handle
        return number

    async def close(self) -> None:
        await self._listening.stopListening()
        self._server.abort_all()

    def serve(self, asked: Asked) -> Answer | Deferred[Answer]:
        if asked.path in self._paths.paths:
            return self._paths.serve(asked)
        if asked.path not in ("/metrics", "/healthz", "/heartbeat"):
            return Answer(404, b"there is /metrics, /healthz and /api/v1/autorecovery/status\n")
        if asked.method != "GET":
            return Answer(405, f"{asked.method} means nothing here\n".encode())
        if asked.path == "/metrics":
            return Answer(200, self._metrics.text(), CONTENT_TYPE)
        if asked.path == "/healthz" and self._recovering.client is None:
            return Answer(503, b"it waits for the metadata store; the log says why\n")
        return Answer(200, b"OK\n")

    def _store(self) -> "RecordStore | None":
        return None if self._recovering.client is None else self._recovering.client.store
