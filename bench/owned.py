"""
The process of a log's owner, for rows that `bench.dledger` measures.

    python -m bench.owned append --metadata URI --size 100 --entries 100000 --batch 250 --calls 16
    python -m bench.owned own --metadata URI --log NAME --session-ms 4000

`append` prints one JSON line.  `own` prints `waits` while another owns the log, `owns` once an append of its own was
acknowledged, and appends one record after the other until it is ended.

Knows: how an owner appends.  Does not know: what is beside it.
"""

import argparse
import json
import time
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, ensureDeferred

from bench.log_loads import under_way
from bench.scripts import Timed
from quire.conf.client import ClientOptions
from quire.log.api import Logs, connect
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

LOOK_S = 0.05  # between two looks at whether this handle is a candidate
BUSY_BYTES = 100


async def append(reactor: Any, uri: str, size: int, entries: int, batch: int, calls: int) -> dict[str, float]:
    """Lists of `batch` records, each an entry, so many under way; their rate, and what each list took."""
    logs = await connect(reactor, uri)
    name = f"bench-{time.time_ns()}"
    await logs.create(name)
    owner = await logs.own(name)
    await owner.append(b"opens the segment")
    values, taken = [bytes(size)] * batch, []

    async def one() -> None:
        begun = time.perf_counter()
        await owner.append_many(values)
        taken.append((time.perf_counter() - begun) * 1e3)

    count = max(calls, entries // batch)
    with Timed() as run:
        await under_way(count, calls, lambda _number: Deferred.fromCoroutine(one()))
    await logs.close()
    taken.sort()
    return {
        "entries_per_second": count * batch / run.seconds,
        "p50_ms": taken[count // 2],
        "p99_ms": taken[count * 99 // 100],
        "client_cpu_us_per_entry": 1e6 * run.cpu / (count * batch),
    }


async def own(reactor: Any, uri: str, name: str, session_ms: int) -> None:
    """Owns the log, which it makes if there is none, and appends until the process ends."""
    logs = await connect(reactor, uri, client_options=ClientOptions(session_timeout_ms=session_ms))
    try:
        await logs.info(name)
    except NoSuchLog:
        await logs.create(name)
    looking = task.LoopingCall(lambda: Deferred.fromCoroutine(look(logs, name, looking)))
    looking.clock = reactor
    looking.start(LOOK_S)
    owner = await logs.own(name)
    if looking.running:
        looking.stop()
    await owner.append(bytes(BUSY_BYTES))
    print("owns", flush=True)
    while True:
        await owner.append(bytes(BUSY_BYTES))


async def look(logs: Logs, name: str, looking: task.LoopingCall) -> None:
    """Says so when there is an owner and a candidate: this process's handle, for its log has no other."""
    roles = {each.owns async for each in logs.candidates(name)}
    if len(roles) == 2 and looking.running:
        looking.stop()
        print("waits", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("append")
    for name in ("size", "entries", "batch", "calls"):
        one.add_argument(f"--{name}", type=int, required=True)
    other = verbs.add_parser("own")
    other.add_argument("--log", required=True)
    other.add_argument("--session-ms", type=int, required=True)
    for each in (one, other):
        each.add_argument("--metadata", required=True)
    words = parser.parse_args()

    async def work(reactor: Any) -> None:
        if words.verb == "append":
            found = await append(reactor, words.metadata, words.size, words.entries, words.batch, words.calls)
            print(json.dumps(found), flush=True)
        else:
            await own(reactor, words.metadata, words.log, words.session_ms)

    task.react(lambda reactor: ensureDeferred(work(reactor)))


if __name__ == "__main__":
    main()
