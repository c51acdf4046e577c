"""
The tree in etcd.

Knows: which calls an operation takes, which failures may be tried again, on which server, and how long.
Does not know: how steps become a transaction of etcd (`plan`), what a node means.

Safety: every read is linearizable, so it sees each write that was answered before it.  A call whose answer was lost is
tried again, so it may be carried out twice; the error of a later try carries `retried`.  No try takes effect after a
later one was answered (`guard`).
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.logger import Logger

from quire.metadata.clock import Reactor, pause, time_of_day
from quire.metadata.etcd.apache import ApacheClient, ApacheKeys
from quire.metadata.etcd.client import CallFailed, Client
from quire.metadata.etcd.guard import KEYS, Guard
from quire.metadata.etcd.messages import CLASSES, RangeRequest, RequestOp, TxnRequest
from quire.metadata.etcd.nodes import Look, Seen, children_of, family_of, key_of, name_in, whole
from quire.metadata.etcd.plan import AnyStep, UseUp, first, judged
from quire.metadata.etcd.session import Session
from quire.metadata.etcd.watches import Watches
from quire.metadata.store import StoreClosed
from quire.metadata.tree import (
    Create,
    Done,
    NodeError,
    NoNode,
    SessionId,
    SessionOver,
    Stat,
    Step,
    Tree,
    Wake,
    counted,
    together,
)
from quire.protocol.errors import MetaStore, MetaStoreRefused
from quire.security.etcd import EtcdSecurity
from quire.security.jaas import Account

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

RETRY_PAUSE_S = 0.02
TRIES_PER_TIMEOUT = 3  # of servers that do not answer, where there are several
READ_AT_ONCE = 40  # nodes in one transaction, each with 3 operations: etcd takes 128
AuthenticateRequest: Any = CLASSES["AuthenticateRequest"]


class EtcdTree(Tree):
    """
    One client, with a session once something is claimed, and a stream once something is watched.  `keys`: of a cluster
    that Apache's programs share.
    """

    def __init__(
        self,
        reactor: Reactor,
        hosts: Sequence[str],
        uri: str,
        timeout_s: float,
        security: EtcdSecurity,
        rng: Random,
        keys: ApacheKeys | None = None,
    ) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self.has_strangers = keys is not None
        self.counts_children = keys is None  # Apache's programs put no family
        self._reactor = reactor
        tls = security.tls
        self._client = Client(reactor, hosts, tls) if keys is None else ApacheClient(keys, reactor, hosts, tls)
        self._login = security.login
        self._guard = Guard(rng.randrange(KEYS))
        self._closing: Deferred[None] | None = None
        self._outstanding: set[Deferred[Any]] = set()
        self._untrusted: dict[str, CallFailed] = {}  # by server, since the last answer
        self._session = Session(reactor, uri, timeout_s, self._ask_once, self._expired)
        self._watches = Watches(self._client.stream, self._lost)

    def _expired(self) -> None:
        self.on_expired()

    @property
    def _where(self) -> str:
        return f"etcd at {self.uri}"

    async def start(self) -> None:
        """Looks whether etcd answers; `MetaStore` when no server does within the session timeout."""
        try:
            await self.changes()
        except BaseException:
            self.close()
            raise

    def close(self) -> Deferred[None]:
        if self._closing is None:
            self._closing = Deferred()
            self._watches.end()
            for deferred in list(self._outstanding):
                deferred.cancel()
            Deferred.fromCoroutine(self._end(self._session.close()))
        answer: Deferred[None] = Deferred()
        self._closing.addCallback(answer.callback)
        return answer

    async def _end(self, revoke: Any | None) -> None:
        """A few tries: of the next server where one is away, or with our password proved anew."""
        tries = 0 if revoke is None else 1 + len(self._client.hosts)
        while tries:
            tries -= 1
            try:
                await self._called("LeaseRevoke", revoke, self._try_s)
                break
            except CallFailed as error:
                if error.token_over and self._login is not None:
                    self._client.token = ""
                elif not (error.lost and self._client.move(self._client.at)):
                    tries = 0
                if not tries:
                    log.info("{uri}: the session ends by itself: {error}", uri=self.uri, error=error)
        self._client.close()
        assert self._closing is not None
        self._closing.callback(None)

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _until(self, deadline: float, deferred: "Deferred[T]") -> T:
        timer = self._reactor.callLater(max(0.0, deadline - self._reactor.seconds()), deferred.cancel)
        self._outstanding.add(deferred)
        try:
            return await deferred
        except CancelledError:
            if self._closing is not None:
                raise StoreClosed from None
            if timer.active():  # it was not the time: the caller cancelled it
                raise
            raise CallFailed("DEADLINE_EXCEEDED", "it does not answer") from None
        finally:
            self._outstanding.discard(deferred)
            if timer.active():
                timer.cancel()

    async def _ask_once(self, name: str, request: Any) -> Any:
        """A call for the session."""
        return (await self._ask(name, request, self._deadline()))[0]

    def _deadline(self) -> float:
        return self._reactor.seconds() + self.timeout_s

    async def _ask(
        self, name: str, request: Any, deadline: float, again: Callable[[], Any] | None = None
    ) -> tuple[Any, bool]:
        """
        Tries until there is an answer or the time is over; the answer, and whether that of an earlier try was lost.
        `again` makes what is sent then.  `CallFailed` where a lease is gone.
        """
        retried = False
        while True:
            if self._closing is not None:
                raise StoreClosed
            left, at, server = deadline - self._reactor.seconds(), self._client.at, self._client.server
            token = self._client.token
            try:
                if left <= 0:
                    raise CallFailed("DEADLINE_EXCEEDED", "it does not answer")  # as by gRPC
                call = Deferred.fromCoroutine(self._called(name, request, min(left, self._try_s)))
                response = await self._until(deadline, call)
            except CallFailed as error:
                if self._closing is not None:
                    raise StoreClosed from None
                if error.token_over and self._login is not None:
                    if self._client.token == token:  # else another call has given the proof again
                        self._client.token = ""
                elif error.no_lease:
                    raise
                elif not error.lost:
                    raise error.error(self._where) from error
                else:
                    retried = True
                    request = again() if again is not None else request
                    self._failed(at, server, error, deadline)
            else:
                self._untrusted.clear()
                return response, retried
            await pause(self._reactor, RETRY_PAUSE_S)

    def _failed(self, at: int, server: str, error: CallFailed, deadline: float) -> None:
        """Goes to another server; raises the error once that is in vain."""
        if error.untrusted:
            self._untrusted[server] = error
            if len(self._untrusted) == len(self._client.hosts):
                raise MetaStoreRefused(
                    f"{self._where}: one side does not accept the other's certificate ({error.details}): compare "
                    "etcdTlsTrustStore, the names in its certificate, and --client-cert-auth; docs/security.md"
                ) from error
        if self._client.move(at):
            self._watches.restart(f"{server}: {error}")
        if self._reactor.seconds() + RETRY_PAUSE_S >= deadline:
            raise MetaStore(
                f"{self._where} did not answer within {self.timeout_s:g} s ({server}: {error.details}): see whether it "
                "runs, has a majority of its members, and can be reached from here, then try again"
            ) from error

    @property
    def _try_s(self) -> float:
        return self.timeout_s / (1 if len(self._client.hosts) == 1 else TRIES_PER_TIMEOUT)

    async def _called(self, name: str, request: Any, seconds: float) -> Any:
        """One call of the server that is used, behind a proof of our password where that is missing."""
        if self._login is not None and not self._client.token:
            await self._authenticate(self._login, seconds)
        return await self._client.call(name, request, seconds)

    async def _authenticate(self, login: Account, seconds: float) -> None:
        asked = AuthenticateRequest(name=login.user, password=login.password)
        self._client.token = (await self._client.call("Authenticate", asked, seconds)).token

    def _lost(self, why: str) -> None:
        """The stream of watches has ended."""
        log.info("{uri}: the watches are begun again: {why}", uri=self.uri, why=why)
        Deferred.fromCoroutine(self._reconnect())

    async def _reconnect(self) -> None:
        while self._closing is None:
            try:
                await self.changes()
            except MetaStore:
                await pause(self._reactor, RETRY_PAUSE_S)
                continue
            self.on_connected()
            return

    def _run(self, story: Coroutine["Deferred[Any]", Any, T]) -> Deferred[T]:
        return Deferred.fromCoroutine(story)

    # -- the session ----------------------------------------------------------------------------------------------

    @property
    def session(self) -> int | None:
        return self._session.current

    async def session_now(self) -> int:
        return await self._session.now()

    @property
    def outlives_s(self) -> float:
        """A leader that is elected meanwhile begins its time anew."""
        return 2.0 * self._session.ttl_s

    # -- changing -------------------------------------------------------------------------------------------------

    @counted
    def transact(self, steps: Sequence[Step], *, session: SessionId | None = None) -> Deferred[list[Done]]:
        return self._run(self._transact(steps, session))

    async def _transact(self, steps: Sequence[AnyStep], session: SessionId | None) -> list[Done]:
        deadline = self._deadline()
        claims = any(isinstance(step, Create) and step.claim for step in steps)
        while True:
            bound = await self._session.now() if session is None and claims else session
            try:
                return await self._carry_out(steps, bound, deadline)
            except SessionOver:
                assert bound is not None
                await self._session.over(int(bound))
                if session is not None:
                    raise

    async def _carry_out(self, steps: Sequence[AnyStep], session: SessionId | None, deadline: float) -> list[Done]:
        attempt, in_doubt = first(steps, session), False
        while True:
            changes, again = attempt.done is not None, None
            if changes:
                self._guard.put_on(attempt.request)
                again = partial(self._guard.ending, attempt.request)
            try:
                response, retried = await self._ask("Txn", attempt.request, deadline, again)
            except CallFailed as error:  # the lease is gone, and its key is about to go
                raise SessionOver(f"{self._where}: the session of {steps[0].path} has ended: {error.details}") from None
            if changes:  # one that only reads changes nothing, twice or not
                self._guard.learn(response, retried)
                in_doubt |= retried
            done = attempt.results(response)
            if done is not None:
                return done
            try:
                attempt = judged(self._where, steps, session, attempt.seen(response))
            except NodeError as error:
                error.retried = in_doubt
                raise

    async def use_up(self, path: str, count: int) -> None:
        await self._transact([UseUp(path, count)], None)

    # -- reading --------------------------------------------------------------------------------------------------

    async def _read(self, look: Look, *more: Any) -> tuple[Seen, list[Any]]:
        """All of it at one moment; and the answers to more ranges."""
        operations = [*look.operations(), *(RequestOp(request_range=each) for each in more)]
        response, _ = await self._ask("Txn", TxnRequest(success=operations), self._deadline())
        answers = list(response.responses)
        seen = look.seen(response.header.revision, answers)
        return seen, [each.response_range for each in answers[len(answers) - len(more) :]]

    @counted
    def get(self, path: str, watch: Wake | None = None) -> Deferred[tuple[bytes, Stat]]:
        return self._run(self._get(path, watch))

    async def _get(self, path: str, watch: Wake | None) -> tuple[bytes, Stat]:
        seen, _ = await self._read(whole([path]))
        node, stat = seen.node(path), seen.stat(path)
        if node is None or stat is None:
            raise self._missing(path)
        self._arm((path, False), watch, seen)
        return node.data, stat

    def _missing(self, path: str) -> NoNode:
        return NoNode(f"{self._where}: there is no node {path}")

    def _arm(self, watched: tuple[str, bool], watch: Wake | None, seen: Seen) -> None:
        if watch is not None and self._closing is None:
            self._watches.arm(watched, watch, seen.revision, absent=key_of(watched[0]) not in seen.keys)

    @counted
    def get_each(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        return self._run(self._get_each(paths))

    async def _get_each(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        parts = [paths[start : start + READ_AT_ONCE] for start in range(0, len(paths), READ_AT_ONCE)]
        read = await together([self._run(self._read(whole(list(dict.fromkeys(part))))) for part in parts])
        found: list[tuple[bytes, Stat] | None] = []
        for part, (seen, _) in zip(parts, read, strict=True):
            for path in part:
                node, stat = seen.node(path), seen.stat(path)
                found.append(None if node is None or stat is None else (node.data, stat))
        return found

    @counted
    def exists(self, path: str, watch: Wake | None = None) -> Deferred[Stat | None]:
        return self._run(self._exists(path, watch))

    async def _exists(self, path: str, watch: Wake | None) -> Stat | None:
        seen, _ = await self._read(whole([path]))
        self._arm((path, False), watch, seen)
        return seen.stat(path)

    @counted
    def listing(self, path: str, watch: Wake | None = None) -> Deferred[tuple[list[str], Stat]]:
        return self._run(self._listing(path, watch))

    async def _listing(self, path: str, watch: Wake | None) -> tuple[list[str], Stat]:
        changed, seen = await self._names(path, "", 0)
        self._watches.shown(path, seen.revision, changed)
        self._arm((path, True), watch, seen)
        seen.counts[path] = len(changed)
        stat = seen.stat(path)
        assert stat is not None
        return list(changed), stat

    async def _names(self, path: str, after: str, limit: int) -> tuple[dict[str, int], Seen]:
        """
        The next names with the revision of each one's last change, at most so many (0: all), and the node beside its
        children; `NoNode`.
        """
        below = RangeRequest(key=children_of(path, after), range_end=family_of(path), limit=limit, keys_only=True)
        seen, (found,) = await self._read(Look([key_of(path), family_of(path)]), below)
        if key_of(path) not in seen.keys:
            raise self._missing(path)
        return {name_in(each.key): each.mod_revision for each in found.kvs}, seen

    @counted
    def page(self, path: str, after: str, limit: int) -> Deferred[list[str]]:
        return self._run(self._names(path, after, limit)).addCallback(lambda found: list(found[0]))

    def sync(self, path: str) -> Deferred[None]:
        """Each read is linearizable anyway."""
        return succeed(None) if self._closing is None else fail(StoreClosed())

    def changes(self) -> Deferred[int]:
        return self._run(self._read(Look([key_of("")]))).addCallback(lambda found: found[0].revision)

    def clock(self, path: str) -> Deferred[int]:
        """Reads this machine's clock: etcd tells nobody the time of day."""
        return self.sync(path).addCallback(lambda _: int(time_of_day() * 1000))

    def disarm(self, watch: Wake) -> bool:
        self._watches.disarm(watch)
        return True
