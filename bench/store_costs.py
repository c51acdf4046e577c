"""
`python -m bench.store_costs`: what one ledger, one bookie and one client cost the metadata store, measured.

    python -m bench.store_costs --counts         calls and watches, counted in this process: seconds
    python -m bench.store_costs --sizes          memory and disk of a ledger's node in each store that is here: minutes
    python -m bench.store_costs --sizes --ledgers 200000 --write    and docs/performance/store-costs.json with all of it

Counts are the same on every machine: of real bookies and clients in this process, whose store is a tree in memory which
notes what is asked.  A number of bookies that grows shows what grows with it.  Sizes are of a ZooKeeper (a heap after
a full collection), an etcd (its database) and a SQLite file, with as many ledgers as are asked for.

Knows: how costs are counted and measured.  Does not know: what they amount to (`bench.arithmetic`).
"""

import argparse
import json
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from quire import log as logs
from quire.client import api
from quire.client.threads import reactor_thread
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.ledgers.layout import Layout, LedgerPaths
from quire.metadata.memory.tree import MemoryTree
from quire.metadata.store import ANY
from quire.metadata.tree import Create, Delete, Step, Tree, Wake, Write, together
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.protocol.digest import DigestType
from quire.replication.autorecovery.running import AutoRecovery
from quire.testing.in_process import InProcessCluster
from quire.tools.local_cluster.etcd import Etcd
from quire.tools.local_cluster.zookeeper import ZooKeeper

# SPDX-License-Identifier: Apache-2.0

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "performance" / "store-costs.json"
LEDGERS = 64  # of which the calls are counted: so many ids are drawn at once
STEPS = 500  # of a transaction that fills a store
READ = 500  # ledgers at once
WASHES = 120  # of 50 changes each
QUIET_S = 1.0  # without a new watch: all are set
BOOKIE = "bookie-{:05d}.rack-{:03d}.example.net:3181"
READS = ("get", "get_each", "exists", "listing")


# -- a tree that notes what it is asked ------------------------------------------------------------------------------


class Armed:
    """A watch that was set and has not been called."""

    def __init__(self, watch: Wake, gone: Callable[["Armed"], object]) -> None:
        self.watch = watch
        self._gone = gone

    def __call__(self) -> None:
        self._gone(self)
        self.watch()


class Noted:
    """The calls of all handles on trees in memory since the last `take`, and the watches that are set now."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.armed: list[Armed] = []

    def take(self) -> Counter[str]:
        """The calls so far; counting begins anew."""
        calls, self.calls = self.calls, Counter()
        return calls

    def gone(self, each: Armed) -> None:
        """Forgets a watch that was called."""
        if each in self.armed:
            self.armed.remove(each)


@contextmanager
def noting() -> Iterator[Noted]:
    """Notes what all handles on trees in memory are asked for."""
    noted = Noted()
    before = {name: getattr(MemoryTree, name) for name in (*READS, "transact", "disarm", "sync", "clock")}

    def transact(tree: MemoryTree, steps: Sequence[Step], **more: Any) -> Any:
        changes = any(isinstance(step, Create | Write | Delete) for step in steps)
        noted.calls["write" if changes else "read"] += 1
        return before["transact"](tree, steps, **more)

    def read(name: str, tree: MemoryTree, subject: Any, watch: Wake | None = None) -> Any:
        noted.calls["read"] += len(subject) if name == "get_each" else 1
        if name == "get_each":
            return before[name](tree, subject)
        if watch is None:
            return before[name](tree, subject, None)
        armed = Armed(watch, noted.gone)
        noted.armed.append(armed)
        answer = before[name](tree, subject, armed)

        def failed(failure: Any) -> Any:
            noted.gone(armed)
            return failure

        return answer.addErrback(failed)

    def disarm(tree: MemoryTree, watch: Wake) -> bool:
        for each in [each for each in noted.armed if each.watch == watch]:
            if before["disarm"](tree, each):
                noted.gone(each)
        return True

    def asked(name: str, tree: MemoryTree, path: str) -> Any:
        noted.calls["write" if name == "clock" else "sync"] += 1
        return before[name](tree, path)

    for name in READS:
        setattr(MemoryTree, name, method(partial(read, name)))
    MemoryTree.transact = transact  # type: ignore[method-assign, assignment]  # put back below
    MemoryTree.disarm = disarm  # type: ignore[method-assign]  # put back below
    for name in ("sync", "clock"):
        setattr(MemoryTree, name, method(partial(asked, name)))
    try:
        yield noted
    finally:
        for name, was in before.items():
            setattr(MemoryTree, name, was)


def method(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a class takes for a method."""

    def bound(*given: Any, **more: Any) -> Any:
        return call(*given, **more)

    return bound


