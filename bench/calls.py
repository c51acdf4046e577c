"""
`python -m bench.calls`: how many functions are called for one operation, in Python and in C: a price without noise.

    python -m bench.calls                            all rows: half a minute
    python -m bench.calls --only append --top 30     the functions that are called most, too
    make bench ARGS='--only calls'

Of a client, all its threads, blocking face, E3/W3/A2 unless a row says otherwise, V2, over SQLite; its bookies are
processes of their own.  Of a bookie, all its threads; it runs in this process, and what asks it is a plain socket of a
thread that is not counted.

A repaired ledger is a small one, of ten entries, of which one copy is made again; so many are repaired at a time.

Each row is beside its bound, which only falls: a change that makes an operation dearer fails `tests/bench`.  The same
operation costs a few calls more or less from round to round, for an answer that comes a moment later is a turn of the
reactor by itself: the least of the rounds counts.

Knows: what is called.  Does not know: what a call costs.
"""

import argparse
import math
import random
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from types import FrameType
from typing import NamedTuple

from twisted.internet.defer import Deferred

from bench.ratios import Comparison
from bench.scripts import asked, report, row_options
from bench.sides import Quire
from quire import log as logs
from quire.client import api, connect
from quire.client.blocking import Client
from quire.client.threads import reactor_thread
from quire.conf.client import ClientOptions
from quire.protocol import v2
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.messages import Read
from quire.replication.lost_bookies import recover_bookies
from quire.testing.in_process import InProcessCluster

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
GROUP = 5  # of a ledger each
WARM = 30  # operations before the first round
MORE = 5  # times as many rounds at most, while the least is above its bound
REPAIRED = 20  # small ledgers, of which those that name the bookie are repaired at a time
E1, E3, E5 = (
    {"ensemble_size": ensemble, "write_quorum": write, "ack_quorum": ack}
    for ensemble, write, ack in ((1, 1, 1), (3, 3, 2), (5, 3, 2))
)


class Bound(NamedTuple):
    """The most calls of one operation, in Python and in C; of CPython 3.11."""

    python: float
    c: float


BOUNDS = {
    "append, 1 KiB": Bound(130, 150),
    "append, 1 KiB, E5/W3/A2": Bound(140, 150),
    "append, 1 KiB, V3": Bound(247, 276),
    "append_many of 50, 100 B": Bound(142, 143),
    "read of one entry": Bound(72, 74),
    "create, append, close": Bound(676, 592),
    "repair of a ledger of ten entries": Bound(1040, 845),
    "record of a log": Bound(327, 288),
    "bookie, an add": Bound(67, 77),
    "bookie, a group of five": Bound(172, 200),
    "bookie, a read": Bound(44, 36),
}


