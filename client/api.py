"""
The Twisted face of a cluster: create, open, delete and list ledgers.  The blocking and asyncio faces are built on it.

Knows: how a ledger comes into being, how it is opened with and without recovery, and what has to end when the client
closes.
Does not know: appending, reading, recovering; the handles do.

Every method returns a Deferred.  Errors are `quire.protocol.errors.LedgerError` and, for wrong arguments, `ValueError`.

Safety: who cancels a Deferred ends the operation: no reader, watch or recovery stays behind.  What was sent to a bookie
or to the store may still be done there.

Long: the other faces wrap this one method by method, so a client is one object; what a method does is elsewhere.
"""

import operator
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from hmac import compare_digest
from random import Random, SystemRandom
from typing import Any, Concatenate, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from quire.client.connections.network import TcpReactor, begun
from quire.client.connections.pool import BookiePool
from quire.client.core.append.messages import AppendMode
from quire.client.core.quorum import Quorums
from quire.client.counters import CREATE, DELETE, OPEN, RECOVER
from quire.client.handles.copies import Copies, located
from quire.client.handles.end_of_ledger import read_body
from quire.client.handles.ledger_record import LedgerRecord
from quire.client.handles.range_reader import ReaderNotes
from quire.client.handles.reader import Entry, Reader
from quire.client.handles.recovery import Recovery
from quire.client.handles.writer import Writer, limits_of
from quire.client.metrics import ClientMetrics
from quire.client.placement.choice import BookieChoice, Weights
from quire.client.placement.health import Health, HealthLimits
from quire.client.placement.hosts import Hosts, HostsApart
from quire.client.placement.levels import domains, policy
from quire.client.placement.policy import Draw, Placement, Weigh, Wish
from quire.client.placement.topology import Topology, nearness, source
from quire.conf.client import ClientOptions, store_named
from quire.metadata.clock import time_of_day
from quire.metadata.ledger import LedgerMetadata, check_ledger_id
from quire.metadata.metrics import CLIENT, SessionMetrics
from quire.metadata.store import BookieList, Versioned, Watch
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.metrics.text import Together
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    ClientClosed,
    LedgerError,
    LedgerExist,
    LedgerRecovery,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    Read,
    Security,
    Timeout,
    UnauthorizedAccess,
)

# SPDX-License-Identifier: Apache-2.0

__all__ = ["Client", "Copies", "Entry", "Reader", "Writer", "connect"]

DEFERRED_SYNC = "DEFERRED_SYNC"
CTOKEN_BITS = 62
LEDGER_IDS_PER_PAGE = 10_000  # as many as a directory of the metadata has: it has no pages of its own
TOLD_AS_THEY_ARE = (Timeout, UnauthorizedAccess, Security, ClientClosed)  # when a ledger can't be opened

T = TypeVar("T")
P = ParamSpec("P")
Method = Callable[Concatenate["Client", P], Coroutine[Any, Any, T]]


@begun
async def connect(
    reactor: TcpReactor, uri: str | None = None, options: ClientOptions | None = None, copies: Copies | None = None
) -> "Client":
    """
    Opens a cluster by its metadata URI; without one as the commands do (`store_named`).  `copies`: where ledgers are
    looked for that bookies no longer have.
    `ValueError` for an option, its file or a URI that can't be used; `MetaStore` without a store or cluster in time.
    """
    chosen = ClientOptions.given(options)
    store = await open_store(reactor, store_named(uri), session_timeout_ms=chosen.session_timeout_ms, security=chosen)
    try:
        await store.cluster()
        return Client(reactor, store, chosen, copies=copies)
    except BaseException:
        await store.close()
        raise


def flags_of(named: str | Iterable[str]) -> set[str]:
    """The write flags of a new ledger; `ValueError` for one that does not exist."""
    flags = {named} if isinstance(named, str) else set(named)
    flags.discard("")
    if unknown := flags - {DEFERRED_SYNC}:
        raise ValueError(f"no write flag is named {', '.join(sorted(unknown))}: there is {DEFERRED_SYNC}")
    return flags


