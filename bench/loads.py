"""
The loads that `quire bench` has not: what `Peer.java` does with Apache's client, done with quire's in the same way.

    python -m bench.loads VERB --metadata=URI --entries=20000 …        prints one JSON document

    tail         appends at a fixed rate; another process follows; latency from the tick to the reader, and to the ack
    recoveries   `inflight` appends never awaited, then recovery by a second client
    recovered    one ledger recovered, `rounds` times; in between the store is told that it is open
    ledgers      create, append `each` (1) entries, close, one at a time; then delete
    stored       metadata of `count` ledgers made, all listed, deleted, many at once and without bookies
    takeovers    a log's owner taken over by another client, `rounds` times, until the first record of the new one
    many         appends and reads by turns on very many ledgers, one operation of each under way
    repair       copies what the bookies `lost` held to others
    copy         a ledger is read as a whole and appended to another one, as a program would, which is deleted then
    delete_all   deletes all ledgers

Knows: how to make each load, and what it measured.  Does not know: what is compared with what.
"""

import argparse
import json
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread

from quire.client.api import Client, connect
from quire.conf.client import ClientOptions
from quire.log.api import connect as connect_to_logs
from quire.replication.lost_bookies import recover_bookies
from quire.tools.terminal.running import with_client

# SPDX-License-Identifier: Apache-2.0

DUE = struct.Struct(">d")  # seconds on the clock of all processes; before what is measured 0
SETTLED = 4  # the first of so many parts of a run is not counted
PREFILLED = 10  # entries of each ledger before `many` begins
TAIL_S_MAX = 60.0
CREATED_AT_ONCE = 50
LISTINGS = 10
DELETED_AT_ONCE = 100
COPIED_AT_ONCE = 8 << 20  # bytes of a copy that are appended and not acknowledged
Document = dict[str, Any]


def percentiles(seconds: Sequence[float], prefix: str = "") -> Document:
    """In milliseconds."""
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        f"{prefix}{name}_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 3)
        for name, share in shares.items()
    }


def arrivals_of(reactor: Any, append: Callable[[int], "Deferred[range]"], entries: int, rate: int) -> Any:
    """An open loop whose operation can ask when its entries were due."""
    from quire.tools.load import OpenLoop  # another checkout, which is measured by the other loads, may have none

    class Arrivals(OpenLoop):
        due = 0.0

        def _start(self, count: int, due: float) -> None:
            self.due = due
            super()._start(count, due)

    return Arrivals(reactor, append, entries, rate)


