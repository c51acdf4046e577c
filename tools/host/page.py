"""
What the host answers over HTTP.

    GET /metrics                  those of all its bookies, each sample with the label `bookie`, and the host's own
    GET /healthz, /heartbeat      /healthz is 503 while a bookie does not serve, with a line for each

    quire_host_bookies                    how many there are to be
    quire_host_bookie_up{bookie}          1 while it serves
    quire_host_bookie_restarts_total{bookie}

Knows: paths, its port.  Does not know: how bookies are run.
"""

import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from quire.bookie.admin.gate import METRICS, Routes, gated
from quire.bookie.admin.http import Answer, Asked, HttpServer
from quire.bookie.admin.metrics import CONTENT_TYPE, Metrics
from quire.conf.parts.http import HttpOptions
from quire.tools.host.asking import metrics_of
from quire.tools.host.child import Child
from quire.tools.host.joined import LABEL, joined

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


class HostCollector:
    """The host's own numbers."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children

    def collect(self) -> Iterator["Metric"]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        yield GaugeMetricFamily("quire_host_bookies", "bookies of this host", value=len(self._children))
        up = GaugeMetricFamily("quire_host_bookie_up", "1 while the bookie serves", labels=[LABEL])
        restarts = CounterMetricFamily(
            "quire_host_bookie_restarts", "times that its process was begun again", labels=[LABEL]
        )
        for child in self._children:
            up.add_metric([child.id], int(child.ready is not None))
            restarts.add_metric([child.id], child.restarts)
        yield up
        yield restarts


class Page:
    """The HTTP server of one host."""

    def __init__(self, reactor: "ProcessReactor", children: Sequence[Child]) -> None:
        self._reactor = reactor
        self._children = children
        self._metrics = Metrics(HostCollector(children))
        self._server: HttpServer | None = None
        self._listening: Any = None
        self.routes: Routes = {
            ("GET", METRICS): lambda _: Deferred.fromCoroutine(self._all_metrics()),
            ("GET", "/healthz"): self._health,
            ("GET", "/heartbeat"): lambda _: Answer(200, b"OK\n"),
        }

    def listen(self, host: str, port: int, options: HttpOptions, directory: str, *names: str) -> int:
        """
        Its port, a free one for 0.  `OSError` names the key that gives it another; `ConfigurationError` for a file of
        tokens that can't be used.  `directory`: of the one that is made where none is set; `names`: how it is called.
        """
        self._server = gated(self._reactor, options, [self.routes], [host, *names], directory)
        try:
            bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as failure:
            raise OSError(
                f"{host}:{port} can't be listened on: {failure.strerror or failure}; prometheusStatsHttpPort gives "
                "the host's page another port"
            ) from failure
        bound.setblocking(False)
        self._listening = self._reactor.adoptStreamPort(bound.fileno(), bound.family, self._server)
        number: int = bound.getsockname()[1]
        bound.close()  # the reactor has its own handle
        return number

    async def close(self) -> None:
        await self._listening.stopListening()
        if self._server is not None:
            self._server.abort_all()

    def _health(self, asked: Asked) -> Answer:
        away = [child.id for child in self._children if child.ready is None]
        if away:
            return Answer(503, "".join(f"{bookie} does not serve\n" for bookie in away).encode())
        return Answer(200, b"OK\n")

    async def _all_metrics(self) -> Answer:
        asked = [
            (child.id, metrics_of(self._reactor, child.id, child.ready["metrics"], child.ready["token_file"]))
            for child in self._children
            if child.ready is not None
        ]
        texts: list[tuple[str | None, str]] = [(None, self._metrics.text().decode())]
        for bookie, coming in asked:
            text = await coming
            if text is not None:
                texts.append((bookie, text))
        return Answer(200, joined(texts).encode(), CONTENT_TYPE)
