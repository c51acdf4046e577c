"""
A pass over all ledgers' metadata: page by page, at a bounded rate, from where an earlier one was cut off.

Knows: pages, the rate, that a store which is away is waited for.  Does not know: what is looked for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.clock import Clock, pause
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import MetadataSerialization, MetaStore, NoSuchLedgerExistsOnMetadataServer

# SPDX-License-Identifier: Apache-2.0

PAGE = 500
AGAIN_S = 1.0  # after the store did not answer
LOG = Logger(namespace="quire.autorecovery")

T = TypeVar("T")


async def until_answered(clock: Clock, ask: Callable[[], Awaitable[T]]) -> T:
    """What the store answers, however long it is away."""
    while True:
        try:
            return await ask()
        except MetaStore as error:
            LOG.warn("the metadata store is waited for: {reason}", reason=str(error))
            await pause(clock, AGAIN_S)


class Page(NamedTuple):
    """Some ledgers of a pass, ascending, and the last id that it has come to."""

    ledgers: list[tuple[int, LedgerMetadata]]
    last: int


class Walk:
    """One pass above ledger `after`, to `until` where that is given.  `per_second` ledgers are read at most."""

    def __init__(self, client: Client, per_second: float) -> None:
        self._client = client
        self._per_second = per_second
        self._free_at = 0.0

    async def pages(self, after: int = -1, until: int | None = None) -> AsyncIterator[Page]:
        """Ledgers that are deleted meanwhile, or whose metadata can't be read, are left out."""
        while True:
            ids = await until_answered(self._client.reactor, partial(self._client.store.ledger_ids, after, PAGE))
            some = [ledger for ledger in ids if until is None or ledger <= until]
            if not some:
                return
            await self._turn(len(some))
            ledgers = await until_answered(self._client.reactor, partial(self._read, some))
            after = some[-1]
            yield Page(ledgers, after)

    async def _turn(self, count: int) -> None:
        """Returns when so many more may be read."""
        clock = self._client.reactor
        wait = self._free_at - clock.seconds()
        if wait > 0:
            await pause(clock, wait)
        self._free_at = max(self._free_at, clock.seconds()) + count / self._per_second

    async def _read(self, ledgers: list[int]) -> list[tuple[int, LedgerMetadata]]:
        try:
            found = await self._client.store.read_ledgers(ledgers)
        except MetadataSerialization:
            return [(ledger, metadata) for ledger in ledgers if (metadata := await self._readable(ledger)) is not None]
        return [(ledger, each.value) for ledger, each in zip(ledgers, found, strict=True) if each is not None]

    async def _readable(self, ledger: int) -> LedgerMetadata | None:
        try:
            return (await self._client.store.read_ledger(ledger)).value
        except NoSuchLedgerExistsOnMetadataServer:
            return None
        except MetadataSerialization as error:
            LOG.error(
                "ledger {ledger} is left out, its metadata can't be read: {reason}; `quire inspect` shows its bytes",
                ledger=ledger,
                reason=str(error),
            )
            return None