# -- counts ----------------------------------------------------------------------------------------------------------


def counts(bookies_of: Sequence[int] = (3, 5, 7)) -> dict[str, Any]:
    """
    Counts what is asked of the store in the life of a ledger, and of a segment of a log; watches by who sets them, in
    clusters of so many bookies.
    """
    found: dict[str, Any] = {}
    watched: dict[str, list[int]] = {}
    for bookies in bookies_of:
        with noting() as noted, InProcessCluster(bookies=bookies) as cluster:
            began = settled(noted)
            watched.setdefault("bookies", []).append(began)
            client = cluster.connect()
            writer = client.create_ledger()
            writer.append(b"x")
            with_writer = settled(noted)
            watched.setdefault("client", []).append(with_writer - began)
            reader = client.open_ledger(writer.id, recover=False)
            tail = reader.tail(0.05)
            list(tail)
            watched.setdefault("tail", []).append(settled(noted) - with_writer)
            reader.close()
            writer.close()
            if bookies == bookies_of[0]:
                found["life"] = life(noted, client)
                found["log"] = log_life(noted, cluster.uri)
            before = settled(noted)
            stop = recovering(cluster)
            watched.setdefault("auditor", []).append(settled(noted) - before)
            stop()
    found["watches"] = {name: line_of(bookies_of, each) for name, each in watched.items()}
    return found


def line_of(bookies_of: Sequence[int], watches: Sequence[int]) -> dict[str, float]:
    """The straight line on which these are; `ValueError` where they are on none."""
    per_bookie = (watches[-1] - watches[0]) / (bookies_of[-1] - bookies_of[0])
    base = watches[0] - per_bookie * bookies_of[0]
    if any(base + per_bookie * bookies != each for bookies, each in zip(bookies_of, watches, strict=True)):
        raise ValueError(f"{watches} watches in clusters of {bookies_of} bookies are no straight line")
    return {"base": base, "per_bookie": per_bookie}


def settled(noted: Noted) -> int:
    """How many watches are set once that does not change for a while."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        now = len(noted.armed)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.02)
    return last


def life(noted: Noted, client: Any) -> dict[str, float]:
    """Calls of each step of a ledger's life, on average."""
    found: dict[str, float] = {}

    def note(step: str) -> None:
        for kind, count in noted.take().items():
            found[f"{step} {kind}"] = count / LEDGERS

    noted.take()
    writers = [client.create_ledger() for _ in range(LEDGERS)]
    note("create")
    for writer in writers:
        writer.append(b"x")
    note("append")
    for writer in writers:
        writer.close()
    note("close")
    for writer in writers:
        client.open_ledger(writer.id).close()
    note("open")
    for writer in writers:
        client.delete_ledger(writer.id)
    note("delete")
    return found


def log_life(noted: Noted, uri: str) -> dict[str, float]:
    """Calls of a takeover, and of a segment that an owner rolls."""
    found: dict[str, float] = {}
    with logs.connect(uri) as opened:
        opened.create("counted")
        noted.take()
        before = settled(noted)
        with opened.own("counted") as owner:
            owner.append(b"x")
            found["owner watches"] = settled(noted) - before
            found |= {f"takeover {kind}": float(count) for kind, count in noted.take().items()}
            for _ in range(LEDGERS):
                owner.roll()
                owner.append(b"x")
            found |= {f"roll {kind}": count / LEDGERS for kind, count in noted.take().items()}
            before = settled(noted)
            with opened.read("counted") as reader:
                list(reader.tail(0.05))
                found["reader watches"] = settled(noted) - before
    return found


