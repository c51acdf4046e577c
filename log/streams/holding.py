"""
What a cursor's holder has stored, and stores next: in the cursor's ledger, or in its value.

Knows: the order of ledger, checkpoint and value; when only what is new is written, and when all of it; that a ledger
which ends without the holder is followed by another one.
Does not know: who acknowledges, when this is called; calls are one after the other.

Safety: a ledger is named only once its checkpoint is stored, by the holder whose token the value has, and only if it is
there, and not doomed, when it was not made under the value that is replaced.  The outcome of that is known before
another ledger is made.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from quire.log.core.streams.cursors import ACKS_BYTES_MAX, CursorValue, acks_of, decode_acks
from quire.log.core.streams.marks import Marks
from quire.log.store.context import LogContext
from quire.log.streams.ledger import CursorLedger, load
from quire.log.streams.record import Change, CursorRecord
from quire.protocol.errors import ClientClosed, DigestMatch, LedgerError, MetaStore, NoSuchEntry, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, LogError, LogFenced, LogTrimmed

# SPDX-License-Identifier: Apache-2.0

log = Logger()

UNREADABLE = (NoSuchLedger, NoSuchEntry, DigestMatch, LogDamaged)  # for ever: what is away for a while is not


class Holding:
    """Of one handle; `marks` is what is acknowledged, `record` the cursor's value."""

    def __init__(self, context: LogContext, record: CursorRecord) -> None:
        self.marks = Marks(0, context.options.cursor_pages_max)
        self._context = context
        self.record = record
        self._token = context.log.new_id() + context.log.new_id()
        self._ledger: CursorLedger | None = None  # that the value names, and that goes on
        self._begun: CursorLedger | None = None  # that is to be named
        self._made_under: CursorValue | None = None  # the value when it was made
        self._naming = ""  # the id of that change
        self._unsaved = False  # something was taken to be stored, and is in no ledger that goes on
        self._sought: tuple[int, str] | None = None  # where to, and the id of the change whose outcome is not known

    @property
    def is_stored(self) -> bool:
        """Whether nothing is new."""
        return not (self.marks.changed or self._unsaved or self._sought)

    async def hold(self) -> None:
        """The cursor is this handle's, and no other one's value is written any more.  `NoSuchCursor`."""

        async def hold(value: CursorValue) -> CursorValue:
            return replace(value, holder=self._token, touched=self._context.log.now_ms())

        await self.record.change(hold)

    async def load(self) -> None:
        """
        What was acknowledged before, once this handle holds the cursor; the former holder's ledger is brought to its
        end.  The errors of a recovery, `LogFenced`, `LogDamaged`, `UnknownFormat`, `TooManyRequests`.
        """
        value = (await self.record.read()).value
        self._check_mine(value)
        marks = Marks(value.mark, self._context.options.cursor_pages_max)
        if value.ledger is None:
            for start, stop in decode_acks(value.acks or ""):
                marks.add_run(start, stop)
        else:
            try:
                await load(self._context.client, value.ledger, value.checkpoint or 0, marks)
            except UNREADABLE as error:
                log.warn(
                    "the cursor {cursor} of the log {log} goes on from index {mark}, its value says {of_value}; what "
                    "was acknowledged behind that may come again, for it can't be read: {why}",
                    cursor=self.record.name,
                    log=self._context.log.name,
                    mark=marks.mark,
                    of_value=value.mark,
                    why=f"{type(error).__name__}: {error}",
                )
        marks.take_all()
        self.marks = marks

    def follow(self, value: CursorValue) -> None:
        """Another one's change of the value: a policy moved the mark.  `LogFenced` for another holder."""
        self._check_mine(value)
        self.marks.rise(value.mark)

    # -- storing ---------------------------------------------------------------------------------------------------

    async def store(self, checkpoint: bool = False) -> None:
        """
        What is new.  `checkpoint`: all of it, so that it is read at once.  `LogFenced`, `NoSuchCursor`; the errors of
        a writer; `MetaStore`: it may be stored or not, and is with the next call that succeeds.
        """
        await self._settle()
        for is_last in (False, True):
            try:
                await self._store(checkpoint)
                return
            except (MetaStore, ClientClosed):
                raise
            except LogError:
                self.leave()
                raise
            except CancelledError:  # what was taken to be written may not be; what is being named is named by the next
                if self._begun is None:
                    self.leave()
                raise
            except LedgerError:  # it was fenced by a repair, or by another holder; or its bookies are away
                self.leave()
                self.follow((await self.record.read()).value)
                if is_last:
                    raise

    async def _store(self, checkpoint: bool) -> None:
        if self._ledger is None:
            if self._begun is None:
                if self.is_stored:
                    return
                await self._begin()
            await self._name()
        ledger = self._ledger
        assert ledger is not None
        if self.marks.changed:
            self._unsaved = True
            await ledger.write_change(self.marks)
            self._unsaved = False
            self._context.reached("cursor.changed")
        if ledger.is_full:
            await self._begin()
            ledger.leave()
            self._ledger = None
            await self._name()
        elif checkpoint or ledger.needs_checkpoint:
            self._unsaved = True
            await ledger.write_checkpoint(self.marks)
            self._unsaved = False
            self._context.reached("cursor.checkpoint")
            await self.record.change(self._named(ledger))
            self._context.reached("cursor.named")

    async def _begin(self) -> None:
        """A ledger with all that is acknowledged."""
        known = self.record.known
        self._made_under = None if known is None else known.value
        begun = await CursorLedger.made(self._context, self.record.id)
        self._context.reached("cursor.created")
        self._unsaved = True
        try:
            await begun.write_checkpoint(self.marks)
        except BaseException as error:  # nobody was told of it; who is cancelled leaves it to the search for orphans
            begun.leave()
            if isinstance(error, LedgerError):
                with suppress(LedgerError):
                    await self._context.ledgers.delete(begun.id)
            raise
        self._context.reached("cursor.checkpoint")
        self._begun, self._naming = begun, self._context.log.new_id()

    async def _name(self) -> None:
        """The value names the ledger that was begun."""
        begun = self._begun
        assert begun is not None
        await self.record.change(self._named(begun), self._naming)
        self._ledger, self._begun, self._unsaved = begun, None, False
        self._context.reached("cursor.named")

    def _named(self, ledger: CursorLedger) -> Change:
        place = ledger.id, ledger.checkpoint

        async def named(value: CursorValue) -> CursorValue | None:
            self._check_mine(value)
            if (value.ledger, value.checkpoint) == place:
                return None
            if value.ledger != ledger.id and value is not self._made_under:
                await self._context.client.metadata(ledger.id)
                if ledger.id in value.ledgers:
                    raise NoSuchLedger(f"ledger {ledger.id} of the cursor {value.name!r} is being deleted")
            return value.named(*place, ledger.mark, self._context.log.now_ms())

        return named

    # -- the value alone -------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """
        Whether the value is as it was left, for a watch may miss that; and the mark, if the value's is lower: so far
        the log is no longer needed.  As `store`.
        """
        await self._settle()
        self.follow((await self.record.read()).value)
        await self.record.change(
            self._mine(
                lambda value: (
                    replace(value, mark=self.marks.mark, touched=self._context.log.now_ms())
                    if value.mark < self.marks.mark
                    else None
                )
            )
        )

    async def seek(self, index: int) -> None:
        """
        All below `index` is done, and nothing above it: `marks` is another one then.  `LogTrimmed`; as `store`, with
        `MetaStore` the next call of any kind carries it out.
        """
        self._sought = index, self._context.log.new_id()
        await self._seek()

    async def _settle(self) -> None:
        """A seek whose outcome is not known is carried out before anything else is stored."""
        if self._sought is not None:
            with suppress(LogTrimmed):
                await self._seek()

    async def _seek(self) -> None:
        assert self._sought is not None
        index, id_ = self._sought

        def sought(value: CursorValue) -> CursorValue | None:
            if (value.mark, value.ledger, value.acks or "") == (index, None, ""):
                return None
            return replace(value.left(self._context.log.now_ms()), mark=index, acks=None)

        try:
            await self.record.change_held(self._mine(sought), id_)
        except LogError:
            self._sought = None
            raise
        self.leave()
        self._unsaved, self._sought = False, None
        self.marks = Marks(index, self._context.options.cursor_pages_max)

    async def fold(self) -> None:
        """All of it in the value, where it is short; else in the ledger, which is closed.  As `store`."""
        await self._settle()
        acks = acks_of(self.marks.runs()) if self.marks.pages <= ACKS_BYTES_MAX else None
        if acks is None:
            await self.store(checkpoint=self._ledger is not None)
            if self._ledger is not None:
                await self._ledger.close()
            return

        def folded(value: CursorValue) -> CursorValue | None:
            mark = max(value.mark, self.marks.mark)
            if (value.mark, value.ledger, value.acks or "") == (mark, None, acks):
                return None
            return replace(value.left(self._context.log.now_ms()), mark=mark, acks=acks)

        await self.record.change(self._mine(folded))
        self._context.reached("cursor.folded")
        self.leave()

    def leave(self) -> None:
        """Nothing is written to its ledgers any more; what is new goes to another one."""
        for ledger in (self._ledger, self._begun):
            if ledger is not None:
                ledger.leave()
                self._unsaved = True
        self._ledger = self._begun = None

    def _mine(self, change: Callable[[CursorValue], CursorValue | None]) -> Change:
        """The change, by the holder only."""

        async def changed(value: CursorValue) -> CursorValue | None:
            self._check_mine(value)
            return change(value)

        return changed

    def _check_mine(self, value: CursorValue) -> None:
        """`LogFenced` when the cursor went to another one."""
        if value.holder != self._token:
            raise LogFenced(
                f"another one has opened the cursor {value.name!r} of the log {self._context.log.name!r}: what was "
                "acknowledged here and not stored comes again there"
            )
