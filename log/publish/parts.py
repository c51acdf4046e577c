"""
One task attempt's part: ledgers that are named in an intent before they exist, written, and closed.

Knows: the order of claim, intent, ledger and records, and when the next ledger is begun.
Does not know: what is published, other parts.

Safety: a ledger's intent is made before the ledger; a writer whose intent is gone, or whose batch was aborted
meanwhile, deletes its ledger and ends.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c
from twisted.internet.defer import Deferred, DeferredLock

from quire.client.api import Writer
from quire.conf.log import LogSettings
from quire.log.core.batch import Headers, Records
from quire.log.core.packed import Packed
from quire.log.core.publishing import IntentName, Part, PartLedger, Txn
from quire.log.owner.appending.appends import check, checked_skips, copied, cut
from quire.log.owner.appending.encoder import Encoder
from quire.log.publish.txns import Txns
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags

# SPDX-License-Identifier: Apache-2.0

UNDER_WAY = 8  # entries that have no acknowledgement yet


class PartWriter:
    """Appends to ledgers of its own.  `close` gives the `Part` for the driver; `discard` deletes what it wrote."""

    def __init__(
        self,
        context: LogContext,
        settings: LogSettings,
        txns: Txns,
        txn: Txn,
        batch: int,
        part: int,
        attempt: int,
    ) -> None:
        self._client = context.client
        self._txns = txns
        self._ledgers = context.ledgers
        self._options = context.options
        self._settings = settings
        self._txn = txn
        random = f"{self._client.random.getrandbits(32):08x}"
        self._name = IntentName(batch, part, attempt, random)
        self._reached = context.reached
        self._version = -1  # of the intent, once it is there
        self._ids: tuple[int, ...] = ()
        self._writer: Writer | None = None
        self._encoder: Encoder | None = None
        self._crc = 0
        self._records = 0
        self._done: list[PartLedger] = []
        self._under_way: deque[Deferred[Any]] = deque()  # entries that have no acknowledgement yet
        self._closed = False
        self._has_failed = False  # an append, which may have left some of its values
        self._turns = DeferredLock()

    async def append_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        skips: Sequence[int] | None = None,
        durable: bool = True,
    ) -> int:
        """
        Durable when it returns: how many records the part has then.  Of several calls one begins after the other has
        ended.  `skips`: by how many bytes the log's position advances before each value.  Not `durable`: some entries
        may be under way when it returns, and `close` waits for them.  `LogFenced` when its run is over.  Once a call
        has failed, `ValueError`: the part can only be discarded.
        """
        taken = values if isinstance(values, Packed) else list(values)
        columns = copied(keys), copied(times_ms), copied(headers)
        records = Records(taken, *columns, skips=checked_skips(skips, taken))
        check(records)
        return await self._turns.run(lambda: Deferred.fromCoroutine(self._append(records, durable)))

    async def _append(self, records: Records, durable: bool) -> int:
        if self._closed:
            raise ValueError("this part was closed")
        self._check_whole()
        try:
            for piece in cut(records, self._options.batch_bytes) if records.values else ():
                if self._encoder is not None and self._encoder.offset >= self._settings.roll_bytes:
                    await self._acknowledged()
                    await self._end_ledger()
                if self._writer is None:
                    await self._begin_ledger()
                assert self._encoder is not None
                assert self._writer is not None
                await self._txns.written(str(self._name), self._txn, self._writer.ready())
                entries = self._encoder.entries_of(piece, self._txns.log.now_ms())
                self._under_way.append(self._writer.append_many(entries))
                for value in (piece.values.data,) if isinstance(piece.values, Packed) else piece.values:
                    self._crc = crc32c(value, self._crc)
                self._records += len(piece.values)
                await self._acknowledged(UNDER_WAY - 1)
            if durable:
                await self._acknowledged()
        except BaseException:
            self._fail()
            raise
        return self._records

    def _fail(self) -> None:
        """Nothing of the part will be published."""
        self._has_failed = True
        self._let_go()

    def _let_go(self) -> None:
        """Nobody asks any more what becomes of entries under way: the first failure was told."""
        while self._under_way:
            self._under_way.popleft().addErrback(lambda _failure: None)

    def _check_whole(self) -> None:
        if self._has_failed:
            raise ValueError(
                f"the part {self._name} may lack values of an append that failed, and nothing of it is published: "
                "discard it, and write it again as a new part"
            )

    async def _acknowledged(self, left: int = 0) -> None:
        """Returns when so many have no acknowledgement yet, the latest ones."""
        while len(self._under_way) > left:
            await self._txns.written(str(self._name), self._txn, self._under_way.popleft())

    async def _begin_ledger(self) -> None:
        ledger = await self._client.store.new_ledger_id()
        ids = (*self._ids, ledger)
        self._version = await self._txns.intend(str(self._name), self._txn, ids, self._version)
        self._ids = ids
        self._reached("part.intended")
        name = self._name
        tags = Tags(
            "log-part",
            self._txns.log.log,
            self._txns.log.name,
            self._txns.log.new_id(),
            {
                "txn": self._txn.txn,
                "run": self._txn.run,
                "batch": str(name.batch),
                "part": str(name.part),
                "attempt": str(name.attempt),
            },
        )
        writer = await self._ledgers.create(self._settings, tags, ledger)
        self._reached("part.created")
        if not await self._txns.is_wanted(str(name), self._txn, name.batch):
            writer.shut_down()
            await self._ledgers.delete(ledger)
            await self._txns.forget(str(name), self._version)
            raise self._txns.over(str(name), self._txn)
        self._reached("part.looked")
        self._writer = writer
        self._crc = 0
        self._encoder = Encoder.of_ledger(self._options.part_bytes, self._settings.compression)

    async def _end_ledger(self) -> None:
        writer, encoder = self._writer, self._encoder
        assert writer is not None
        assert encoder is not None
        await self._txns.written(str(self._name), self._txn, self._ledgers.close(writer))
        self._writer = self._encoder = None
        counts = encoder.counts
        self._done.append(PartLedger(writer.id, counts.entries, counts.records, counts.bytes, self._crc))

    async def close(self) -> Part:
        """
        Gives what the driver publishes, once appends that were called before are over; without a record it has no
        ledger.  `LogFenced`; `MetaStore`: call it again.  `ValueError` once an append has failed.
        """
        return await self._turns.run(lambda: Deferred.fromCoroutine(self._close()))

    async def _close(self) -> Part:
        if not self._closed:
            self._check_whole()
            try:
                await self._acknowledged()
            except BaseException:
                self._fail()
                raise
            self._reached("part.written")
            if self._writer is not None:
                await self._end_ledger()
            self._closed = True
            self._reached("part.closed")
        txn, name = self._txn, self._name
        intent = str(name) if self._version >= 0 else ""
        return Part(
            txn.txn, txn.run, txn.claim, name.batch, name.part, name.attempt, intent, self._version, tuple(self._done)
        )

    async def discard(self) -> None:
        """Deletes what was written.  `ValueError` once `close` has given the part: it may be published any time."""
        if self._closed:
            raise ValueError("this part was closed and may be published: abort its batch instead")
        self._let_go()
        if self._writer is not None:
            self._writer.shut_down()
        for ledger in self._ids:
            await self._ledgers.delete(ledger)
        if self._version >= 0:
            await self._txns.forget(str(self._name), self._version)
        self._closed = True
