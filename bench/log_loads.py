"""
The loads of `bench.logs`: one connection to bookies that run already, a log and a plain ledger beside it.

Knows: how to append, read, follow and publish, and what each took.  Does not know: what is compared with what.
"""

import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.threads import deferToThread

from bench.scripts import Timed
from quire.conf.log import LogOptions
from quire.log.api import Logs, Owner, Replica, connect
from quire.log.core import edits
from quire.log.core.frame import Assembler
from quire.log.core.manifest import VALUE_BYTES_MAX, encode_name, new_manifest
from quire.log.core.upkeep_edits import Update
from quire.log.core.values import Segment
from quire.log.owner.appending.encoder import decompress
from quire.log.store import paths
from quire.log.store.editing import LogRecords, create_log
from quire.metadata.clock import pause
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

WINDOW_ENTRIES = 64  # under way, on both sides
CALLS_UNDER_WAY = 4  # of many records each
CALLS_AT_ONCE = 16  # between two looks at what is beside them
LAST = b"last"
SLOW_S = 0.05
UPKEEP_NEVER_MS = 1 << 40
KEYS = 10_000
LEASE_MS = 3000


class Traced:
    """Bytes that are allocated from `with` to its end and still held then."""

    def __enter__(self) -> "Traced":
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        gc.collect()
        self.bytes = tracemalloc.get_traced_memory()[0] - self._before
        tracemalloc.stop()


async def under_way(count: int, most: int, call: Callable[[int], "Deferred[Any]"]) -> None:
    """Calls by number, so many under way at most."""
    numbers = iter(range(count))

    async def one_by_one() -> None:
        for number in numbers:
            await call(number)

    await gatherResults([Deferred.fromCoroutine(one_by_one()) for _ in range(most)])


async def records_of(logs: Logs, name: str) -> LogRecords:
    """The records of that log."""
    records = logs.bk.store.records  # type: ignore[attr-defined]  # every store of a cluster has them
    id_ = (await logs.info(name)).id
    return LogRecords(records, logs.bk.reactor, logs.bk.random, time.time, id_, name)


