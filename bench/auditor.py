"""
What an auditor costs when a bookie of a large cluster is lost.

    python -m bench.auditor --ledgers 100000 --metadata zookeeper

Prints one JSON object: ledgers, how many of them were marked, reads of ledgers and marks that were asked of the store,
seconds, memory of the process (MB), and what the store's packets were where it counts them.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred

from quire.client.api import Client, connect
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import ServiceInfo
from quire.metadata.uri import open_store
from quire.replication.autorecovery.audits.auditor import Auditor
from quire.replication.concurrently import Bell, all_of
from quire.tools.local_cluster.cluster import LocalCluster

BOOKIES = [f"b{number}:3181" for number in range(10)]
AT_ONCE = 200


class Counted:
    """A store whose reads of ledgers and marks are counted."""

    def __init__(self, store: Any) -> None:
        self.reads = self.marks = 0
        one, many, mark = store.read_ledger, store.read_ledgers, store.repairs.mark

        def read_ledger(ledger: int) -> Any:
            self.reads += 1
            return one(ledger)

        def read_ledgers(ledgers: Any) -> Any:
            self.reads += len(ledgers)
            return many(ledgers)

        def marked(*arguments: Any) -> Any:
            self.marks += 1
            return mark(*arguments)

        store.read_ledger, store.read_ledgers, store.repairs.mark = read_ledger, read_ledgers, marked


async def filled(uri: str, count: int) -> Any:
    """A store with so many closed ledgers on ten bookies that are registered by it."""
    reactor: Any = global_reactor
    store = await open_store(reactor, uri)
    for bookie in BOOKIES:
        await store.register_bookie(bookie, ServiceInfo.of("127.0.0.1", 1))
    random = Random(0)

    async def make(ledger: int) -> None:
        metadata = LedgerMetadata.new(3, 3, 2, random.sample(BOOKIES, 3)).closed(9, 1000)
        await store.create_ledger(ledger, metadata)

    for start in range(0, count, AT_ONCE):
        await all_of([make(ledger) for ledger in range(start, min(start + AT_ONCE, count))])
    return store


def resident_mb() -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


async def measured(uri: str, count: int, per_second: int) -> dict[str, Any]:
    """One pass after a loss."""
    client: Client = await connect(global_reactor, uri)  # type: ignore[arg-type]
    counted = Counted(client.store)
    options = AutoRecoveryOptions(
        metadata_uri=uri, ledgers_per_second=per_second, copies_check_interval_s=0, scrub_interval_s=0
    )
    before, begun = resident_mb(), time.monotonic()
    auditor = Auditor(client, options)
    auditor.start()
    bell = Bell(global_reactor)  # type: ignore[arg-type]
    most = before
    while not auditor.losses.passes:
        await bell.wait(0.2)
        most = max(most, resident_mb())
    seconds = time.monotonic() - begun
    await bell.wait(1.0)
    auditor.stop()
    await client.close()
    return {
        "ledgers": count,
        "marked": auditor.losses.marked,
        "reads": counted.reads,
        "reads_per_ledger": round(counted.reads / count, 3),
        "marks": counted.marks,
        "seconds": round(seconds, 1),
        "resident_mb": round(most, 1),
        "resident_mb_before": round(before, 1),
    }


async def story(uri: str, count: int, per_second: int, child: bool) -> None:
    if child:
        print(json.dumps(await measured(uri, count, per_second)), flush=True)
        return
    store = await filled(uri, count)
    await store.unregister_bookie(BOOKIES[0])
    await store.write_cookie(BOOKIES[0], b"cookie", -2)
    print(f"{count} ledgers made", file=sys.stderr, flush=True)
    pid = os.spawnv(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-m", "bench.auditor", "--child", uri, f"--ledgers={count}", f"--per-second={per_second}"],
    )
    bell = Bell(global_reactor)  # type: ignore[arg-type]
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        await bell.wait(0.2)
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1] if __doc__ else None)
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--metadata", choices=("sqlite", "zookeeper"), default="zookeeper")
    parser.add_argument("--per-second", type=int, default=1_000_000, help="ledgers that the auditor reads a second")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()

    def go(uri: str) -> None:
        done = Deferred.fromCoroutine(story(uri, chosen.ledgers, chosen.per_second, bool(chosen.child)))
        done.addErrback(lambda failure: print(failure.getTraceback(), file=sys.stderr))
        done.addBoth(lambda _: global_reactor.stop())  # type: ignore[attr-defined]

    def run(uri: str) -> None:
        global_reactor.callWhenRunning(go, uri)  # type: ignore[attr-defined]
        global_reactor.run()  # type: ignore[attr-defined]

    if chosen.child:
        run(chosen.child)
        return
    with tempfile.TemporaryDirectory(prefix="quire-auditor-") as folder:
        cluster = LocalCluster(Path(folder), 1, chosen.metadata)
        try:
            cluster.start_metadata()
            run(cluster.uri)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
