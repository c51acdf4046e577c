"""
The loads of `bench.messages`: message stores on bookies that run already, and the logs and ledgers they stand on.

Knows: how to put, pull, get, import, export and dispatch, and what each took.  Does not know: what is compared with
what.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from bench.log_loads import CALLS_UNDER_WAY, WINDOW_ENTRIES, records_of, under_way
from bench.scripts import Timed
from quire.conf.log import LogOptions
from quire.conf.messages import MessageOptions, StoreSettings
from quire.messages.api import Message, Put, Store, Stores, connect
from quire.messages.core.assign import Assigner, Draft
from quire.messages.core.layout import FILLER_BYTES, file_name, filler
from quire.messages.core.queues import QueueTable
from quire.messages.core.record import Host, pack
from quire.messages.drafting import Drafting, UniqueIds
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.plan import Plan, make_plan
from quire.messages.rocketmq.source import Tree, Wanted
from quire.metadata.clock import pause

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
FILE_BYTES, BODY_BYTES = 64 * MIB, 4 << 10
ADDRESS, HOST = "127.0.0.1:10911", Host(b"\x7f\0\0\1", 10911)
PROPERTIES = b"UNIQ_KEY\x01%032X\x02KEYS\x01k%d\x02TAGS\x01TagA\x02"
PIECE_BYTES, UNDER_WAY = MIB, 8
TOPIC, QUEUES = "topic", 8
LEADS_S, WAIT_S = 30.0, 60.0
PULLED = 32  # messages of one pull, and of one entry that is read beside it


class CPU(NamedTuple):
    """Microseconds of one message."""

    encode: Callable[[], object]
    hook: Callable[[], object]


def write_store(root: Path, size: int) -> list[Path]:
    """A plain store directory with about so many bytes of records, whose files are full but for the last."""
    directory, files, number = root / "commitlog", [], 0
    directory.mkdir(parents=True)
    body = bytes(range(256)) * (BODY_BYTES // 256)
    for begin in range(0, size, FILE_BYTES):
        content = bytearray()
        while begin + len(content) < size:
            record = pack(
                f"topic{number % 4}",
                body,
                queue=number % 8,
                queue_offset=number // 8,
                offset=begin + len(content),
                born_host=HOST,
                store_host=HOST,
                properties=PROPERTIES % (number, number),
            )
            if len(content) + len(record) + FILLER_BYTES > FILE_BYTES:
                content += filler("plain", FILE_BYTES - len(content))
                break
            content += record
            number += 1
        files.append(directory / file_name(begin))
        with files[-1].open("wb") as file:
            file.write(content)
            file.truncate(FILE_BYTES)
    return files


def messages(count: int, size: int, queues: int = QUEUES) -> list[Message]:
    """Messages with tags and a key, of all queues by turns."""
    body = bytes(size)
    return [Message(TOPIC, body, queue=number % queues, tags="TagA", keys=f"k{number}") for number in range(count)]


def coding(count: int, size: int) -> CPU:
    """Work of so many messages: from a message to its draft, and the hook of an entry of them."""
    settings = StoreSettings.made(address=ADDRESS, progress="progress")
    drafting, made = Drafting(settings, UniqueIds(Random(1))), messages(count, size)

    def encode() -> list[Draft]:
        return drafting.drafts(made, 1)

    assigner, drafts = Assigner(QueueTable(), 0, 1 << 30), encode()
    return CPU(encode, lambda: assigner.assign(0, 0, 1, drafts))


def middle(found: Sequence[float], part: float = 0.5) -> float:
    return sorted(found)[int(len(found) * part)]


async def in_turn(count: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Milliseconds that each of so many calls took, one under way."""
    found = []
    for number in range(count):
        begun = time.perf_counter()
        await call(number)
        found.append((time.perf_counter() - begun) * 1e3)
    return found


async def caught_up(store: Store, last: Put) -> None:
    """Waits for the rows of all puts up to that one."""
    await store.reads.get(last.offset, WAIT_S)
    await store.caught_up()


class Opened(NamedTuple):
    """A store that this process leads, or reads."""

    stores: Stores
    store: Store


