"""
How long a bookie is away: killed with a full journal, and stopped cleanly; ours and Apache's in turn, in one run.

    python -m bench.restart                    # 1 GB, 3 pairs, beside Apache's bookie where Maven is
    python -m bench.restart --alone --mb 200   # ours only, smaller

Each bookie gets `--mb` of 1 KiB entries in plain V2 frames over one connection, none of which it may flush (a
checkpoint interval of an hour, a write cache that holds all).  Then: SIGKILL, start, and from that start on the time to
the first add that is acknowledged; then SIGTERM, the time it takes to stop, start, and the same time again.  Prints one
JSON line.
"""

import contextlib
import json
import pathlib
import socket
import statistics
import time
from collections.abc import Callable, Iterator

from bench.scripts import by_turns, words
from bench.scripts import folder as temporary
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.tools.local_cluster.cluster import LocalCluster

# SPDX-License-Identifier: Apache-2.0

SIZE, BATCH, BATCHES_OUT = 1024, 1000, 4
ACK_BYTES = 28
UNTOUCHED = {"flushInterval": "3600000", "dbStorage_writeCacheMaxSizeMb": "4096"}
DIGEST = Digest(DigestType.CRC32C, b"")
SECONDS_MAX = 120.0
HOST = "127.0.0.1"


class Side:
    """One bookie; `start` returns at once or when it serves, as its harness does."""

    def __init__(
        self, name: str, port: int, start: Callable[[], object], kill: Callable[[], object], stop: Callable[[], object]
    ) -> None:
        self.name, self.port, self.start, self.kill, self.stop = name, port, start, kill, stop
        self.entries = 0

    def frames(self, count: int) -> bytes:
        batch = AddBatch(DIGEST, 1, self.entries, self.entries - 1, 0, [b"x" * SIZE] * count)
        self.entries += count
        return batch.frames()

    def fill(self, megabytes: int) -> float:
        """Appends so much; MB/s."""
        began = time.perf_counter()
        with socket.create_connection((HOST, self.port)) as link:
            out = 0
            for _ in range(megabytes * 1_000_000 // (SIZE * BATCH)):
                link.sendall(self.frames(BATCH))
                out += 1
                if out == BATCHES_OUT:
                    take(link, BATCH)
                    out -= 1
            take(link, out * BATCH)
        return megabytes / (time.perf_counter() - began)

    def first_add(self) -> None:
        """Tries until one add is acknowledged."""
        deadline = time.monotonic() + SECONDS_MAX
        frame = self.frames(1)
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1) as link:
                link.settimeout(SECONDS_MAX)
                link.sendall(frame)
                take(link, 1)
                return
            time.sleep(0.005)
        raise TimeoutError(f"{self.name} takes no add after {SECONDS_MAX} s")

    def back(self) -> float:
        """Seconds from the start of the process to the first add."""
        began = time.perf_counter()
        self.start()
        self.first_add()
        return time.perf_counter() - began


def take(link: socket.socket, count: int) -> None:
    """Reads `count` answers, all of them good."""
    data = b""
    while len(data) < count * ACK_BYTES:
        more = link.recv(count * ACK_BYTES - len(data))
        if not more:
            raise ConnectionResetError("the bookie closed the connection")
        data += more
    bad = [code for at in range(0, len(data), ACK_BYTES) if (code := int.from_bytes(data[at + 8 : at + 12], "big"))]
    if bad:
        raise OSError(f"{len(bad)} adds were refused, the first with {bad[0]}")


@contextlib.contextmanager
def ours(folder: pathlib.Path) -> Iterator[Side]:
    with LocalCluster(folder, bookies=1, options=UNTOUCHED) as cluster:
        (bookie,) = cluster.bookies
        yield Side(
            "quire",
            bookie.port,
            bookie.begin,
            bookie.end_now,
            lambda: (bookie.ask_to_end(), bookie.wait_for_end(time.monotonic() + SECONDS_MAX)),
        )


@contextlib.contextmanager
def theirs(folder: pathlib.Path) -> Iterator[Side]:
    from tests.interop.peer import Cluster

    with Cluster(1, settings=UNTOUCHED, heap="1g", direct="6g", directory=str(folder)) as cluster:
        (bookie,) = cluster.bookies
        yield Side("java", bookie.port, lambda: bookie.start(wait=False), bookie.kill, bookie.stop)


def measured(side: Side, megabytes: int) -> dict[str, float]:
    side.first_add()  # the peer's port is open before the peer is
    found = {"append_mb_s": side.fill(megabytes)}
    side.kill()
    found["killed_s"] = side.back()
    began = time.perf_counter()
    side.stop()
    found["stop_s"] = time.perf_counter() - began
    found["clean_s"] = side.back()
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    options = words(__doc__, mb=1000, pairs=3, alone=False, directory=None)
    sides = [ours] if options.alone else [ours, theirs]
    figures: dict[str, list[dict[str, float]]] = {}
    for make in by_turns(options.pairs, sides):
        with temporary(options.directory, "restart") as folder, make(pathlib.Path(folder)) as side:
            figures.setdefault(side.name, []).append(measured(side, options.mb))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in figures.items()
    }
    print(json.dumps({"mb": options.mb, "runs": figures, "medians": medians}))


if __name__ == "__main__":
    main()