def recovering(cluster: InProcessCluster) -> Callable[[], None]:
    """An AutoRecovery beside the cluster, which is the auditor; the function that ends it."""
    thread = reactor_thread()

    async def begun() -> tuple[api.Client, AutoRecovery]:
        client = await api.connect(thread.reactor, cluster.uri)
        made = AutoRecovery(client, cluster.ids[0], AutoRecoveryOptions(metadata_uri=cluster.uri))
        made.start()
        return client, made

    client, made = thread.wait(begun)

    async def ended() -> None:
        await made.stop()
        await client.close()

    return lambda: thread.wait(ended)


# -- bytes -----------------------------------------------------------------------------------------------------------


def metadata(fragments: int, custom: dict[str, bytes], ensemble: int = 3) -> bytes:
    """The value of a closed ledger with so many fragments, whose bookies have names of usual length."""
    bookies = [BOOKIE.format(number * 7919 % 10_000, number % 100) for number in range(ensemble + fragments)]
    made = LedgerMetadata(
        ensemble_size=ensemble,
        write_quorum=3,
        ack_quorum=2,
        state=LedgerState.CLOSED,
        last_entry=250_000,
        length=256 << 20,
        fragments=tuple(
            Fragment(number * 10_000, tuple(bookies[number : number + ensemble])) for number in range(fragments)
        ),
        digest=DigestType.CRC32C,
        password=b"",
        custom=custom,
        ctime_ms=1_764_500_000_000,
    )
    return ledger_codec.encode(made)


SEGMENT = {  # as `log.store.ledgers.Tags` has them
    "application": b"quire",
    "component": b"log-segment",
    "quire/log": b"0" * 32,
    "quire/name": b"orders/europe",
    "quire/creation": b"0" * 16,
    "quire/epoch": b"17",
}


def value_bytes() -> dict[str, int]:
    """Bytes of the values of ledgers, by what they are."""
    return {
        "plain": len(metadata(1, {})),
        "plain, each further fragment": len(metadata(2, {})) - len(metadata(1, {})),
        "segment of a log": len(metadata(1, SEGMENT)),
    }


# -- sizes in real stores --------------------------------------------------------------------------------------------


