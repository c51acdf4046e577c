"""
Curves of one bookie: the ledgers and entries that it holds, the connections that it has open.

Knows: how each bookie is filled and asked, by turns.  Does not know: how one is started (`bench.ledgers`,
`bench.long_ledger`).
"""

import contextlib
import pathlib
import random
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from bench.growth.streams import Measured, turns
from bench.ledgers import BookieProcess, percentile
from bench.long_ledger import LEDGER, LongLedger
from bench.sides import Quire, Run
from quire.protocol import v2
from quire.protocol.messages import Read

# SPDX-License-Identifier: Apache-2.0

FILLED_AT_ONCE = 10_000
WAITS = 2000  # adds or reads one at a time, in each round
CREATED = 200  # first adds, in each round
DELETED = 200
CONNECTED_AT_ONCE = 100
Bookies = Mapping[float, BookieProcess]


@contextlib.contextmanager
def running(sides: dict[float, BookieProcess]) -> Iterator[None]:
    """Ends all that are in `sides` at the end."""
    try:
        yield
    finally:
        for side in sides.values():
            side.kill()


def latencies(found: Sequence[float], prefix: str = "") -> Run:
    return {f"{prefix}p50_ms": percentile(found, 0.5), f"{prefix}p99_ms": percentile(found, 0.99)}


def adds(side: BookieProcess, drawn: Sequence[int]) -> Run:
    """Adds one at a time, and what they cost."""
    before = side.cpu
    waited = side.latencies(drawn)
    return {**latencies(waited), "cpu_us_per_add": (side.cpu - before) / len(drawn) * 1e6}


def index_bytes(directory: pathlib.Path) -> int:
    """Counts the bytes of both tables, ledgers and runs of entries, as they are on the disk."""
    found = (path for name in ("ledgers", "runs") for path in (directory / "current" / name).iterdir())
    return sum(path.stat().st_size for path in found if path.suffix in (".sst", ".log"))


def ledgers(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    """Bookies with so many ledgers of an entry or more each, all open, and adds to any of them."""
    waits, fresh, deleted = (max(10, int(count * part)) for count in (WAITS, CREATED, DELETED))
    rng = random.Random(1)
    found: Measured = {x: [] for x in points}
    sides: dict[float, BookieProcess] = {}
    with tempfile.TemporaryDirectory(dir=directory, prefix="quire-growth-") as folder, running(sides):
        for x in points:
            side = sides[x] = BookieProcess(pathlib.Path(folder, f"{x:g}"), range(int(x) + fresh * rounds))
            for start in range(0, int(x), FILLED_AT_ONCE):
                side.add(side.frames(range(start, min(int(x), start + FILLED_AT_ONCE))))
        for side in sides.values():
            side.settle()
        for x in turns(points, rounds):
            side, first = sides[x], int(x) + fresh * len(found[x])
            run = adds(side, rng.choices(range(int(x)), k=waits))
            found[x].append(run | latencies(side.latencies(range(first, first + fresh)), "create_"))
        for x in points:
            side = sides[x]
            settled_mb = side.resident_mb
            side.stop()
            found[x][0] |= {"resident_mb": settled_mb, "index_bytes_per_ledger": index_bytes(side.stored) / x}
        restarts(sides, found)
        for x in points:
            found[x][0] |= collections(sides[x], deleted)
    return found


def restarts(sides: Bookies, found: Measured) -> None:
    """Measures stopped bookies, which run at the end: the time of a start after a stop, and after a kill."""
    for number in range(min(map(len, found.values()))):
        for x in sorted(sides, reverse=number % 2 == 1):
            after_stop = sides[x].start()
            sides[x].add(sides[x].frames([0]))
            sides[x].kill()
            found[x][number] |= {"restart_s": after_stop, "killed_s": sides[x].start()}
            sides[x].stop()
    for side in sides.values():
        side.start()


def collections(side: BookieProcess, deleted: int) -> Run:
    """CPU of garbage collections: the first after a start, one with nothing to do, and one with deletions."""
    first = side.collect()[0]
    idle = side.collect()[0]
    side.metadata.delete(range(deleted))
    spent, _seconds, gone = side.collect()
    assert gone == deleted, f"{gone} of {deleted} ledgers were deleted"
    return {
        "first_collect_cpu_ms": first * 1e3,
        "collect_cpu_ms": idle * 1e3,
        "deleted_cpu_us": max(0.0, spent - idle) / deleted * 1e6,
    }


def entries(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    """Bookies with one ledger of so many entries, read at random, then recovered, then deleted."""
    waits = max(10, int(WAITS * part))
    rng = random.Random(1)
    found: Measured = {x: [] for x in points}
    sides: dict[float, LongLedger] = {}
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="quire-growth-") as folder,
        running(sides),  # type: ignore[arg-type]
    ):
        for x in points:
            sides[x] = LongLedger(pathlib.Path(folder, f"{x:g}"), int(x))
            sides[x].warm()
        for x in turns(points, rounds):
            side = sides[x]
            before = side.cpu
            waited = [side.read(rng.randrange(side.entries)) for _ in range(waits)]
            found[x].append({**latencies(waited), "cpu_us_per_read": (side.cpu - before) / waits * 1e6})
        for x, side in sides.items():
            found[x][0] |= {"made_s": side.made_s, "index_bytes_per_entry": side.index_bytes() / x}
            words = (f"--metadata={side.metadata.uri}", f"--ledger={LEDGER}", f"--rounds={rounds}")
            taken = Quire(None).report("bench.loads", "recovered", *words)["recover_ms"]
            for run, spent in zip(found[x], taken, strict=True):
                run["recover_ms"] = spent
            idle = side.collect()[0]
            side.metadata.delete([LEDGER])
            spent, _seconds, gone = side.collect()
            assert gone == 1, "the ledger was not deleted"
            found[x][0]["deleted_cpu_ms"] = max(0.0, spent - idle) * 1e3
            side.kill()
    return found


def clients(points: Sequence[float], rounds: int, part: float, directory: str | None) -> Measured:
    """A bookie for each number of connections, all but one of which have read once and wait."""
    waits = max(10, int(WAITS * part))
    found: Measured = {x: [] for x in points}
    sides: dict[float, BookieProcess] = {}
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="quire-growth-") as folder,
        contextlib.ExitStack() as links,
        running(sides),
    ):
        for x in points:
            side = sides[x] = BookieProcess(pathlib.Path(folder, f"{x:g}"), [LEDGER])
            side.add(side.frames([LEDGER]))
            for start in range(0, int(x), CONNECTED_AT_ONCE):
                connect(side.address, min(CONNECTED_AT_ONCE, int(x) - start), links)
        for x in turns(points, rounds):
            side = sides[x]
            found[x].append(adds(side, [LEDGER] * waits) | {"resident_mb": side.resident_mb})
    return found


def connect(address: tuple[str, int], count: int, links: contextlib.ExitStack) -> None:
    """Connections that `links` ends, each of which got an answer."""
    made = [links.enter_context(socket.create_connection(address)) for _ in range(count)]
    for link in made:
        link.sendall(v2.pack_read(Read(LEDGER, 0)))
    for link in made:
        answer = link.recv(1 << 16)
        if answer[8:12] != bytes(4):
            raise RuntimeError(f"a read was refused: {answer.hex()}")


VERBS = {function.__name__: function for function in (ledgers, entries, clients)}
