"""
A reactor that may be told twice to stop.

Two signals can come before the reactor has seen the first, as `timeout` sends them to a process and to its group; to
Twisted's own `stop` the second is an error.  Knows: that only the first counts.  Does not know: who stops it, and why.
"""

from twisted.internet.error import ReactorNotRunning

from quire.metadata.clock import StartableReactor

# SPDX-License-Identifier: Apache-2.0


def stop_once(reactor: StartableReactor) -> None:
    """Lets a reactor's `stop` pass over all calls but the first.  Before its first turn it stops in that."""
    halt = reactor.stop
    stopping: list[bool] = []

    def stop() -> None:
        if stopping:
            return
        try:
            halt()
            stopping.append(True)
        except ReactorNotRunning:
            reactor.callLater(0, stop)

    reactor.stop = stop  # type: ignore[method-assign]  # all of Twisted calls it by its name
