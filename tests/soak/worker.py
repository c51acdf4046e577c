"""
A process of a soak that has a part in many logs: as an owner or one that waits to become it, as a replica, as a
publisher, as a cursor that follows.  It plays until its standard input ends, and writes what it does and is answered
into a file (`truth`); a line `quiet` there lets it append no more, and follow on.

    python -m tests.soak.worker '{"uri": URI, "who": W, "life": N, "file": F, "parts": [[LOG, KIND, PLAY], ...], ...}'
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log import aio
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.soak.truth import Run, chained, runs_of

# SPDX-License-Identifier: Apache-2.0

SESSION_MS = 6000
OWN_WAIT_S = 30.0
HELD_S = 900.0  # mean, of an owner that gives the log back
FORCED = 0.05  # of the times that a log is asked for
PAUSE_S = 2.0  # mean, behind an error
RECORDS_MAX = 9  # of one call
FILLING = (0, 0, 100, 300, 300, 1000, 4000)  # bytes
READ_MAX, READ_S = 500, 5.0
PERSIST_EVERY = 20  # reads
SNAPSHOT_RECORDS = 300


class Chain:
    """A state machine whose state is a hash over all records."""

    name = "chain"

    def __init__(self) -> None:
        self.applied, self.state = 0, ""

    def apply(self, record: Any) -> int:
        assert record.index == self.applied, f"{record.index} instead of {self.applied}"
        self.state = chained(self.state, named(record.value))
        self.applied += 1
        return int(record.index)

    def save(self) -> list[bytes]:
        return [json.dumps([self.applied, self.state]).encode()]

    def load(self, data: Sequence[bytes]) -> None:
        self.applied, self.state = json.loads(b"".join(data))


def named(value: bytes) -> str:
    """The name of a record, HANDLE:NUMBER: what is before the filling."""
    return value.split(b" ", 1)[0].decode()


class Stage:
    """What all plays of a process share."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.life = f"{job['who']}.{job['life']}"
        self.dice = Random(f"{job['seed']} {self.life}")
        self.gap_s = float(job["gap_s"])
        self.ending, self.quiet = asyncio.Event(), asyncio.Event()
        self._file = os.open(job["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(self, log: str, **event: Any) -> None:
        """In one write, so that a line is whole or the process is gone."""
        os.write(self._file, json.dumps({"log": log, **event}, separators=(",", ":")).encode() + b"\n")

    async def pause(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """A drawn time with this mean, ended early by the event."""
        with suppress(TimeoutError):
            await asyncio.wait_for((until or self.ending).wait(), min(self.dice.expovariate(1 / seconds), 5 * seconds))

    def trouble(self, log: str, doing: str, error: LedgerError) -> None:
        self.tell(log, trouble=type(error).__name__, doing=doing, text=str(error)[:300], t=time.monotonic())

    def value(self, name: str) -> bytes:
        return f"{name} ".encode() + bytes(self.dice.choice(FILLING))

    async def sent(
        self, log: str, handle: str, first: int, records: int, made: Callable[[], Awaitable[Sequence[int]]]
    ) -> LedgerError | None:
        """One call that appends, its answer told; its error."""
        begun = time.monotonic()
        try:
            at = list(await made())
        except LedgerError as error:
            self.tell(log, failed=type(error).__name__, handle=handle, first=first, records=records)
            return error
        self.tell(log, acked=runs_of(handle, first, at), t=[begun, time.monotonic()])
        return None


# -- plays -------------------------------------------------------------------------------------------------------------


async def own(stage: Stage, logs: aio.Logs, log: str, kind: str) -> None:
    """Owns the log whenever it can, appends, and gives it back after a while."""
    producer = f"p-{stage.job['who']}"
    sequence = stage.job["life"] * 10**9
    for turn in count():
        if stage.quiet.is_set():
            return
        try:
            owner = await logs.own(log, wait_s=OWN_WAIT_S, force=stage.dice.random() < FORCED)
        except NotOwner:  # somebody else has it all the time
            continue
        except LedgerError as error:
            stage.trouble(log, "own", error)
            await stage.pause(PAUSE_S)
            continue
        handle, number = f"{stage.life}.{turn}", 0
        until = time.monotonic() + stage.dice.expovariate(1 / HELD_S)
        while time.monotonic() < until and not stage.quiet.is_set():
            if kind == "dedup" and stage.dice.random() < 0.5:
                sequence += 1
                error = await _produced(stage, owner, log, producer, sequence)
            else:
                records = stage.dice.randrange(1, RECORDS_MAX)
                error = await _appended(stage, owner, log, handle, number, records)
                number += records
            if isinstance(error, NotOwner | LogFenced):
                break
            await stage.pause(PAUSE_S if error is not None else stage.gap_s, stage.quiet)
        with suppress(LedgerError):
            await owner.close()


async def _appended(
    stage: Stage, owner: aio.Owner, log: str, handle: str, first: int, records: int
) -> LedgerError | None:
    values = [stage.value(f"{handle}:{n}") for n in range(first, first + records)]

    async def made() -> Sequence[int]:
        return list((await owner.append_many(values)).indexes)

    return await stage.sent(log, handle, first, records, made)


async def _produced(stage: Stage, owner: aio.Owner, log: str, producer: str, sequence: int) -> LedgerError | None:
    """A record that is sent once more where it is not known what became of it, and sometimes for nothing."""
    value = stage.value(f"{producer}:{sequence}")

    async def made() -> Sequence[int]:
        return [(await owner.append(value, producer=producer, sequence=sequence)).index]

    error = await stage.sent(log, producer, sequence, 1, made)
    if error is None and stage.dice.random() < 0.9:
        return None
    return await stage.sent(log, producer, sequence, 1, made)


async def stand(stage: Stage, logs: aio.Logs, log: str, _kind: str) -> None:
    """Is a replica: proposes where it leads, reads everywhere."""
    handle, number = f"{stage.life}.r", 0
    while not stage.ending.is_set():
        try:
            replica = await logs.replica(log, Chain, stand=True)
        except LedgerError as error:
            stage.trouble(log, "replica", error)
            await stage.pause(PAUSE_S)
            continue
        error: LedgerError | None = None
        until = time.monotonic() + stage.dice.expovariate(1 / HELD_S)
        while time.monotonic() < until and not stage.ending.is_set():
            if not stage.quiet.is_set() and await replica.leads():
                error = await _proposed(stage, replica, log, handle, number)
                number += 1
            await _read(stage, replica, log)
            await stage.pause(PAUSE_S if error is not None else 2 * stage.gap_s)
        with suppress(LedgerError):
            await replica.close()


async def _proposed(stage: Stage, replica: aio.Replica, log: str, handle: str, number: int) -> LedgerError | None:
    value = stage.value(f"{handle}:{number}")

    async def made() -> Sequence[int]:
        return [await replica.propose(value)]

    return await stage.sent(log, handle, number, 1, made)


async def _read(stage: Stage, replica: aio.Replica, log: str) -> None:
    begun = time.monotonic()
    try:
        answer = await replica.read(lambda machine: (machine.applied, machine.state), "index")
    except LedgerError as error:
        stage.trouble(log, "read", error)
        return
    stage.tell(log, read=answer.value, t=[begun, time.monotonic()])


async def publish(stage: Stage, logs: aio.Logs, log: str, _kind: str) -> None:
    """Publishes batch after batch; what is in one follows from its number."""
    txn = f"x-{log}"
    while not stage.quiet.is_set():
        try:
            sink = await logs.sink(log, txn, stage.life)
            published = await sink.begin()
            batch = 0 if published is None else published + 1
            while not stage.quiet.is_set():
                await _published(stage, sink, log, txn, batch)
                batch += 1
                await stage.pause(10 * stage.gap_s, stage.quiet)
        except LedgerError as error:
            stage.trouble(log, "publish", error)
            await stage.pause(PAUSE_S)


async def _published(stage: Stage, sink: aio.Sink, log: str, txn: str, batch: int) -> None:
    records = 2 + Random(f"{txn} {batch}").randrange(20)
    first, begun, parts = batch * 1000, time.monotonic(), []
    for part, some in enumerate((range(first, first + records // 2), range(first + records // 2, first + records))):
        writer = await sink.part(batch, part, stage.job["life"])
        await writer.append_many([f"{txn}:{number} ".encode() for number in some])
        parts.append(await writer.close())
    receipt = await sink.commit(batch, parts)
    stage.tell(log, acked=[Run(txn, first, receipt.first, receipt.end - receipt.first)], t=[begun, time.monotonic()])


async def follow(stage: Stage, logs: aio.Logs, log: str, _kind: str) -> None:
    """Reads all by a durable cursor, and acknowledges what it has told."""
    while not stage.ending.is_set():
        try:
            cursor = await logs.cursor(log, "tail", start="begin")
            stage.tell(log, opened=cursor.mark)
            for turn in count(1):
                records = await cursor.read(READ_MAX, READ_S)
                if records:
                    first = records[0].index
                    assert [record.index for record in records] == [*range(first, first + len(records))], log
                    names = [named(record.value) for record in records]
                    stage.tell(log, saw=first, names=names, t=time.monotonic())
                    await cursor.ack_many([range(first, first + len(records))])
                if turn % PERSIST_EVERY == 0 or stage.ending.is_set():
                    await cursor.persist()
                    stage.tell(log, kept=cursor.mark)
                if stage.ending.is_set():
                    break
            await cursor.close()
        except LedgerError as error:
            stage.trouble(log, "follow", error)
            await stage.pause(PAUSE_S)


PLAYS = {"own": own, "stand": stand, "publish": publish, "follow": follow}


# -- the process -------------------------------------------------------------------------------------------------------


async def play(job: dict[str, Any]) -> None:
    """The whole life of a process."""
    stage, loop = Stage(job), asyncio.get_running_loop()

    def heard() -> None:
        if not os.read(0, 100):
            loop.remove_reader(0)
            stage.ending.set()
        stage.quiet.set()

    loop.add_reader(0, heard)
    options = LogOptions(**job["log_options"], snapshot_records=SNAPSHOT_RECORDS)
    client = ClientOptions(**job["client_options"], session_timeout_ms=SESSION_MS)
    while not stage.ending.is_set():
        try:
            async with aio.connect(job["uri"], options, client) as logs, asyncio.TaskGroup() as plays:
                for log, kind, name in job["parts"]:
                    plays.create_task(PLAYS[name](stage, logs, log, kind))
        except LedgerError as error:  # the store is away
            stage.trouble("", "connect", error)
            await stage.pause(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(play(json.loads(sys.argv[1])))
