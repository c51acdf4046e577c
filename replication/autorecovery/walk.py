"""
A pass over all ledgers' metadata: page by page, at a bounded rate, from where an earlier one was cut off.

Knows: pages, the rate, that a store which is away is waited for, when the next pass is due; the record by which another
auditor goes on where a pass has come to (metadata-rules.md 13).  Does not know: what is looked for.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

from twisted.logger import Logger

from quire.client.api import Client
from quire.metadata.clock import Clock, pause
from quire.metadata.formats.json_text import int64, parse_json
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import NoRecord, Records, put
from quire.metadata.store import ANY
from quire.protocol.errors import (
    LedgerMisplaced,
    MetadataSerialization,
    MetaStore,
    MetaStoreRefused,
    NoSuchLedgerExistsOnMetadataServer,
)
from quire.replication.concurrently import Pace, about_one
from quire.replication.core.fragments import short_of

# SPDX-License-Identifier: Apache-2.0

PAGE = 500
LISTED = 10_000  # ids that are listed at once: a directory of the metadata has as many, and has no pages
AGAIN_S = 1.0  # after the store did not answer
AHEAD_MS = 60_000  # that the clock may have been set back
LOG = Logger(namespace="quire.autorecovery")

T = TypeVar("T")


def unnoticed() -> None:
    """For who does not care whether the store was away."""


def left_s(interval_s: float, begun_ms: int | None, now_ms: int) -> float:
    """Seconds to the next pass, an interval after the last one began; that of a clock which was wrong was none."""
    if begun_ms is None or begun_ms > now_ms + AHEAD_MS:
        return 0.0
    return interval_s - (now_ms - begun_ms) / 1000


async def until_answered(clock: Clock, ask: Callable[[], Awaitable[T]], away: Callable[[], None] = unnoticed) -> T:
    """Waits for the store's answer, however long it is away; `away` is called each time that it is."""
    told = False
    while True:
        try:
            return await ask()
        except MetaStore as error:
            if not told:
                LOG.warn("the metadata store is waited for: {reason}", reason=str(error))
            told = True
            away()
            await pause(clock, AGAIN_S)


class Page(NamedTuple):
    """Some ledgers of a pass, ascending, and the last id that it has come to."""

    ledgers: list[tuple[int, LedgerMetadata]]
    last: int

    def short_of(self, lost: Collection[str]) -> list[tuple[int, tuple[str, ...]]]:
        """Lists the ledgers that name lost bookies, each with these."""
        return [(ledger, some) for ledger, metadata in self.ledgers if (some := short_of(metadata, lost))]


class Walk:
    """
    One pass above ledger `after`, to `until` where that is given.  `per_second` ledgers are read at most, and none
    before `allowed` returns; `away` as above.
    """

    def __init__(
        self,
        client: Client,
        per_second: float,
        allowed: Callable[[], Awaitable[None]],
        away: Callable[[], None] = unnoticed,
    ) -> None:
        self._client = client
        self._pace = Pace(client.reactor, per_second)
        self._allowed = allowed
        self._away = away

    async def pages(self, after: int = -1, until: int | None = None) -> AsyncIterator[Page]:
        """Ledgers that are deleted meanwhile, in a wrong place, or whose metadata can't be read, are left out."""
        ids: list[int] = []
        while True:
            await self._turn()
            ids = ids or await self._answer(partial(self._listed, after))
            some, ids = [ledger for ledger in ids[:PAGE] if until is None or ledger <= until], ids[PAGE:]
            if not some:
                return
            yield await self._page(some)
            after = some[-1]

    async def pages_of(self, ledgers: Iterable[int]) -> AsyncIterator[Page]:
        """Yields these ledgers alone, which are given in ascending order."""
        left = iter(ledgers)
        while some := list(islice(left, PAGE)):
            await self._turn()
            yield await self._page(some)

    async def _listed(self, after: int) -> list[int]:
        try:
            return await self._client.store.ledger_ids(after, LISTED)
        except LedgerMisplaced as error:  # which keeps no other ledger from being repaired
            LOG.error("a pass leaves out what is no ledger: {reason}", reason=str(error))
            return list(error.ledgers)

    async def _turn(self) -> None:
        await self._pace.turn()
        await self._allowed()

    async def _page(self, some: list[int]) -> Page:
        self._pace.read(len(some))
        return Page(await self._answer(partial(self._read, some)), some[-1])

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(self._client.reactor, ask, self._away)

    async def _read(self, ledgers: list[int]) -> list[tuple[int, LedgerMetadata]]:
        try:
            found = await self._client.store.read_ledgers(ledgers)
        except (MetadataSerialization, MetaStoreRefused):
            return [(ledger, metadata) for ledger in ledgers if (metadata := await self._readable(ledger)) is not None]
        return [(ledger, each.value) for ledger, each in zip(ledgers, found, strict=True) if each is not None]

    async def _readable(self, ledger: int) -> LedgerMetadata | None:
        try:
            return (await self._client.store.read_ledger(ledger)).value
        except NoSuchLedgerExistsOnMetadataServer:
            return None
        except (MetadataSerialization, MetaStoreRefused) as error:
            await about_one(self._client.store, error)
            LOG.error(
                "ledger {ledger} is left out, its metadata can't be read: {reason}; `quire inspect` shows its bytes",
                ledger=ledger,
                reason=str(error),
            )
            return None


