"""
Proofs that a replica is new enough: up to which index all must be applied (docs/log-replicas.md, "Linearizable reads").

Knows: the procedures of each mode, that one round of questions serves all reads that were asked before it began, and
how far the open segment may be acknowledged: its ledger is read without disturbing its writer.
Does not know: what is applied, and what is read.

Safety: what was acknowledged before a read was asked is below the index of its proof, whoever owns the log by now.  A
round asks the ledger and the manifest after a `sync` that was asked after the reads it serves; an entry that was
acknowledged before the ledger was asked is not above the one that is found.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from quire.client.api import Client, Entry, Reader
from quire.log.core.frame import unpack_header
from quire.log.core.manifest import Manifest
from quire.log.core.values import Segment
from quire.log.machine.machines import Proof
from quire.log.store.context import TRIES_MAX, LogContext
from quire.log.upkeep.keeping import KeptOwner
from quire.protocol.errors import ClientClosed, LedgerError, NoSuchLedger
from quire.protocol.log_errors import StaleRead

# SPDX-License-Identifier: Apache-2.0


class Stored(NamedTuple):
    """The highest entry of the open segment that may be acknowledged; -1: none."""

    segment: Segment
    reader: Reader
    last: int


class Horizon:
    """`wait_s`: for an entry that is stored and not confirmed."""

    def __init__(self, client: Client, wait_s: float) -> None:
        self.closed = False
        self._client = client
        self._read_s = wait_s
        self._reader: Reader | None = None
        self._opening = DeferredLock()
        self._known = (-1, -1, 0)  # ledger, entry, and the index behind it, of the last one that was asked for

    async def stored(self, segment: Segment | None) -> Stored | None:
        """How far it may be acknowledged; None where its ledger is gone: the manifest says what became of it."""
        if segment is None:
            return None
        try:
            reader = await self._opened(segment.ledger)
            _confirmed, last = await reader.read_horizon()
        except NoSuchLedger:
            return None
        return Stored(segment, reader, last)

    async def _opened(self, ledger: int) -> Reader:
        async with self._opening:  # a round that failed at the manifest may be at it still
            if self._reader is None or self._reader.id != ledger:
                self._forget()
                metadata = await self._client.metadata(ledger)
                reader = await self._client.open_ledger(ledger, metadata.password or b"", recover=False)
                if self.closed:
                    reader.close()
                    raise ClientClosed("the replica was closed while a read was proved")
                self._reader = reader
            return self._reader

    async def index_of(self, stored: Stored) -> int:
        """Behind an entry, once it is confirmed; or behind the ledger's last, if it ended below that."""
        segment, reader, last = stored
        while last >= 0:
            if self._known[:2] == (reader.id, last):
                return self._known[2]
            if last <= reader.last_entry_id:
                return self._end_of(segment, *await reader.read(last, last))
            async with aclosing(reader.tail(self._read_s, last)) as lists:
                async for some in lists:
                    return self._end_of(segment, some[0])
            if not reader.closed:
                raise StaleRead(
                    f"entry {last} of ledger {reader.id} was not confirmed in {self._read_s} s: ask again, or raise "
                    "read_ms"
                )
            last = min(last, reader.last_entry_id)
        return segment.first

    def _end_of(self, segment: Segment, entry: Entry) -> int:
        """The index behind an entry of a segment, which is confirmed."""
        header = unpack_header(entry.data)
        end = segment.first + header.ordinal + header.records
        self._known = segment.ledger, entry.entry_id, end
        return end

    def _forget(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """Fails what is under way with `ClientClosed`."""
        self.closed = True
        self._forget()


T = TypeVar("T")
Prove = Callable[[], Awaitable[Proof]]


class Proofs:
    """`owner()` is this process's owner of the log, if it has one."""

    def __init__(self, context: LogContext, owner: Callable[[], KeptOwner | None]) -> None:
        self._ledgers = context.ledgers
        self._log = context.log
        self._owner = owner
        self._boottime = context.ages.boottime
        self._horizon = Horizon(context.client, context.options.read_ms / 1000)
        self._asked: list[Deferred[Proof]] = []  # of the next round
        self._asking = False
        self._last: Proof | None = None

    # -- modes -----------------------------------------------------------------------------------------------------

    def index(self) -> "Deferred[Proof]":
        """By a round of questions.  `StaleRead`; the errors of the store and of bookies."""
        asked: Deferred[Proof] = Deferred()
        self._ask([asked])
        return asked

    def _ask(self, asked: "list[Deferred[Proof]]") -> None:
        """With the next round."""
        self._asked += asked
        if not self._asking:
            self._asking = True
            Deferred.fromCoroutine(self._rounds())

    async def lease(self) -> Proof:
        """Without a message while this process's owner holds its lease, which is looked at again after the read."""
        owner = self._owner()
        known = None if owner is None else owner.records.known
        if owner is None or known is None or not owner.lease.holds:
            return await self.index()
        end = max(owner.end.index, known.value.closed_end[0])
        return Proof(end, self._boottime(), lambda: owner.lease.holds)

    def bounded(self, bound_ms: float) -> Prove:
        """By a round that is not older than that when the read is answered."""
        bound_s = bound_ms / 1000

        async def prove() -> Proof:
            found = self._last
            if found is None or self._boottime() - found.since > bound_s:
                found = await self.index()
            index, since, _holds = found
            return Proof(index, since, lambda: self._boottime() - since <= bound_s)

        return prove

    # -- rounds ----------------------------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            since = self._boottime()
            try:
                found = await self._round()
            except Exception as error:
                self._answer(asked, error)
            else:
                Deferred.fromCoroutine(self._settle(asked, since, found))
        self._asking = False

    async def _settle(self, asked: "list[Deferred[Proof]]", since: float, found: int | Stored) -> None:
        try:
            proof = Proof(found if isinstance(found, int) else await self._horizon.index_of(found), since)
        except ClientClosed as error:
            if self._horizon.closed:
                self._answer(asked, error)
            else:  # a later round has opened the next segment
                self._ask(asked)
            return
        except Exception as error:
            self._answer(asked, error)
            return
        if self._last is None or since > self._last.since:
            self._last = proof
        self._answer(asked, proof)

    def _answer(self, asked: "list[Deferred[Proof]]", answer: Proof | Exception) -> None:
        for each in asked:
            if each.called:  # it took too long
                continue
            if isinstance(answer, Exception):
                each.errback(answer)
            else:
                each.callback(answer)

    async def _round(self) -> int | Stored:
        """The index, or the entry that tells it."""
        owner = self._owner()
        end = 0 if owner is None else owner.end.index
        await self._log.records.sync()
        manifest = (self._log.known or await self._log.read()).value
        for _ in range(TRIES_MAX):
            before = manifest.open_segment
            mine = owner is not None and owner.me.owns(manifest)
            manifest, found = await self._with_manifest(self._is_open(before) if mine else self._horizon.stored(before))
            if manifest.open_segment != before or (found is None and before is not None):
                continue
            if before is None:
                return max(end, manifest.closed_end[0])
            if isinstance(found, Stored):
                return found
            if found and owner is not None and owner.me.owns(manifest):
                return max(end, manifest.closed_end[0])
            owner = None  # another one has ended its ledger
        raise StaleRead(
            f"the manifest of the log {self._log.name!r} changed {TRIES_MAX} times during one proof: ask again"
        )

    async def _with_manifest(self, other: "Coroutine[Any, Any, T]") -> "tuple[Manifest, T]":
        """The manifest of now, and what is asked beside it."""
        beside = Deferred.fromCoroutine(other)
        try:
            manifest = (await self._log.read()).value
        except LedgerError:
            beside.addErrback(lambda _failure: None)
            raise
        return manifest, await beside

    async def _is_open(self, segment: Segment | None) -> bool | None:
        """True if nobody has ended the owner's ledger; None: there is none."""
        if segment is None:
            return None
        return await self._ledgers.is_open(segment.ledger)

    def close(self) -> None:
        """The ledger that it has open."""
        self._horizon.close()
