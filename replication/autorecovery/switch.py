"""
The switch of the repair queue, and what else lets an auditor wait, as this process knows it.

Knows: that it is asked for again whenever the queue changes.  Does not know: who waits for it.
"""

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.metadata.store import Watch
from quire.protocol.errors import MetaStore
from quire.replication.concurrently import Bell

# SPDX-License-Identifier: Apache-2.0

AGAIN_S = 5.0


class Switch:
    """`on`: whether ledgers may be marked and taken; it is off until the store said so."""

    def __init__(self, client: Client) -> None:
        self.on = False
        self._repairs = client.store.repairs
        self._bell = Bell(client.reactor)
        self._watch: Watch | None = None
        self._waiting: list[Deferred[None]] = []
        self._working: Deferred[None] | None = None

    def start(self) -> None:
        """Once."""
        self._watch = self._repairs.watch(self._bell.ring)
        self._working = Deferred.fromCoroutine(self._work())
        self._working.addErrback(lambda _failure: None)  # cancelled

    def stop(self) -> None:
        """Who waits goes on waiting: it is cancelled by others."""
        if self._watch is not None:
            self._watch.cancel()
        if self._working is not None:
            self._working.cancel()

    def ring(self) -> None:
        """Who waits looks again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.callback(None)

    async def known(self) -> None:
        """Returns when the switch is on."""
        while not self.on:
            await self.changed()

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
                pass  # what was known holds until the store answers
            await self._bell.wait(AGAIN_S)
