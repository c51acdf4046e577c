"""
Metadata in memory: for tests and the simulator.

Knows: the whole contract, deterministically: operations take effect in the order they were called, ids count from 0,
all handles on one `MemoryCluster` (or one `memory://name`) share its state, and a session ends when a test says so.
Does not know: threads, files, real time.

Faults come from outside: `faults(operation, arguments)` may answer with a `Fault`, so that an operation takes effect
late, is answered late, fails before it did anything, or succeeds and loses its answer.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata, check_bookie_id
from quire.metadata.memory.cluster import CLUSTERS, ROOT, Fault, Faults, MemoryCluster, Registration
from quire.metadata.memory.tree import MemoryTree
from quire.metadata.store import (
    SESSION_TIMEOUT_MS,
    BookieList,
    BookieRegistered,
    BookieWatcher,
    Cluster,
    LedgerWatcher,
    NotRegistered,
    Progress,
    ServiceInfo,
    StoreClosed,
    Versioned,
    Watch,
    notify,
)
from quire.metadata.tree import SessionId, SessionOver, Step
from quire.metadata.tree_store import TreeStore
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerError,
    MetaStore,
)

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
P = ParamSpec("P")


def open_memory(
    reactor: Clock, uri: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS, faults: Faults | None = None
) -> "MemoryStore":
    """A new handle on the cluster of that name in this process."""
    name = uri.removeprefix("memory://")
    cluster = CLUSTERS.setdefault(name, MemoryCluster(name))
    return MemoryStore(reactor, cluster, session_timeout_ms=session_timeout_ms, faults=faults)


class MemoryStore(TreeStore):
    """One handle: a session, and the watches made through it.  `faults` may be set at any time."""

    tree: MemoryTree

    def __init__(
        self,
        reactor: Clock,
        cluster: MemoryCluster,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        faults: Faults | None = None,
    ) -> None:
        self.uri = cluster.uri
        self.shared = cluster
        self.faults = faults
        self._reactor = reactor
        self._timeout = session_timeout_ms / 1000
        self._closed = False
        self._looking = False
        # one per watch and waiting registration: look whether something is new
        self._looks: list[Callable[[], None]] = []
        self._lost: list[Callable[[], None]] = []
        # bookies that are registered here: the session, and whether read-only
        self._own: dict[str, tuple[int, bool]] = {}
        cluster.listeners.append(self._look_soon)
        self._session = self._new_session()
        self.tree = MemoryTree(
            reactor, cluster.nodes, self._run, lambda: self._session, lambda: int(cluster.time_of_day() * 1000)
        )
        super().__init__(reactor, self.tree, ROOT, cluster.random)

    def _new_session(self) -> int:
        self.shared.next_session += 1
        return self.shared.next_session

    # -- how an operation runs ------------------------------------------------------------------------------------

    def _run(self, name: str, effect: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Applies one operation, now and with its answer ready, unless a fault says otherwise."""
        fault = self.faults(name, args) if self.faults is not None else None
        bound = partial(effect, *args, **kwargs)
        if fault is None:
            return self._apply(bound, None)
        answer: Deferred[T] = Deferred()

        def begin() -> None:
            outcome = self._apply(bound, fault)
            if fault.after:
                self._reactor.callLater(fault.after, outcome.chainDeferred, answer)
            else:
                outcome.chainDeferred(answer)

        if fault.before:
            self._reactor.callLater(fault.before, begin)
        else:
            begin()
        return answer

    def _apply(self, effect: Callable[[], T], fault: Fault | None) -> Deferred[T]:
        if self._closed:
            return fail(StoreClosed())
        if fault is not None and fault.late:
            self._reactor.callLater(fault.late, self._land, effect)
            return fail(fault.error or MetaStore(f"{self.uri}: no answer; whether it was done is unknown"))
        if fault is not None and fault.error is not None and not fault.applied:
            return fail(fault.error)
        try:
            result = effect()
        except LedgerError as error:
            return fail(error)
        if fault is not None and fault.error is not None:
            return fail(fault.error)
        return succeed(result)

    def _land(self, effect: Callable[[], object]) -> None:
        if not self._closed:
            with suppress(LedgerError):
                effect()

    def _look_soon(self) -> None:
        if not self._looking and not self._closed:
            self._looking = True
            self._reactor.callLater(0, self._look)

    def _look(self) -> None:
        self._looking = False
        if not self._closed:
            self._look_at_own()
            for look in list(self._looks):
                look()

    def _look_at_own(self) -> None:
        """Reports registrations that others have removed."""
        for bookie, (session, read_only) in list(self._own.items()):
            held = self.shared.lists(read_only).get(bookie)
            if session != self._session:
                del self._own[bookie]  # it went with its session
            elif held is None or held.session != session:
                del self._own[bookie]
                self._tell_lost()

    def close(self) -> Deferred[None]:
        if not self._closed:
            self._closed = True
            self.shared.listeners.remove(self._look_soon)
            for look in list(self._looks):  # waiting registrations fail; watches say nothing
                look()
            self._looks.clear()
            self._end_watches()
            self.tree.end()
            self.shared.end_session(self._session)
        return succeed(None)

    def expire_session(self) -> None:
        """
        For tests: the session ends as if its heartbeats had stopped; the listeners hear of it in the reactor's next
        turn.
        """
        self.shared.end_session(self._session)
        self._session = self._new_session()
        self._reactor.callLater(0, self._tell_lost)

    def _tell_lost(self) -> None:
        if not self._closed:
            for fn in list(self._lost):
                notify(fn)

    def on_session_lost(self, fn: Callable[[], None]) -> None:
        self._lost.append(fn)

    # -- the cluster -----------------------------------------------------------------------------------------------

    def init_cluster(self) -> Deferred[str]:
        return self._run("init_cluster", self.shared.init)

    def cluster(self) -> Deferred[Cluster]:
        return self._run("cluster", self._cluster)

    def _cluster(self) -> Cluster:
        return self.shared.describe()

    def destroy_cluster(self, instance_id: str) -> Deferred[None]:
        return self._run("destroy_cluster", self.shared.destroy, instance_id)

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def new_ledger_id(self) -> Deferred[int]:
        return self._run("new_ledger_id", self.shared.new_ledger_id)

    def progress(self) -> Deferred[Progress]:
        return self._run("progress", self.shared.progress)

    def raise_ledger_ids(self, first: int) -> Deferred[None]:
        return self._run("raise_ledger_ids", self.shared.raise_ledger_ids, first)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        return self._run("create_ledger", self.shared.create_ledger, ledger, metadata)

    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        return self._run("read_ledger", self._read_ledger, ledger)

    def _read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        return self.shared.read_ledger(ledger)

    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        return self._run("write_ledger", self.shared.write_ledger, ledger, metadata, version)

    def _write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId
    ) -> Deferred[Versioned[LedgerMetadata]]:
        def write(ledger: int, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
            if self._session != session:
                raise SessionOver(f"{self.uri}: the session ended before ledger {ledger} was written")
            self.tree.nodes.transact(steps, session, lambda: self.shared.write_ledger(ledger, metadata, version))
            return self.shared.read_ledger(ledger)

        return self._run("write_ledger", write, ledger, metadata, version)

    def delete_ledger(self, ledger: int) -> Deferred[None]:
        return self._run("delete_ledger", self.shared.delete_ledger, ledger)

    def ledger_deletions(self) -> Deferred[int | None]:
        return self._run("ledger_deletions", lambda: self.shared.deletions)

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        return self._run("ledger_ids", self._ledger_ids, after, limit)

    def _ledger_ids(self, after: int, limit: int) -> list[int]:
        return self.shared.ledger_ids(after, limit)

    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        seen: Versioned[LedgerMetadata] | None = None

        def look() -> None:
            nonlocal seen
            found = self.shared.ledgers.get(ledger)
            if found is None:
                watch.cancel()
                notify(fn, None)
            elif found != seen:
                seen = found
                notify(fn, found)

        watch = self._watch(look)
        return watch

    def _watch(self, look: Callable[[], None]) -> Watch:
        def checked() -> None:
            if not watch.cancelled and not self._closed:
                look()

        watch = Watch(lambda: self._looks.remove(checked) if checked in self._looks else None)
        self._looks.append(checked)
        self._reactor.callLater(0, checked)
        return watch

    # -- bookies ---------------------------------------------------------------------------------------------------

    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> Deferred[None]:
        attempt = self._run("register_bookie", self._register, bookie, info, read_only)
        registered: Deferred[None] = Deferred()

        def settle(done: bool) -> None:
            if done:
                registered.callback(None)
            else:
                self._wait_for(bookie, info, read_only, registered)

        attempt.addCallbacks(settle, registered.errback)
        return registered

    def _register(self, bookie: str, info: ServiceInfo, read_only: bool) -> bool:
        """False when another session holds the id in the list."""
        try:
            check_bookie_id(bookie)
        except ValueError as error:
            raise IncorrectParameter(str(error)) from None
        self.shared.describe()
        held = [each[bookie] for each in (self.shared.writable, self.shared.read_only) if bookie in each]
        if any(each.session != self._session for each in held):
            return False
        self.shared.enlist(bookie, read_only, Registration(self._session, info))
        self._own[bookie] = self._session, read_only
        self.shared.delist(bookie, not read_only)
        self.shared.changed()
        return True

    def _wait_for(self, bookie: str, info: ServiceInfo, read_only: bool, registered: Deferred[None]) -> None:
        def look() -> None:
            try:
                if self._closed:
                    raise StoreClosed
                if not self._register(bookie, info, read_only):
                    return
            except LedgerError as error:
                end()
                registered.errback(error)
                return
            end()
            registered.callback(None)

        def too_late() -> None:
            end()
            registered.errback(BookieRegistered(f"{self.uri}: another live process is registered as {bookie}"))

        def end() -> None:
            if look in self._looks:
                self._looks.remove(look)
            if timer.active():
                timer.cancel()

        self._looks.append(look)
        timer = self._reactor.callLater(self._timeout, too_late)

    def unregister_bookie(self, bookie: str, read_only: bool = False) -> Deferred[None]:
        session = self._session
        if self._own.get(bookie) == (session, read_only):
            del self._own[bookie]
        return self._run(
            "unregister_bookie",
            lambda bookie, read_only: self._unregister(bookie, read_only, session),
            bookie,
            read_only,
        )

    def _unregister(self, bookie: str, read_only: bool, session: int) -> None:
        held = self.shared.lists(read_only).get(bookie)
        if held is None or held.session != session:
            raise NotRegistered(f"{self.uri}: {bookie} is not registered by this session")
        self.shared.delist(bookie, read_only)
        self.shared.went("registration", bookie, held.session, session)
        self.shared.changed()

    def bookies(self) -> Deferred[BookieList]:
        return self._run("bookies", self._bookies)

    def _bookies(self) -> BookieList:
        self.shared.describe()
        return self.shared.bookie_list()

    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        seen: BookieList | None = None

        def look() -> None:
            nonlocal seen
            found = self.shared.bookie_list()
            if not found.repeats(seen):
                seen = found
                notify(fn, found)

        return self._watch(look)

    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        return self._run("service_info", self._service_info, bookie)

    def _service_info(self, bookie: str) -> ServiceInfo | None:
        return self.shared.bookie_list().find(bookie)
