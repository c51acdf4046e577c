"""
Puts of other threads and of asyncio loops, as a store takes them: they wait for room, and single ones travel together.

Knows: which drafts may be sent in one call, for they share its outcome.
Does not know: threads, loops; who waits.

Safety: drafts are sent in the order in which they came; each learns what became of it, for no two of different entries
share an answer.
"""

from collections.abc import Sequence
from contextlib import suppress

from twisted.internet.defer import Deferred, succeed

from quire.client.background import Background
from quire.client.gathering import Gathering
from quire.conf.log import LogOptions
from quire.log.owner.appending.appends import cut_places
from quire.messages.core.assign import Draft
from quire.messages.store import Put, Store
from quire.protocol.errors import TooManyRequests

# SPDX-License-Identifier: Apache-2.0


class WaitingPuts:
    """A store's puts that wait for room in the window instead of failing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    window_full = False  # each batch waits for the room that it needs

    def ready(self) -> "Deferred[None]":
        """At once: each batch waits for the room that it needs."""
        return succeed(None)

    async def append_many(self, made: Sequence[Draft], /) -> list[Put]:
        """Sends the drafts of one entry."""
        return await self.send(made, atomic=False)

    async def send(self, made: Sequence[Draft], atomic: bool) -> list[Put]:
        """Sends drafts when the window has room for them."""
        size = sum(map(len, made))
        while True:
            await self._store.room(len(made), size)
            with suppress(TooManyRequests):  # others were quicker; nothing was sent
                return await self._store.send(made, atomic)

    async def close(self) -> None:
        """When those that wait for room are sent."""
        await self._store.room(1, 1)
        await self._store.close()


def gathering(thread: Background, puts: WaitingPuts, options: LogOptions) -> Gathering[Draft, Put]:
    """A store's single puts, bounded like its log's window."""

    def cut(made: list[Draft]) -> list[list[Draft]]:
        return [made[start:end] for start, end in cut_places(list(map(len, made)), options.batch_bytes)]

    return Gathering(thread, puts, options.window_records, options.window_bytes, len, cut)
