"""
What the stories about stores need: a place where handles are opened, and ears that wait for what they expect to hear.
"""

import sys
from collections.abc import Callable
from types import FrameType

from twisted.internet.defer import Deferred

from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.protocol.errors import MetaStore
from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0

SESSION_MS = 10_000


class Heard:
    """A watcher that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.all = []
        self._waiting = []

    def __call__(self, value=None) -> None:
        self.all.append(value)
        for wanted, deferred in list(self._waiting):
            if wanted(value):
                self._waiting.remove((wanted, deferred))
                deferred.callback(value)

    def until(self, wanted: Callable[[object], bool]) -> Deferred:
        """Fires with the last value heard if it is as wanted, or the next one that is."""
        deferred = Deferred()
        if self.all and wanted(self.all[-1]):
            deferred.callback(self.all[-1])
        else:
            self._waiting.append((wanted, deferred))
        return deferred

    def again(self) -> Deferred:
        """Fires with the next value."""
        deferred = Deferred()
        self._waiting.append((lambda _: True, deferred))
        return deferred


class Place:
    """One address, at which a test opens as many handles as it likes; all are closed after it."""

    kind = ""
    in_order = True  # the ids of ledgers
    counts_bookies = True  # how often they joined or left

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.opened = []

    async def open(self, session_timeout_ms: int = SESSION_MS) -> MetadataStore:
        store = await open_store(reactor, self.uri, session_timeout_ms=session_timeout_ms)
        self.opened.append(store)
        return store

    async def ready(self) -> MetadataStore:
        """A handle on an initialised cluster."""
        store = await self.open()
        await store.init_cluster()
        return store

    async def expire(self, store: MetadataStore) -> None:
        """Lets the session of a handle expire, as if its process had hung."""
        raise AssertionError(f"{self.kind} can't")

    async def unlist(self, bookie: str) -> None:
        """Removes the registration of a writable bookie behind everybody's back."""
        raise AssertionError(f"{self.kind} can't")

    async def format_records(self, instance_id: str) -> None:
        """Lets the records be those of a cluster that was there before."""
        raise AssertionError(f"{self.kind} can't")

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


async def at_last(operation: Callable[[], Deferred]) -> object:
    """What an operation gives once the store answers: on a loaded machine that may need more than one time-out."""
    while True:
        try:
            return await operation()
        except MetaStore:
            continue


async def failing(deferred, *kinds) -> BaseException:
    """The error of an operation that must fail with one of `kinds`."""
    try:
        result = await deferred
    except kinds as error:
        return error
    raise AssertionError(f"it did not fail, but answered {result!r}")


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of Python's functions, steps of generators among them, some work takes."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
