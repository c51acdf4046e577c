"""
Writers of ledgers and the owner of a named log, each a thread, that go on until they are stopped, whatever happens.

    with Load(cluster) as load:
        load.goes_on()          # everybody has appended since
        ...
        load.goes_on()
    load.judge()                # all that was acknowledged is there, and nothing else

Knows: every entry that was acknowledged, and every one that was tried.
Does not know: what happens to the cluster meanwhile.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from quire.client import LedgerError, connect
from quire.conf.client import ClientOptions
from quire.log import connect as connect_logs
from quire.testing.cluster import Cluster
from tests.reactor import between_looks

# SPDX-License-Identifier: Apache-2.0

QUICK = ClientOptions(add_timeout_ms=2000, read_timeout_ms=3000, long_poll_ms=1000, connect_timeout_ms=2000)
BATCH, SIZE, PACE_S = 20, 300, 0.02  # the bookies need the processor, too
LEDGER_ENTRIES_MAX = 2000  # then another one is begun, on bookies that are there now
GOES_ON_S = 150.0  # on a busy machine, too; a session that is over, a lease and a time-out are within it
OPENS_S = 120.0
_numbers = itertools.count()


@dataclass
class Written:
    """What one writer, or one owner, knows of one ledger or log: tried by place, acknowledged by place."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)


class Load:
    """`writers` of ledgers, and an owner of a log, with three copies.  `options`: of their clients."""

    def __init__(self, cluster: Cluster, writers: int = 2, options: ClientOptions = QUICK, ack: int = 2) -> None:
        self.cluster, self.options, self.ack = cluster, options, ack
        self.name = f"load-{next(_numbers)}"  # of the log
        self.ledgers: dict[int, Written] = {}
        self.log = Written()
        self.current: dict[int, int] = {}  # the ledger of each writer
        self.failures: list[str] = []  # what ended writers and owners meanwhile: none of it is wrong by itself
        self.broken: list[BaseException] = []
        self.appended = [0] * (writers + 1)
        self._over = threading.Event()
        works: list[Callable[[int], None]] = [*[self._write] * writers, self._own]
        self._threads = [threading.Thread(target=self._run, args=(work, at)) for at, work in enumerate(works)]

    def __enter__(self) -> Self:
        with connect_logs(self.cluster.uri) as logs:
            logs.create(self.name, ensemble=3, write=3, ack=self.ack)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, times: int = 10) -> None:
        """Waits until everybody has had appends acknowledged since the call, so many times."""
        before, deadline = list(self.appended), time.monotonic() + GOES_ON_S
        while any(now < then + times for now, then in zip(self.appended, before, strict=True)):
            assert not self.broken, self.broken
            assert time.monotonic() < deadline, f"appended {self.appended}, {before} before; {self.failures[-5:]}"
            between_looks()

    def written_to(self) -> list[frozenset[str]]:
        """The bookies that each writer writes to."""
        with connect(self.cluster.uri, self.options) as bk:
            return [frozenset(bk.metadata(ledger).last_fragment.bookies) for ledger in self.current.values()]

    def until(self, true: Callable[[list[frozenset[str]]], bool]) -> None:
        """Waits until that is true of the bookies that writers write to, and everybody goes on."""
        deadline = time.monotonic() + GOES_ON_S
        while not true(bookies := self.written_to()):
            assert time.monotonic() < deadline, f"{bookies} are written to; {self.failures[-5:]}"
            between_looks()
        self.goes_on()

    def reaches(self, bookie: str) -> None:
        """Waits until somebody writes to that bookie: new ledgers are begun all the time."""
        self.until(lambda written: any(bookie in bookies for bookies in written))

    def leaves(self, *hit: str) -> None:
        """Waits until nobody writes to these bookies."""
        self.until(lambda written: not any(bookies.intersection(hit) for bookies in written))

    def judge(self) -> None:
        """Reads everything back."""
        assert not self.broken, self.broken
        assert len(self.ledgers) >= len(self.appended) - 1
        with connect(self.cluster.uri, self.options) as bk:
            for ledger, written in self.ledgers.items():
                read = self._patiently(lambda ledger=ledger: [each.data for each in bk.open_ledger(ledger)])
                compare(f"ledger {ledger}", dict(enumerate(read)), written)
        with connect_logs(self.cluster.uri, client_options=self.options) as logs:
            records = self._patiently(lambda: list(logs.read(self.name)))
            compare("the log", {record.index: record.value for record in records}, self.log)

    def _patiently(self, work: Callable[[], list]) -> list:
        """Tries until it succeeds: opening a ledger may be tried any number of times."""
        deadline = time.monotonic() + OPENS_S
        while True:
            try:
                return work()
            except LedgerError:
                if time.monotonic() > deadline:
                    raise
                between_looks()

    def _run(self, work: Callable[[int], None], at: int) -> None:
        while not self._over.is_set():
            try:
                work(at)
            except LedgerError as error:  # a writer, an owner or a look-up failed; another one goes on
                self.failures.append(f"{at}: {type(error).__name__}: {error}")
                between_looks()
            except BaseException as error:
                self.broken.append(error)
                return

    def _write(self, at: int) -> None:
        with connect(self.cluster.uri, self.options) as bk:
            while not self._over.is_set():
                writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=self.ack)
                written = self.ledgers[writer.id] = Written()
                self.current[at] = writer.id
                with writer:
                    while len(written.tried) < LEDGER_ENTRIES_MAX and not self._over.is_set():
                        batch = self._batch(at, written)
                        written.acknowledged.update(zip(writer.append_many(batch), batch, strict=True))
                        self.appended[at] += 1
                        self._over.wait(PACE_S)

    def _own(self, at: int) -> None:
        with (
            connect_logs(self.cluster.uri, client_options=self.options) as logs,
            logs.own(self.name, wait_s=GOES_ON_S) as owner,
        ):
            while not self._over.is_set():
                batch = self._batch(at, self.log)
                self.log.acknowledged.update(zip(owner.append_many(batch).indexes, batch, strict=True))
                self.appended[at] += 1
                self._over.wait(PACE_S)

    def _batch(self, at: int, written: Written) -> list[bytes]:
        """The next values, each unlike any other."""
        first = len(written.tried)
        batch = [b"%d.%d." % (at, number) + bytes(SIZE) for number in range(first, first + BATCH)]
        written.tried.update(batch)
        return batch


def compare(what: str, read: dict[int, bytes], written: Written) -> None:
    """Fails unless every acknowledged entry is where it was said to be, and all that is there was written once."""
    for place, value in written.acknowledged.items():
        assert read.get(place) == value, f"{what}: {place} was acknowledged, and {read.get(place)!r:.60} is there"
    values = list(read.values())
    assert len(set(values)) == len(values), f"{what} has entries twice"
    assert set(values) <= written.tried, f"{what} has entries that nobody wrote"
