"""
The switch of the repair queue, and what else lets an auditor wait, as this process knows it.

Knows: that it is asked for again and again, and that no answer is no view of the cluster.
Does not know: who waits for it.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.metadata.clock import pause
from quire.protocol.errors import MetaStore
from quire.replication.concurrently import kept_up

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 1.0


class Switch:
    """`on`: whether ledgers may be marked; it is off until the store said so.  `away`: the store does not answer."""

    def __init__(self, client: Client, away: Callable[[], None]) -> None:
        self.on = False
        self._clock = client.reactor
        self._repairs = client.store.repairs
        self._away = away
        self._waiting: list[Deferred[None]] = []
        self._working: Deferred[None] | None = None

    def start(self) -> None:
        """Once."""
        self._working = Deferred.fromCoroutine(kept_up(self._clock, self._work, "the look at the switch"))
        self._working.addErrback(lambda _failure: None)  # cancelled

    def stop(self) -> None:
        """Who waits goes on waiting: it is cancelled by others."""
        if self._working is not None:
            self._working.cancel()

    def ring(self) -> None:
        """Who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)

    def begin(self, story: Callable[[], Coroutine[Any, Any, None]]) -> Deferred[None]:
        """Runs a story once the switch is on, and keeps it up; until that is cancelled."""
        working = Deferred.fromCoroutine(kept_up(self._clock, partial(self._when_on, story), "the auditor"))
        return working.addErrback(lambda _failure: None)  # cancelled

    async def _when_on(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not self.on:
            await self.changed()
        await story()

    async def changed(self) -> None:
        """Returns when something may be otherwise."""
        waiter: Deferred[None] = Deferred()
        self._waiting.append(waiter)
        await waiter

    async def _work(self) -> None:
        while True:
            try:
                on = await self._repairs.enabled()
                if on != self.on:
                    self.on = on
                    self.ring()
            except MetaStore:
                self._away()  # what was known of the switch holds until the store answers
            await pause(self._clock, AGAIN_S)
