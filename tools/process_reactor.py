"""
The process's reactor as a type, as far as the commands use it.

Knows: that one reactor serves a client, a bookie and standard input alike.  Does not know: who starts it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from twisted.python.threadpool import ThreadPool

from quire.bookie.server.transport import ListeningReactor
from quire.client.connections.network import TcpReactor
from quire.metadata.clock import StartableReactor

# SPDX-License-Identifier: Apache-2.0


class ProcessReactor(StartableReactor, TcpReactor, ListeningReactor, Protocol):
    """Twisted's global reactor.  Import it for types alone: it brings the client's modules and a bookie's."""

    def addReader(self, reader: object, /) -> None: ...

    def removeReader(self, reader: object, /) -> None: ...

    def spawnProcess(self, protocol: object, program: str, arguments: Sequence[str], **more: Any) -> Any: ...

    def getThreadPool(self) -> ThreadPool: ...
