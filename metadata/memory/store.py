"""
Metadata in memory: for tests and the simulator.

Knows: the whole contract, deterministically: operations take effect in the order they were called, ids count from 0,
all handles on one `MemoryCluster` (or one `memory://name`) share its state, and a session ends when a test says so.
Does not know: threads, files, real time.

Faults come from outside: `faults(operation, arguments)` may answer with a `Fault`, so that an operation takes effect
late, is answered late, fails before it did anything, or succeeds and loses its answer.  An operation on ledgers,
registrations or the cluster is met as a whole, one on everything else at its transactions and reads of the tree.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.python.failure import Failure

from quire.metadata.clock import Clock
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.ledgers.layout import Layout
from quire.metadata.memory.cluster import CLUSTERS, ROOT, Fault, Faults, MemoryCluster
from quire.metadata.memory.tree import MemoryTree
from quire.metadata.store import SESSION_TIMEOUT_MS, BookieList, StoreClosed, Versioned, at_once
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerError, LedgerExist, MetaStore, NoSuchLedgerExistsOnMetadataServer

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


def drop_memory(uri: str) -> None:
    """Forgets the cluster of that name, if there is one; handles on it keep what they have."""
    CLUSTERS.pop(uri.removeprefix("memory://"), None)


class MemoryStore(MetadataStore):
    """One handle: a session, and the watches made through it.  `faults` may be set at any time."""

    tree: MemoryTree

    def __init__(
        self,
        reactor: Clock,
        cluster: MemoryCluster,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        faults: Faults | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.shared = cluster
        self.faults = faults
        self._reactor = reactor
        self._closed = False
        self._session = cluster.new_session()
        tree, inner = (
            MemoryTree(
                reactor,
                cluster.nodes,
                session_timeout_ms / 1000,
                run,
                lambda: self._session,
                lambda: int(cluster.time_of_day() * 1000),
            )
            for run in (self._run, self._run_whole)
        )
        super().__init__(reactor, tree, ROOT, cluster.random, layout=layout, inner=inner)

    # -- what faults meet ledger by ledger and step by step --------------------------------------------------------

    def create_new_ledger(self, metadata: LedgerMetadata) -> Deferred[tuple[int, Versioned[LedgerMetadata]]]:
        return Deferred.fromCoroutine(self._create_new_ledger(metadata))

    async def _create_new_ledger(self, metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        while True:
            ledger = await self.new_ledger_id()
            try:
                return ledger, await self.create_ledger(ledger, metadata)
            except LedgerExist:  # by a caller who chose that id, or by this very create, whose answer was lost
                (found,) = await self.read_ledgers([ledger])
                if found is not None and found.value.ctoken == metadata.ctoken != 0:
                    return ledger, found

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        return Deferred.fromCoroutine(at_once([self._find_ledger(ledger) for ledger in ledgers]))

    async def _find_ledger(self, ledger: int) -> Versioned[LedgerMetadata] | None:
        try:
            return await self.read_ledger(ledger)
        except NoSuchLedgerExistsOnMetadataServer:
            return None

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        found = self.read_ledgers(ledgers)
        return found.addCallback(lambda found: [each for each, one in zip(ledgers, found, strict=True) if one is None])

    def known_bookies(self) -> Deferred[BookieList]:
        """Nobody chooses from what was known before."""
        return self.bookies()

    # -- how an operation runs ------------------------------------------------------------------------------------

    def _call(
        self, name: str, story: Callable[P, Coroutine[Deferred[Any], Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[T]:
        return self._run(name, lambda *args: Deferred.fromCoroutine(story(*args, **kwargs)), *args)

    def _run(self, name: str, effect: Callable[..., T | Deferred[T]], *args: object) -> Deferred[T]:
        """Applies one operation, now and with its answer ready, unless a fault says otherwise."""
        fault = self.faults(name, args) if self.faults is not None else None
        bound = partial(effect, *args)
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

    def _run_whole(self, _name: str, effect: Callable[..., T | Deferred[T]], *args: object) -> Deferred[T]:
        """Applies a part of an operation that faults meet as a whole."""
        return self._apply(partial(effect, *args), None)

    def _apply(self, effect: Callable[[], T | Deferred[T]], fault: Fault | None) -> Deferred[T]:
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
        done = result if isinstance(result, Deferred) else succeed(result)
        return done if fault is None or fault.error is None else Deferred.fromCoroutine(_lose(done, fault.error))

    def _land(self, effect: Callable[[], object]) -> None:
        if not self._closed:
            maybeDeferred(effect).addErrback(_ignore)

    def close(self) -> Deferred[None]:
        if self._closed:
            return succeed(None)
        closed = super().close()
        self._closed = True
        self._inner.close()
        self.shared.nodes.end_session(self._session)
        return closed

    def expire_session(self) -> None:
        """
        For tests: the session ends as if its heartbeats had stopped; the listeners hear of it in the reactor's next
        turn.
        """
        ended, self._session = self._session, self.shared.new_session()
        self.shared.nodes.end_session(ended)
        self._reactor.callLater(0, self._tell_expired)

    def _tell_expired(self) -> None:
        if not self._closed:
            self.tree.on_expired()


async def _lose(answer: "Deferred[T]", error: LedgerError) -> T:
    """Waits for an answer and fails in its place."""
    await answer
    raise error


def _ignore(failure: Failure) -> None:
    failure.trap(LedgerError)  # type: ignore[no-untyped-call]
