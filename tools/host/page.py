"""
The inside of a host's process: its bookies' processes, and its page, with answers over HTTP.

    GET /metrics                  those of all its bookies, each sample with the label `bookie`, and the host's own
    GET /healthz, /heartbeat      /healthz is 503 while a bookie does not serve, with a line for each

    quire_host_bookies                    how many there are to be
    quire_host_bookie_up{bookie}          1 while it serves
    quire_host_bookie_restarts_total{bookie}

Knows: that a bookie which never served ends the start, and that one which did is begun again; paths, its port; one GET
of each bookie's metrics, with the bookie's token, a limit of time and of bytes; the text format of metrics as far as
its lines: a family's samples stand together, below one HELP and TYPE.
Does not know: any bookie's metric, how the process begins and ends; see `daemons.lifetime`, `daemons.process`.

Safety: a request names the bookie, and another process that has its port by now refuses it.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.admin.gate import METRICS, Routes, gated
from quire.bookie.admin.http import Answer, Asked, HttpServer, in_turns
from quire.bookie.lifecycle.ids import ANY_ADDRESS, own_host
from quire.client.connections.network import TcpReactor
from quire.conf.parts.http import ADMIN_TOKEN, HttpOptions
from quire.conf.properties import ConfigurationError
from quire.metrics.text import EOF, Metrics, content_type, wants_open
from quire.security.tokens import tokens_in
from quire.tools.daemons.lifetime import Lifetime, adopted, announce, metrics_at
from quire.tools.daemons.process import WRONG_USAGE
from quire.tools.host.child import NOTIFY, Child, Ended
from quire.tools.host.division import Division

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

LABEL = "bookie"


class Family(NamedTuple):
    owner: int  # the text whose HELP and TYPE are kept
    head: list[str]
    samples: list[str]


def joined(texts: Iterable[tuple[str | None, str]], end: str = "") -> str:
    """
    Joins texts of metrics, from (bookie, its text) pairs; the samples of None, the host itself, get no label.  `end`:
    the line that ends the whole.
    """
    families: dict[str, Family] = {}
    for number, (bookie, text) in enumerate(texts):
        name = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                family = families.setdefault(name, Family(number, [], []))
                if family.owner == number:
                    family.head.append(line)
            elif line and not line.startswith("#"):
                family = families.setdefault(name, Family(number, [], []))
                family.samples.append(line if bookie is None else labelled(line, bookie))
    lines = [line for family in families.values() for line in (*family.head, *family.samples)]
    return "\n".join([*lines, *([end] if end else []), ""])


def labelled(sample: str, bookie: str) -> str:
    """A sample with one more label, which comes first."""
    value = bookie.replace("\\", "\\\\").replace('"', '\\"')
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        comma = "" if rest.startswith("}") else ","
        return f'{name}{{{LABEL}="{value}"{comma}{rest}'
    name, _, rest = sample.partition(" ")
    return f'{name}{{{LABEL}="{value}"}} {rest}'


ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 4 << 20


class Asking(Protocol):
    """One request: `answer` gets the body, or None."""

    def __init__(self, request: bytes, answer: Deferred[str | None]) -> None:
        self._request = request
        self._answer = answer
        self._data = bytearray()

    def connectionMade(self) -> None:
        cast(Any, self.transport).write(self._request)

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > ANSWER_BYTES_MAX:
            self._data.clear()
            cast(Any, self.transport).abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        head, found, body = bytes(self._data).partition(b"\r\n\r\n")
        whole = b"\r\nContent-Length: %d\r\n" % len(body) in head + b"\r\n"
        is_good = found and whole and head.startswith(b"HTTP/1.1 200 ")
        if not self._answer.called:
            self._answer.callback(body.decode(errors="replace") if is_good else None)


class AskingOnce(ClientFactory):
    noisy = False

    def __init__(self, request: bytes, answer: Deferred[str | None]) -> None:
        self._request = request
        self._answer = answer

    def buildProtocol(self, addr: object) -> Asking:
        return Asking(self._request, self._answer)

    def clientConnectionFailed(self, connector: object, reason: Failure) -> None:
        if not self._answer.called:
            self._answer.callback(None)


def metrics_of(reactor: TcpReactor, bookie: str, url: str, token_file: str, accept: str) -> Deferred[str | None]:
    """Asks for the text at a bookie's metrics' URL; None when it can't be had in time.  It never fails."""
    try:
        token = tokens_in(token_file, ADMIN_TOKEN)[0].decode()
    except ConfigurationError:
        return succeed(None)
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 0
    request = f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nBookie: {bookie}\r\n"
    request += f"Authorization: Bearer {token}\r\nAccept: {accept}\r\n\r\n"
    answer: Deferred[str | None] = Deferred()
    here = "127.0.0.1" if host == ANY_ADDRESS[0] else "::1" if host == ANY_ADDRESS[1] else host
    connector = reactor.connectTCP(here, port, AskingOnce(request.encode(), answer), timeout=ANSWER_S_MAX)
    timer = reactor.callLater(ANSWER_S_MAX, connector.disconnect)

    def answered(text: str | None) -> str | None:
        if timer.active():
            timer.cancel()
        return text

    return answer.addCallback(answered)


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
            ("GET", METRICS): lambda asked: Deferred.fromCoroutine(self._all_metrics(asked.accept)),
            ("GET", "/healthz"): self._health,
            ("GET", "/heartbeat"): lambda _: Answer(200, b"OK\n"),
        }

    def listen(self, options: HttpOptions, directory: str, *names: str) -> int:
        """
        Listens; returns the port, a free one for 0.  `OSError` names the key that gives it another;
        `ConfigurationError` for a file of tokens that can't be used.  `directory`: of the one that is made where none
        is set; `names`: how it is called.
        """
        at = options.http_address
        self._server = gated(self._reactor, options, [self.routes], [at.host, *names], directory)
        remedy = f"{at.key} gives the host's page another port"
        self._listening, number = adopted(self._reactor, self._server, at.host, at.port, remedy)
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

    async def _all_metrics(self, accept: str) -> Answer:
        kind = content_type(accept)  # what the caller wrote goes no further
        asked = [
            (child.id, metrics_of(self._reactor, child.id, child.ready["metrics"], child.ready["token_file"], kind))
            for child in self._children
            if child.ready is not None
        ]
        own = await in_turns(self._reactor, self._metrics.parts(accept), kind)
        texts: list[tuple[str | None, str]] = [(None, own.body.decode())]
        for bookie, coming in asked:
            text = await coming
            if text is not None:
                texts.append((bookie, text))
        return Answer(200, joined(texts, EOF if wants_open(accept) else "").encode(), kind)