FOLDER = "autorecovery/passes"


class Stretch(NamedTuple):
    """Ledgers above `after`, to `until` (None: all), are still to be looked at for these bookies."""

    bookies: tuple[str, ...]
    after: int
    until: int | None


class Circle:
    """
    A pass for several bookies, as far as it is left, which goes on at the first ledger when it has come to the last
    one: each ledger is read once for all of them, and who joins is through after one time round.  `at`: where it is.
    """

    def __init__(self, left: Iterable[Stretch] = (), at: int = -1) -> None:
        self.left = list(left)
        self._at = at

    def join(self, bookies: Iterable[str]) -> None:
        """All ledgers are to be looked at for these bookies, too: from here on, and then from the first to here."""
        names = tuple(sorted(bookies))
        self.left.append(Stretch(names, self._at, None))
        if self._at >= 0:
            self.left.append(Stretch(names, -1, self._at))
        self._tidy()

    def keep(self, bookies: Collection[str]) -> None:
        """Nothing is looked at any more for others than these."""
        kept = [each._replace(bookies=tuple(name for name in each.bookies if name in bookies)) for each in self.left]
        self.left = [each for each in kept if each.bookies]

    def next(self) -> Stretch | None:
        """The ledgers that are next, with all bookies that they are to be looked at for; None: it is over."""
        if not self.left:
            return None
        after = min((each.after for each in self.left), key=lambda each: (each < self._at, each))
        some = [each for each in self.left if each.after == after]
        edges = [each.until for each in some if each.until is not None]
        edges += [each.after for each in self.left if each.after > after]
        names = {name for each in some for name in each.bookies}
        return Stretch(tuple(sorted(names)), after, min(edges, default=None))

    def done(self, after: int, last: int | None) -> None:
        """The ledgers above `after` up to `last` were looked at; None: to the last one of all."""
        some = [each for each in self.left if each.after != after]
        if last is not None:
            rest = [each._replace(after=last) for each in self.left if each.after == after]
            some += [each for each in rest if each.until is None or each.until > last]
            self._at = last
        self.left = some
        self._tidy()

    def _tidy(self) -> None:
        """Makes one of stretches that have the same ledgers."""
        found: dict[tuple[int, int | None], set[str]] = {}
        for bookies, after, until in self.left:
            found.setdefault((after, until), set()).update(bookies)
        self.left = [Stretch(tuple(sorted(names)), *where) for where, names in found.items()]


class Resume:
    """The record of one pass, by its name."""

    def __init__(self, records: Records, name: str) -> None:
        self._records = records
        self._path = f"{FOLDER}/{name}"

    async def read(self) -> list[Stretch]:
        """Reads what is left of a pass that was cut off; nothing where none was, or its note can't be read."""
        try:
            return decode_left((await self._records.read(self._path)).value)
        except NoRecord:
            return []

    async def write(self, left: list[Stretch]) -> None:
        """Writes what is left now; after a failure more is looked at again."""
        with suppress(MetaStore):
            if not left:
                with suppress(NoRecord):
                    await self._records.delete(self._path, ANY)
                return
            await put(self._records, self._path, json.dumps(left).encode())


def decode_left(data: bytes) -> list[Stretch]:
    """Reads what is left from a note; nothing where it can't be read."""
    try:
        left = [
            Stretch(tuple(map(str, bookies)), int64(after), None if until is None else int64(until))
            for bookies, after, until in parse_json(data)
        ]
    except (ValueError, TypeError):
        return []
    return left if all(each.after >= -1 for each in left) else []