class Loads:
    """`directory`: for rows, sources and exports; what is made stays until the directory and the bookies go."""

    def __init__(self, reactor: Any, uri: str, directory: Path) -> None:
        self.reactor = reactor
        self.uri = uri
        self.directory = directory
        self._number = 0

    def name(self) -> str:
        self._number += 1
        return f"bench-{time.time_ns()}-{self._number}"

    async def connected(self, **options: Any) -> Stores:
        """With a directory of rows that is new."""
        rows = MessageOptions(derived_dir=self.directory / f"rows-{self.name()}")
        return await connect(self.reactor, self.uri, rows, LogOptions(**options))

    async def led(self, rows: bool = False, **options: Any) -> Opened:
        """A new store, of which this process is master."""
        stores, name = await self.connected(**options), self.name()
        await stores.create(name, address=ADDRESS)
        store = await stores.open(name, stand=True, rows=rows)
        if not await store.leads(LEADS_S):
            raise RuntimeError("this process did not become master of a new store")
        return Opened(stores, store)

    async def read(self, name: str) -> Opened:
        """A store for reading, whose rows are not made yet."""
        stores = await self.connected()
        return Opened(stores, await stores.open(name))

    # -- puts ------------------------------------------------------------------------------------------------------

    async def puts(self, size: int, count: int, batch: int) -> Timed:
        """Lists of `batch` messages, some under way."""
        stores, store = await self.led()
        run = await self._put(store, size, count, batch)
        await stores.close()
        return run

    async def _put(self, store: Store, size: int, count: int, batch: int) -> Timed:
        some = messages(batch, size)
        await store.put_many(some)  # opens the segment
        with Timed() as run:
            await under_way(count // batch, CALLS_UNDER_WAY, lambda _number: store.put_many(some))
        return run

    async def put_p50(self, size: int, count: int) -> float:
        """Milliseconds of one put, one under way."""
        stores, store = await self.led()
        (message,) = messages(1, size)
        found = await in_turn(count, lambda _number: store.put(message))
        await stores.close()
        return middle(found)

    async def append_p50(self, size: int, count: int) -> float:
        """Milliseconds of one append by the owner of a log, one under way."""
        stores = await self.connected()
        name, value = self.name(), bytes(size)
        await stores.logs.create(name)
        owner = await stores.logs.own(name)
        found = await in_turn(count, lambda _number: owner.append(value))
        await stores.close()
        return middle(found)

    # -- rows ------------------------------------------------------------------------------------------------------

    async def dispatch(self, size: int, count: int, batch: int) -> tuple[float, float]:
        """Messages a second of dispatch into new rows, and of the puts before."""
        stores, store = await self.led()
        puts = await self._put(store, size, count, batch)
        await store.close()
        with Timed() as rows:
            behind = await self.read(store.name)
            await behind.store.caught_up()
        await behind.stores.close()
        await stores.close()
        return count / rows.seconds, count / puts.seconds

    async def full(self, size: int, count: int, batch: int) -> str:
        """The name of a store with so many messages."""
        stores, store = await self.led()
        await self._put(store, size, count, batch)
        await stores.close()
        return store.name

    async def put_p99(self, name: str, count: int, pause_s: float, beside: bool) -> float:
        """Milliseconds of a put each `pause_s`; `beside`: the master makes rows of all that is there meanwhile."""
        stores = await self.connected()
        store = await stores.open(name, stand=True, rows=beside)
        await store.leads(LEADS_S)
        (message,) = messages(1, 100)
        await store.put(message)  # opens the segment
        found: list[float] = []
        answers = []
        for _ in range(count):
            begun = time.perf_counter()
            answers.append(store.put(message))
            answers[-1].addCallback(lambda _put, begun=begun: found.append((time.perf_counter() - begun) * 1e3))
            await pause(self.reactor, pause_s)
        await gatherResults(answers)
        if beside and store.lag < count:
            print(
                "  the rows were made before the puts were over: more messages would have to be there", file=sys.stderr
            )
        await stores.close()
        return middle(found, 0.99)

    # -- reads -----------------------------------------------------------------------------------------------------

    async def put_to_pull(self, count: int, pause_s: float) -> tuple[float, float]:
        """Milliseconds from a put to its pull in the same process, and to its acknowledgement: medians."""
        stores, store = await self.led(rows=True)
        begun: list[float] = []
        pulled: list[float] = []
        acknowledged: list[float] = []

        async def pull() -> None:
            while len(pulled) < count:
                found = await store.reads.pull(TOPIC, 0, len(pulled), wait_s=WAIT_S)
                now = time.perf_counter()
                pulled.extend(now - begun[message.position] for message in found.messages)

        (message,) = messages(1, 100)
        begun.append(time.perf_counter())
        await store.put(message)  # opens the segment
        pulling = Deferred.fromCoroutine(pull())
        answers = []
        for _ in range(count - 1):
            begun.append(time.perf_counter())
            answers.append(store.put(message))
            answers[-1].addCallback(lambda _put, at=begun[-1]: acknowledged.append(time.perf_counter() - at))
            await pause(self.reactor, pause_s)
        await gatherResults(answers)
        await pulling
        await stores.close()
        return middle(pulled) * 1e3, middle(acknowledged) * 1e3

    async def pulls(self, count: int) -> tuple[float, float]:
        """Messages a second by pulls of one queue, and records a second by a reader of its log."""
        stores, store = await self.led(rows=True)
        some = messages(PULLED, 100, 1)
        for _ in range(count // PULLED):
            put = await store.put_many(some)
        await caught_up(store, put[-1])
        position = 0
        with Timed() as pulling:
            while position < count // PULLED * PULLED:
                found = await store.reads.pull(TOPIC, 0, position, PULLED)
                position = found.next
        read = 0
        with Timed() as reading:
            reader = await stores.logs.read(store.name)
            async for batch in reader.batches():
                for _record in batch.records():
                    read += 1
        await stores.close()
        return position / pulling.seconds, read / reading.seconds

    async def gets(self, count: int, size: int) -> tuple[float, float]:
        """Milliseconds, the median, of a `get` of a record by itself, and of a read of such an entry by the client."""
        stores, store = await self.led(rows=True, batch_bytes=1)
        (message,) = messages(1, size)
        made: list[Put] = []
        while len(made) < 2 * count:
            made += await gatherResults([store.put(message) for _ in range(WINDOW_ENTRIES)])
        await caught_up(store, made[-1])
        segment = (await (await records_of(stores.logs, store.name)).read()).value.open_segment
        assert segment is not None
        ledger = await stores.logs.bk.open_ledger(segment.ledger, b"", recover=False)
        places = [(entry, put.offset) for entry, put in enumerate(made)]  # none is asked for twice, by either
        Random(1).shuffle(places)
        ours = await in_turn(count, lambda number: store.reads.get(places[number][1]))
        last = await ledger.read_last_confirmed()
        entries = [entry for entry, _offset in places[count:] if entry <= last]
        theirs = await in_turn(len(entries), lambda number: ledger.read(entries[number], entries[number]))
        await stores.close()
        return middle(ours), middle(theirs)

    # -- directories -----------------------------------------------------------------------------------------------

    def plan(self, root: Path) -> Timed:
        """A plan of what an import of that directory would bring."""
        with Timed() as run, Tree() as tree:
            make_plan(tree, Wanted((str(root),)))
        return run

    def sums(self, files: Sequence[Path]) -> Timed:
        """The sums of these files."""
        with Timed() as run:
            subprocess.run(["sha1sum", *files], stdout=subprocess.DEVNULL, check=True)
        return run

    async def imported(self, root: Path) -> tuple[float, float, str]:
        """MiB a second of an import, and of the same bytes copied to a ledger; and the name of the store."""
        stores, name = await self.connected(), self.name()
        logs = stores.logs
        try:
            with Tree() as tree:
                plan = await planned(logs, tree, Wanted((str(root),)), lambda *_each: None)
                with Timed() as ours:
                    await Importing(logs, tree, name, plan).run()
            with Timed() as theirs:
                await self._copied(logs, plan)
        finally:
            await stores.close()
        return plan.value_bytes / MIB / ours.seconds, plan.value_bytes / MIB / theirs.seconds, name

    async def _copied(self, logs: Any, plan: Plan) -> int:
        """The files of a plan in a new ledger, in large pieces."""
        writer = await logs.bk.create_ledger()
        sent: deque[Deferred[int]] = deque()
        for walked in plan.files:
            with open(walked.file.path, "rb") as file:
                left = walked.end - walked.file.begin
                while left:
                    piece = await deferToThread(file.read, min(PIECE_BYTES, left))
                    left -= len(piece)
                    sent.append(writer.append(piece))
                    while len(sent) >= UNDER_WAY:
                        await sent.popleft()
        while sent:
            await sent.popleft()
        await writer.close()
        return int(writer.id)

    async def copied(self, root: Path) -> int:
        """The id of a ledger with the bytes of that directory's files."""
        stores = await self.connected()
        with Tree() as tree:
            plan = await planned(stores.logs, tree, Wanted((str(root),)), lambda *_each: None)
            ledger = await self._copied(stores.logs, plan)
        await stores.close()
        return ledger

    async def exported(self, name: str, ledger: int) -> tuple[float, float]:
        """MiB a second of an export, and of a ledger whose entries are written into a file, synced."""
        stores, out = await self.connected(), self.directory / f"out-{self.name()}"
        with Timed() as ours:
            report = await stores.export(name, str(out))
        reader = await stores.logs.bk.open_ledger(ledger, b"", recover=False)
        size = 0
        with Timed() as theirs, open(out / "copy", "wb") as file:
            async for entries in reader.stream(0, reader.last_entry_id):
                for entry in entries:
                    size += len(entry.data)
                    await deferToThread(file.write, entry.data)
            file.flush()
            await deferToThread(os.fsync, file.fileno())
        await stores.close()
        return report.bytes / MIB / ours.seconds, size / MIB / theirs.seconds
