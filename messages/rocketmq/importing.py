"""
An import: a source as planned becomes a message store (docs/messages.md, "Import").

    progress log, log with an importing descriptor
        -> a batch of the log's publisher for each source file, by offset
        -> the queue table as a snapshot at the end
        -> documents and consumer offsets
        -> no more published ledgers, descriptor ready

Knows: this order, and how far an earlier run came: the publisher's transaction says how many files are in.
Does not know: what a valid source is (`plan`), faces.
Safety: a file is in the log whole or not at all, and once: its part is committed only if its bytes have the sum of the
plan, and by (txn, number of the file).  A run goes on only with the source that its descriptor names by fingerprint;
the newest run wins.  The log takes no published ledgers before the descriptor says that the store is ready.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from crc32c import crc32c
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from quire.conf.messages import StoreSettings
from quire.log.api import Logs, Owner, PartWriter
from quire.messages.core.layout import ENTRY_HEADER_BYTES
from quire.messages.core.queues import Placing, QueueTable
from quire.messages.core.record import SIZE_MIN
from quire.messages.descriptor import CHILD, IMPORTING, READY, USE, Descriptor, Import
from quire.messages.known import create_progress
from quire.messages.progress import LONG, document_records, offset_key
from quire.messages.rocketmq.documents import pieces_of
from quire.messages.rocketmq.plan import Plan, Told, make_plan
from quire.messages.rocketmq.source import LogFile, Tree, Wanted
from quire.messages.rocketmq.walking import WINDOW_BYTES, WalkedFile, changed
from quire.metadata.records import RecordChanged
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogExists, NoSuchLog, NotOwner
from quire.protocol.message_errors import ImportRefused, StoreExists

# SPDX-License-Identifier: Apache-2.0

SIZE = struct.Struct(">I")
SKIP_BYTES_TOGETHER_MAX = 1 << 20  # above it a value is sent alone: values and skips of an entry fit 32 bits together
SENT_BYTES = 4 << 20  # of documents and offsets, before their acknowledgement is waited for
OFFSETS_AT_ONCE = 4096
LOOK_S = 1.0  # between two looks whether another run has ended while the log of progress is not free
T = TypeVar("T")


class Values(NamedTuple):
    """Whole values of a file, the skip before the first one, and where the last one ends."""

    values: list[bytes]
    skip: int
    end: int


def in_thread(
    logs: Logs, work: Callable[..., T], *args: object, stop: Callable[[], object] = lambda: None
) -> "Deferred[T]":
    """
    Runs a function that reads or writes files on a thread of the reactor's pool.  Cancelled, it calls `stop`, and is
    over when the function is: what it uses can be closed then.
    """
    reactor: Any = logs.bk.reactor
    running: Deferred[T] = deferToThreadPool(reactor, reactor.getThreadPool(), work, *args)
    over: Deferred[None] = Deferred()
    answer: Deferred[T] = Deferred()

    def ended(result: Any) -> None:
        over.callback(None)
        if not answer.called:
            (answer.errback if isinstance(result, Failure) else answer.callback)(result)

    async def waited() -> T:
        try:
            return await answer
        except CancelledError:
            stop()
            await over
            raise

    running.addBoth(ended)
    return Deferred.fromCoroutine(waited())


async def planned(logs: Logs, tree: Tree, wanted: Wanted, told: Told, *, in_use: bool = False) -> Plan:
    """As `make_plan`, off the reactor's thread, where `told` is called.  Cancelled, it ends with the next read."""
    reactor: Any = logs.bk.reactor
    plan: Plan = await in_thread(
        logs,
        lambda: make_plan(tree, wanted, lambda *each: reactor.callFromThread(told, *each), in_use=in_use),
        stop=tree.stop,
    )
    return plan