async def tail(reactor: Any, client: Client, words: Document) -> Document:
    size, entries = max(DUE.size, words["size"]), words["entries"]
    writer = await client.create_ledger()
    for _ in range(2):  # an entry is seen with the next one
        await writer.append(DUE.pack(0))
    follower = [sys.executable, "-m", "bench.loads", "follow", f"--metadata={words['metadata']}"]
    child = subprocess.Popen([*follower, f"--ledger={writer.id}"], stdout=subprocess.PIPE, text=True)
    lines = child.stdout
    assert lines is not None
    assert (await deferToThread(lines.readline)).strip() == "follows", "the process that follows ended"
    acknowledged: list[float] = []

    def append(count: int) -> "Deferred[range]":
        due = arrivals.due

        def note(done: range) -> range:
            acknowledged.extend([reactor.seconds() - due] * len(done))
            return done

        return writer.append_many([DUE.pack(due).ljust(size, b"\0")] * count).addCallback(note)

    arrivals = arrivals_of(reactor, append, entries, words["rate"])
    await arrivals.run()
    await writer.close()
    found: Document = json.loads(await deferToThread(lines.readline))
    await deferToThread(child.wait)
    lines.close()
    await client.delete_ledger(writer.id)
    return found | percentiles(acknowledged[entries // SETTLED :], "append_") | {"entries": entries}


async def follow(reactor: Any, client: Client, words: Document) -> Document:
    """The process that `tail` starts."""
    reader = await client.open_ledger(words["ledger"], recover=False)
    waited: list[float] = []
    told = False
    async for some in reader.tail(TAIL_S_MAX):
        now = reactor.seconds()
        dues = [DUE.unpack_from(entry.data)[0] for entry in some]
        if not told:
            print("follows", flush=True)
            told = True
        waited.extend(now - due for due in dues if due)
    return percentiles(waited[len(waited) // SETTLED :])


async def recoveries(reactor: Any, client: Client, words: Document) -> Document:
    other = await connect(reactor, str(words["metadata"]))
    payloads = [bytes(words["size"])] * words["inflight"]
    taken: list[float] = []
    for _ in range(words["rounds"]):
        writer = await client.create_ledger()
        appended = writer.append_many(payloads).addErrback(lambda _fenced: None)
        began = time.perf_counter()
        reader = await other.open_ledger(writer.id)
        taken.append(time.perf_counter() - began)
        await reader.close()
        await appended
        await client.delete_ledger(writer.id)
    await other.close()
    return percentiles(taken)


async def recovered(_reactor: Any, client: Client, words: Document) -> Document:
    ledger, taken = words["ledger"], []
    reader = await client.open_ledger(ledger, recover=False)
    await reader.read_last_confirmed()  # the connection is there, and is not what is measured
    await reader.close()
    for _ in range(words["rounds"]):
        found = await client.store.read_ledger(ledger)
        began = time.perf_counter()
        reader = await client.open_ledger(ledger)
        taken.append(round((time.perf_counter() - began) * 1e3, 3))
        await reader.close()
        closed = await client.store.read_ledger(ledger)
        await client.store.write_ledger(ledger, found.value, closed.version)
    return {"recover_ms": taken}


async def ledgers(_reactor: Any, client: Client, words: Document) -> Document:
    made: list[int] = []
    payload = bytes(words["size"])
    began = time.perf_counter()
    for _ in range(words["count"]):
        writer = await client.create_ledger()
        await writer.append_many([payload] * words.get("each", 1))
        await writer.close()
        made.append(writer.id)
    between = time.perf_counter()
    if words.get("keep") == "yes":
        return {"ledgers": made}
    for ledger in made:
        await client.delete_ledger(ledger)
    count = words["count"]
    return {
        "made_per_second": round(count / (between - began), 1),
        "deleted_per_second": round(count / (time.perf_counter() - between), 1),
    }


async def stored(_reactor: Any, client: Client, words: Document) -> Document:
    store, count = client.store, words["count"]
    writer = await client.create_ledger()
    model = (await store.read_ledger(writer.id)).value
    first = writer.id + (1 << 20)
    cpu, began = time.process_time(), time.perf_counter()

    async def made(number: int) -> None:
        await store.create_ledger(first + number, replace(model, ctoken=0))

    await some_at_once(count, made)
    after = time.perf_counter()
    for _ in range(LISTINGS):
        assert len(await store.ledger_ids(first - 1, count)) == count
    between = time.perf_counter()
    await some_at_once(count, lambda number: store.delete_ledger(first + number))
    ended = time.perf_counter()
    await writer.close()
    await client.delete_ledger(writer.id)
    return {
        "made_per_second": round(count / (after - began), 1),
        "listed_per_second": round(LISTINGS * count / (between - after), 1),
        "deleted_per_second": round(count / (ended - between), 1),
        "client_cpu_us_per_entry": round((time.process_time() - cpu) / count * 1e6, 2),
    }


async def takeovers(reactor: Any, client: Client, words: Document) -> Document:
    clients = [await connect_to_logs(reactor, str(words["metadata"])) for _ in range(2)]
    name, taken = f"bench-{time.time_ns()}", []
    await clients[0].create(name)
    owner = await clients[0].own(name)
    await owner.append(bytes(words["size"]))
    for number in range(words["rounds"]):
        began = time.perf_counter()
        follower = await clients[(number + 1) % 2].own(name, force=True)
        await follower.append(bytes(words["size"]))
        taken.append(time.perf_counter() - began)
        await owner.close()
        owner = follower
    for each in clients:
        await each.close()
    return percentiles(taken)


async def many(_reactor: Any, client: Client, words: Document) -> Document:
    payload, operations = bytes(words["size"]), words["entries"]
    shape = {"ensemble_size": words["ensemble"], "write_quorum": words["write"], "ack_quorum": words["ack"]}
    dice = Random(1)

    async def prepared(_number: int) -> tuple[Any, Any]:
        writer = await client.create_ledger(**shape)
        await writer.append_many([payload] * PREFILLED)
        await writer.append(payload)  # with it the others are confirmed to readers
        return writer, await client.open_ledger(writer.id, recover=False)

    opened = await some_at_once(words["count"], prepared)
    numbers = iter(range(operations))
    appended: list[float] = []
    read: list[float] = []

    async def turns(writer: Any, reader: Any) -> None:
        for number in numbers:
            began = time.perf_counter()
            if number % 2 == 0:
                await writer.append(payload)
                appended.append(time.perf_counter() - began)
            else:
                at = dice.randrange(PREFILLED)
                await reader.read(at, at)
                read.append(time.perf_counter() - began)

    cpu, began = time.process_time(), time.perf_counter()
    await gatherResults([Deferred.fromCoroutine(turns(*each)) for each in opened])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu

    async def put_away(number: int) -> None:
        writer, reader = opened[number]
        await reader.close()
        await writer.close()
        await client.delete_ledger(writer.id)

    await some_at_once(len(opened), put_away)
    return {
        "entries": operations,
        "entries_per_second": round(operations / seconds),
        "client_cpu_us_per_entry": round(cpu / operations * 1e6, 2),
        **percentiles(appended),
        **percentiles(read, "read_"),
    }


async def some_at_once(count: int, call: Callable[[int], Awaitable[Any]]) -> list[Any]:
    """The answers of all calls."""

    async def part(first: int) -> list[Any]:
        return [await call(number) for number in range(first, count, CREATED_AT_ONCE)]

    parts = await gatherResults([Deferred.fromCoroutine(part(first)) for first in range(CREATED_AT_ONCE)])
    return list(chain.from_iterable(parts))


async def repair(_reactor: Any, client: Client, words: Document) -> Document:
    began, cpu = time.perf_counter(), time.process_time()
    found = await recover_bookies(client, words["lost"].split(","))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if found.failed:
        raise RuntimeError(f"{len(found.failed)} ledgers were not repaired, the first because {found.failed[0].reason}")
    return {"ledgers": len(found.ledgers), "seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}


async def copy(_reactor: Any, client: Client, words: Document) -> Document:
    reader = await client.open_ledger(words["ledger"])
    copied = 0
    began, cpu = time.perf_counter(), time.process_time()
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    under_way: deque[tuple[Deferred[range], int]] = deque()
    async for run in reader.runs():
        size = sum(map(len, run.payloads))
        under_way.append((writer.append_many(run.payloads), size))
        copied += size
        while sum(size for _, size in under_way) > COPIED_AT_ONCE:
            await under_way.popleft()[0]
    for appended, _ in under_way:
        await appended
    await writer.close()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    await client.delete_ledger(writer.id)
    return {"bytes": copied, "seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}


async def delete_all(_reactor: Any, client: Client, _words: Document) -> Document:
    made: list[int] = []
    while page := await client.ledger_ids(made[-1] if made else -1, DELETED_AT_ONCE):
        await gatherResults([client.delete_ledger(ledger) for ledger in page])
        made += page
    return {"ledgers": len(made)}


VERBS = {
    function.__name__: function
    for function in (tail, follow, recoveries, recovered, ledgers, stored, takeovers, many, repair, copy, delete_all)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=VERBS)
    verb, rest = parser.parse_known_args()
    words: Document = {}
    for word in rest:
        name, _, value = word.removeprefix("--").partition("=")
        words[name] = int(value) if value.isdigit() else value
    options = ClientOptions(protocol=words["protocol"]) if "protocol" in words else None
    work = VERBS[verb.verb]
    print(json.dumps(with_client(words["metadata"], lambda reactor, client: work(reactor, client, words), options)))


if __name__ == "__main__":
    main()
