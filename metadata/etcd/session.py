"""
A tree's session in etcd: a lease, made when it is first needed, kept alive, and made again when it has ended.

Knows: that a lease lives for a whole number of seconds after it was last kept alive, and again as long after a change
of etcd's leader; the key that exists while the session does.
Does not know: what is claimed in it, servers.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, Timer
from quire.metadata.etcd.client import CallFailed
from quire.metadata.etcd.messages import CLASSES, PutRequest, RequestOp, TxnRequest
from quire.metadata.etcd.nodes import session_key
from quire.metadata.store import StoreClosed
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

log = Logger()

KEPT_PER_TTL = 3
AGAIN_S = 0.2  # after a failure
LeaseGrantRequest: Any = CLASSES["LeaseGrantRequest"]
LeaseKeepAliveRequest: Any = CLASSES["LeaseKeepAliveRequest"]
LeaseRevokeRequest: Any = CLASSES["LeaseRevokeRequest"]

Ask = Callable[[str, Any], Awaitable[Any]]  # a call, by its name, tried within the session timeout


class Session:
    """`lost` is called when etcd has ended it and the next one is there, if one can be made."""

    def __init__(self, clock: Clock, uri: str, timeout_s: float, ask: Ask, lost: Callable[[], None]) -> None:
        self.current: int | None = None
        self.ttl_s = math.ceil(timeout_s)  # as far as is known: etcd may grant more
        self._clock = clock
        self._uri = uri
        self._ask = ask
        self._lost = lost
        self._asked_s = self.ttl_s
        self._opening: list[Deferred[int]] = []  # callers that wait for the session that is being made
        self._next: Timer | None = None
        self._closed = False

    async def now(self) -> int:
        """The session, which is made when there is none; the store's error when that fails."""
        if self._closed:
            raise StoreClosed
        if self.current is not None:
            return self.current
        waiting: Deferred[int] = Deferred()
        self._opening.append(waiting)
        if len(self._opening) == 1:
            Deferred.fromCoroutine(self._open())
        return await waiting

    async def _open(self) -> None:
        outcome: int | Exception
        try:
            try:
                outcome = await self._begin()
            except CallFailed:  # the lease has ended before its key was there: this process was asleep, or etcd
                outcome = await self._begin()
        except CallFailed as error:
            outcome = MetaStore(
                f"etcd at {self._uri} ended the session while it was made ({error.details}): see whether this machine "
                "or etcd is overloaded, then try again"
            )
        except Exception as error:  # the callers': none may wait for ever
            outcome = error
        opening, self._opening = self._opening, []
        for waiting in opening:
            if isinstance(outcome, Exception):
                waiting.errback(outcome)
            else:
                waiting.callback(outcome)

    async def _begin(self) -> int:
        granted = await self._ask("LeaseGrant", LeaseGrantRequest(TTL=self._asked_s))
        if granted.error:
            raise MetaStore(f"etcd at {self._uri} grants no lease: {granted.error}")
        lease = int(granted.ID)
        put = RequestOp(request_put=PutRequest(key=session_key(lease), lease=lease))
        await self._ask("Txn", TxnRequest(success=[put]))
        if self._closed:
            raise StoreClosed  # the lease ends by itself
        self.current, self.ttl_s = lease, granted.TTL
        self._keep_in(self.ttl_s / KEPT_PER_TTL)
        return lease

    def _keep_in(self, seconds: float) -> None:
        self._next = self._clock.callLater(seconds, lambda: Deferred.fromCoroutine(self._keep()))

    async def _keep(self) -> None:
        lease = self.current
        if lease is None or self._closed:
            return
        try:
            left = (await self._ask("LeaseKeepAlive", LeaseKeepAliveRequest(ID=lease))).TTL
        except CallFailed as error:
            left = 0 if error.no_lease else None
        except Exception as error:  # only etcd can say that it is over
            self._missed("the session was not kept alive", error)
            left = None
        if self._closed or self.current != lease:
            return
        if left is None:
            self._keep_in(AGAIN_S)
        elif left <= 0:
            await self.over(lease)
        else:
            self._keep_in(self.ttl_s / KEPT_PER_TTL)

    async def over(self, lease: int) -> None:
        """
        Follows the end of a session by etcd: makes a new one, then reports that.  Does nothing when it is not the
        present one.
        """
        if self.current != lease or self._closed:
            return
        log.warn("{uri}: the session expired, its registrations are gone", uri=self._uri)
        self.current = None
        self._stop()
        try:
            await self.now()
        except Exception as error:  # who registers again makes one
            self._missed("no new session", error)
        if not self._closed:
            self._lost()

    def _missed(self, what: str, error: Exception) -> None:
        log.error("{uri}: {what}: {error!r}", uri=self._uri, what=what, error=error)

    def _stop(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()

    def close(self) -> Any | None:
        """Keeps it alive no longer; the request that ends it, if there is one."""
        self._closed = True
        self._stop()
        lease, self.current = self.current, None
        return None if lease is None else LeaseRevokeRequest(ID=lease)