class Host(Lifetime):
    """The bookies of this machine."""

    log = Logger(namespace="quire.host")
    name = "the host"
    failures = (OSError,)

    def __init__(self, reactor: "ProcessReactor", division: Division, as_json: bool) -> None:
        super().__init__(reactor)
        self._division = division
        self._as_json = as_json
        self._children = [Child(reactor, part.id, part.conf, self._ended) for part in division.parts]
        self._page = Page(reactor, self._children)

    async def serve(self) -> None:
        division = self._division
        for part in division.parts:
            part.write()
        page = division.page
        directory = division.parts[0].options.journal_directories[0]  # bookie 0 has the same token
        port = self._page.listen(page, directory, own_host(page))
        self.to_stop += [self._page.close, self._stop_children]
        waiting = [child.served for child in self._children]
        for child in self._children:
            child.begin()
        serving: Deferred[object] = Deferred()
        gatherResults(waiting, consumeErrors=True).addCallbacks(
            serving.callback, lambda failure: serving.errback(failure.value.subFailure.value)
        )
        await serving
        self.started = True
        seen_at = self._seen_at()
        url = metrics_at(seen_at, port)
        bookies = [{"bookie": child.id, **(child.ready or {})} for child in self._children]
        announce(self._as_json, f"{division.host} {url}", ready=division.host, metrics=url, bookies=bookies)
        notify("READY=1")
        await Deferred()  # it ends by a signal only

    def reload(self) -> None:
        """SIGHUP came: it is the bookies'."""
        for part, child in zip(self._division.parts, self._children, strict=True):
            if part.options.reads_again:
                child.reload()

    def _seen_at(self) -> str:
        """Where the page is seen: bookies of a host have one address."""
        division = self._division
        ready = self._children[0].ready
        host = division.page.http_address.host
        if host in ANY_ADDRESS and ready is not None:
            return str(ready["address"]).rpartition(":")[0]
        return host

    def _ended(self, child: Child, how: Ended) -> None:
        status = f"status {how.status}" if how.status >= 0 else f"signal {-how.status}"
        if child.served.called:
            line = f": {how.line}" if how.status > 0 else ""
            self.log.error("{bookie} ended with {status}{line}", bookie=child.id, status=status, line=line)
            child.begin_later()
            return
        reason = f"bookie {child.id} ended with {status} before it served: {how.line.removeprefix('quire: ')}"
        child.served.errback(ValueError(reason) if how.status == WRONG_USAGE else OSError(reason))

    async def _stop_children(self) -> None:
        notify("STOPPING=1")
        for ending in [Deferred.fromCoroutine(child.stop()) for child in self._children]:
            await ending


def notify(state: str) -> None:
    """Tells the service manager that began this process, if it wants to be told (`Type=notify` of systemd)."""
    path = os.environ.get(NOTIFY)
    if path:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError as error:  # a container or shell may have inherited the variable without the socket
            text = "{state} was not told to the service manager at {name}={path}: {error}"
            Host.log.warn(text, state=state, name=NOTIFY, path=path, error=str(error))