def sizes(ledgers: int) -> dict[str, dict[str, float]]:
    """Memory and disk of one ledger's node in each store that is here, bytes."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="quire-costs-") as directory:
        found["sqlite"] = of_sqlite(Path(directory) / "sqlite", ledgers)
        found["zookeeper"] = of_zookeeper(Path(directory) / "zookeeper", ledgers)
        found["etcd"] = of_etcd(Path(directory) / "etcd", ledgers)
    return found


def of_sqlite(directory: Path, ledgers: int) -> dict[str, float]:
    directory.mkdir()
    file = directory / "metadata.db"
    filled(f"sqlite://{file}", 0)
    started = file.stat().st_size
    rates = filled(f"sqlite://{file}", ledgers)
    return {"ledgers": ledgers, "disk": (file.stat().st_size - started) / ledgers, **rates._asdict()}


def of_zookeeper(directory: Path, ledgers: int) -> dict[str, float]:
    """Starts the server anew before its heap is looked at, for one that made the nodes holds its transactions, too."""
    server = zookeeper(directory)
    try:
        filled(server.uri, 0)
        before = heap_of(server)
        rates = filled(server.uri, ledgers)
        server.stop()
        server = zookeeper(directory)
        return {"ledgers": ledgers, "memory": (heap_of(server) - before) / ledgers, **rates._asdict()}
    finally:
        server.stop()


def zookeeper(directory: Path) -> ZooKeeper:
    jvm, settings = ("-Xmx4g", "-XX:+PrintClassHistogram"), ("snapCount=1000000",)
    return ZooKeeper(directory, sync=False, jvm=jvm, settings=settings)


def heap_of(server: ZooKeeper) -> int:
    """Bytes of living objects, as a histogram of classes says after a full collection."""
    begin = server.log.stat().st_size
    os.kill(server.pid, signal.SIGQUIT)
    while True:
        text = server.log.read_bytes()[begin:].decode(errors="replace")
        found = re.search(r"^Total\s+\d+\s+(\d+)", text, re.MULTILINE)
        if found:
            return int(found[1])
        time.sleep(0.05)


def of_etcd(directory: Path, ledgers: int) -> dict[str, float]:
    server = Etcd(directory, settings=("--snapshot-count=1000", "--unsafe-no-fsync"))
    try:
        server.wait_until_healthy()
        uri = f"etcd://127.0.0.1:{server.port}/ledgers"
        filled(uri, 0)
        disk = database(directory)
        rates = filled(uri, ledgers)
        return {"ledgers": ledgers, "disk": (database(directory) - disk) / ledgers, **rates._asdict()}
    finally:
        server.stop()


def database(directory: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in directory.rglob("db"))


class Rates(NamedTuple):
    """How many ledgers a second one client of a store on this machine made, listed and read."""

    made_per_second: float
    listed_per_second: float
    read_per_second: float


def filled(uri: str, ledgers: int) -> Rates:
    """Makes nodes of ledgers, as segments of logs are, lists them and reads them."""
    thread = reactor_thread()
    value = metadata(1, SEGMENT)

    async def fill() -> Rates:
        store: MetadataStore = await open_store(thread.reactor, uri, session_timeout_ms=60_000)
        try:
            if not ledgers:
                await store.init_cluster()
                return Rates(0.0, 0.0, 0.0)
            began = thread.reactor.seconds()
            await make(store.tree, value, ledgers)
            made = thread.reactor.seconds()
            found = await store.ledger_ids(-1, ledgers)
            listed = thread.reactor.seconds()
            paths = LedgerPaths("/ledgers", Layout.HIERARCHICAL)
            for start in range(0, ledgers, READ):
                await store.tree.get_each([paths.path_of(ledger) for ledger in found[start : start + READ]])
            read = thread.reactor.seconds()
            await wash(store.tree)
            return Rates(ledgers / (made - began), ledgers / (listed - made), ledgers / (read - listed))
        finally:
            await store.close()

    return thread.wait(lambda: Deferred.fromCoroutine(fill()))


async def wash(tree: Tree) -> None:
    """
    Makes so many small changes that a server no longer holds those that filled it for others that are behind:
    ZooKeeper holds its last 500, etcd its last 5,000.
    """
    for _ in range(WASHES):
        await together(
            [
                tree.transact([Create(f"/ledgers/W{number}"), Delete(f"/ledgers/W{number}", ANY)])
                for number in range(100)
            ]
        )


async def make(tree: Tree, value: bytes, ledgers: int) -> None:
    """The nodes of ledgers 0 and on, with the directories above them."""
    paths = LedgerPaths("/ledgers", Layout.HIERARCHICAL)
    made: set[str] = set()
    steps: list[Step] = []
    for ledger in range(ledgers):
        for parent in reversed(paths.parents(ledger)):
            if parent not in made:
                made.add(parent)
                steps.append(Create(parent))
        steps.append(Create(paths.path_of(ledger), value))
        if len(steps) >= STEPS:
            await tree.transact(steps)
            steps = []
    if steps:
        await tree.transact(steps)


def main() -> None:
    """Prints, or writes, what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.store_costs", description=__doc__.split("\n\n", 1)[0].strip()
    )
    parser.add_argument("--counts", action="store_true", help="calls and watches")
    parser.add_argument("--sizes", action="store_true", help="memory and disk of each store")
    parser.add_argument("--ledgers", type=int, default=100_000, help="of each store whose size is measured")
    parser.add_argument("--write", action="store_true", help=f"into {FIGURES.name}, in place of what is there of it")
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    found["bytes"] = value_bytes()
    if given.counts:
        found |= counts()
    if given.sizes:
        found["stores"] = sizes(given.ledgers)
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if given.write:
        FIGURES.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
