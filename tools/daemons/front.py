"""
What AutoRecovery in a process of its own answers over HTTP.

    GET /metrics, /healthz, /heartbeat     as a bookie's; /healthz is 503 until the metadata store has answered
                                           (there is a token only where `adminTokenFile` or `metricsTokenFile` is set)
    …   /api/v1/autorecovery/…             see `quire.bookie.admin.recovery_paths`

Knows: paths, its port.  Does not know: what AutoRecovery does.
"""

import socket
from typing import TYPE_CHECKING, Any

from quire.bookie.admin.gate import METRICS, Routes, gated
from quire.bookie.admin.http import Answer, Asked
from quire.bookie.admin.metrics import CONTENT_TYPE, Metrics
from quire.bookie.admin.recovery_paths import RecoveryPaths
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.tools.daemons.recovering import Recovering
from quire.tools.daemons.recovery_metrics import RecoveryCollector

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

    def _health(self, asked: Asked) -> Answer:
        if self._recovering.client is None:
            return Answer(503, b"it waits for the metadata store; the log says why\n")
        return Answer(200, b"OK\n")
