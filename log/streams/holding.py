"""
The acknowledgements that a cursor's holder has stored, and stores next: in the cursor's ledger, or in its value.

Knows: the order of ledger, checkpoint and value; when only what is new is written, and when all of it; that a ledger
begins with a checkpoint, that one which ends without the holder is followed by another one, and that one which can't be
read to its end still says what it can.
Does not know: who acknowledges, when this is called; calls are one after the other.

Safety: a ledger is named only once its checkpoint is stored, by the holder whose token the value has, and only if it is
there, and not doomed, when it was not made under the value that is replaced.  The outcome of that is known before
another ledger is made.  What is read is what somebody acknowledged; acknowledgements that can't be read come again.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from quire.client.api import Client, Writer
from quire.conf.log import LogSettings
from quire.log.core.moving import check_held_here
from quire.log.core.streams import cursors
from quire.log.core.streams.marks import Marks, Taken
from quire.log.store.context import LogContext
from quire.log.store.ledgers import Tags
from quire.log.streams.record import Change, CursorRecord
from quire.metadata.clock import pause
from quire.protocol.errors import ClientClosed, DigestMatch, LedgerError, MetaStore, NoSuchEntry, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, LogError, LogFenced, LogMoved, LogTrimmed

# SPDX-License-Identifier: Apache-2.0

CHANGES_BYTES_MAX = 64 << 20  # behind a checkpoint; then the next one
LEDGER_BYTES_MAX = 1 << 30
AT_ONCE = 32  # entries, for a writer's window has an end
RUNS_A_TURN = 4096  # that are read before others have as long as it took


class CursorLedger:
    """Being written.  `checkpoint` is the entry at which the last one begins, `mark` that of the last one."""

    def __init__(self, context: LogContext, writer: Writer) -> None:
        self.id = writer.id
        self.checkpoint = 0
        self.mark = 0
        self._clock = context.client.reactor
        self._counters = context.log.counters
        self._writer = writer
        self._bytes = 0
        self._changes_bytes = 0

    @classmethod
    async def made(cls, context: LogContext, cursor: str) -> "CursorLedger":
        """A new one of that cursor; nothing is in it.  The errors of `Client.create_ledger`."""
        records = context.log
        settings = LogSettings.of((await records.read()).value.settings)
        tags = Tags("log-cursor", records.log, records.name, records.new_id(), {"cursor": cursor})
        return cls(context, await context.ledgers.create(settings, tags))

    @property
    def needs_checkpoint(self) -> bool:
        """True if so much was written since the last one that reading it all would take long."""
        return self._changes_bytes >= CHANGES_BYTES_MAX

    @property
    def is_full(self) -> bool:
        """True if another ledger is to follow."""
        return self._bytes >= LEDGER_BYTES_MAX

    async def write_checkpoint(self, marks: Marks) -> None:
        """All of it, as it is now.  The errors of a writer."""
        taken = marks.take_all()
        first = await self._append(cursors.pack_checkpoint(taken.mark, await self._encoded(taken)))
        self.checkpoint, self.mark, self._changes_bytes = first, taken.mark, 0

    async def write_change(self, marks: Marks) -> None:
        """Writes what is new.  The errors of a writer."""
        taken = marks.take()
        entries = [cursors.pack_change(taken.mark, body) for body in await self._encoded(taken)]
        await self._append(entries)
        self._changes_bytes += sum(map(len, entries))

    async def _encoded(self, taken: Taken) -> list[bytes]:
        """Encodes what was taken, as the bodies of entries; after each others have as long as it took."""
        found: list[bytes] = []
        begun = self._clock.seconds()
        for body in cursors.bodies(taken.mark, taken.runs()):
            found.append(body)
            if len(body) >= cursors.BODY_BYTES:
                await pause(self._clock, self._clock.seconds() - begun)
                begun = self._clock.seconds()
        return found

    async def _append(self, entries: list[bytes]) -> int:
        first = self._writer.last_add_pushed + 1
        for start in range(0, len(entries), AT_ONCE):
            await self._writer.append_many(entries[start : start + AT_ONCE])
        size = sum(map(len, entries))
        self._bytes += size
        self._counters.cursor_persist_bytes += size
        return first

    def close(self) -> Deferred[None]:
        """Ends the ledger."""
        return self._writer.close()

    def leave(self) -> None:
        """Nothing is written any more; upkeep ends the ledger."""
        self._writer.shut_down()


async def load(client: Client, ledger: int, checkpoint: int, marks: Marks) -> None:
    """
    Adds what a ledger says, which is brought to its end first: its writer loses it.  The errors of a recovery and of
    reading, `LogDamaged`, with what could be read before; `TooManyRequests`, `UnknownFormat`.
    """
    clock, taken, begun = client.reactor, 0, client.reactor.seconds()
    async with aclosing(_entries(client, ledger, checkpoint)) as entries:
        async for entry in entries:
            marks.rise(entry.mark)
            for start, stop in entry.runs:
                marks.add_run(start, stop)
            taken += len(entry.runs)
            if taken >= RUNS_A_TURN:
                await pause(clock, clock.seconds() - begun)
                taken, begun = 0, clock.seconds()


async def _entries(client: Client, ledger: int, checkpoint: int) -> AsyncGenerator[cursors.CursorEntry, None]:
    """From the checkpoint on, which has to be whole."""
    metadata = await client.recover_ledger(ledger)
    reader = await client.open_ledger(ledger, metadata.password or b"", recover=False)
    count, parts = 0, 1
    try:
        async for some in reader.stream(checkpoint):
            for each in some:
                try:
                    entry = cursors.unpack_entry(each.data)
                except LogError as error:
                    raise type(error)(f"ledger {ledger}, entry {each.entry_id}: {error}") from None
                if count < parts:
                    if (entry.kind, entry.part) != (cursors.Kind.CHECKPOINT, count):
                        break
                    parts = entry.parts
                count += 1
                yield entry
    finally:
        await reader.close()
    if count < parts:
        raise LogDamaged(f"ledger {ledger} has {count} of the {parts} parts of the checkpoint at entry {checkpoint}")


log = Logger()

MOVER = "moves-"  # begins the token of what takes a cursor to another cluster
UNREADABLE = (NoSuchLedger, NoSuchEntry, DigestMatch, LogDamaged)  # for ever: what is away for a while is not


class Holding:
    """The holding of one handle; `marks` is what is acknowledged, `record` the cursor's value."""

    def __init__(self, context: LogContext, record: CursorRecord, token: str = "") -> None:
        self.marks = Marks(0, context.options.cursor_pages_max)
        self._context = context
        self.record = record
        self._token = token or context.log.new_id() + context.log.new_id()
        self._ledger: CursorLedger | None = None  # that the value names, and that goes on
        self._begun: CursorLedger | None = None  # that is to be named
        self._made_under: cursors.CursorValue | None = None  # the value when it was made
        self._naming = ""  # the id of that change
        self._unsaved = False  # something was taken to be stored, and is in no ledger that goes on
        self._sought: tuple[int, str] | None = None  # where to, and the id of the change whose outcome is not known

    @property
    def is_stored(self) -> bool:
        """True if nothing is new."""
        return not (self.marks.changed or self._unsaved or self._sought)

    async def hold(self, is_newest: bool = True) -> None:
        """
        The cursor is this handle's, and no other one's value is written any more.  Not `is_newest`: `LogFenced` where
        another one holds it already.  `NoSuchCursor`; `LogIsMirror` while the log is on its way to another cluster:
        once a value was read that can be carried there, it is not held here.
        """

        async def hold(value: cursors.CursorValue) -> cursors.CursorValue:
            if not self._token.startswith(MOVER):
                check_held_here((await self._context.log.read()).value)
            if not is_newest and not (value.holder or MOVER).startswith(MOVER):
                self._check_mine(value)
            return replace(value, holder=self._token, touched=self._context.log.now_ms())

        await self.record.change(hold)

    async def load(self) -> None:
        """
        Reads what was acknowledged before, once this handle holds the cursor; the former holder's ledger is brought to
        its end.  The errors of a recovery, `LogFenced`, `LogDamaged`, `UnknownFormat`, `TooManyRequests`.
        """
        value = (await self.record.read()).value
        self._check_mine(value)
        marks = Marks(value.mark, self._context.options.cursor_pages_max)
        if value.ledger is None:
            for start, stop in cursors.decode_acks(value.acks or ""):
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

    def follow(self, value: cursors.CursorValue) -> None:
        """Another one's change of the value: a policy moved the mark.  `LogFenced` for another holder."""
        self._check_mine(value)
        self.marks.rise(value.mark)

    # -- storing ---------------------------------------------------------------------------------------------------

    async def store(self, checkpoint: bool = False) -> None:
        """
        Stores what is new.  `checkpoint`: all of it, so that it is read at once.  `LogFenced`, `NoSuchCursor`; the
        errors of a writer; `MetaStore`: it may be stored or not, and is with the next call that succeeds.
        """
        await self._settle()
        for is_last in (False, True):
            try:
                await self._store(checkpoint)
                return
            except (MetaStore, ClientClosed):
                if self._unsaved and self._ledger is not None:  # its writer has failed: what was taken is not in it
                    self.leave()
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

        async def named(value: cursors.CursorValue) -> cursors.CursorValue | None:
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
        Looks whether the value is as it was left, for a watch may miss that; and raises the mark, if the value's is
        lower: so far the log is no longer needed.  As `store`.
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

        def sought(value: cursors.CursorValue) -> cursors.CursorValue | None:
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
        acks = cursors.acks_of(self.marks.runs()) if self.marks.pages <= cursors.ACKS_BYTES_MAX else None
        if acks is None:
            await self.store(checkpoint=self._ledger is not None)
            if self._ledger is not None:
                await self._ledger.close()
            return

        def folded(value: cursors.CursorValue) -> cursors.CursorValue | None:
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

    def _mine(self, change: Callable[[cursors.CursorValue], cursors.CursorValue | None]) -> Change:
        """The change, by the holder only."""

        async def changed(value: cursors.CursorValue) -> cursors.CursorValue | None:
            self._check_mine(value)
            return change(value)

        return changed

    def _check_mine(self, value: cursors.CursorValue) -> None:
        """`LogFenced` when the cursor went to another one."""
        if value.holder is not None and value.holder.startswith(MOVER) and not self._token.startswith(MOVER):
            raise LogMoved(f"the log {self._context.log.name!r} moves to another cluster, with its cursors")
        if value.holder != self._token:
            raise LogFenced(
                f"another one has opened the cursor {value.name!r} of the log {self._context.log.name!r}: what was "
                "acknowledged here and not stored comes again there"
            )
