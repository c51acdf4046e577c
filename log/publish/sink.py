"""
A publisher's end: parts for tasks, commit and abort for their driver, and what upkeep takes.

Knows: the order of looking, settling, publishing and cleaning up.
Does not know: Spark, records, who owns the log.

Safety: a batch is published in one step with the txn that says so and without the intents of its parts.  An abort moves
the txn before it deletes anything.  Upkeep reads the txn first and then an intent; ledgers are fenced before they are
deleted, and their intent goes last.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from twisted.logger import Logger

from quire.conf.log import LogSettings
from quire.log.core import publishing
from quire.log.core.edits import Publish, Published, check_open, check_publishable
from quire.log.core.manifest import Manifest
from quire.log.core.publishing import Again, IntentName, Part, PartLedger, Txn
from quire.log.core.uses import check_mirror
from quire.log.core.values import Counts
from quire.log.publish.parts import PartWriter
from quire.log.publish.settling import Receipt, Settling, Tidied
from quire.log.publish.txns import Txns
from quire.log.store.context import LogContext
from quire.log.store.ledgers import log_of
from quire.metadata.records import NoRecord, RecordChanged, RecordError
from quire.metadata.store import Versioned, at_once
from quire.metadata.tree import Check, Delete, Step, Write
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import LogError, PublishRefused

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LOOKED_AT_AT_ONCE = 50  # ledgers


class Cleaned(NamedTuple):
    """How many parts went, and why ledgers of others stay: they can't be brought to their end now."""

    parts: int
    stayed: dict[int, str]


