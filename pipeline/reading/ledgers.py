"""
Ledgers: what a plan finds out about them, and their entries as Arrow batches.

Knows: metadata, the last add confirmed of open ledgers, entries.
Does not know: Spark, how entries are divided among tasks (`core.ranges`).

Safety: nothing is read past a last add confirmed that the plan saw, and a ledger is fenced only by
`open_ledgers=recover`.  Entries of a range that do not follow each other end the read with an error.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
from twisted.internet.defer import Deferred

from quire.client.api import LEDGER_IDS_PER_PAGE
from quire.client.api import Client as LedgerClient
from quire.client.api import Reader as LedgerReader
from quire.conf.pipeline import LedgerReading
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned, at_once
from quire.pipeline import columns
from quire.pipeline.clients import Cluster, password
from quire.pipeline.core.filters import Bounds
from quire.pipeline.core.ranges import Extent, Range, grouped, joined
from quire.pipeline.core.selection import Selection
from quire.protocol.errors import LedgerError, NoSuchEntry, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0

SCHEMA = {"ledger_id": "bigint", "entry_id": "bigint", "length": "bigint", "payload": "binary"}
TYPES = {"ledger_id": pa.int64(), "entry_id": pa.int64(), "length": pa.int64(), "payload": pa.binary()}
LEDGER = attrgetter("ledger")
IDS = {"ledger_id", "entry_id"}
ID_BYTES = 16
AT_ONCE = 64  # open ledgers, each of which is opened
PAGE = 1000  # ledgers whose metadata is read together
ALL = Bounds()
BEGUN = 16  # ranges of one task that are opened at a time, where entries are below `BEGUN_BYTES`
BEGUN_BYTES = 64 << 10  # payload bytes that each of them reads ahead of its turn, about
LISTED_FROM = 1000  # so many ids are looked for in the list of all, fewer each by itself
LOOKED_AT = 256  # ranges of one task whose ledgers' metadata is read together


PayloadRun = tuple[int, list[bytes]]  # payloads of entries from the first on
Stored = Versioned[LedgerMetadata]


class LedgersGone(NoSuchLedger):
    """Ledgers that the query names are not there."""


async def selected(client: LedgerClient, selection: Selection, bounds: Bounds = ALL) -> list[int]:
    """The ids that are meant; those of a wide range only as far as there are such ledgers, or copies of them."""
    low, high = bounds.span
    if low > high:
        return []
    if selection.count <= LISTED_FROM:
        return [ledger for ledger in selection if bounds.holds(ledger)]
    found: list[int] = []
    for first, last in selection.ranges:
        after = max(first, low) - 1
        end = min(last, high)
        while after < end:
            page = await client.ledger_ids(after, LEDGER_IDS_PER_PAGE)
            if not page:
                break
            found += [ledger for ledger in page if ledger <= end and bounds.holds(ledger)]
            after = page[-1]
    if client.copies is not None:
        copied = [each for each in await client.copies.ledgers() if each in selection and bounds.holds(each)]
        found = sorted({*found, *copied})
    return found


async def planned(client: LedgerClient, options: LedgerReading, bounds: dict[str, Bounds]) -> list[Extent]:
    """Finds out what is to be read of each ledger.  `LedgersGone` names those that are not there."""
    selection = Selection.parse(options.ledgers)
    ids = await selected(client, selection, bounds["ledger_id"])
    low, high = bounds["entry_id"].span
    first, last = max(low, options.start_entry), high if options.end_entry is None else min(high, options.end_entry)
    found: list[Extent] = []
    gone: list[int] = []
    for start in range(0, len(ids), PAGE):
        some = ids[start : start + PAGE]
        for ledger, extent in zip(some, await extents_of(client, some, options), strict=True):
            if extent is None:
                gone.append(ledger)
            elif (part := extent.narrowed(first, last)) is not None:
                found.append(part)
    if gone and options.fail_on_data_loss and selection.count <= LISTED_FROM:
        raise LedgersGone(
            f"there are no ledgers {', '.join(map(str, gone[:10]))}{' …' if len(gone) > 10 else ''}: "
            "`quire ledger list` shows those that there are; failOnDataLoss=false reads the others"
        )
    return found


async def extents_of(client: LedgerClient, ledgers: Sequence[int], options: LedgerReading) -> list[Extent | None]:
    """Finds all that may be read of each ledger; None when there is no such ledger.  `entries` may be none."""
    found: list[Extent | None] = []
    still_open: list[int] = []  # their places
    stored = await client.store.read_ledgers(ledgers)
    for ledger, each in zip(ledgers, stored, strict=True):
        if each is not None and not each.value.is_closed:
            still_open.append(len(found))
            found.append(Extent(ledger, 0, -1, 0))
        else:
            metadata = await copied(client, ledger) if each is None else each.value
            found.append(None if metadata is None else closed_extent(ledger, metadata))
    if options.open_ledgers == "skip":
        return found
    for start in range(0, len(still_open), AT_ONCE):
        some = still_open[start : start + AT_ONCE]
        looked = await at_once([open_extent(client, ledgers[at], options) for at in some])
        for at, extent in zip(some, looked, strict=True):
            found[at] = extent
    return found


async def copied(client: LedgerClient, ledger: int) -> LedgerMetadata | None:
    """Returns the metadata of a ledger that is gone, as an offloaded copy has it."""
    copy = None if client.copies is None else await client.copies.find(ledger)
    return None if copy is None else copy.metadata


async def open_extent(client: LedgerClient, ledger: int, options: LedgerReading) -> Extent | None:
    """Finds the extent of a ledger that was open when its metadata was read."""
    try:
        reader = await client.open_ledger(ledger, password(options), options.open_ledgers == "recover")
    except NoSuchLedger:
        return None
    try:
        last = await reader.read_last_confirmed()
        return Extent(ledger, 0, last, reader.length, cuts_of(reader.metadata))
    finally:
        await reader.close()


def divided(extents: Iterable[Extent], options: LedgerReading) -> list[list[Range]]:
    """Divides extents among tasks; what follows each other in a ledger is read at once."""
    groups = grouped(extents, options.split_bytes, options.max_partitions, options.tasks_min)
    return [[each for _, some in groupby(group, LEDGER) for each in joined(some)] for group in groups]


async def between(
    client: LedgerClient, start: Mapping[str, int], end: Mapping[str, int], options: LedgerReading
) -> list[Extent]:
    """
    The entries of each ledger from one offset of a stream to the next: all of them, for an offset was a last add
    confirmed once, and bookies that are asked now may know only a lower one.  Only ledgers that have any are asked for.
    """
    ids = sorted(int(ledger) for ledger, after in end.items() if after > start.get(ledger, 0))
    found: list[Extent] = []
    for at in range(0, len(ids), PAGE):
        some = ids[at : at + PAGE]
        for ledger, known in zip(some, await extents_of(client, some, options), strict=True):
            first, last = start.get(str(ledger), 0), end[str(ledger)] - 1
            extent = known or Extent(ledger, 0, last, last + 1)
            if (part := replace(extent, last=max(extent.last, last)).narrowed(first, last)) is not None:
                found.append(part)
    return found


def closed_extent(ledger: int, metadata: LedgerMetadata) -> Extent:
    """Returns the extent of a closed ledger."""
    return Extent(ledger, 0, metadata.last_entry, metadata.length, cuts_of(metadata))


def cuts_of(metadata: LedgerMetadata) -> tuple[int, ...]:
    """Returns where a ledger's fragments begin."""
    return tuple(fragment.first for fragment in metadata.fragments[1:])


