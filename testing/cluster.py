"""
A cluster that a test may break: the one face of all kinds.

    with InProcessCluster() as cluster:             # or ProcessCluster(directory), ContainerCluster(image)
        with cluster.connect() as bk: ...
        cluster.kill(cluster.ids[0])

Knows: where it is reached, the ids of its bookies, which of them run; clients that it made are closed with it.
Does not know: what a bookie is made of; the kinds fill that in.

Every call blocks until it is done, so none belongs on the reactor's own thread.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from quire.client import aio
from quire.client.blocking import Client, connect
from quire.client.loops import Connecting
from quire.conf.client import ClientOptions
from quire.protocol.errors import LedgerError

__all__ = ["Cluster"]

# SPDX-License-Identifier: Apache-2.0

BOOKIES = 4  # three for a ledger, and one to take the place of one that is killed


class Cluster(ABC):
    """
    `uri`: the metadata URI, for every `connect` and every command.  `ids`: of all bookies that it ever
    had, in the order in which they came.  Used with `with`, which starts it and ends all of it.
    """

    uri: str

    def __init__(self) -> None:
        self._clients: list[Client] = []

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for client in self._clients:
                with suppress(LedgerError):
                    client.close()
        finally:
            self._end()

    # -- clients

    def connect(self, options: ClientOptions | None = None) -> Client:
        """A client of the blocking face.  Used with `with`, or closed when the cluster ends."""
        client = connect(self.uri, options)
        self._clients.append(client)
        return client

    def connect_asyncio(self, options: ClientOptions | None = None) -> Connecting[aio.Client]:
        """A client of the asyncio face, for `async with`, which closes it."""
        return aio.connect(self.uri, options)

    # -- bookies

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The ids of all bookies that the cluster ever had, in the order in which they came."""

    @property
    @abstractmethod
    def running(self) -> Sequence[str]:
        """The ids of the bookies that run."""

    def kill(self, bookie: str) -> None:
        """Ends a bookie at once, as a crash does; its files stay.  `ValueError` unless it runs."""
        self._check(bookie, runs=True)
        self._kill(bookie)

    def stop(self, bookie: str) -> None:
        """Stops a bookie as its operator would; its files stay.  `ValueError` unless it runs."""
        self._check(bookie, runs=True)
        self._stop(bookie)

    def start(self, bookie: str) -> None:
        """
        Starts a bookie that was killed or stopped, on its files and under its id; returns when it serves.  `ValueError`
        if it runs.
        """
        self._check(bookie, runs=False)
        self._start(bookie)

    @abstractmethod
    def add(self) -> str:
        """Starts one more bookie; its id."""

    # -- what the kinds fill in

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _end(self) -> None:
        """Ends whatever was begun, which may be a part of it."""

    @abstractmethod
    def _kill(self, bookie: str) -> None: ...

    @abstractmethod
    def _stop(self, bookie: str) -> None: ...

    @abstractmethod
    def _start(self, bookie: str) -> None: ...

    def _check(self, bookie: str, runs: bool) -> None:
        if bookie not in self.ids:
            raise ValueError(f"{bookie!r} is no bookie of this cluster; it has {', '.join(self.ids)}")
        if (bookie in self.running) != runs:
            raise ValueError(f"{bookie} {'does not run; start() starts it' if runs else 'runs already'}")
