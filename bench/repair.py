"""
How long it takes to make good what a lost bookie held of many small ledgers; ours and Apache's in turn, in one run.

    python -m bench.repair                           # 2,000 ledgers of ten entries, 5 pairs, beside Apache's with Maven
    python -m bench.repair --alone --ledgers 100     # ours only, fewer

Four bookies over a ZooKeeper, E=3 WQ=3 AQ=2.  In each turn the ledgers are made and closed while one bookie is down, so
that each names the other three; it comes back, another one is stopped, and what `quire recover` and `bookkeeper shell
recover` do is timed without the start of a process.  Then the ledgers are deleted.  Prints one JSON line; `operations`
are the packets that the ZooKeeper received meanwhile, of bookies' sessions, too.  `cpu_ms_per_ledger` is
what the client took of the processor, `all_cpu_ms_per_ledger` what bookies and the ZooKeeper took, too: other work on
the machine disturbs these less than the time on the clock, and cores divided by the latter is the rate there can be.
"""

import contextlib
import json
import pathlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from bench.scripts import by_turns, words
from bench.scripts import folder as temporary
from bench.sides import Run, cpu_seconds, measured
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

BOOKIES, SIZE = 4, 100
Turn = Callable[[int, int], Run]  # so many ledgers of so many entries: what their repair took


def drive(uri: str, verb: str, **words: object) -> Any:
    return measured("loads", verb, f"--metadata={uri}", *(f"--{name}={value}" for name, value in words.items()))


def counted(uri: str, servers: Sequence[int], repair: Callable[[], Run]) -> Run:
    """A repair, what the ZooKeeper received while it ran, and the CPU that these processes used."""
    port = urlsplit(uri).port
    assert port is not None
    before, used = received(port), sum(map(cpu_seconds, servers))
    found = repair()
    used = sum(map(cpu_seconds, servers)) - used
    return {**found, "operations": received(port) - before, "servers_cpu_seconds": used}


def received(port: int) -> int:
    """Packets, by a ZooKeeper's own count."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"srvr")
        (line,) = (line for line in link.makefile("r") if line.startswith("Received:"))
    return int(line.split()[1])


@contextlib.contextmanager
def ours(folder: pathlib.Path) -> Iterator[Turn]:
    with LocalCluster(folder, bookies=BOOKIES, metadata="zookeeper") as cluster:
        lost, spare = cluster.bookies[0].id, cluster.bookies[-1].id

        def turn(count: int, entries: int) -> Run:
            cluster.stop_bookie(spare)
            drive(cluster.uri, "ledgers", count=count, each=entries, size=SIZE, keep="yes")
            cluster.restart(spare)
            cluster.stop_bookie(lost)
            processes = [cluster.server, *cluster.bookies]
            servers = [each.pid for each in processes if each is not None and each.pid is not None]
            found = counted(cluster.uri, servers, lambda: drive(cluster.uri, "repair", lost=lost))
            cluster.restart(lost)
            drive(cluster.uri, "delete_all")
            return found

        yield turn


@contextlib.contextmanager
def theirs(folder: pathlib.Path) -> Iterator[Turn]:
    from tests.interop.peer import Cluster

    with Cluster(BOOKIES, directory=str(folder)) as cluster, cluster.client() as client:
        lost, spare = cluster.bookies[0], cluster.bookies[-1]
        uri = str(cluster.metadata)

        def repair() -> Run:
            before = cpu_seconds(client.child.pid)
            found = client.call("repair", seconds=600, bookie=lost.id)
            return {**found, "cpu_seconds": cpu_seconds(client.child.pid) - before}

        def turn(count: int, entries: int) -> Run:
            spare.stop()
            client.call("bookies", count=BOOKIES - 1)
            client.call("ledgers", seconds=600, count=count, each=entries, size=SIZE, keep="yes")
            spare.restart()
            lost.stop()
            client.call("bookies", count=BOOKIES - 1)
            processes = [cluster.zookeeper, *cluster.bookies]
            servers = [each.process.child.pid for each in processes if each is not None and each.process.alive]
            found = counted(uri, servers, repair)
            lost.restart()
            client.call("bookies", count=BOOKIES)
            drive(uri, "delete_all")
            return found

        yield turn


def main() -> None:
    options = words(__doc__, ledgers=2000, each=(10, "entries of a ledger"), pairs=5, alone=False, directory=None)
    sides = {"quire": ours} if options.alone else {"quire": ours, "java": theirs}
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    with (
        temporary(options.directory, "repair") as folder,
        contextlib.ExitStack() as stack,
    ):
        turns = {name: stack.enter_context(make(pathlib.Path(folder) / name)) for name, make in sides.items()}
        for turn in turns.values():
            turn(options.ledgers, options.each)  # warm
        for name in by_turns(options.pairs, list(turns)):
            found = turns[name](options.ledgers, options.each)
            seconds = float(found["seconds"])
            cpu = float(found["cpu_seconds"])
            run = {
                "seconds": round(seconds, 3),
                "ledgers_per_second": round(options.ledgers / seconds, 1),
                "operations_per_ledger": round(found["operations"] / options.ledgers, 2),
                "cpu_ms_per_ledger": round(1000 * cpu / options.ledgers, 3),
                "all_cpu_ms_per_ledger": round(1000 * (cpu + found["servers_cpu_seconds"]) / options.ledgers, 3),
            }
            runs[name].append(run)
    print(json.dumps({"ledgers": options.ledgers, "each": options.each, "runs": runs}))


if __name__ == "__main__":
    main()
