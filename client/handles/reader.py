"""
Reading a ledger, for Twisted programs: closed ones, and open ones without disturbing their writer.

Knows: that nothing is read past the end of a closed ledger or the last add confirmed (D8, D9), and how a reader follows
a writer to the close.
Does not know: how the end is found out (`end_of_ledger`), which replica is asked for what (`core.read`), recovery.

Safety: nothing here fences, and the end that a reader shows never shrinks.
"""

import operator
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from typing import NamedTuple, overload

from twisted.internet.defer import Deferred

from quire.client.connections.network import begun
from quire.client.handles.end_of_ledger import EndOfLedger, LastConfirmedPool
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.range_reader import OneEntry, PayloadRun, RangeReads, ReaderNotes
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import ENTRY_ID_MAX, Digest
from quire.protocol.errors import LedgerError, NoSuchEntry, Read

# SPDX-License-Identifier: Apache-2.0


class Entry(NamedTuple):
    ledger_id: int
    entry_id: int
    data: bytes


entry_of = partial(tuple.__new__, Entry)  # what `Entry._make` does, without a call of Python for each


class Entries(Sequence[Entry]):
    """Adjacent entries, each made when it is asked for: their payloads came together, and not all want more."""

    __slots__ = ("first", "ledger_id", "payloads")

    def __init__(self, ledger_id: int, first: int, payloads: Sequence[bytes]) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Entry]:
        return map(entry_of, zip(repeat(self.ledger_id), count(self.first), self.payloads))

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        ids = range(self.first, self.first + len(self.payloads))
        if isinstance(index, int):
            return Entry(self.ledger_id, ids[index], self.payloads[index])
        if ids[index].step == 1:
            return Entries(self.ledger_id, ids[index].start, self.payloads[index])
        return list(self)[index]

    def __add__(self, other: Iterable[Entry]) -> list[Entry]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Entry]) -> list[Entry]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # what compares as a list is no key

    def __repr__(self) -> str:
        return repr(list(self))


def entries_of(ledger: int, run: PayloadRun) -> Entries:
    return Entries(ledger, run.first, run.payloads)


