"""
Processes that use message stores, made of the real code, and the machines on which their rows are.

Rows lie on a disk in memory (`DictRows`) that keeps a prefix of the writes when its machine loses power; what a thread
does takes a while and then happens at once; the source of an import is in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from quire.conf.messages import MessageOptions
from quire.messages import api, store
from quire.messages.api import Store, Stores
from quire.messages.derived import following
from quire.messages.derived.directory import RowsDirectory
from quire.messages.derived.following import Following
from quire.messages.derived.thread import Call, RowsThread
from quire.rows.contract import Row
from tests.simulation.disk import Inode, SimDisk, SimRows
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.messages_source import MemoryTree
from tests.simulation.messages_truth import Crashed
from tests.simulation.timeline import Process

if TYPE_CHECKING:
    from tests.simulation.messages_history import MessageHistory

THREAD_S = (0.0005, 0.002, 0.05)  # that a call takes on a thread of rows


class WatchedRows(SimRows):
    """`wrote` hears of each write."""

    def __init__(self, wrote: Callable[[Iterable[Row]], None], rows: dict[bytes, bytes] | None = None) -> None:
        super().__init__(lambda: None, rows)
        self._wrote = wrote

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        puts = list(puts)
        super().write(puts, deletes)
        self._wrote(puts)

    def crash(self, kept: int = 0) -> "WatchedRows":
        return WatchedRows(self._wrote, super().crash(kept).as_dict())


class Machine(SimDisk):
    """The disk of one machine.  `user`: the process that uses it, or did last."""

    def __init__(self, history: "MessageHistory", number: int) -> None:
        super().__init__(number)
        self.name = f"/m{number}"
        self.user: LogProcess | None = None
        self.refuses = ""  # the error with which the rows must not be opened
        self.is_garbled = False  # its rows are to be made again
        self.copy: dict[bytes, bytes] = {}  # its rows as they were once
        self._history = history

    def open_rows(self, path: str) -> SimRows:
        rows = self.rows.get(path)
        if rows is None:
            self.inodes[f"{path}/CURRENT"] = self.durable[f"{path}/CURRENT"] = Inode()
            rows = self.rows[path] = WatchedRows(self._wrote)
        return rows

    def _wrote(self, puts: Iterable[Row]) -> None:
        self._history.store_truth.wrote_rows(self.name, puts)

    @property
    def found(self) -> SimRows | None:
        """Its rows, if there are any."""
        return next(iter(self.rows.values()), None)

    def ended(self, rng: Random) -> None:
        """The process was killed, or power was lost, and with it what was not synced."""
        if rng.random() < 0.5:
            self.power_lost(rng)
        else:
            self.process_ended()
        if self.found is not None and not self.is_garbled and not self.refuses:
            self._history.store_truth.crashed.append(Crashed(self.name, self.found.as_dict()))

    def rewrite(self, rows: dict[bytes, bytes]) -> None:
        """Others lie there from now on."""
        path = next(iter(self.rows))
        self.rows[path] = WatchedRows(self._wrote, rows)

    @property
    def free(self) -> bool:
        return self.user is None or not self.user.alive


class MemoryDirectory(RowsDirectory):
    """On a machine's disk, where directories are implied by names."""

    def _make_directories(self) -> None: ...


class RowsWorker:
    """Does what a thread of rows does, each call a while later, in order."""

    def __init__(self, reactor: Process, perform: Callable[[list[Call]], None], rng: Random) -> None:
        self._reactor = reactor
        self._perform = perform
        self._rng = rng
        self._free = 0.0
        self._ended = False

    def submit(self, job: Call) -> None:
        if not self._ended:
            now = self._reactor.timeline.now
            self._free = max(self._free, now) + self._rng.choice(THREAD_S) * self._rng.random()
            self._reactor.call_by_the_world(self._free - now, self._perform, [job])

    def end(self) -> None:
        self._ended = True


class EventThread(RowsThread):
    """Not a thread: that would begin with the first call."""

    def __init__(self, reactor: Any, name: str, rng: Random) -> None:
        super().__init__(reactor, name)
        self._worker: Any = RowsWorker(reactor, self._perform, rng)

    def rest(self) -> None:
        """Nobody waits for what happens at once."""


class MessageProcess(LogProcess):
    """One process that uses message stores; each has at most one open."""

    machine: Machine

    def crash(self) -> None:
        """Its machine perhaps loses power with it."""
        was_alive = self.alive
        super().crash()
        if was_alive:
            self.machine.ended(self.world.random)

    def begin_on(self, machine: Machine) -> None:
        self.machine = machine
        machine.user = self
        self.stores = Stores(self.logs, MessageOptions(derived_dir=machine.name, progress_ms=300))
        self.run: Run | None = None


class Run:
    """A store that a process has open, or wants to."""

    def __init__(self, process: MessageProcess, number: int, stands: bool) -> None:
        self.process = process
        self.name = f"s{number}"
        self.stands = stands
        self.store: Store | None = None
        self.opening: Job | None = None
        self.closing: Job | None = None
        self.roles: list[tuple[str, int]] = []
        self.count = 0  # messages so far

    @property
    def over(self) -> bool:
        failed = self.opening is not None and self.opening.error is not None
        return failed or self.closing is not None or not self.process.alive

    @property
    def runs(self) -> bool:
        return self.store is not None and not self.over and not self.process.frozen

    @property
    def leads(self) -> bool:
        return self.runs and self.store is not None and self.store.role == "master"


@contextmanager
def in_memory(history: "MessageHistory") -> Iterator[None]:
    """The rows of each process are on its machine, threads are events, the source of an import is the history's."""

    def directory(derived_dir: str, id_: str) -> RowsDirectory:
        machine = history.machines[derived_dir]
        return MemoryDirectory(derived_dir, id_, machine.open_rows, history.reached_on(machine), machine)

    def followed(
        logs: Any, name: str, id_: str, placing: Any, rows: RowsDirectory, is_putting: Callable[[], bool]
    ) -> Following:
        machine = history.machines["/" + rows.path.split("/")[1]]
        return Following(logs, name, id_, placing, rows, history.reached_on(machine), is_putting)

    def thread(reactor: Any, name: str, _is_putting: Callable[[], bool]) -> RowsThread:
        return EventThread(reactor, name, Random(history.world.random.random()))

    with (
        patch.object(store, "RowsDirectory", directory),
        patch.object(store, "Following", followed),
        patch.object(following, "RowsThread", thread),
        patch.object(api, "Tree", lambda: MemoryTree(history.source.files if history.source else {})),
    ):
        yield
