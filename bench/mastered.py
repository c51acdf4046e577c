"""
The process of a message store's master, for rows that `bench.rocketmq` measures.

    python -m bench.mastered put --metadata URI --size 1024 --entries 20000 --calls 64
    python -m bench.mastered stand --metadata URI --store NAME --session-ms 4000 --rows DIRECTORY

`put` prints one JSON line.  `stand` prints `waits` once its rows have all while another is master, `owns` once a put of
its own was acknowledged, and puts one message after the other until it is ended.

Knows: how a master puts.  Does not know: what is beside it.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, ensureDeferred

from bench.log_loads import under_way
from bench.message_loads import ADDRESS, Loads, messages, middle
from bench.owned import BUSY_BYTES, LOOK_S, look
from bench.scripts import Timed
from quire.conf.client import ClientOptions
from quire.conf.messages import MessageOptions
from quire.messages.api import connect
from quire.protocol.message_errors import NoSuchStore

# SPDX-License-Identifier: Apache-2.0

LEADS_S = 120.0


async def put(reactor: Any, uri: str, size: int, entries: int, calls: int) -> dict[str, float]:
    """Messages one a call, so many under way, while their rows are made; their rate, and what each took."""
    with tempfile.TemporaryDirectory(prefix="quire-mastered-", ignore_cleanup_errors=True) as directory:
        stores, store = await Loads(reactor, uri, Path(directory)).led(rows=True)
        some, taken = messages(calls, size), []
        await store.put(some[0])  # opens the segment

        async def one(number: int) -> None:
            begun = time.perf_counter()
            await store.put(some[number % calls])
            taken.append((time.perf_counter() - begun) * 1e3)

        with Timed() as run:
            await under_way(entries, calls, lambda number: Deferred.fromCoroutine(one(number)))
        await stores.close()
    return {
        "entries_per_second": entries / run.seconds,
        "p50_ms": middle(taken),
        "p99_ms": middle(taken, 0.99),
        "client_cpu_us_per_entry": 1e6 * run.cpu / entries,
    }


async def stand(reactor: Any, uri: str, name: str, session_ms: int, directory: Path) -> None:
    """A candidate for master of a store, which it makes if there is none; as master it puts until the process ends."""
    session = ClientOptions(session_timeout_ms=session_ms)
    stores = await connect(reactor, uri, MessageOptions(derived_dir=directory), client_options=session)
    try:
        await stores.info(name)
    except NoSuchStore:
        await stores.create(name, address=ADDRESS)
    store = await stores.open(name, stand=True)
    await store.caught_up()
    looking = task.LoopingCall(lambda: Deferred.fromCoroutine(look(stores.logs, name, looking)))
    looking.clock = reactor
    looking.start(LOOK_S)
    if not await store.leads(LEADS_S):
        raise SystemExit(f"no turn as master came in {LEADS_S:g} s")
    if looking.running:
        looking.stop()
    (message,) = messages(1, BUSY_BYTES)
    await store.put(message)
    print("owns", flush=True)
    while True:
        await store.put(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("put")
    for name in ("size", "entries", "calls"):
        one.add_argument(f"--{name}", type=int, required=True)
    other = verbs.add_parser("stand")
    other.add_argument("--store", required=True)
    other.add_argument("--session-ms", type=int, required=True)
    other.add_argument("--rows", type=Path, required=True)
    for each in (one, other):
        each.add_argument("--metadata", required=True)
    words = parser.parse_args()

    async def work(reactor: Any) -> None:
        if words.verb == "put":
            print(json.dumps(await put(reactor, words.metadata, words.size, words.entries, words.calls)), flush=True)
        else:
            await stand(reactor, words.metadata, words.store, words.session_ms, words.rows)

    task.react(lambda reactor: ensureDeferred(work(reactor)))


if __name__ == "__main__":
    main()