class Calls:
    """Counts the calls of all threads that start after it was made, and of this one where that is wanted."""

    def __init__(self) -> None:
        self.python = self.c = 0
        self.functions: Counter[str] = Counter()
        self._on = False
        threading.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._on:
            return
        if event == "call":
            self.python += 1
            code = frame.f_code
            self.functions[f"{code.co_filename.rpartition('site-packages/')[2]}:{code.co_qualname}"] += 1
        elif event == "c_call":
            self.c += 1

    @contextmanager
    def here(self) -> Iterator[None]:
        """Counts the calls of this thread, too."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def end(self) -> None:
        """Threads that start from here on are not counted."""
        threading.setprofile(None)

    def of(self, operation: Callable[[], object], times: int, done: Callable[[], int] | None = None) -> Bound:
        """The calls of one operation, of so many; `done` counts them where one call is several."""
        self.functions.clear()
        self.python = self.c = 0
        before = 0 if done is None else done()
        self._on = True
        for _ in range(times):
            operation()
        self._on = False
        some = times if done is None else done() - before
        return Bound(self.python / some, self.c / some)


class Rows:
    """The rows that are wanted, each measured in rounds."""

    def __init__(self, options: argparse.Namespace, calls: Calls) -> None:
        self.calls = calls
        self.pairs, self.share, self.wanted = asked(options)
        self.top: int = options.top
        self.found: dict[str, Bound] = {}

    def measure(
        self, name: str, operation: Callable[[], object], times: int, done: Callable[[], int] | None = None
    ) -> None:
        """
        Notes the least of some rounds, unless nobody wants it; of more if it is above its bound, for on a busy machine
        answers come one by one.  `done` as `Calls.of` has it.
        """
        if not self.wanted(f"calls, {name}"):
            return
        for _ in range(WARM):
            operation()
        times = max(20, int(times * self.share))
        least, bound, rounds = Bound(math.inf, math.inf), BOUNDS[name], 0
        while rounds < self.pairs or (
            rounds < MORE * self.pairs and (least.python > bound.python or least.c > bound.c)
        ):
            python, c = self.calls.of(operation, times, done)
            least = Bound(min(least.python, python), min(least.c, c))
            rounds += 1
        self.found[name] = least
        python, c = least
        print(f"  {name}: {python:.1f} in Python, {c:.1f} in C", file=sys.stderr)
        for function, count in self.calls.functions.most_common(self.top):
            print(f"    {count / times:6.1f}  {function}", file=sys.stderr)

    def comparisons(self) -> list[Comparison]:
        """Each figure beside its bound."""
        return [
            Comparison(f"calls, {name}, {kind}", [of], [at_most], 1.0, at_most=True, unit="calls")
            for name, found in self.found.items()
            for kind, of, at_most in zip(("Python", "C"), found, BOUNDS[name], strict=True)
        ]

    # -- of a client

    def of_a_client(self, uri: str) -> None:
        """Rows of a client of these bookies."""
        with connect(uri) as client, self.calls.here():
            self._ledgers(client)
        v3 = ClientOptions(protocol="v3")
        with connect(uri, v3) as client, client.create_ledger(**E3) as writer, self.calls.here():
            self.measure("append, 1 KiB, V3", lambda: writer.append(bytes(1024)), 300)
        with logs.connect(uri) as known:
            known.create("calls")
            with known.own("calls") as owner, self.calls.here():
                self.measure("record of a log", lambda: owner.append(bytes(100)), 300)

    def _ledgers(self, client: Client) -> None:
        payload, some, dice = bytes(1024), [bytes(100)] * 50, random.Random(1)
        with client.create_ledger(**E3) as writer:
            self.measure("append, 1 KiB", lambda: writer.append(payload), 300)
            self.measure("append_many of 50, 100 B", lambda: writer.append_many(some), 200)
        with client.create_ledger(**E5) as striped:
            self.measure("append, 1 KiB, E5/W3/A2", lambda: striped.append(payload), 300)
        with client.create_ledger(**E3) as writer:
            writer.append_many([payload] * 500)
        with client.open_ledger(writer.id) as reader:

            def read() -> None:
                entry = dice.randrange(500)
                reader.read(entry, entry)

            self.measure("read of one entry", read, 300)

        def whole() -> None:
            with client.create_ledger(**E3) as short:
                short.append(b"x")

        self.measure("create, append, close", whole, 60)

    def of_repairs(self, uri: str) -> None:
        """The row of a repair: what one bookie after the other holds of small ledgers is copied to the others."""
        with connect(uri) as blocking:
            ledgers = [self._small(blocking) for _ in range(REPAIRED)]
        thread, repaired = reactor_thread(), 0
        client = thread.wait(lambda: api.connect(thread.reactor, uri))
        lost = cycle(thread.wait(client.store.bookies).writable)

        def repair() -> None:
            nonlocal repaired
            some = {next(lost)}
            found = thread.wait(
                lambda: Deferred.fromCoroutine(recover_bookies(client, some, ledgers=ledgers, even_if_registered=True))
            )
            if found.failed:
                raise RuntimeError(found.failed[0].reason)
            repaired += len(found.ledgers)

        try:
            with self.calls.here():
                self.measure("repair of a ledger of ten entries", repair, 20, lambda: repaired)
        finally:
            thread.wait(client.close)

    def _small(self, client: Client) -> int:
        """Makes a ledger of ten entries, closed; its id."""
        with client.create_ledger(**E3) as writer:
            writer.append_many([bytes(100)] * 10)
            return writer.id

    def of_a_bookie(self) -> None:
        """Rows of one bookie that runs in this process."""
        with InProcessCluster(bookies=1) as cluster:
            with connect(cluster.uri) as client:
                ledgers = [client.create_ledger(**E1).id for _ in range(GROUP)]
            with asking(cluster.ports[0], ledgers) as peer:
                self.measure("bookie, an add", lambda: peer.adds(1), 300)
                self.measure("bookie, a group of five", lambda: peer.adds(GROUP), 200)
                self.measure("bookie, a read", peer.read, 300)


class Peer:
    """A plain socket that speaks V2: frames out, answers counted by their bytes."""

    def __init__(self, connection: socket.socket, ledgers: Sequence[int]) -> None:
        self._connection = connection
        self._ledgers = ledgers
        self._entries = Counter[int]()

    def adds(self, ledgers: int) -> None:
        """One entry to each of so many ledgers in one piece; returns when all are acknowledged."""
        frames = b""
        for ledger in self._ledgers[:ledgers]:
            entry = self._entries[ledger]
            self._entries[ledger] += 1
            frames += AddBatch(DIGEST, ledger, entry, entry - 1, entry * 100, [bytes(100)]).frames()
        self._connection.sendall(frames)
        for _ in range(ledgers):
            self._take()

    def read(self) -> None:
        """One entry of the first ledger."""
        first = self._ledgers[0]
        self._connection.sendall(v2.pack_read(Read(first, self._entries[first] // 2)))
        self._take()

    def _take(self) -> bytes:
        """Returns the next answer."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._connection.recv(size - len(found))
            if not piece:
                raise RuntimeError("the bookie closed the connection")
            found += piece
        return found


@contextmanager
def asking(port: int, ledgers: Sequence[int]) -> Iterator[Peer]:
    """A connection to the bookie at this port."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Peer(connection, ledgers)


def main(argv: Sequence[str] | None = None) -> int:
    options = row_options(
        __doc__, "five of its own, over SQLite", argv, top=(0, "functions that are named with each row")
    )
    calls = Calls()
    rows = Rows(options, calls)
    try:
        rows.of_a_bookie()
        if options.metadata is not None:
            rows.of_a_client(options.metadata)
            rows.of_repairs(options.metadata)
        else:
            with Quire(None, bookies=5) as bookies:
                rows.of_a_client(bookies.uri)
                rows.of_repairs(bookies.uri)
    finally:
        calls.end()
    return report(rows.comparisons(), options.json)


if __name__ == "__main__":
    sys.exit(main())
