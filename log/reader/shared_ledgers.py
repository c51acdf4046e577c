"""
The ledgers that readers of one process have open: each once, followed once, and fetched once for all who are at the
same place.

Knows: who reads which ledger, at which entry each is, and what is being fetched; the cache that is looked into first.
Does not know: what entries mean, and how a ledger is read.

Safety: a reader is given what the ledger's own reader gave out, or what the cache has of that: nothing above the last
add confirmed or the end.  Where only what was confirmed before a close may be given out, a ledger is open once more,
with what is cached for itself.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

from twisted.internet.defer import Deferred, DeferredLock

from quire.client.api import Client, Entry, Reader
from quire.conf.log import LogOptions
from quire.log.core.counters import LogCounters
from quire.log.core.values import Segment
from quire.log.reader.entry_cache import EntryCache
from quire.metadata.clock import Clock
from quire.protocol.errors import ClientClosed, LedgerError

# SPDX-License-Identifier: Apache-2.0

FOLLOW_S = 86_400.0  # without news; then the follower begins anew, if somebody waits for it
CLOSED = "this reader was closed"
Some = Sequence[Entry]
Key = tuple[int, int | None]  # the first entry that is wanted, and the last; None: those that come, too


class Fetching:
    """
    Adjacent entries from `at` on, for all who want just these.  Nothing is fetched before somebody asks, so the one who
    is ahead of the others sets the pace, and the others find in the cache what they have not had.
    """

    def __init__(
        self, ledger: "SharedLedger", at: int, last: int | None, past_close: bool, is_block: bool = False
    ) -> None:
        """`is_block`: the entries up to `last` come in one list."""
        self.at = at
        self.last = last
        self.is_block = is_block
        self.past_close = past_close
        self.is_tail = False  # it came to the end that was known, once
        self.users = 0
        self._ledger = ledger
        self._lists = ledger.lists(self)
        self._waiting: dict[Deferred[Some | None], None] = {}  # in order
        self.is_asked = False  # something is under way
        self._has_ended = False

    @property
    def key(self) -> Key:
        """By which it is found."""
        return self.at, self.last

    def ask(self, waiting: Deferred[Some | None]) -> None:
        """Fires with the next ones, or with None at the end."""
        self._waiting[waiting] = None
        if not self.is_asked:
            self.is_asked = True
            Deferred.fromCoroutine(self._next())

    def take_back(self, waiting: Deferred[Some | None]) -> None:
        """Keeps nothing for one that waits no more: it may be long until something comes."""
        self._waiting.pop(waiting, None)

    async def _next(self) -> None:
        some: Some | None = None
        error: Exception | None = None
        try:
            some = await self._brought()
        except Exception as failure:
            error = failure
        self.is_asked = False
        self._ledger.fetched(self, some)
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.called:
                each.callback(some) if error is None else each.errback(error)
        if self.users == 0:
            self.end()

    async def _brought(self) -> Some | None:
        """Brings what comes next, however long nothing came; None at the end, or once nobody waits any more."""
        while True:
            async for some in self._lists:
                return some
            reader = self._ledger.reader
            if self.last is not None or reader.closed or reader.gone or not self.users:
                return None
            self._lists = self._ledger.lists(self)

    def end(self) -> None:
        """Nobody wants more."""
        if not self._has_ended:
            self._has_ended = True
            Deferred.fromCoroutine(_closed(self._lists))


class SharedLedger:
    """A ledger that some readers have open.  `counters`: of its log."""

    def __init__(self, cache: EntryCache, reader: Reader, counters: LogCounters) -> None:
        self.reader = reader
        self.cache = cache
        self.counters = counters
        self.users: dict[SharedReader, None] = {}
        self._fetching: dict[Key, Fetching] = {}

    def positions(self) -> list[int]:
        """The next entry of each who is reading, ascending."""
        return sorted(place.at for user in self.users for place in user.places)

    def fetching(self, at: int, last: int | None, past_close: bool, is_block: bool = False) -> Fetching:
        """Gives the fetching of the entries from `at` on."""
        found = self._fetching.get((at, last))
        if found is None:
            found = self._fetching[at, last] = Fetching(self, at, last, past_close, is_block)
        return found

    def block_with(self, entry: int) -> Fetching | None:
        """The block that is under way and has this entry, if there is one."""
        for each in self._fetching.values():
            if each.is_block and each.is_asked and each.last is not None and each.at <= entry <= each.last:
                return each
        return None

    def lists(self, fetching: Fetching) -> AsyncGenerator[Some, None]:
        """Gives what the ledger has from there on, in lists."""
        reader, at, last = self.reader, fetching.at, fetching.last
        if last is None:
            return reader.tail(FOLLOW_S, at, past_close=fetching.past_close)
        return _all(reader, at, last) if fetching.is_block or at == last else reader.stream(at, last)

    def fetched(self, fetching: Fetching, some: Some | None) -> None:
        """Notes that it brought these, or that there is no more."""
        self._forget(fetching)
        if not some:
            return
        fetching.at = some[-1].entry_id + 1
        at_end = fetching.last is None and fetching.at > self.reader.last_entry_id
        fetching.is_tail = fetching.is_tail or at_end
        if fetching.users:
            self._fetching.setdefault(fetching.key, fetching)  # where two meet, one goes on
        if self.users:
            self.cache.put(self, some, fetching.is_tail)

    def leave(self, fetching: Fetching) -> None:
        """One who took from it does not any more.  What is under way is for who comes to this place next."""
        fetching.users -= 1
        if fetching.users == 0 and not fetching.is_asked:
            self._forget(fetching)
            fetching.end()

    def _forget(self, fetching: Fetching) -> None:
        if self._fetching.get(fetching.key) is fetching:
            del self._fetching[fetching.key]


async def _closed(lists: AsyncGenerator[Some, None]) -> None:
    await lists.aclose()


async def _all(reader: Reader, first: int, last: int) -> AsyncGenerator[Some, None]:
    yield await reader.read(first, last)


class Place:
    """Where in a ledger somebody is; `at` is the next entry that is wanted of it."""

    def __init__(self, ledger: SharedLedger, clock: Clock, at: int) -> None:
        self.at = at
        self._ledger = ledger
        self._clock = clock
        self._fetching: Fetching | None = None  # that was taken from last
        self._waiting: Deferred[Some | None] | None = None

    def cached(self, last: int | None = None) -> Some:
        """Gives what the cache has of the next ones, up to `last`."""
        some = self._ledger.cache.at(self._ledger, self.at, None if last is None else last + 1 - self.at)
        self._ledger.counters.cache_hits += len(some)
        return some

    async def block(self, last: int, readable: int) -> Some | None:
        """
        The next ones; where reads go on, those behind `last` that are readable come into the cache, too.  One who wants
        of what is under way waits for that.
        """
        ledger = self._ledger
        try:
            under_way = ledger.block_with(self.at)
            if under_way is not None:
                await self._asked(under_way)
                if some := self.cached(last):
                    return some
            ahead = min(self.at + ledger.cache.worth_fetching(ledger, self.at) - 1, readable)
            if ahead > last:
                return await self._taken(ledger.fetching(self.at, ahead, True, True))
        except ClientClosed:
            raise
        except LedgerError:  # perhaps of an entry that is not wanted: those that are, are asked for alone
            pass
        return await self._taken(ledger.fetching(self.at, last, True, True))

    async def fetched(self, last: int | None, past_close: bool = True, seconds: float | None = None) -> Some | None:
        """The next ones; None when nothing came for so long, or nothing more comes."""
        return await self._taken(self._ledger.fetching(self.at, last, past_close), seconds)

    async def _taken(self, fetching: Fetching, seconds: float | None = None) -> Some | None:
        if fetching is not self._fetching:
            fetching.users += 1
            self._leave()
            self._fetching = fetching
        counters, was_asked = self._ledger.counters, fetching.is_asked
        some = await self._asked(fetching, seconds)
        if was_asked:
            counters.cache_hits += len(some or ())
        else:
            counters.cache_misses += len(some or ())
        return some

    async def _asked(self, fetching: Fetching, seconds: float | None = None) -> Some | None:
        waiting: Deferred[Some | None] = Deferred()
        self._waiting = waiting
        timer = None if seconds is None else self._clock.callLater(seconds, self._too_late)
        fetching.ask(waiting)
        try:
            return await waiting
        finally:
            self._waiting = None
            fetching.take_back(waiting)
            if timer is not None and timer.active():
                timer.cancel()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more is wanted; what is waited for fails."""
        self._leave()
        if self._waiting is not None and not self._waiting.called and error is not None:
            self._waiting.errback(error)

    def _too_late(self) -> None:
        if self._waiting is not None and not self._waiting.called:
            self._waiting.callback(None)

    def _leave(self) -> None:
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            self._ledger.leave(fetching)