class Sink:
    """
    One run of a txn.  `first_batch`: where a txn begins that has published nothing; None: at 0, or as was said.
    `tidied` is waited for after each commit, with the log's newest stamp before it and with it.
    """

    def __init__(
        self,
        context: LogContext,
        txn: str,
        run: str,
        first_batch: int | None,
        tidied: Tidied | None = None,
    ) -> None:
        self._context = context
        self._client = context.client
        self._log = context.log
        self._ledgers = context.ledgers
        self._reached = context.reached
        self._txns = Txns(context.log, txn)
        self._run = run
        self._first_batch = first_batch
        self._settling = Settling(context)
        self._tidied = tidied
        self._stamps = (0, 0)  # the log's newest one before what was published last, and with it

    async def part(self, batch: int, part: int, attempt: int) -> PartWriter:
        """A task attempt's writer.  `LogFenced` when the run is over."""
        txn = (await self._txns.claim(self._run, self._first_batch)).value
        self._reached("part.claimed")
        settings = LogSettings.of((await self._log.read()).value.settings)
        return PartWriter(self._context, settings, self._txns, txn, batch, part, attempt)

    # -- commit ----------------------------------------------------------------------------------------------------

    async def begin(self) -> int | None:
        """
        Claims the txn, as the first part or commit does otherwise: the batch that was published last, None for none.
        `LogFenced` when the run is over.
        """
        txn = (await self._owned()).value
        return None if txn.receipt is None else txn.last

    async def spread(self, batch: int, over: int) -> int:
        """
        Claims the txn, and returns among how many partitions the rows of a batch are divided: `over`, or what was given
        for it first, by whatever run; so that no row of a batch that is in some partitions already goes to another one.
        Asked of the first partition of a log.  `LogFenced` when the run is over.
        """
        edit = self._log.new_id()
        while True:
            txn = await self._owned()
            changed = publishing.spreading(txn.value, batch, over, self._log.now_ms(), edit)
            if changed is None:
                return publishing.spread_of(txn.value, batch) or over
            if await self._txns.write(changed, txn.version):
                return over

    async def commit(
        self,
        batch: int,
        parts: Sequence[Part],
        *,
        verify: Literal["metadata", "entries"] = "metadata",
        gaps: bool = False,
    ) -> Receipt:
        """
        Publishes the parts in the order given, in one step.  Called again it gives the receipt of the first time.
        `gaps`: the batch may be any above the last; those between count as published from then on.  `LogFenced`,
        `BatchGap`, `PublishRefused`, `LogTerminated`; `MetaStore`: unknown, call it again.
        """
        counters = self._log.counters
        try:
            receipt = await self._commit(batch, parts, verify, gaps)
        except LogError:
            counters.published("refused")
            raise
        except MetaStore:
            counters.published("unknown")
            raise
        counters.published("again" if receipt.again else "done", 0 if receipt.again else len(receipt.segments))
        try:
            await self.janitor()
        except LedgerError as error:
            log.warn(
                "batch {batch} of the txn {txn} is published; what can't be published any more stays for now: {error}",
                batch=batch,
                txn=self._txns.txn,
                error=str(error),
            )
        if self._tidied is not None and receipt.segments and not receipt.again:
            await self._tidied(*self._stamps)
        return receipt

    async def _commit(self, batch: int, parts: Sequence[Part], verify: str, gaps: bool) -> Receipt:
        edit = self._log.new_id()
        has_ledgers = any(part.ledgers for part in parts)  # else nothing comes behind an owner's open segment
        settled: tuple[int, Counts] | None = None
        verified = False
        while True:
            await self._log.records.sync()
            txn = await self._owned()
            again = publishing.committing(txn.value, self._run, batch, gaps)
            if again is not None:
                return _receipt(batch, again)
            manifest = (await self._log.read()).value
            check_open(manifest)
            check_mirror(manifest, False)
            if has_ledgers:
                check_publishable(manifest)  # before an owner's segment is ended for it
            publishing.check_parts(txn.value, batch, parts)
            if not verified:
                await self._verify(parts, verify)
                verified = True
                self._reached("publish.checked")
            if has_ledgers:
                if not await self._settling.wait(manifest):
                    continue
                settled = await self._settling.end(manifest)
                if settled is None and manifest.open_segment is not None:
                    continue
            receipt = await self._publish(txn, batch, parts, settled, edit, gaps)
            if receipt is not None:
                self._reached("publish.done")
                return receipt

    async def _owned(self) -> Versioned[Txn]:
        """The txn with this run as its owner: a new run claims it.  `LogFenced` for a former one."""
        return await self._txns.claim(self._run, self._first_batch)

    async def _verify(self, parts: Sequence[Part], verify: str) -> None:
        """`PublishRefused` names a ledger that is not what its part says."""
        every = [(part, each) for part in parts for each in part.ledgers]
        for start in range(0, len(every), LOOKED_AT_AT_ONCE):
            some = every[start : start + LOOKED_AT_AT_ONCE]
            await at_once([self._verify_one(part, each, verify) for part, each in some])

    async def _verify_one(self, part: Part, each: PartLedger, verify: str) -> None:
        try:
            metadata = await self._client.metadata(each.ledger)
        except NoSuchLedger:
            raise refused(part, each, "is gone") from None
        named = metadata.custom.get("quire/txn", b""), metadata.custom.get("quire/run", b"")
        wanted = part.txn.encode(errors="replace"), part.run.encode(errors="replace")
        if log_of(metadata) != self._log.log or named != wanted:
            raise refused(part, each, f"was not written for the log {self._log.name!r} and this run")
        if not metadata.is_closed or metadata.last_entry != each.entries - 1:
            raise refused(part, each, f"is not closed at entry {each.entries - 1}")
        if verify == "entries":
            counts = (await self._ledgers.count(each.ledger, metadata)).counts
            if (counts.records, counts.bytes) != (each.records, each.bytes):
                raise refused(
                    part,
                    each,
                    f"holds {counts.records} records of {counts.bytes} bytes, the part says {each.records} of "
                    f"{each.bytes}",
                )

    async def _publish(
        self,
        txn: Versioned[Txn],
        batch: int,
        parts: Sequence[Part],
        settled: tuple[int, Counts] | None,
        edit: str,
        gaps: bool,
    ) -> Receipt | None:
        """None: something changed meanwhile, and it has to be looked at again."""
        log = self._log
        ledgers = [
            Published(each.ledger, each.records, each.bytes, each.entries, part.part)
            for part in parts
            for each in part.ledgers
        ]
        total = sum(each.records for each in ledgers)

        def beside(before: Manifest, after: Manifest) -> list[Step]:
            self._stamps = before.last_stamp, after.last_stamp
            end = after.closed_end[0]
            numbers = (after.next - len(ledgers), after.next - 1) if ledgers else None
            receipt = publishing.Published(end - total, end, numbers)
            done = publishing.published(txn.value, batch, receipt, log.now_ms(), edit)
            steps: list[Step] = [Write(self._txns.path, done.encode(), txn.version)]
            steps += [Delete(f"{self._txns.intents}/{part.intent}", part.version) for part in parts if part.intent]
            return steps

        try:
            if ledgers:
                now_ms = min(log.now_ms(), await log.records.clock())
                publish = Publish(ledgers, now_ms, settled, self._txns.txn, batch, now_ms=now_ms)
                if not (await log.edit(publish, edit, beside)).done:
                    return None
            else:
                known = await log.read()
                check_open(known.value)
                check_mirror(known.value, False)
                await log.records.multi([Check(log.path, known.version), *beside(known.value, known.value)])
        except RecordChanged:
            return None
        except RecordError as error:
            if (await self._txns.read()).version != txn.version:
                return None
            raise PublishRefused(
                f"an intent of batch {batch} is gone or has changed, so its part was not closed by this run: run its "
                f"task again ({error})"
            ) from None
        # as it is stored: of several tries, one whose answer was lost may be the one that took effect
        stored = publishing.committing((await self._txns.read()).value, self._run, batch, gaps)
        return None if stored is None else _receipt(batch, stored)._replace(again=False)

    # -- abort and upkeep ------------------------------------------------------------------------------------------

    async def abort(self, batch: int, parts: Sequence[Part] = ()) -> None:
        """
        Deletes what tasks of this run wrote for the batch, unless it was published.  `LogFenced` when the run is over.
        What can't be deleted now is the janitor's.
        """
        while True:
            await self._log.records.sync()
            try:
                found = await self._txns.read()
            except NoRecord:
                return
            edit = self._log.new_id()
            marked = publishing.aborting(found.value, self._run, batch, self._log.now_ms(), edit)
            if marked is None:
                return
            if await self._txns.write(marked, found.version):
                break
        self._reached("abort.moved")
        await self._clean("abort", batch)

    async def janitor(self) -> int:
        """Deletes what can't be published any more, of any run; how many parts that were."""
        return (await self.clean()).parts

    async def clean(self, abandon: bool = False) -> Cleaned:
        """As `janitor`, and says what stays.  `abandon`: ledgers whose bookies can't be asked go, too."""
        return await self._clean("janitor", None, abandon)

    async def _clean(self, what: str, batch: int | None, abandon: bool = False) -> Cleaned:
        """The dead intents (of one batch), with their ledgers."""
        count = 0
        stayed: dict[int, str] = {}
        await self._log.records.sync()
        try:
            txn = (await self._txns.read()).value  # before any intent: one that was seen before may be published
        except NoRecord:
            return Cleaned(0, stayed)
        for name in await self._txns.names():
            parsed = IntentName.parse(name)
            if batch is not None and parsed.batch != batch:
                continue
            while True:
                try:
                    intent, version = await self._txns.intent(name)
                except NoRecord:
                    break
                if not publishing.is_dead(txn, parsed.batch, intent.claim):
                    break
                await self._log.records.sync()
                fenced = partial(self._reached, f"{what}.fenced")
                done = await self._ledgers.delete_all(intent.ledgers, fenced, abandon=abandon)
                self._log.counters.janitor_ledgers += len(done.gone)
                stayed |= done.stayed
                if done.stayed:
                    break
                self._reached(f"{what}.deleted")
                with suppress(RecordChanged):  # a task that went on has named one ledger more
                    try:
                        await self._log.records.delete(f"{self._txns.intents}/{name}", version)
                    except NoRecord:
                        break
                    count += 1
                    self._reached(f"{what}.cleared")
                    break
        return Cleaned(count, stayed)


def refused(part: Part, ledger: PartLedger, why: str) -> PublishRefused:
    """The error of a ledger that is not what its part says."""
    return PublishRefused(f"ledger {ledger.ledger} of part {part.part} {why}: run the part's task again")


def _numbers(numbers: tuple[int, int] | None) -> tuple[int, ...]:
    return () if numbers is None else tuple(range(numbers[0], numbers[1] + 1))


def _receipt(batch: int, again: Again) -> Receipt:
    known = again.receipt
    if known is None:
        return Receipt(batch, -1, -1, (), True)
    return Receipt(batch, known.first, known.end, _numbers(known.n), True)
