"""
Metadata in ZooKeeper: the same znodes and bytes as Apache BookKeeper 4.17 (metadata-rules.md).

Knows: which znode holds what, in which order it is made, and whether a write was our own retried one or another
client's.
Does not know: kazoo (`session`), the names of ledgers' znodes (`layout`), bytes (`formats`).

Safety: ledger metadata changes only with the version that was read; a create is known as our own by its creation token.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.metadata.address import ZooKeeperAddress
from quire.metadata.clock import Reactor
from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata, check_bookie_id, check_ledger_id, check_page, no_ledger
from quire.metadata.records import RecordStore
from quire.metadata.store import (
    ANY,
    CTOKEN_MAX,
    SESSION_TIMEOUT_MS,
    BookieList,
    BookieWatcher,
    Cluster,
    LedgerWatcher,
    Progress,
    ServiceInfo,
    Versioned,
    Watch,
    no_cluster,
    notify,
)
from quire.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeError,
    NodeExists,
    NoNode,
    SessionId,
    SessionOver,
    Step,
    Write,
)
from quire.metadata.tree_store import TreeStore
from quire.metadata.zk.calls.session import OPEN, ZooKeeperSession
from quire.metadata.zk.cluster import ZooKeeperCluster
from quire.metadata.zk.layout import Layout, LedgerPaths
from quire.metadata.zk.registry import BookieRegistry
from quire.metadata.zk.scan import LedgerScan, Pruning, read_many
from quire.metadata.zk.watches import LedgerWatches
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerExist,
    MetadataSerialization,
    MetadataVersion,
    NoSuchLedgerExistsOnMetadataServer,
)

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

PLACES = "bookies"  # Pulsar's node, beside the ledgers' root


def open_zookeeper(
    reactor: Reactor,
    address: ZooKeeperAddress,
    *,
    random: Random,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    security: ZooKeeperOptions = OPEN,
) -> "Deferred[RecordStore]":
    """
    Connects; `MetaStore` names the address when no server answers within the session timeout, `MetaStoreRefused` says
    why none lets us in; `ConfigurationError`.
    """

    async def start() -> RecordStore:
        store = ZooKeeperStore(
            reactor, address, random=random, session_timeout_ms=session_timeout_ms, security=security
        )
        await store.session.start()
        return store

    return Deferred.fromCoroutine(start())


class ZooKeeperStore(TreeStore):
    """One handle: one ZooKeeper session."""

    def __init__(
        self,
        reactor: Reactor,
        address: ZooKeeperAddress,
        *,
        random: Random,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        security: ZooKeeperOptions = OPEN,
    ) -> None:
        self.session = ZooKeeperSession(reactor, address.hosts, address.uri, session_timeout_ms / 1000, security)
        super().__init__(reactor, self.session, address.root, random)
        self.session.on_expired = self._expired
        self.tree = self.session
        self._reactor = reactor
        self._random = random
        self._root = address.root
        self._registry = BookieRegistry(reactor, self.session, self._root, self._tell_lost)
        self.session.on_connected = self._registry.reconnected
        wanted = Layout(address.layout) if address.layout else None
        self._cluster = ZooKeeperCluster(self.session, self.uri, self._root, wanted, self._registry, random)
        self._pruning = Pruning(reactor, self.session)
        self._watches = LedgerWatches(reactor, self.session, self._cluster.path_of)
        self._lost: list[Callable[[], None]] = []
        self._closed = False

    def close(self) -> "Deferred[None]":
        self._closed = True
        self._registry.end()
        self._watches.end()
        self._end_watches()
        self._pruning.end()
        return self.session.close()

    def places(self) -> "Deferred[bytes | None]":
        async def read() -> bytes | None:
            try:
                return (await self.session.get(f"{self._root.rpartition('/')[0]}/{PLACES}"))[0]
            except NoNode:
                return None

        return _run(read())

    def on_session_lost(self, fn: Callable[[], None]) -> None:
        self._lost.append(fn)

    def _expired(self) -> None:
        self.records.forget()
        self._registry.expired()
        self._tell_lost()

    def _tell_lost(self) -> None:
        for fn in list(self._lost):
            notify(fn)

    # -- the cluster -----------------------------------------------------------------------------------------------

    async def _instance_id(self) -> str:
        return await self._cluster.instance_id()

    def init_cluster(self) -> "Deferred[str]":
        return _run(self._cluster.init())

    def cluster(self) -> "Deferred[Cluster]":
        return _run(self._cluster.describe())

    def destroy_cluster(self, instance_id: str) -> "Deferred[None]":
        return _run(self._cluster.destroy(instance_id))

    # -- ledgers ---------------------------------------------------------------------------------------------------

    def new_ledger_id(self) -> "Deferred[int]":
        return _run(self._new_ledger_id())

    async def _new_ledger_id(self) -> int:
        paths, ids = await self._cluster.layout()
        deadline = self._reactor.seconds() + self.session.timeout_s
        while True:
            ledger = await ids.next()
            if await self.session.exists(paths.path_of(ledger)) is None:
                return ledger
            self._pass_over(ledger, deadline)

    def progress(self) -> "Deferred[Progress]":
        return _run(self._progress())

    async def _progress(self) -> Progress:
        _, ids = await self._cluster.layout()
        await self.session.sync(self._root)
        position = await ids.position()
        return Progress(self.session.last_zxid, position)

    def raise_ledger_ids(self, first: int) -> "Deferred[None]":
        return _run(self._raise_ledger_ids(first))

    async def _raise_ledger_ids(self, first: int) -> None:
        _, ids = await self._cluster.layout()
        await ids.raise_to(first)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> "Deferred[Versioned[LedgerMetadata]]":
        return _run(self._create_ledger(ledger, metadata))

    async def _create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        check_ledger_id(ledger)
        made = await self._make_ledger(ledger, self._with_token(metadata), [])
        if made is None:
            raise LedgerExist(f"ledger {ledger} exists already: give another id, or none to have one chosen")
        return made

    def create_new_ledger(self, metadata: LedgerMetadata) -> "Deferred[tuple[int, Versioned[LedgerMetadata]]]":
        return _run(self._create_new_ledger(self._with_token(metadata)))

    async def _create_new_ledger(self, metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        _, ids = await self._cluster.layout()
        deadline = self._reactor.seconds() + self.session.timeout_s
        while True:
            ledger, block = await ids.take()
            try:
                made = await self._make_ledger(ledger, metadata, [Check(block.token)])
            except NoNode:  # the block's token
                ids.drop(block)
                continue
            finally:
                ids.used(block)
            if made is not None:
                return ledger, made
            self._pass_over(ledger, deadline)

    def _pass_over(self, ledger: int, deadline: float) -> None:
        """A caller had chosen this id; each try has one of its own, so a run of them, as a restore leaves, ends."""
        if self._reactor.seconds() >= deadline:
            raise LedgerExist(
                f"{self.uri}: a ledger is there already under each id that was tried for {self.session.timeout_s:g} s, "
                f"at last {ledger}: try again, which goes on behind that"
            )

    def _with_token(self, metadata: LedgerMetadata) -> LedgerMetadata:
        if metadata.ctoken == 0 and metadata.format_version >= 3:
            return replace(metadata, ctoken=self._random.randrange(1, CTOKEN_MAX))
        return metadata

    async def _make_ledger(
        self, ledger: int, metadata: LedgerMetadata, checks: Sequence[Check]
    ) -> Versioned[LedgerMetadata] | None:
        """None: there is another one.  `NoNode` when a check fails."""
        paths, _ = await self._cluster.layout()
        steps: list[Step] = [*checks, Create(paths.path_of(ledger), ledger_codec.encode(metadata))]
        while True:
            try:
                await self.session.transact(steps)
            except (NoNode, NodeExists) as error:
                if isinstance(error, NoNode) and error.step == len(checks):
                    await self._make_directories(paths, ledger)  # and again: others prune empty ones
                    continue
                found = await self._own_create(ledger, metadata, error.retried)
                if found is None and isinstance(error, NoNode):
                    raise
                return found
            else:
                return Versioned(metadata, 0)

    async def _make_directories(self, paths: LedgerPaths, ledger: int) -> None:
        for path in reversed(paths.parents(ledger)):
            try:
                await self.session.create(path)
            except NodeExists:
                continue
            except NoNode:
                if path.count("/") == self._root.count("/") + 1:  # a child of the root
                    self._cluster.forget()
                    raise no_cluster(self.uri) from None
                return
        if not paths.parents(ledger) and await self.session.exists(self._root) is None:
            self._cluster.forget()
            raise no_cluster(self.uri)

    async def _own_create(
        self, ledger: int, metadata: LedgerMetadata, retried: bool
    ) -> Versioned[LedgerMetadata] | None:
        """The ledger that is there, if an earlier try of this very create has made it."""
        if metadata.format_version < 3 or not retried:
            return None
        try:
            found = await self._read_ledger(ledger)
        except (NoSuchLedgerExistsOnMetadataServer, MetadataSerialization):
            return None
        return found if found.value.ctoken == metadata.ctoken else None

    def read_ledger(self, ledger: int) -> "Deferred[Versioned[LedgerMetadata]]":
        return _run(self._read_ledger(ledger))

    async def _read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        check_ledger_id(ledger)
        paths, _ = await self._cluster.layout()
        try:
            data, stat = await self.session.get(paths.path_of(ledger))
        except NoNode:
            raise no_ledger(self.uri, ledger) from None
        return ledger_codec.decode_stored(ledger, data, stat.version)

    def read_ledgers(self, ledgers: Sequence[int]) -> "Deferred[list[Versioned[LedgerMetadata] | None]]":
        return _run(self._cluster.layout()).addCallback(lambda at: _run(read_many(self.session, at[0], ledgers)))

    def write_ledger(
        self, ledger: int, metadata: LedgerMetadata, version: int
    ) -> "Deferred[Versioned[LedgerMetadata]]":
        return _run(self._write_ledger(ledger, metadata, version))

    async def _write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        check_ledger_id(ledger)
        if version < 0:
            raise IncorrectParameter(
                f"ledger {ledger}: metadata is written with the version that was read, not {version}"
            )
        try:
            return await self._write_with(ledger, metadata, version)
        except BadVersion:
            raise MetadataVersion(f"ledger {ledger} is no longer at version {version}") from None

    def _write_with(
        self,
        ledger: int,
        metadata: LedgerMetadata,
        version: int,
        steps: Sequence[Step] = (),
        session: SessionId | None = None,
    ) -> "Deferred[Versioned[LedgerMetadata]]":
        return _run(self._do_write_with(ledger, metadata, version, steps, session))

    async def _do_write_with(
        self, ledger: int, metadata: LedgerMetadata, version: int, steps: Sequence[Step], session: SessionId | None
    ) -> Versioned[LedgerMetadata]:
        data = ledger_codec.encode(metadata)
        paths, _ = await self._cluster.layout()
        path = paths.path_of(ledger)
        try:
            await self.session.transact([Write(path, data, version), *steps], session=session)
        except NodeError as error:
            error.step -= 1
            if error.step >= 0 or isinstance(error, SessionOver):
                raise
            if isinstance(error, NoNode):
                raise no_ledger(self.uri, ledger) from None
            if not error.retried:
                raise MetadataVersion(f"ledger {ledger} is no longer at version {version}") from None
            if not await self.session.holds(path, data, version + 1):
                raise
        return Versioned(metadata, version + 1)

    def delete_ledger(self, ledger: int) -> "Deferred[None]":
        return _run(self._delete_ledger(ledger))

    async def _delete_ledger(self, ledger: int) -> None:
        check_ledger_id(ledger)
        paths, _ = await self._cluster.layout()
        with suppress(NoNode):
            await self.session.transact([Delete(paths.path_of(ledger), ANY)])
            self._pruning.left(paths.parents(ledger))

    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> "Deferred[list[int]]":
        return _run(self._ledger_ids(after, limit))

    async def _ledger_ids(self, after: int, limit: int) -> list[int]:
        check_page(after, limit)
        paths, _ = await self._cluster.layout()
        return await LedgerScan(self.session, paths, after, limit).run()

    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        return self._watches.add(ledger, fn)

    # -- bookies ---------------------------------------------------------------------------------------------------

    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> "Deferred[None]":
        return _run(self._register(bookie, info, read_only))

    async def _register(self, bookie: str, info: ServiceInfo, read_only: bool) -> None:
        try:
            check_bookie_id(bookie)
        except ValueError as error:
            raise IncorrectParameter(str(error)) from None
        await self._registry.register(bookie, info, read_only)

    def unregister_bookie(self, bookie: str, read_only: bool = False) -> "Deferred[None]":
        return _run(self._registry.unregister(bookie, read_only))

    def bookies(self) -> "Deferred[BookieList]":
        return _run(self._registry.bookies())

    def known_bookies(self) -> "Deferred[BookieList]":
        return self._registry.known()

    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        return self._registry.watch(fn)

    def service_info(self, bookie: str) -> "Deferred[ServiceInfo | None]":
        return _run(self._registry.service_info(bookie))


def _run(story: Coroutine[Any, Any, T]) -> "Deferred[T]":
    return Deferred.fromCoroutine(story)
