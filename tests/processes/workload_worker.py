"""
One process of a random workload on one log: it plays its part until its standard input ends, and writes what it does
and is answered into a file (`workload`).

    python -m tests.processes.workload_worker '{"play": "owner", "uri": URI, "log": NAME, "who": W, "file": F, ...}'

A process that takes the place of one that was killed has the same file: a producer goes on where that one was, and a
publisher with its batches, under a run of its own.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log import aio
from quire.protocol.errors import LedgerError, TooManyRequests
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.processes.workload import events_of

# SPDX-License-Identifier: Apache-2.0

UNDER_WAY = 4  # calls of one owner
PAUSE_S = 0.05  # behind an error
SESSION_MS = 2000
WAIT_S = 1.0  # for a claim, until it is asked for again
RECORDS_MAX = 12  # of one call
PAUSES_S = (0.0, 0.002, 0.01)
BURSTS = (1, 1, 4, 12)  # proposals of one client at once
FILLING = (0, 0, 0, 200, 10_000, 60_000, 120_000, 250_000)  # bytes: some records share an entry, some fill one


class Chain:
    """A state machine whose state is a hash over all records (`workload.chain_of`)."""

    name = "chain"

    def __init__(self) -> None:
        self.applied, self.state = 0, ""

    def apply(self, record: Any) -> int:
        assert record.index == self.applied, f"{record.index} instead of {self.applied}"
        self.state = sha256(f"{self.state}{named(record.value)}".encode()).hexdigest()[:16]
        self.applied += 1
        return int(record.index)

    def save(self) -> list[bytes]:
        return [json.dumps([self.applied, self.state]).encode()]

    def load(self, data: Sequence[bytes]) -> None:
        self.applied, self.state = json.loads(b"".join(data))


def named(value: bytes) -> str:
    """The name of a record: what is before the filling."""
    return value.split(b" ", 1)[0].decode()


class Part:
    """What all plays need."""

    def __init__(self, job: dict[str, Any], stopping: asyncio.Event) -> None:
        self.job, self.stopping = job, stopping
        self.log, self.who = job["log"], job["who"]
        self.dice = Random(f"{job['seed']} {os.getpid()}")
        self._file = os.open(job["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._numbers = count()
        self.life = f"{self.who}.{os.getpid()}"

    def tell(self, **event: Any) -> None:
        """In one write, so that a line is whole or the process is gone."""
        os.write(self._file, json.dumps(event | {"t": time.monotonic()}).encode() + b"\n")

    async def call(self, op: str, made: Callable[[], Awaitable[dict[str, Any]]], **about: Any) -> LedgerError | None:
        """One call, told before and after; its error."""
        call = f"{self.life}.{next(self._numbers)}"
        self.tell(id=call, op=op, **about)
        try:
            answer = await made()
        except LedgerError as error:
            self.tell(id=call, error=type(error).__name__)
            return error
        self.tell(id=call, **answer)
        return None

    def filled(self, name: str) -> bytes:
        """The bytes of a record of this name, few or many."""
        return f"{name} ".encode() + bytes(self.dice.choice(FILLING))

    async def pause(self, seconds: float = PAUSE_S) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds * self.dice.random())


# -- plays -------------------------------------------------------------------------------------------------------------


async def owner(part: Part, logs: aio.Logs) -> None:
    """Owns the log again and again, appends, and sometimes rolls, hands over or takes it by force."""
    producer = f"p-{part.who}"
    sequence, pending = _produced(part, producer)
    for turn in count():
        if part.stopping.is_set():
            return
        force = part.dice.random() < 0.2
        try:
            owned = await logs.own(part.log, wait_s=WAIT_S, force=force)
        except LedgerError:
            await part.pause()
            continue
        handle, numbers = f"{part.life}.{turn}", count()

        async def append(owned: aio.Owner = owned, handle: str = handle, numbers: "count[int]" = numbers) -> bool:
            names = [f"{handle}.{next(numbers)}" for _ in range(part.dice.randrange(1, RECORDS_MAX))]
            values = [part.filled(name) for name in names]

            async def made() -> dict[str, Any]:
                return {"at": [*(await owned.append_many(values)).indexes]}

            error = await part.call("append", made, handle=handle, values=names)
            return not isinstance(error, NotOwner | LogFenced)

        async def produce(owned: aio.Owner = owned) -> bool:
            nonlocal sequence, pending
            if not pending:
                sequence += 1
                pending = True
            name = f"{producer}:{sequence}"

            async def made() -> dict[str, Any]:
                found = await owned.append(name.encode(), producer=producer, sequence=sequence)
                return {"at": [found.index]}

            error = await part.call("produce", made, producer=producer, values=[name])
            pending = error is not None
            return not isinstance(error, NotOwner | LogFenced)

        going, rounds = True, part.dice.choice([3, 10, 40])
        while going and rounds and not part.stopping.is_set():
            rounds -= 1
            calls = [append() for _ in range(part.dice.randrange(1, UNDER_WAY))]
            if part.job["dedup"]:
                calls.append(produce())
            for answered in asyncio.as_completed(calls):
                going &= await answered
            if part.dice.random() < 0.1:
                with suppress(LedgerError):
                    await owned.roll()
            await part.pause(part.job.get("pause_s", 0.0))
        with suppress(LedgerError):
            await owned.close()


def _produced(part: Part, producer: str) -> tuple[int, bool]:
    """The highest sequence that this producer sent in an earlier life, and whether it has no answer."""
    sequence, pending, sent = 0, False, {}
    for event in events_of(Path(part.job["file"])):
        if event.get("op") == "produce":
            sequence = int(event["values"][0].rpartition(":")[2])
            pending, sent[event["id"]] = True, sequence
        elif event.get("id") in sent and "at" in event:
            pending = False
    return sequence, pending


async def publisher(part: Part, logs: aio.Logs) -> None:
    """Publishes batch after batch under one txn, in a run of its own; what is in a batch follows from its number."""
    txn = f"x-{part.who}"
    batch = _batch(part, txn)
    for attempt in count():
        if part.stopping.is_set():
            return
        names = [f"{txn}:{batch}:{n}" for n in range(1 + Random(f"{txn} {batch}").randrange(30))]

        async def made(batch: int = batch, names: list[str] = names, attempt: int = attempt) -> dict[str, Any]:
            sink = await logs.sink(part.log, txn, part.life)
            half, parts = len(names) // 2, []
            for number, some in enumerate((names[:half], names[half:])):
                writer = await sink.part(batch, number, attempt)
                await writer.append_many([name.encode() for name in some])
                parts.append(await writer.close())
            receipt = await sink.commit(batch, parts)
            return {"at": [*range(receipt.first, receipt.end)]}

        if await part.call("publish", made, txn=txn, values=names) is None:
            batch += 1
        await part.pause(0.3)


def _batch(part: Part, txn: str) -> int:
    """The highest batch that an earlier life tried: published or not, it comes again."""
    tried = [event["values"][0] for event in events_of(Path(part.job["file"])) if event.get("txn") == txn]
    return max((int(name.split(":")[1]) for name in tried), default=0)


async def replica(part: Part, logs: aio.Logs) -> None:
    """Stands for the log, proposes where it leads, and reads everywhere."""
    machine = None
    while machine is None:
        try:
            machine = await logs.replica(part.log, Chain, stand=True)
        except LedgerError:
            await part.pause()
            if part.stopping.is_set():
                return
    standing, numbers = machine, count()

    async def propose() -> None:
        name = f"{part.life}:{next(numbers)}"
        value = part.filled(name)

        async def made() -> dict[str, Any]:
            return {"at": [await standing.propose(value)]}

        error = await part.call("append", made, handle=f"{part.life}.{name}", values=[name])
        if error is not None:
            await part.pause(0.5)

    async def read(modes: Sequence[str]) -> None:
        mode = part.dice.choice(modes)

        async def made() -> dict[str, Any]:
            answer = await standing.read(lambda machine: (machine.applied, machine.state), mode)
            return {"seen": answer.value[0], "chain": answer.value[1], "index": answer.index}

        if await part.call("read", made, mode=mode) is not None:
            await part.pause()

    async def writing() -> None:
        while not part.stopping.is_set():  # together, so that some share an entry, and some entries a group
            await asyncio.gather(*(propose() for _ in range(part.dice.choice(BURSTS))))
            await part.pause(part.dice.choice(PAUSES_S))

    async def reading(modes: Sequence[str]) -> None:
        while not part.stopping.is_set():
            await read(modes)
            await part.pause(part.dice.choice(PAUSES_S))

    await asyncio.gather(writing(), writing(), *map(reading, (("index", "lease", "barrier"), ["index"], ["lease"])))
    with suppress(LedgerError):
        await standing.close()


async def tail(part: Part, logs: aio.Logs) -> None:
    """Follows the log from its beginning, or from anywhere."""
    index = 0
    while not part.stopping.is_set():
        try:
            reader = await logs.read(part.log, index if part.dice.random() < 0.8 else "begin")
            async for batch in _tailed(part, reader):
                index = max(index, batch)
        except LedgerError:
            await part.pause()


async def _tailed(part: Part, reader: Any) -> Any:
    """Tells what it is given, some records at a time; gives the index behind them."""
    async with reader:
        first, names = 0, []
        async for record in reader.tail(timeout=0.2):
            if names and record.index != first + len(names):
                raise AssertionError(f"record {record.index} is behind {first + len(names) - 1}")
            first = record.index if not names else first
            names.append(named(record.value))
            part.tell(saw=record.index, values=[names[-1]])
            if len(names) >= 1000:
                names = []
            yield record.index + 1
            if part.stopping.is_set():
                return


async def play(job: dict[str, Any]) -> None:
    """The whole life of a process."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(0, lambda: stopping.set() if not os.read(0, 1) else None)
    part = Part(job, stopping)
    options = LogOptions(poll_ms=200, **job.get("options", {}))
    while not stopping.is_set():
        try:
            async with aio.connect(job["uri"], options, ClientOptions(session_timeout_ms=SESSION_MS)) as logs:
                await PLAYS[job["play"]](part, logs)
        except TooManyRequests:
            raise
        except LedgerError as error:  # the store is away
            part.tell(trouble=type(error).__name__, id="", error=str(error))
            await part.pause()


PLAYS = {"owner": owner, "publisher": publisher, "replica": replica, "tail": tail}

if __name__ == "__main__":
    asyncio.run(play(json.loads(sys.argv[1])))