class Importing:
    """
    One run of an import into the store `name`.  `address`: the store host of new records, by default that of the last
    one.  `settings`: of the log.  `told(bytes done, bytes in all)`.  `reached`: after each step.
    """

    def __init__(
        self,
        logs: Logs,
        tree: Tree,
        name: str,
        plan: Plan,
        *,
        address: str = "",
        settings: Mapping[str, Any] | None = None,
        told: Told = lambda _done, _total: None,
        reached: Callable[[str], None] = lambda _point: None,
    ) -> None:
        self._logs = logs
        self._tree = tree
        self._name = name
        self._plan = plan
        self._address = address or plan.address
        self._settings = dict(settings or {})
        self._told = told
        self._reached = reached
        self._done = 0

    async def run(self) -> Descriptor:
        """
        The descriptor of the store, ready.  `ImportRefused`: StoreExists, SourceChanged, Unsupported; `LogFenced`: a
        later run took over; `ValueError`: no address is known, or settings that can't be; the errors of logs.
        """
        descriptor = await self._descriptor()
        if descriptor.state == READY:
            self._told(self._plan.value_bytes, self._plan.value_bytes)
            return descriptor
        self._reached("import.created")
        assert descriptor.imported is not None
        if await self._takes_files():
            await self._copy(descriptor.imported.txn)
        await self._save_table()
        self._reached("import.table")
        await self._write_progress(descriptor.store_settings.progress)
        self._reached("import.documents")
        await self._logs.update(self._name, publish=False)
        return await self._end(descriptor)

    # -- the store -------------------------------------------------------------------------------------------------

    async def _descriptor(self) -> Descriptor:
        """The one that is there, of an earlier run, or a new one."""
        found = await self._found()
        if found is not None:
            return found
        progress = f"{self._name}.progress"
        made = self._made(progress, await self._logs.bk.store.records.clock())
        await self._create_progress(progress)
        plan = self._plan
        settings = {**self._settings, "use": USE, "needs_snapshot": True, "publish": True}
        with suppress(LogExists):  # by another run, which was faster
            await self._logs.create(self._name, begin_at=plan.begin, children={CHILD: made.encode()}, **settings)
        found = await self._found()
        if found is None:
            raise NoSuchLog(f"the store {self._name!r} was deleted while its import began: import again")
        return found

    def _made(self, progress: str, now_ms: int) -> Descriptor:
        plan, logs = self._plan, self._logs
        if not self._address:
            raise ValueError("no record says a store host: give the address of new records with --address HOST:PORT")
        settings = StoreSettings(file_bytes=plan.file_bytes, address=self._address, progress=progress)
        return Descriptor(
            (),
            IMPORTING,
            settings.model_dump(),
            plan.regions,
            Import(
                f"import-{logs.bk.random.getrandbits(64):016x}",
                plan.fingerprint,
                len(plan.files),
                plan.records,
                plan.end,
                now_ms,
            ),
            next=plan.next,
            shifts=plan.shifts,
            doubles=plan.doubles,
        )

    async def _found(self) -> Descriptor | None:
        """The descriptor that is there, if it is of this source.  `ImportRefused`: StoreExists, SourceChanged."""
        try:
            child = await self._logs.child(self._name, CHILD)
        except NoSuchLog:
            return None
        if child is None:
            raise self._exists("a log that is no message store has the name")
        found = Descriptor.read(child.value)
        if found.imported is None:
            raise self._exists("another store has the name")
        if found.imported.source != self._plan.fingerprint:
            if found.state == READY:
                raise self._exists("a store that was imported from another source has the name")
            raise ImportRefused(
                "SourceChanged",
                f"the import into {self._name!r} was begun with other bytes: go on with the directory as it was then, "
                f"or give it up with `quire messages delete {self._name}`",
                file=self._plan.source.root,
            )
        plan = self._plan
        if found.state != READY and (found.next, found.shifts, found.doubles) != (plan.next, plan.shifts, plan.doubles):
            raise ImportRefused(
                "SourceChanged",
                f"the import into {self._name!r} was begun with other consume queues: go on with the directory as it "
                f"was then, or give it up with `quire messages delete {self._name}`",
                file=plan.source.root,
            )
        return found

    def _exists(self, why: str) -> ImportRefused:
        return ImportRefused(
            "StoreExists", f"{why} {self._name!r}: choose another with --into; `quire messages list` shows those taken"
        )

    async def _create_progress(self, progress: str) -> None:
        """`ImportRefused`: StoreExists."""
        try:
            await create_progress(self._logs, progress, **self._settings)
        except StoreExists:
            raise self._exists(f"a log {progress!r}, which the store needs, is there already: of the name") from None

    # -- records ---------------------------------------------------------------------------------------------------

    async def _takes_files(self) -> bool:
        """True unless an earlier run has ended with the log."""
        return bool((await self._logs.info(self._name)).settings.get("publish", True))

    async def _copy(self, txn: str) -> None:
        run = f"{self._logs.bk.random.getrandbits(64):016x}"
        sink = await self._logs.sink(self._name, txn, run, use=USE)
        last = await sink.begin()
        end, first = self._plan.begin, 0 if last is None else last + 1
        for number, file in enumerate(self._plan.files):
            if number < first:
                self._tell(file.end - file.file.begin)
            else:
                part = await sink.part(number, 0, 0)
                try:
                    await self._copy_file(part, file, end)
                except BaseException:
                    with suppress(LedgerError, ValueError):
                        await part.discard()
                    raise
                closed = await part.close()
                self._reached("import.part")
                await sink.commit(number, [closed])
                self._reached("import.committed")
            if file.records:
                end = file.end

    async def _copy_file(self, part: PartWriter, file: WalkedFile, end: int) -> None:
        """All values of a file; `end`: of the last value before."""
        if not file.records:
            return
        crc, place = 0, file.file.begin
        coming = in_thread(self._logs, self._try_read, file, place, end)
        try:
            while place < file.end:
                read = await coming
                if isinstance(read, Exception):
                    raise read
                some, crc_of = read
                crc = crc_of(crc)
                place = some.end
                if place < file.end:
                    coming = in_thread(self._logs, self._try_read, file, place, place)
                elif crc != file.crc:
                    raise changed(file.file, "its bytes are not those that the plan was made of")
                alone = 1 if some.skip > SKIP_BYTES_TOGETHER_MAX else len(some.values)
                await part.append_many(some.values[:alone], skips=[some.skip, *[0] * (alone - 1)])
                await part.append_many(some.values[alone:])
                self._tell(sum(map(len, some.values)))
        finally:
            await coming  # a file is not closed while it is read

    def _try_read(
        self, file: WalkedFile, place: int, end: int
    ) -> tuple[Values, Callable[[int], int]] | OSError | ImportRefused:
        """As `_read`; an error is a value, for whoever waits may not come to take it."""
        try:
            return self._read(file, place, end)
        except (OSError, ImportRefused) as error:
            return error

    def _read(self, file: WalkedFile, place: int, end: int) -> tuple[Values, Callable[[int], int]]:
        """In a thread: the next values, and what makes the sum behind them of the one before."""
        begin = file.file.begin
        wanted = min(WINDOW_BYTES, file.end - place)
        data = self._tree.read(file.file.path, place - begin, wanted)
        values = list(cut(data, file.file, place))
        if not values:  # one that is larger than a window
            size = size_at(data, 0, file.file, place)
            data = self._tree.read(file.file.path, place - begin, min(size, file.end - place))
            values = list(cut(data, file.file, place))
            if not values:
                raise changed(file.file, f"the value at {place} ends behind the last one of the plan")
        taken = sum(map(len, values))
        return Values(values, place - end, place + taken), lambda crc: crc32c(memoryview(data)[:taken], crc)

    def _tell(self, count: int) -> None:
        self._done += count
        self._told(self._done, self._plan.value_bytes)

    # -- queues, documents, end ------------------------------------------------------------------------------------

    async def _save_table(self) -> None:
        plan = self._plan
        if not plan.records:
            return
        table = QueueTable(Placing([(topic, queue, position) for (topic, queue), position in plan.queues.items()]))
        table.store_ms = plan.store_ms
        await self._logs.save_snapshot(self._name, plan.records, table.save(), QueueTable.__name__, use=USE)

    async def _is_over(self) -> bool:
        """True if a newer run has made the store ready, or it is gone."""
        found = await self._found()
        return found is None or found.state == READY

    async def _write_progress(self, progress: str) -> None:
        owner: Owner | None = None
        while owner is None and not await self._is_over():
            with suppress(NotOwner):  # a newer run has it; or the store that it made, which keeps it
                owner = await self._logs.own(progress, use=USE, wait_s=LOOK_S)
        if owner is None:
            return
        try:
            if await self._is_over():  # by a newer run: consumers may have gone on meanwhile
                return
            for document in self._plan.documents:
                records = document_records(document.name, pieces_of(self._tree, document))
                while some := await in_thread(self._logs, _taken, records):
                    await owner.append_many([value for _key, value in some], keys=[key for key, _value in some])
            offsets = sorted(self._plan.offsets.items())
            for start in range(0, len(offsets), OFFSETS_AT_ONCE):
                piece = offsets[start : start + OFFSETS_AT_ONCE]
                await owner.append_many(
                    [LONG.pack(position) for _consumed, position in piece],
                    keys=[offset_key(consumed) for consumed, _position in piece],
                )
        finally:
            await owner.close()

    async def _end(self, descriptor: Descriptor) -> Descriptor:
        """The descriptor says ready; called again it finds that."""
        while True:
            child = await self._logs.child(self._name, CHILD)
            if child is None:
                raise NoSuchLog(f"the store {self._name!r} was deleted while it was imported")
            found = Descriptor.read(child.value)
            if found.imported != descriptor.imported:
                raise self._exists("another store has the name by now:")
            if found.state != READY:
                ready = replace(found, state=READY)
                with suppress(RecordChanged):
                    await self._logs.write_child(self._name, CHILD, ready.encode(), child.version)
                continue
            self._reached("import.ready")
            return found


def size_at(data: bytes, at: int, file: LogFile, place: int) -> int:
    """The size of the value that begins at data[at], which the plan has found.  `ImportRefused`: SourceChanged."""
    header = ENTRY_HEADER_BYTES if file.rule == "dledger" else 0
    size = SIZE.unpack_from(data, at + (4 if header else 0))[0] if at + 8 <= len(data) else 0
    if size < header + SIZE_MIN:
        raise changed(file, f"there is no value at {place + at} any more")
    return size


def cut(data: bytes, file: LogFile, place: int) -> Iterator[bytes]:
    """The whole values of some bytes, by their sizes alone: the sum of the file says whether they are right."""
    at = 0
    while at + ENTRY_HEADER_BYTES + SIZE_MIN <= len(data) or (file.rule == "plain" and at + SIZE_MIN <= len(data)):
        size = size_at(data, at, file, place)
        if at + size > len(data):
            return
        yield data[at : at + size]
        at += size


def _taken(records: Iterator[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """The next records, of some bytes together."""
    some, size = [], 0
    for record in records:
        some.append(record)
        size += len(record[1])
        if size >= SENT_BYTES:
            break
    return some