class Counting:
    """A machine that counts records."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, _record: object) -> int:
        self.count += 1
        return self.count

    def save(self) -> list[bytes]:
        return [b"%d" % self.count]

    def load(self, data: Iterable[bytes]) -> None:
        self.count = int(b"".join(data))


class Loads:
    """Names of logs are numbers; each log and ledger is deleted with the folder of the bookies."""

    def __init__(self, reactor: Any, uri: str) -> None:
        self.reactor = reactor
        self.uri = uri
        self.random = Random(1)
        self._number = 0
        self._follows = False

    async def open(self, **options: Any) -> Logs:
        return await connect(self.reactor, self.uri, LogOptions(**options))

    async def owned(self, settings: Mapping[str, Any] = {}, **options: Any) -> tuple[Logs, str, Owner]:
        """A new log, and its owner."""
        logs, name = await self.open(**options), self.name()
        await logs.create(name, **settings)
        return logs, name, await logs.own(name)

    def name(self) -> str:
        self._number += 1
        return f"bench-{time.time_ns()}-{self._number}"

    # -- appends ---------------------------------------------------------------------------------------------------

    async def owner_entries(self, size: int, entries: int, record: int) -> Timed:
        """Entries of `size` bytes of records, each handed over as one list."""
        values = [bytes(record)] * (size // record)
        return await self._owner(lambda owner: owner.append_many(values), entries, WINDOW_ENTRIES, batch_bytes=size)

    async def owner_records(self, record: int, records: int, batch: int) -> Timed:
        """Lists of `batch` records, each an entry."""
        values = [bytes(record)] * batch
        return await self._owner(lambda owner: owner.append_many(values), records // batch, CALLS_UNDER_WAY)

    async def _owner(self, call: Callable[[Owner], "Deferred[Any]"], calls: int, most: int, **options: Any) -> Timed:
        logs, _name, owner = await self.owned(**options)
        await owner.append(b"opens the segment")
        with Timed() as run:
            await under_way(calls, most, lambda _number: call(owner))
        await logs.close()
        return run

    async def beside_upkeep(self, records: int, batch: int) -> tuple[float, float]:
        """Records a second that an owner appends to a log beside a compaction in its process, and without."""
        settings = {"compaction": True, "roll_records": records // 4}
        logs, name, owner = await self.owned(settings, tidy_ms=UPKEEP_NEVER_MS)
        keys = [[b"key-%05d" % self.random.randrange(KEYS) for _ in range(batch)] for _ in range(100)]
        values = [bytes(100)] * batch

        def append(number: int) -> "Deferred[Any]":
            return owner.append_many(values, keys=keys[number % len(keys)])

        calls = records // batch
        await under_way(calls, CALLS_UNDER_WAY, append)
        owner.roll()
        with Timed() as alone:
            await under_way(calls, CALLS_UNDER_WAY, append)
        upkeep = Deferred.fromCoroutine(logs.tidy(name))
        appended = 0
        with Timed() as beside:
            while not upkeep.called and appended < calls:
                await under_way(CALLS_AT_ONCE, CALLS_UNDER_WAY, append)
                appended += CALLS_AT_ONCE
        assert (await upkeep).compacted == 1
        await logs.close()
        return appended * batch / beside.seconds, records / alone.seconds

    async def owner_single(self, size: int, records: int) -> Timed:
        """One record in each entry."""
        value = bytes(size)
        return await self._owner(lambda owner: owner.append(value), records, WINDOW_ENTRIES, batch_bytes=1)

    async def writer_entries(self, size: int, entries: int) -> Timed:
        """A plain ledger, an entry a call."""
        value = bytes(size)
        return await self._writer(entries, WINDOW_ENTRIES, lambda writer, _number: writer.append(value))

    async def writer_lists(self, size: int, entries: int, batch: int) -> Timed:
        """A plain ledger, `batch` entries a call."""
        values = [bytes(size)] * batch
        return await self._writer(entries // batch, CALLS_UNDER_WAY, lambda writer, _number: writer.append_many(values))

    async def _writer(self, calls: int, most: int, call: Callable[[Any, int], "Deferred[Any]"]) -> Timed:
        logs = await self.open()
        writer = await logs.bk.create_ledger()
        with Timed() as run:
            await under_way(calls, most, lambda number: call(writer, number))
        await writer.close()
        await logs.close()
        return run

    # -- reads -----------------------------------------------------------------------------------------------------

    async def written(self, segments: int, entries: int, batch: int, record: int) -> tuple[str, int]:
        """A log of so many segments, and a plain ledger with the same entries."""
        logs, name, owner = await self.owned({"roll_records": entries * batch})
        values = [bytes(record)] * batch
        for _ in range(segments):
            await under_way(entries, WINDOW_ENTRIES, lambda _number: owner.append_many(values))
        await owner.close()
        plain = await logs.bk.create_ledger()
        for segment in (await (await records_of(logs, name)).read()).value.segments:
            reader = await logs.bk.open_ledger(segment.ledger, b"", recover=False)
            found = [entry.data for entry in await reader.read(0, reader.last_entry_id)]
            await plain.append_many(found)
            await reader.close()
        await plain.close()
        await logs.close()
        return name, plain.id

    async def published(self, batches: int, parts: int, records: int, record: int) -> tuple[str, list[int]]:
        """A log of so many published batches of small parts, and their ledgers."""
        logs, name, owner = await self.owned({})
        await owner.close()
        sink = await logs.sink(name, "bench", "run")
        values = [bytes(record)] * records

        async def written(batch: int, number: int) -> Any:
            part = await sink.part(batch, number, 0)
            await part.append_many(values)
            return await part.close()

        for batch in range(batches):
            made = [Deferred.fromCoroutine(written(batch, number)) for number in range(parts)]
            await sink.commit(batch, [await each for each in made])
        await logs.close()
        return name, await self.ledgers_of(name)

    async def ledgers_of(self, name: str) -> list[int]:
        """The ledgers of a log's segments, in order."""
        logs = await self.open()
        found = [each.ledger async for each in logs.segments(name)]
        await logs.close()
        return found

    async def merged(self, name: str) -> Timed:
        """The small segments of a log, merged."""
        logs = await self.open()
        with Timed() as run:
            await logs.merge(name)
        await logs.close()
        return run

    async def read_ledgers(self, ledgers: list[int], decode: bool = False) -> Timed:
        """The entries of plain ledgers, one behind the other; decoded as a log's, if that is wanted."""
        logs = await self.open()
        with Timed() as run:
            for ledger in ledgers:
                reader = await logs.bk.open_ledger(ledger, b"", recover=False)
                assembler = Assembler(decompress)
                async for some in reader.stream(0, reader.last_entry_id):
                    for entry in some if decode else ():
                        assembler.feed(entry.data)
                await reader.close()
        await logs.close()
        return run

    async def read_log(self, name: str, values: bool) -> tuple[Timed, int]:
        """By `batches()`, with the values of each if wanted; and how many records there were."""
        logs = await self.open()
        reader = await logs.read(name)
        count = 0
        with Timed() as run:
            async for batch in reader.batches():
                count += len(batch.values) if values else batch.count
        await logs.close()
        return run, count

    async def read_ledger(self, ledger: int) -> Timed:
        """The entries of a plain ledger."""
        logs = await self.open()
        reader = await logs.bk.open_ledger(ledger, b"", recover=False)
        with Timed() as run:
            async for _some in reader.stream(0, reader.last_entry_id):
                pass
        await logs.close()
        return run

    # -- tails -----------------------------------------------------------------------------------------------------

    async def tail(self, of_log: bool, entries: int, pause_s: float) -> list[float]:
        """Milliseconds from each append to its delivery in another process, one at a time under way."""
        if of_log:
            logs, name, owner = await self.owned()
            append: Callable[[bytes], Awaitable[object]] = owner.append
        else:
            logs = await self.open()
            writer = await logs.bk.create_ledger()
            name, append = str(writer.id), writer.append
        await append(b"first")
        await append(b"first")  # a plain ledger shows an entry with the next one
        words = ["--follow", name, "--kind", "log" if of_log else "ledger", "--metadata", self.uri]
        child = subprocess.Popen([sys.executable, "-m", "bench.logs", *words], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = child.stdout
        assert (await deferToThread(lines.readline)).strip() == "follows", "the process that follows ended"
        for _ in range(entries):
            await append(str(time.monotonic_ns()).encode())
            waited: Deferred[None] = Deferred()
            self.reactor.callLater(pause_s, waited.callback, None)
            await waited
        await append(LAST)
        await append(LAST)
        found: list[float] = json.loads(await deferToThread(lines.readline))
        await deferToThread(child.wait)
        child.stdout.close()
        await logs.close()
        return found

    async def follow(self, kind: str, name: str) -> list[float]:
        """Follows, for `tail`; returns the milliseconds of each delivery."""
        logs = await self.open()
        found: list[float] = []
        if kind == "log":
            reader = await logs.read(name)
            async for batch in reader.tail(60.0):
                if self._took(batch.values, found):
                    break
        else:
            ledger = await logs.bk.open_ledger(int(name), b"", recover=False)
            async for some in ledger.tail(60.0):
                if self._took([entry.data for entry in some], found):
                    break
        await logs.close()
        return found

    def _took(self, values: Sequence[bytes], found: list[float]) -> bool:
        now = time.monotonic_ns()
        for value in values:
            if value == b"first":
                if not self._follows:
                    print("follows", flush=True)
                self._follows = True
            elif value == LAST:
                return True
            else:
                found.append((now - int(value)) / 1e6)
        return False

    async def latency(self, records: int, pause_s: float, beside: str = "") -> float:
        """The 99th percentile, ms, of appends each `pause_s`, beside a "reader" or "cursor" that takes its time."""
        logs, name, owner = await self.owned()
        await owner.append_many([bytes(100)] * records)
        slow = Deferred.fromCoroutine(self._slow(logs, name, beside)) if beside else None
        found: list[float] = []
        answers = []
        for _ in range(records):
            begun = time.perf_counter()
            answers.append(owner.append(bytes(100)))
            answers[-1].addCallback(lambda _at, begun=begun: found.append(time.perf_counter() - begun))
            await pause(self.reactor, pause_s)
        await gatherResults(answers)
        if slow is not None:
            slow.addErrback(lambda failure: failure.trap(CancelledError, LedgerError) and None)
            slow.cancel()
        await logs.close()
        return sorted(found)[len(found) * 99 // 100] * 1e3

    async def _slow(self, logs: Logs, name: str, kind: str) -> None:
        """A reader that rests behind each batch; or a cursor that acknowledges every other record of what it takes."""
        if kind == "reader":
            async for _batch in (await logs.read(name)).tail(60.0):
                await pause(self.reactor, SLOW_S)
            return
        cursor = await logs.cursor(name, "slow", start="begin")
        while True:
            taken = await cursor.read(100, timeout=60.0)
            cursor.ack_many([record.index for record in taken[::2]])
            await pause(self.reactor, SLOW_S)

    # -- linearizable reads ----------------------------------------------------------------------------------------

    async def proofs(self, reads: int) -> dict[str, tuple[float, float]]:
        """Milliseconds, the median, of a replica's read by each way of proof, and what it may take: one more."""
        logs, others = await self.open(), await self.open()
        name = self.name()
        await logs.create(name, lease_ms=LEASE_MS, publish=False)
        leading = await logs.replica(name, Counting, stand=True)
        following = await others.replica(name, Counting)
        if not await leading.leads(10.0):
            raise RuntimeError("the replica does not lead")
        await leading.propose(b"first")
        log = await records_of(logs, name)
        segment = (await log.read()).value.open_segment
        owner = leading.owner
        assert segment is not None
        assert owner is not None
        ledger = await logs.bk.open_ledger(segment.ledger, b"", recover=False)

        async def median(call: Callable[[], Awaitable[object]]) -> float:
            found = []
            for _ in range(reads):
                begun = time.perf_counter()
                await call()
                found.append(time.perf_counter() - begun)
            return sorted(found)[len(found) // 2] * 1e3

        def read(replica: Replica, mode: str) -> Callable[[], Awaitable[object]]:
            return lambda: replica.read(lambda machine: machine.count, mode)

        metadata = await median(log.records.sync) + await median(log.read)
        bookie = await median(ledger.read_last_confirmed)
        append = await median(lambda: owner.append(b"one"))
        found = {
            "lease": (await median(read(leading, "lease")), 1.0),
            "index at the owner": (await median(read(leading, "index")), metadata + 1.0),
            "index elsewhere": (await median(read(following, "index")), metadata + bookie + 1.0),
            "barrier": (await median(read(leading, "barrier")), append + 1.0),
        }
        await others.close()
        await logs.close()
        return found

    # -- publishing ------------------------------------------------------------------------------------------------

    async def publish(self, parts: int, ledgers: int) -> dict[str, float]:
        """Milliseconds of one commit: as a whole, of the look at every ledger, and of what follows it."""
        at: dict[str, float] = {}
        client = (await self.open()).bk
        logs = Logs(client, LogOptions(batch_bytes=1), reached=lambda step: at.setdefault(step, time.perf_counter()))
        name = self.name()
        await logs.create(name, roll_bytes=1)
        sink = await logs.sink(name, "bench", "run")
        made = []
        for number in range(parts):
            part = await sink.part(0, number, 0)
            await part.append_many([b"x"] * ledgers)
            made.append(await part.close())
        at.clear()
        begun = time.perf_counter()
        await sink.commit(0, made)
        whole = time.perf_counter() - begun
        await logs.close()
        await client.close()
        checked, done = at["publish.checked"], at["publish.done"]
        return {"whole": whole * 1e3, "check": (checked - begun) * 1e3, "multi": (done - checked) * 1e3}

    # -- many segments ---------------------------------------------------------------------------------------------

    async def with_segments(self, count: int) -> str:
        """A log with so many segments, of ledgers that are not there."""
        logs = await self.open()
        name, id_ = self.name(), f"{self.random.getrandbits(128):032x}"
        segments = [
            Segment(n, (1 << 40) + n, 1, 1000 * n, 10**6 * n, 1000, 10**6, 10, (n, n + 1)) for n in range(count)
        ]
        manifest = new_manifest(name, id_, "e", {})
        records = logs.bk.store.records  # type: ignore[attr-defined]  # every store of a cluster has them
        chunks: list[Any] = []
        for start in range(0, count, edits.SEGMENTS_MAX):
            part = tuple(segments[start : start + edits.SEGMENTS_MAX])
            spilled = edits.made(
                edits.replace(manifest, segments=(*manifest.segments, *part), next=part[-1].n + 1),
                "e",
                0,
                lambda: f"{self.random.getrandbits(32):08x}",
            )
            manifest = spilled.manifest
            chunks += spilled.chunks
        data = edits.encoded(manifest)
        assert len(data) <= VALUE_BYTES_MAX
        await create_log(records, paths.name_path(name), id_, data, encode_name(id_), b"{}", {})
        for chunk, value in chunks:
            await records.create(paths.chunk_path(id_, chunk), value.encode())
        await logs.close()
        return name

    async def opened(self, name: str) -> float:
        """Milliseconds until a reader in the middle of the log knows its segment."""
        logs = await self.open()
        with Timed() as run:
            await logs.info(name)
            await logs.read(name, 1_000_001)
        await logs.close()
        return run.seconds * 1e3

    async def edited(self, name: str, roll_records: int) -> tuple[float, float]:
        """Milliseconds of an edit, and of one write of a small record beside it."""
        logs = await self.open()
        log = await records_of(logs, name)
        await log.read()
        with Timed() as edit:
            await log.edit(Update({"roll_records": roll_records}))
        scratch = self.name()
        version = await log.records.create(scratch, b"0")
        with Timed() as write:
            await log.records.write(scratch, b"1", version)
        await logs.close()
        return edit.seconds * 1e3, write.seconds * 1e3

    # -- memory ----------------------------------------------------------------------------------------------------

    async def kept(self, count: int, kind: str, name: str = "") -> float:
        """Bytes that each of so many idle handles keeps: `reader`, or `owner`; of one log, or of one each."""
        logs = await self.open()
        names = [name or self.name() for _ in range(count)]
        for each in names if not name else ():
            await logs.create(each)
        with Traced() as traced:
            held = [await (logs.own(each) if kind == "owner" else logs.read(each, 0)) for each in names]
        assert len(held) == count
        await logs.close()
        return traced.bytes / count

    async def kept_of_producers(self, count: int) -> float:
        """Bytes that each of so many producers keeps that appended a record and are idle since."""
        logs, _name, owner = await self.owned({"dedup": True})
        await owner.append(b"x", producer="first", sequence=0)
        with Traced() as traced:
            await under_way(
                count, WINDOW_ENTRIES, lambda number: owner.append(b"x", producer=f"producer-{number}", sequence=0)
            )
            owner.roll()
            await owner.append(b"x", producer="first", sequence=1)
        await logs.close()
        return traced.bytes / count
