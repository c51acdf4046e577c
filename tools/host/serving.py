"""
The inside of the host's process: its bookies' processes and its page.

Knows: that a bookie which never served ends the start, and that one which did is begun again.
Does not know: how the process begins and ends; see `daemons.lifetime`, `daemons.process`.
"""

import json
import os
import socket
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger

from quire.bookie.lifecycle.ids import ANY_ADDRESS, own_host
from quire.tools.daemons.lifetime import Lifetime
from quire.tools.daemons.process import WRONG_USAGE
from quire.tools.host.child import NOTIFY, Child, Ended
from quire.tools.host.division import Division
from quire.tools.host.page import Page

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0


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
        port = self._page.listen(page.metrics_host, page.metrics_port, page, directory, own_host(page))
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
        announce(division.host, f"http://{seen_at}:{port}/metrics", self._children, self._as_json)
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
        if division.page.metrics_host in ANY_ADDRESS and ready is not None:
            return str(ready["address"]).rpartition(":")[0]
        return division.page.metrics_host

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


def announce(host: str, url: str, children: list[Child], as_json: bool) -> None:
    """The ready line."""
    if as_json:
        bookies = [{"bookie": child.id, **(child.ready or {})} for child in children]
        print(json.dumps({"ready": host, "metrics": url, "pid": os.getpid(), "bookies": bookies}), flush=True)
    else:
        print(f"ready {host} {url}", flush=True)


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