def timed(operation: str) -> "Callable[[Method[P, T]], Method[P, T]]":
    """Has a client count a method under this name."""

    def counted(story: "Method[P, T]") -> "Method[P, T]":
        @wraps(story)
        async def told(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
            with client.counters.operations.timing(operation):
                return await story(client, *args, **kwargs)

        return told

    return counted


class Client:
    """
    A cluster's ledgers.  `random` draws ensembles and creation tokens; a test or a simulator seeds it.

    `handles` are the writers and readers that have not ended, `recoveries` those under way, `choice` the choice of
    bookies; `metrics` is a collector for Prometheus, `own_metrics` the same without the metadata session.
    """

    def __init__(
        self,
        reactor: TcpReactor,
        store: MetadataStore,
        options: ClientOptions | None = None,
        *,
        pool: BookiePool | None = None,
        random: Random | None = None,
        placement: Placement | None = None,
        time_of_day: Callable[[], float] = time_of_day,
        copies: Copies | None = None,
    ) -> None:
        self.options = chosen = options or ClientOptions()
        self.store = store
        self.copies = copies
        self.pool = pool or BookiePool(reactor, store, self.options)
        self.counters = self.pool.counters
        self.own_metrics = ClientMetrics(self.counters, self.pool.requests, self.pool.traffic)
        self.metrics = Together(self.own_metrics, SessionMetrics(lambda: {CLIENT: store.counters}))
        self.reactor = reactor
        self._time_of_day = time_of_day
        self.random = random or SystemRandom()
        limits = HealthLimits(
            chosen.failure_memory_ms,
            chosen.quarantine,
            chosen.quarantine_interval_ms,
            chosen.quarantine_errors,
            chosen.quarantine_ms,
            chosen.quarantine_ratio,
        )
        self.health = Health(reactor.seconds, limits, self.random)
        self.topology = Topology(reactor.seconds, source(reactor, store, chosen))
        weights = (
            Weights(reactor.seconds, self.pool.info, chosen.weight_multiple_max, chosen.disk_info_interval_ms)
            if chosen.weigh_disks
            else None
        )
        weigh: Weigh = weights.weigh if weights else lambda _bookies: None
        self.hosts = Hosts()
        policy_now = HostsApart(
            placement or policy(self.random, chosen, self.topology.place_of, weigh),
            self.hosts,
            Draw(self.random, weigh),
            chosen.enforce_hosts,
        )
        self.choice = BookieChoice(reactor, store, policy_now, self.health, self.topology, weights, self.hosts)
        self._bookies_watch: Watch | None = None
        self.handles: set[Writer | Reader] = set()
        self.recoveries: set[Recovery] = set()
        self._closing: Deferred[None] | None = None

    @begun
    @timed(CREATE)
    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: str | DigestType = "CRC32C",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        write_flags: str | Iterable[str] = (),
        advanced: bool = False,
    ) -> Writer:
        """
        A new ledger and its writer.  No bookie is contacted yet.  `NotEnoughBookies` with the numbers; `LedgerExist`
        when `ledger_id` is taken; `ValueError` for quorums, digests or flags that make no sense.  Cancelled, it may
        leave an empty ledger, as a failure may whose answer was lost: the next open closes that.
        """
        self._check_open()
        flags = flags_of(write_flags)
        if not isinstance(password, bytes):
            raise TypeError(f"a password must be bytes, not {type(password).__name__}")
        ensemble_size, write_quorum, ack_quorum = map(operator.index, (ensemble_size, write_quorum, ack_quorum))
        if not 1 <= ack_quorum <= write_quorum <= ensemble_size:
            raise ValueError(
                f"quorums must be 1 <= ack_quorum ({ack_quorum}) <= write_quorum ({write_quorum}) <= "
                f"ensemble_size ({ensemble_size})"
            )
        if ledger_id is not None:
            check_ledger_id(ledger_id)
        kind = DigestType.named(digest)
        wish = Wish(write_quorum, ack_quorum, dict(custom_metadata or {}))
        ensemble_size, bookies = await self._choose(ensemble_size, wish)
        incarnations = self.choice.incarnations(bookies)
        apart = domains(self.options, self.topology.place_of)
        if apart is not None and not apart.serve(Quorums(ensemble_size, write_quorum, ack_quorum), bookies):
            raise NotEnoughBookies(
                f"{apart.lack(bookies)}; say where they are (see docs/placement.md), or start bookies elsewhere"
            )
        token = 1 + self.random.getrandbits(CTOKEN_BITS)
        now_ms = int(self._time_of_day() * 1000)
        metadata = LedgerMetadata.new(
            ensemble_size, write_quorum, ack_quorum, bookies, kind, password, custom_metadata, token, now_ms
        )
        ledger, stored = await self._store(ledger_id, metadata)
        self._check_open()
        writer = Writer(
            self.reactor,
            self.pool,
            self.choice,
            LedgerRecord(self.store, ledger, stored),
            Digest(kind, password),
            self.options,
            AppendMode(deferred_sync=DEFERRED_SYNC in flags, advanced=advanced, domains=apart),
            incarnations,
        )
        writer.on_end = self.handles.discard
        self.handles.add(writer)
        return writer

    @begun
    @timed(OPEN)
    async def open_ledger(
        self,
        ledger_id: int,
        password: bytes = b"",
        recover: bool = True,
        known: Versioned[LedgerMetadata] | None = None,
    ) -> Reader:
        """
        A reader.  With `recover`, a ledger that is not closed is fenced, brought to an end and closed first: its writer
        loses it.  Without, nothing is disturbed; `Reader.tail` follows the writer.  `NoSuchLedger`;
        `UnauthorizedAccess`, before anything is touched; `LedgerRecovery` or `Timeout` when too few bookies answer, and
        trying again is always allowed.  `known`: what the store said just now, asked for many.
        """
        self._check_open()
        check_ledger_id(ledger_id)
        if not isinstance(password, bytes):
            raise TypeError(f"a password must be bytes, not {type(password).__name__}")
        found, pool = await located(self.store, self.pool, self.copies, ledger_id, known)
        stored = found.value.password
        if stored is not None and not compare_digest(stored, password):
            raise UnauthorizedAccess(
                f"ledger {ledger_id}: this is not the password that it was created with; nothing was touched"
            )
        digest = Digest(found.value.digest or DigestType.CRC32, password)
        record = LedgerRecord(self.store, ledger_id, found)
        if recover and not found.value.is_closed:
            await self._recover(record, digest)
        self._check_open()
        if self.options.reorder_reads and self._bookies_watch is None:
            self._bookies_watch = self.store.watch_bookies(self._bookies_seen)
        notes = ReaderNotes(ledger_id, self.health, self.counters)
        reader = Reader(self.reactor, pool, record, digest, self.options, notes, self.handles.discard, self._ranks)
        self.handles.add(reader)
        if not record.metadata.is_closed:
            reader.watch()
            try:
                await reader.read_last_confirmed()
            except BaseException as error:  # or it was cancelled
                reader.end("it could not be opened")
                if not isinstance(error, LedgerError) or isinstance(error, TOLD_AS_THEY_ARE):
                    raise
                raise Read(f"ledger {ledger_id} can't be opened: {error}") from error
        return reader

    @begun
    async def recover_ledger(self, ledger_id: int) -> LedgerMetadata:
        """Administrators' recovery, under the password that the metadata holds."""
        self._check_open()
        check_ledger_id(ledger_id)
        found = await self.store.read_ledger(ledger_id)
        if found.value.is_closed:
            return found.value
        if found.value.password is None or found.value.digest is None:
            raise LedgerRecovery(
                f"ledger {ledger_id}: its metadata (format {found.value.format_version}) names no password; open "
                "it with one instead"
            )
        return await self._recover(
            LedgerRecord(self.store, ledger_id, found), Digest(found.value.digest, found.value.password)
        )

    @begun
    @timed(DELETE)
    async def delete_ledger(self, ledger_id: int) -> None:
        """Removes the metadata; bookies free the space later.  A ledger that does not exist is success."""
        self._check_open()
        check_ledger_id(ledger_id)
        await self.store.delete_ledger(ledger_id)

    @begun
    async def ledger_ids(self, after: int = -1, limit: int = LEDGER_IDS_PER_PAGE) -> list[int]:
        """The next ids above `after`, ascending; [] at the end."""
        self._check_open()
        return await self.store.ledger_ids(after, limit)

    @begun
    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Reads what the cluster says about a ledger.  `NoSuchLedger`."""
        return (await self.stored(ledger_id)).value

    @begun
    async def stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """As `metadata`, with its version: `open_ledger` takes it as `known`."""
        self._check_open()
        check_ledger_id(ledger_id)
        return await self.store.read_ledger(ledger_id)

    def is_closed(self, ledger_id: int) -> Deferred[bool]:
        """True if the ledger has its end, as the store says now.  `NoSuchLedger`."""
        return self.metadata(ledger_id).addCallback(lambda metadata: metadata.is_closed)

    def watch_ledger(self, ledger_id: int, fn: Callable[[LedgerMetadata | None], object]) -> Watch:
        """
        Calls `fn` with the metadata now and after changes (not with every one in between), with None once it is deleted
        or missing; `cancel()` of what comes back, or the client's close, ends it.
        """
        self._check_open()
        check_ledger_id(ledger_id)

        def seen(current: Versioned[LedgerMetadata] | None) -> None:
            fn(None if current is None else current.value)

        return self.store.watch_ledger(ledger_id, seen)

    def disable_ensemble_change(self, on: bool = True) -> None:
        """
        The option of that name at run time, for this client's writers and those to come: while bookies are restarted
        one after another, say, none is replaced; appends wait where the ack quorum is out of reach.
        """
        self.options = self.options.model_copy(update={"disable_ensemble_change": on})
        for handle in list(self.handles):
            if isinstance(handle, Writer):
                handle.keep_ensemble(on)

    def close(self) -> Deferred[None]:
        """
        Ends every handle, connection and the metadata session; what is under way fails with `ClientClosed`.  No ledger
        is closed.  It continues to its end, also when no caller waits for that any more.
        """
        answer: Deferred[None] = Deferred()
        if self._closing is not None:
            self._closing.addCallbacks(answer.callback, answer.errback)
            return answer
        self._closing = Deferred()
        self._closing.addCallbacks(answer.callback, answer.errback)
        Deferred.fromCoroutine(self._close()).chainDeferred(self._closing)
        return answer

    # How.

    def _check_open(self) -> None:
        if self._closing is not None:
            raise ClientClosed("this client was closed")

    async def _choose(self, size: int, wish: Wish) -> tuple[int, list[str]]:
        """A new ledger's ensemble size and bookies; with opportunistic striping it may be down to the write quorum."""
        smaller = size
        while True:
            try:
                return smaller, await self.choice.ensemble(smaller, wish)
            except NotEnoughBookies:
                if not self.options.opportunistic_striping or smaller == wish.write:
                    raise
            except ValueError:  # the placement takes no such size: the caller's mistake only where it is the caller's
                if smaller in (size, wish.write):
                    raise
            smaller = max(wish.write, min(smaller - 1, len(await self.choice.available())))

    async def _store(self, ledger_id: int | None, metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        if ledger_id is None:
            return await self.store.create_new_ledger(metadata)
        try:
            return ledger_id, await self.store.create_ledger(ledger_id, metadata)
        except LedgerExist:
            # It may be our own create, whose answer was lost: the token shows it.
            try:
                found = await self.store.read_ledger(ledger_id)
            except NoSuchLedgerExistsOnMetadataServer:
                found = None
            if found is None or found.value.ctoken != metadata.ctoken:
                raise
            return ledger_id, found

    def _bookies_seen(self, bookies: BookieList) -> None:
        self.health.registered = bookies
        if self.options.topology != "none":
            Deferred.fromCoroutine(self.topology.learn({**bookies.writable, **bookies.read_only}))

    def _ranks(self, bookies: set[str]) -> Mapping[str, tuple[float, ...]]:
        """Near and healthy ones first; empty while all are the same."""
        crowded = self.options.crowded_reads
        if self.pool.under_way < crowded:  # so no bookie has as many, and none need be asked
            crowded = 0
        ranks = self.health.ranks(bookies, self.pool.pending, crowded) if self.options.reorder_reads else {}
        local = self.options.local_place
        if not local or not self.options.reorder_reads:
            return ranks
        return {
            bookie: (rank[0], nearness(local, self.topology.place_of(bookie)), *rank[1:])
            for bookie, rank in ((bookie, ranks.get(bookie, (0, 0, 0.0))) for bookie in bookies)
        }

    @timed(RECOVER)
    async def _recover(self, record: LedgerRecord, digest: Digest) -> LedgerMetadata:
        def body(entry: int) -> Deferred[bytes]:
            return Deferred.fromCoroutine(read_body(self.pool, record.ledger, digest, record.replicas(entry), entry))

        limits, pieces = limits_of(self.options), self.options.batch_read
        recovery = Recovery(self.reactor, self.pool, self.choice, record, digest, limits, body, pieces)
        self.recoveries.add(recovery)
        try:
            return await recovery.run()
        finally:
            self.recoveries.discard(recovery)
            recovery.stop()  # nothing, unless it was cancelled

    async def _close(self) -> None:
        for recovery in list(self.recoveries):
            recovery.stop()
        for handle in list(self.handles):
            if isinstance(handle, Writer):
                handle.shut_down()
            else:
                handle.end("the client was closed")
        if self._bookies_watch is not None:
            self._bookies_watch.cancel()
        await self.pool.close()
        await self.store.close()