def batches(cluster: Cluster, ranges: Sequence[Range], names: Sequence[str], options: LedgerReading) -> Iterator[Any]:
    """The entries of these ranges as Arrow batches of about `batch_bytes`."""
    return cluster.each(lambda: _batches(cluster.client, ranges, names, options))


async def _batches(
    client: LedgerClient, ranges: Sequence[Range], names: Sequence[str], options: LedgerReading
) -> AsyncGenerator[Any, None]:
    secret, rest, begun = password(options), known(client, ranges), deque[Begun]()
    gathered = Gathered(names, options.batch_bytes)
    room = 1  # until the size of an entry has been seen
    try:
        while True:
            while len(begun) < room and (following := await anext(rest, None)) is not None:
                begun.append(Begun(client, *following, secret, names))
            if not begun:
                break
            try:
                async for piece in begun[0].pieces(options.batch_bytes):
                    room = BEGUN if piece.bytes <= BEGUN_BYTES * piece.count else 1
                    for made in gathered.add(piece):
                        yield made
            except NoSuchLedger:
                if options.fail_on_data_loss:
                    raise
            await begun.popleft().close()
        for made in gathered.rest():
            yield made
    finally:
        await rest.aclose()
        for each in begun:
            await each.close()


async def known(client: LedgerClient, ranges: Sequence[Range]) -> AsyncGenerator[tuple[Range, Stored | None], None]:
    """Yields each range, with the metadata of its ledger if it is closed: of many ledgers by one question."""
    for start in range(0, len(ranges), LOOKED_AT):
        some = ranges[start : start + LOOKED_AT]
        ledgers = list({each.ledger for each in some})
        stored = dict(zip(ledgers, await client.store.read_ledgers(ledgers), strict=True))
        for each in some:
            found = stored[each.ledger]
            yield each, found if found is not None and found.value.is_closed else None


class Piece(NamedTuple):
    """
    Consecutive entries of a ledger, or so many of which only the ids are wanted.  `bytes`: of the payloads, about;
    `before`: payload bytes of the ledger before them.
    """

    ledger: int
    first: int
    count: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    payloads: list[bytes]
    bytes: int
    before: int