class Reader:
    """One ledger, open for reading.  Made by `Client.open_ledger`."""

    def __init__(
        self,
        clock: Clock,
        pool: LastConfirmedPool,
        record: LedgerRecord,
        digest: Digest,
        options: ClientOptions,
        notes: ReaderNotes,
        on_end: Callable[["Reader"], None] = lambda _reader: None,
        ranks: Callable[[set[str]], Mapping[str, tuple[float, ...]]] = lambda _bookies: {},
    ) -> None:
        self.id = record.ledger
        self._clock = clock
        self._record = record
        self._on_end = on_end
        self._notes = notes
        self._reads = RangeReads(clock, pool, record, digest, options, notes, ranks)
        self._end = EndOfLedger(clock, pool, record, digest, options, self._reads)

    # What a user sees.

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as far as is known here."""
        return self._record.metadata

    @property
    def closed(self) -> bool:
        """True if the ledger is closed, as far as is known here."""
        return self._record.metadata.is_closed

    @property
    def gone(self) -> bool:
        """True if the ledger was deleted, as far as is known here."""
        return self._end.gone

    @property
    def damaged(self) -> set[tuple[str, int]]:
        """(bookie, entry) of copies that were read here and are not what was written."""
        return self._notes.bad

    @property
    def last_entry_id(self) -> int:
        """The last entry of a closed ledger; else the last add confirmed that is known.  -1: none."""
        return self._end.lac

    @property
    def confirmed_entry_id(self) -> int:
        """The last add confirmed that was seen before the ledger was closed, which may confirm more; -1: none."""
        return self._end.confirmed

    @property
    def length(self) -> int:
        """Payload bytes, exact once the ledger is closed; before, they may count entries not yet confirmed."""
        return self._end.length

    def read(self, first: int, last: int) -> Deferred[list[Entry]]:
        """Entries first..last.  `ValueError` unless 0 <= first <= last < 2^63; `Read` past `last_entry_id`."""
        if first == last and type(first) is int and 0 <= first <= self._end.lac and not self._reads.ended:
            return self._reads.one(first).addCallback(self._entry, first)  # without a coroutine, which costs as much
        return Deferred.fromCoroutine(self._read(first, last, False))

    def read_unconfirmed(self, first: int, last: int) -> Deferred[list[Entry]]:
        """
        Reads past the last add confirmed: an entry that is not confirmed may be gone after a recovery.  Never past
        the end of a closed ledger: then fewer come back.
        """
        return Deferred.fromCoroutine(self._read(first, last, True))

    @begun
    async def offset_of(self, entry: int) -> int:
        """The payload bytes of all entries before this one.  As `read`."""
        self._check_range(entry, entry)
        if entry > self._end.lac:
            raise self._past_end(entry)
        return await self._end.offset_of(entry)

    def read_last_confirmed(self) -> Deferred[int]:
        """Asks the bookies how far the ledger is confirmed; answered from the metadata once it is closed."""
        return Deferred.fromCoroutine(self._end.read_last_confirmed())

    def try_read_last_confirmed(self) -> Deferred[int]:
        """
        Reads the last add confirmed from the bookie that first answers with news, so also while too few bookies are up
        for certainty; without news, what is known here.  `LedgerRecovery` when no bookie answers.
        """
        return Deferred.fromCoroutine(self._end.try_read_last_confirmed())

    def read_horizon(self) -> Deferred[tuple[int, int]]:
        """
        The last add confirmed, and an entry that none is above which was acknowledged before this was asked; of a
        closed ledger its end, twice.  Fences nothing.  Fails as `read_last_confirmed`, also where a bookie whose last
        entry is damaged would have to be counted on; `NoSuchLedger`, `MetaStore`.
        """
        return Deferred.fromCoroutine(self._end.read_horizon())

    @begun
    async def read_last_entry(self) -> Entry:
        """The last confirmed entry, asked for again while the ledger is open.  `NoSuchEntry` without one."""
        last = await self._end.read_last_confirmed()
        if last < 0:
            raise NoSuchEntry(f"ledger {self.id} has no entry that is confirmed")
        (entry,) = await self._read(last, last, False)
        return entry

    async def stream(self, first: int = 0, last: int | None = None) -> AsyncGenerator[Entries, None]:
        """Entries from `first` to `last` (None: to `last_entry_id`), many at a time, read ahead of the consumer."""
        async for run in self.runs(first, last):
            yield entries_of(self.id, run)

    async def runs(self, first: int = 0, last: int | None = None) -> AsyncGenerator[PayloadRun, None]:
        """As `stream`, in (first entry, payloads): no object for each entry."""
        end = self._end.lac if last is None else last
        if last is not None and last > self._end.lac:
            raise self._past_end(last)
        async for run in self._runs(first, end):
            yield run

    async def tail(self, timeout: float, first: int = 0, *, past_close: bool = True) -> AsyncGenerator[Entries, None]:
        """
        Entries from `first` on, following the writer; ends at the close, at the deletion, or after `timeout` seconds in
        which nothing came.  Not `past_close`: without the entries that only the close confirmed.
        """
        self.watch()
        following = first
        silent_since = self._clock.seconds()
        while True:
            end = self._end.lac if past_close else self._end.confirmed
            if following <= end:
                async for run in self._runs(following, end):
                    following = run.first + len(run.payloads)
                    yield entries_of(self.id, run)
                silent_since = self._clock.seconds()
                continue
            self._reads.check_open()
            left = silent_since + timeout - self._clock.seconds()
            if self.closed or self._end.gone or left <= 0:
                return
            news = await self._end.await_news(left)
            end = self._end.lac if past_close else self._end.confirmed
            if news is not None and following <= end:
                payloads = news.payloads[max(0, following - news.first) : end + 1 - news.first]
                if news.first <= following and payloads:
                    run = PayloadRun(following, payloads)
                    following += len(payloads)
                    yield entries_of(self.id, run)
                    silent_since = self._clock.seconds()  # the consumer's own time is no silence

    def close(self) -> Deferred[None]:
        """Ends this handle; the ledger is not touched."""
        self.end("this reader was closed")
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done

    def read_ahead(self, bytes_max: int) -> None:
        """Sets how many bytes are asked for at a time, instead of what the options say."""
        self._reads.read_ahead(bytes_max)

    def learn_confirmed(self, entry: int) -> None:
        """Another reader saw a last add confirmed that is not below: up to there may be read.  Nothing once closed."""
        self._end.confirm(entry)

    # For the client.

    def end(self, reason: str) -> None:
        """Everything under way fails with `ClientClosed`."""
        if self._reads.ended:
            return
        self._reads.end(reason)
        self._end.end()
        self._on_end(self)

    def watch(self) -> None:
        """Follows the metadata from now on."""
        self._end.watch()

    # How.

    def _past_end(self, entry: int) -> Read:
        end = (
            "the last entry of this closed ledger"
            if self.closed
            else "the last add confirmed that is known; read_last_confirmed() asks for a newer one"
        )
        return Read(f"ledger {self.id}: entry {entry} is past {self._end.lac}, {end}")

    async def _read(self, first: int, last: int, unconfirmed: bool) -> list[Entry]:
        self._check_range(first, last)
        if unconfirmed and self.closed:
            last = min(last, self._end.lac)
            if first > last:
                return []
        if not unconfirmed and last > self._end.lac:
            raise self._past_end(last)
        if first == last:
            return await self._reads.one(first).addCallback(self._entry, first)
        return await self._range(first, last)

    def _entry(self, asked: bytes | OneEntry, entry: int) -> list[Entry] | Deferred[list[Entry]]:
        """Returns what one replica gave, or what a range read finds."""
        if isinstance(asked, bytes):
            return [entry_of((self.id, entry, asked))]
        return Deferred.fromCoroutine(self._range(entry, entry, asked))

    async def _range(self, first: int, last: int, asked: OneEntry | None = None) -> list[Entry]:
        entries: list[Entry] = []
        async for run in self._runs(first, last, asked):
            entries += entries_of(self.id, run)
        return entries

    def _check_range(self, first: int, last: int) -> None:
        if not 0 <= operator.index(first) <= operator.index(last) <= ENTRY_ID_MAX:
            raise ValueError(f"a range of entries must be 0 <= first <= last <= 2^63 - 1, not {first} to {last}")
        self._reads.check_open()

    async def _runs(self, first: int, last: int, asked: OneEntry | None = None) -> AsyncGenerator[PayloadRun, None]:
        if first > last:
            return
        if first < 0:
            raise ValueError(f"entry {first}: ids begin at 0")
        self._reads.check_open()
        while first <= last:
            known = self._record.current.version
            try:
                async for run in self._runs_as_known(first, last, asked):
                    first = run.first + len(run.payloads)
                    yield run
                return
            except LedgerError as error:
                # Entries move when bookies are repaired or replaced, and a reader learns that only when it asks the old
                # ones.
                if self._reads.ended or not await self._end.moved_since(known):
                    self._notes.no_more(error)
                    raise
            asked = None
            if self.closed:
                last = min(last, self._end.lac)  # D9

    async def _runs_as_known(self, first: int, last: int, asked: OneEntry | None) -> AsyncGenerator[PayloadRun, None]:
        reading = self._reads.begin(first, last, asked=asked)
        try:
            began = self._clock.seconds()
            while (run := await reading.following()) is not None:
                self._notes.given(len(run.payloads), self._clock.seconds() - began)
                yield run
                began = self._clock.seconds()
        finally:
            self._reads.prefer = reading.prefer
            self._reads.finish(reading)