class SharedReader:
    """One reader's share in a ledger, in the place of a `Reader` of its own."""

    def __init__(self, ledger: SharedLedger, ledgers: "SharedLedgers") -> None:
        self.places: dict[Place, None] = {}
        self._ledger = ledger
        self._reader = ledger.reader
        self._ledgers = ledgers
        self._is_closed = False
        ledger.users[self] = None

    @property
    def last_entry_id(self) -> int:
        """As the ledger's."""
        return self._reader.last_entry_id

    @property
    def confirmed_entry_id(self) -> int:
        """As the ledger's."""
        return self._reader.confirmed_entry_id

    def read_last_confirmed(self) -> Deferred[int]:
        """As the ledger's."""
        return self._reader.read_last_confirmed()

    def offset_of(self, entry: int) -> Deferred[int]:
        """As the ledger's."""
        return self._reader.offset_of(entry)

    async def read(self, first: int, last: int) -> Sequence[Entry]:
        """As the ledger's; what several want is read once."""
        self._check()
        if first != last:
            return await self._reader.read(first, last)
        with self._place(first) as place:
            some = place.cached(last) or await place.fetched(last)
        assert some
        return some[:1]

    async def stream(self, first: int, last: int, readable: int | None = None) -> AsyncGenerator[Sequence[Entry], None]:
        """As the ledger's.  `readable`: of a few entries, the last one that may be fetched along with them."""
        with self._place(first) as place:
            while place.at <= last:
                self._check()
                some = place.cached(last) or await (
                    place.fetched(last) if readable is None else place.block(last, readable)
                )
                if not some:
                    return
                some = some[: last + 1 - place.at]
                place.at += len(some)
                yield some

    async def tail(
        self, timeout: float, first: int = 0, *, past_close: bool = True
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """As the ledger's."""
        with self._place(first) as place:
            silent_since = self._ledgers.clock.seconds()
            while True:
                self._check()
                some: Sequence[Entry] | None = place.cached()
                if not some:
                    end = self.last_entry_id if past_close else self.confirmed_entry_id
                    left = silent_since + timeout - self._ledgers.clock.seconds()
                    if place.at > end and left <= 0:
                        return
                    some = await place.fetched(None, past_close, None if place.at <= end else left)
                if not some:
                    return
                place.at += len(some)
                yield some
                silent_since = self._ledgers.clock.seconds()

    async def close(self) -> None:
        """Fails what is under way with `ClientClosed`; the ledger is closed with its last reader."""
        if self._is_closed:
            return
        self._is_closed = True
        for place in list(self.places):
            place.end(ClientClosed(CLOSED))
        await self._ledgers.give_back(self._ledger, self)

    def _check(self) -> None:
        if self._is_closed:
            raise ClientClosed(CLOSED)

    @contextmanager
    def _place(self, first: int) -> Iterator[Place]:
        self._check()
        place = Place(self._ledger, self._ledgers.clock, first)
        self.places[place] = None
        try:
            yield place
        finally:
            place.end()
            del self.places[place]


class SharedLedgers:
    """The shared ledgers of one process, with its cache."""

    def __init__(self, client: Client, options: LogOptions) -> None:
        self.clock = client.reactor
        self._client = client
        self._options = options
        self._cache = EntryCache(client.reactor, options.cache_bytes)
        self._open: dict[tuple[int, bool], SharedLedger] = {}
        self._opening: dict[tuple[int, bool], DeferredLock] = {}

    async def open(self, segment: Segment, counters: LogCounters) -> SharedReader:
        """A segment's ledger as it is now.  The errors of opening one."""
        key = segment.ledger, segment.is_open and segment.leased
        opening = self._opening.setdefault(key, DeferredLock())
        await opening.acquire()
        try:
            ledger, is_new = await self._opened(key, counters)
            reader = SharedReader(ledger, self)
        finally:
            opening.release()
            if not opening.locked:
                self._opening.pop(key, None)
        if not is_new and not ledger.reader.closed:
            try:
                await ledger.reader.read_last_confirmed()
            except BaseException:
                await reader.close()
                raise
        return reader

    async def _opened(self, key: tuple[int, bool], counters: LogCounters) -> tuple[SharedLedger, bool]:
        """One that knows whether its ledger is closed; whether it was opened for this."""
        client, ledger = self._client, key[0]
        stored = await client.stored(ledger)
        found = self._open.get(key)
        if found is not None and (found.reader.closed or not stored.value.is_closed):
            return found, False
        reader = await client.open_ledger(ledger, stored.value.password or b"", recover=False, known=stored)
        reader.read_ahead(self._options.read_ahead_bytes)
        made = self._open[key] = SharedLedger(self._cache, reader, counters)
        return made, True

    async def give_back(self, ledger: SharedLedger, reader: SharedReader) -> None:
        """One that has done."""
        del ledger.users[reader]
        if not ledger.users:
            for key, each in list(self._open.items()):
                if each is ledger:
                    del self._open[key]
            self._cache.forget(ledger)
            await ledger.reader.close()