class Begun:
    """One range of a ledger, opened and read up to `BEGUN_BYTES` early: a small ledger costs mostly waiting."""

    def __init__(
        self, client: LedgerClient, wanted: Range, stored: Stored | None, secret: bytes, names: Sequence[str]
    ) -> None:
        self._wanted = wanted
        self._reader: LedgerReader | None = None
        self._length = 0  # payload bytes before the next entry, where that is wanted
        self._pieces: list[Piece] = []
        self._next = wanted.first  # the entry behind them
        self._names = names
        self._begun: Deferred[None] | None = Deferred.fromCoroutine(self._begin(client, stored, secret))

    async def _begin(self, client: LedgerClient, stored: Stored | None, secret: bytes) -> None:
        first, last = self._wanted.first, self._wanted.last
        self._reader = reader = await client.open_ledger(self._wanted.ledger, secret, False, stored)
        reader.read_ahead(BEGUN_BYTES)
        reader.learn_confirmed(last)  # the plan saw that it is
        if IDS.issuperset(self._names):
            if not reader.closed:
                await reader.read(last, last)  # all before one that is there are there
            return
        self._length = await reader.offset_of(first) if "length" in self._names and first else 0
        room = BEGUN_BYTES
        async with aclosing(reader.runs(first, last)) as runs:
            async for run in runs:
                self._pieces.append(self._piece(run))
                room -= self._pieces[-1].bytes
                if room <= 0:
                    break

    def _piece(self, run: PayloadRun) -> Piece:
        wanted, (first, payloads) = self._wanted, run
        if first != self._next:
            raise gap(wanted, self._next, first - 1)
        size = sum(map(len, payloads))
        piece = Piece(wanted.ledger, first, len(payloads), payloads, size, self._length)
        self._next, self._length = first + len(payloads), self._length + size
        return piece

    async def pieces(self, batch_bytes: int) -> AsyncGenerator[Piece, None]:
        """Yields all entries, of which about `batch_bytes` are asked for at a time.  `NoSuchLedger`, `NoSuchEntry`."""
        wanted = self._wanted
        begun, self._begun = self._begun, None
        assert begun is not None
        await begun
        reader = self._reader
        assert reader is not None
        if IDS.issuperset(self._names):  # up to the last one of a ledger every id is that of an entry
            if reader.last_entry_id < wanted.last:
                raise gap(wanted, reader.last_entry_id + 1, wanted.last)
            rows = max(1, batch_bytes // ID_BYTES)
            for first in range(wanted.first, wanted.last + 1, rows):
                count = min(rows, wanted.last + 1 - first)
                yield Piece(wanted.ledger, first, count, [], count * ID_BYTES, 0)
            return
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            yield piece
        if self._next <= wanted.last:
            reader.read_ahead(batch_bytes)
            async for run in reader.runs(self._next, wanted.last):
                yield self._piece(run)
        if self._next <= wanted.last:
            raise gap(wanted, self._next, wanted.last)

    async def close(self) -> None:
        """Closes the reader; waits for one that is being opened."""
        if self._begun is not None:
            with suppress(LedgerError):
                await self._begun
        if self._reader is not None:
            await self._reader.close()


class Gathered:
    """Entries, perhaps of several ledgers, that become one Arrow batch of about so many bytes, of these columns."""

    def __init__(self, names: Sequence[str], batch_bytes: int) -> None:
        self._names = names
        self._batch_bytes = batch_bytes
        self._pieces: list[Piece] = []
        self._bytes = 0

    def add(self, piece: Piece) -> Iterator[Any]:
        """Adds entries; yields an Arrow batch once they are enough."""
        self._pieces.append(piece)
        self._bytes += piece.bytes
        if self._bytes >= self._batch_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[Any]:
        """Yields the batch of what was added and not yielded yet."""
        if self._pieces:
            yield arrow(self._pieces, self._names)
            self._pieces, self._bytes = [], 0


def gap(wanted: Range, first: int, last: int) -> NoSuchEntry:
    """The error of entries that did not come."""
    return NoSuchEntry(
        f"ledger {wanted.ledger}: entries {first} to {last} are missing: `quire ledger check` finds out why"
    )


def arrow(pieces: Sequence[Piece], names: Sequence[str]) -> Any:
    """Makes an Arrow batch of all entries of these."""
    makers: dict[str, columns.Column] = {
        "ledger_id": lambda: columns.repeated((each.ledger, each.count) for each in pieces),
        "entry_id": lambda: columns.runs((each.first, each.count) for each in pieces),
        "length": lambda: columns.sums((each.before, map(len, each.payloads)) for each in pieces),
        "payload": lambda: columns.binary(list(chain.from_iterable(each.payloads for each in pieces))),
    }
    return columns.batch(names, makers, TYPES)
