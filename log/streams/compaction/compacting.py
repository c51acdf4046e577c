"""
Compaction by key: of the closed part of a log the newest record of each key is written to ledgers of its own.

Knows: the order of claim, passes, ledgers and edit; that what is read may be trimmed or replaced meanwhile, and then it
begins anew.
Does not know: which records are left (`core`), who asks for it.

Safety: each ledger is found CLOSED after the manifest was read that the edit replaces; ledgers that were not named are
deleted only where no edit can name them any more.  The claim is there so that two do not work in vain; nothing is safe
because of it.
"""

import json
from contextlib import aclosing, suppress

from quire.log.core.streams.compaction import Compact, Newest, has_news
from quire.log.owner.claims import token_of
from quire.log.store.context import LogContext
from quire.log.streams.compaction.input import Input
from quire.log.streams.compaction.ledgers import CompactedLedgers
from quire.metadata.clock import pause
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0

TRIES_MAX = 10  # of which each may meet a log that is trimmed


class Compaction:
    """One compaction of a log.  `rest`: how long it pauses, as a multiple of how long it works."""

    def __init__(self, context: LogContext, rest: float = 0.0) -> None:
        self._context = context
        self._log = context.log
        self._claim = f"{context.log.path}/compactor"
        self._rest = rest

    async def run(self) -> bool:
        """
        Whether the manifest names what is left now; False: nothing was closed since the last time, or another one is at
        it.  `NoSuchLog`, `MetaStore`, the errors of ledgers, `LogDamaged`.
        """
        if not await self._claimed():
            return False
        try:
            return await self._run()
        finally:
            with suppress(MetaStore):  # it goes with the session, and until then it is this handle's
                await self._give_back()

    async def _run(self) -> bool:
        for tries in range(TRIES_MAX):
            await self._log.records.sync()
            manifest = (await self._log.read()).value
            if not has_news(manifest):
                return False
            found = Input(self._context, manifest, self._rest)
            ledgers = CompactedLedgers(self._context, manifest.settings)
            try:
                edit = await self._written(found, ledgers)
            except LedgerError:
                await ledgers.discard()
                if tries == TRIES_MAX - 1 or not await self._has_moved(found):
                    raise
                continue
            except BaseException:  # who is cancelled leaves what was written to the search for orphans
                ledgers.leave()
                raise
            self._context.reached("compact.written")
            if await self._named(edit, ledgers):
                return True
        raise self._context.too_many_conflicts()

    async def _has_moved(self, found: Input) -> bool:
        """Whether what was read need not be there any more."""
        manifest, now = found.manifest, (await self._log.read()).value
        return (now.begin, now.chunks, now.compacted) != (manifest.begin, manifest.chunks, manifest.compacted)

    async def _written(self, found: Input, ledgers: CompactedLedgers) -> Compact:
        newest = Newest(self._context.options.compaction_keys)
        is_whole = False
        while not is_whole:
            async with aclosing(found.records()) as batches:
                async for batch in batches:
                    newest.add(batch.indexes, batch.keys, batch.values)
            is_whole = newest.end_pass()
        left = newest.left()
        keyless = found.manifest.settings.get("compaction_keyless") != "drop"
        async with aclosing(found.records()) as batches:
            async for batch in batches:
                await ledgers.add(batch, left.picked(batch.indexes, batch.keys, keyless))
        end, at = found.manifest.closed_end
        return Compact(await ledgers.close(end - 1, at, found.lost), self._log.now_ms())

    async def _named(self, edit: Compact, ledgers: CompactedLedgers) -> bool:
        """Whether the manifest names them; else another compaction was faster, or one of them is gone."""

        async def are_closed(_manifest: object) -> bool:
            try:
                return all([(await self._context.client.metadata(each)).is_closed for each in ledgers.made])
            except NoSuchLedger:
                return False

        id_, is_known = self._log.new_id(), True
        for tries in range(TRIES_MAX):
            try:
                done = await self._log.edit(edit, id_, look_up=are_closed)
                break
            except MetaStore:
                is_known = False
                if tries == TRIES_MAX - 1:
                    raise
                await pause(self._context.client.reactor, self._context.options.poll_ms / 1000)
            except LedgerError:  # a refusal
                if is_known:
                    await ledgers.discard()
                raise
        if done.done or done.manifest.compacted == edit.done:
            self._context.reached("compact.named")
            return True
        if is_known:  # else an earlier try may take effect yet, and the search for orphans finds what it does not name
            await ledgers.discard()
        return False

    # -- the claim -------------------------------------------------------------------------------------------------

    async def _claimed(self) -> bool:
        said = json.dumps({"token": self._log.holder, "since": self._log.now_ms()}, separators=(",", ":")).encode()
        try:
            await self._log.records.create(self._claim, said, claim=True)
        except RecordExists:
            return await self._held() is not None
        except NoRecord:
            raise self._log.gone() from None
        return True

    async def _held(self) -> int | None:
        """The version of the claim, if it is this handle's."""
        try:
            found = await self._log.records.read(self._claim)
        except NoRecord:
            return None
        return found.version if token_of(found) == self._log.holder else None

    async def _give_back(self) -> None:
        version = await self._held()
        if version is not None:
            with suppress(RecordChanged):
                await self._log.remove(self._claim, version)
