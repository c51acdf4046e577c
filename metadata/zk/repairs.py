"""
The repair queue in ZooKeeper: the same znodes and bytes as Apache BookKeeper 4.17 (metadata-rules.md 11).

    R/underreplication/LAYOUT                              the layout of this tree
    R/underreplication/ledgers/hhhh/hhhh/hhhh/hhhh/urL…    a shortage; the directories are the ledger's id in hex
    R/underreplication/locks/urL…                          ephemeral: who repairs the ledger
    R/underreplication/disable                             there while no ledger may be taken

Knows: which znode holds what, in which order it is made, and whether a change was our own retried one or another's.
Does not know: kazoo (`session`), bytes (`formats`).

Safety: the lock and the shortage go in one transaction that is bound to the lock's session, so a finish that is tried
again finds no lock, and never removes what was noted meanwhile.  So is what is written under a lock.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import suppress
from random import Random

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Reactor, pause
from quire.metadata.formats import ledger_codec, repair_text
from quire.metadata.ledger import LedgerMetadata, check_ledger_id, check_page, no_ledger
from quire.metadata.repairs import CANDIDATES_MAX, PAGE, RepairLock, Repairs, Shortage, check_missing
from quire.metadata.store import ANY, Versioned, Watch, no_cluster, notify
from quire.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeError,
    NodeExists,
    NoNode,
    SessionOver,
    Step,
    Wake,
    Write,
    together,
)
from quire.metadata.watches import pause_after
from quire.metadata.zk.calls.session import ZooKeeperSession
from quire.metadata.zk.cluster import ZooKeeperCluster
from quire.protocol.errors import MetadataVersion, MetaStore, MetaStoreRefused

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LAYOUT = b'type: "BASIC"\nversion: 1\n'
LEVELS = 4  # directories above a shortage, of four hex digits each
READS_MAX = 100  # shortages that are read at the same time
PACE_S = 0.5  # from one call of a watcher to the next, at least
ARMED_PART = 10  # times as long as it took to ask for all of the queue a watcher rests, up to `IDLE_S`
IDLE_S = 5.0  # at most, for who makes directories may hang before it makes what belongs into them


def directory_of(ledger: int) -> str:
    """The directories of a shortage, below `ledgers`."""
    digits = f"{ledger:016x}"
    return "/".join(digits[start : start + 4] for start in range(0, 16, 4))


def name_of(ledger: int) -> str:
    """The name of a shortage and of a lock."""
    return f"urL{ledger:010d}"


class ZooKeeperRepairs(Repairs):
    """The queue through one store, below `root`."""

    def __init__(
        self, reactor: Reactor, session: ZooKeeperSession, root: str, cluster: ZooKeeperCluster, random: Random
    ) -> None:
        super().__init__(random)
        self._cluster = cluster
        self._reactor = reactor
        self._session = session
        self._root = f"{root}/underreplication"
        self._ledgers = f"{self._root}/ledgers"
        self._locks = f"{self._root}/locks"
        self._ready = False  # the tree is there
        self._watchers: list[QueueWatch] = []

    def end(self) -> None:
        """Ends the watches."""
        for watcher in list(self._watchers):
            watcher.watch.cancel()

    def _path(self, ledger: int) -> str:
        return f"{self._ledgers}/{directory_of(ledger)}/{name_of(ledger)}"

    async def _prepare(self) -> None:
        """Makes the tree, in Apache's order.  `NoCluster`; `MetaStore` when it has another layout."""
        if self._ready:
            return
        for path, data in (
            (self._root, b""),
            (f"{self._root}/LAYOUT", LAYOUT),
            (self._ledgers, b""),
            (self._locks, b""),
        ):
            try:
                await self._session.ensure(path, data)
            except NoNode:
                raise no_cluster(self._session.uri) from None
        found, _ = await self._session.get(f"{self._root}/LAYOUT")
        if found.split() != LAYOUT.split():
            raise MetaStore(
                f"{self._session.uri}: the repair queue has the layout {found[:200]!r}, and only {LAYOUT!r} is known"
            )
        self._ready = True

    async def _prepare_again(self) -> None:
        """Something was not there: the cluster may have been destroyed meanwhile, or made anew."""
        self._ready = False
        await self._prepare()

    # -- the queue -------------------------------------------------------------------------------------------------

    def mark(
        self, ledger: int, missing: Sequence[str], since_ms: int | None, *, afresh: bool = False
    ) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._mark(ledger, missing, since_ms, afresh))

    async def _mark(self, ledger: int, missing: Sequence[str], since_ms: int | None, afresh: bool) -> None:
        check_missing(ledger, missing)
        await self._prepare()
        path, data = self._path(ledger), repair_text.encode_shortage(missing, since_ms)
        while True:
            try:
                # one write for a ledger that is new; the directory is there if it is not, or was left empty
                await self._session.transact([Create(path.rpartition("/")[0]), Create(path, data)])
            except NodeExists:
                if not await self._add(ledger, data, missing, since_ms, afresh):
                    continue
            except NoNode:
                await self._make_directories(ledger)
                continue
            return

    async def _add(self, ledger: int, data: bytes, missing: Sequence[str], since_ms: int | None, afresh: bool) -> bool:
        """
        Makes a shortage, or adds to the one that is there; False when another was faster, or an earlier try of ours
        whose answer was lost.
        """
        known = await self._read(ledger)
        found = None if known is None else known.with_more(missing, since_ms, afresh)
        try:
            if known is None:
                await self._session.create(self._path(ledger), data)
            elif found is not None:
                data = repair_text.encode_shortage(found.missing, found.since_ms)
                await self._session.set(self._path(ledger), data, known.version)
        except (NodeExists, NoNode, BadVersion):
            return False
        return True

    async def _make_directories(self, ledger: int) -> None:
        """Those above the lowest; others may prune them at any time, so the caller tries again."""
        path = self._ledgers
        for name in directory_of(ledger).split("/")[:-1]:
            path = f"{path}/{name}"
            try:
                await self._session.create(path)
            except NodeExists:
                continue
            except NoNode:
                await self._prepare_again()
                return

    async def _read(self, ledger: int) -> Shortage | None:
        try:
            data, stat = await self._session.get(self._path(ledger))
        except NoNode:
            return None
        return Shortage(ledger, *repair_text.decode_shortage(ledger, data), stat.version)

    def shortage(self, ledger: int) -> "Deferred[Shortage | None]":
        async def read() -> Shortage | None:
            check_ledger_id(ledger)
            await self._prepare()
            return await self._read(ledger)

        return Deferred.fromCoroutine(read())

    def shortages(self, after: int = -1, limit: int = PAGE) -> "Deferred[list[Shortage]]":
        return Deferred.fromCoroutine(self._shortages(after, limit))

    async def _shortages(self, after: int, limit: int) -> list[Shortage]:
        check_page(after, limit)
        await self._prepare()
        await self._session.sync(self._ledgers)
        found: list[Shortage] = []
        ids: list[int] = []

        async def read() -> None:
            read = await together([Deferred.fromCoroutine(self._read(ledger)) for ledger in ids])
            found.extend([each for each in read if each is not None][: limit - len(found)])
            ids.clear()

        async for ledger in self._ids(after):
            ids.append(ledger)
            if len(ids) >= min(READS_MAX, limit - len(found)):
                await read()
                if len(found) >= limit:
                    break
        await read()
        return found

    async def _ids(self, after: int = -1, wake: Wake | None = None, *, taking: bool = False) -> AsyncIterator[int]:
        """
        Ledgers above `after` that have a directory, ascending; most have a shortage in it.  `wake` is armed at every
        directory that is listed, and called when one gets or loses something.  `taking`: in no order, and directories
        of directories that were left empty go.
        """
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            if len(prefix) == 4 * LEVELS:
                yield int(prefix, 16)
                continue
            above = [prefix[start : start + 4] for start in range(0, len(prefix), 4)]
            try:
                names = await self._session.children("/".join([self._ledgers, *above]), wake)
            except NoNode:
                continue
            if taking and above and not names:
                await self._prune(above)
            found = [prefix + name for name in names if len(name) == 4 and not name.strip("0123456789abcdef")]
            found = [each for each in found if int(each.ljust(4 * LEVELS, "f"), 16) > after]
            if taking:
                self._random.shuffle(found)
            else:
                found.sort(reverse=True)
            waiting += found

    async def _prune(self, above: Sequence[str]) -> None:
        """Removes empty directories, the lowest first, up to one that is not empty."""
        for depth in range(len(above), 0, -1):
            try:
                await self._session.delete("/".join([self._ledgers, *above[:depth]]))
            except NodeError:
                return

    def watch(self, fn: Callable[[], None]) -> Watch:
        watcher = QueueWatch(self._reactor, self._arm, fn, self._watchers.remove)
        self._watchers.append(watcher)
        Deferred.fromCoroutine(watcher.run())
        return watcher.watch

    async def _arm(self, wake: Wake) -> None:
        """Calls `wake` at the next change of anything that `watch` is about."""
        await self._session.exists(f"{self._root}/disable", wake)
        await self._locked(wake)
        async for _ in self._ids(wake=wake):
            pass

    def enabled(self) -> "Deferred[bool]":
        async def read() -> bool:
            await self._prepare()
            return await self._session.exists(f"{self._root}/disable") is None

        return Deferred.fromCoroutine(read())

    def set_enabled(self, enabled: bool) -> "Deferred[None]":
        async def switch() -> None:
            await self._prepare()
            if enabled:
                with suppress(NoNode):
                    await self._session.delete(f"{self._root}/disable")
            else:
                with suppress(NodeExists):
                    await self._session.create(f"{self._root}/disable")

        return Deferred.fromCoroutine(switch())

    # -- locks -----------------------------------------------------------------------------------------------------

    def worker(self, ledger: int) -> "Deferred[str | None]":
        async def read() -> str | None:
            await self._prepare()
            try:
                return repair_text.decode_owner((await self._session.get(self._lock_of(ledger)))[0])
            except NoNode:
                return None

        return Deferred.fromCoroutine(read())

    def _lock_of(self, ledger: int) -> str:
        return f"{self._locks}/{name_of(ledger)}"

    async def _session_now(self) -> int:
        return self._session.id

    async def _look(self, skip: Container[int]) -> list[int]:
        locked = set(await self._locked())
        found: list[int] = []
        async for ledger in self._ids(taking=True):
            if name_of(ledger) not in locked and ledger not in skip:
                found.append(ledger)
                if len(found) >= CANDIDATES_MAX:
                    break
        return found

    async def _locked(self, wake: Wake | None = None) -> list[str]:
        """The names of the locks."""
        await self._prepare()
        try:
            return await self._session.children(self._locks, wake)
        except NoNode:
            await self._prepare_again()
            return await self._session.children(self._locks, wake)

    async def _take_one(self, ledger: int) -> RepairLock | None:
        taken = await super()._take_one(ledger)
        if taken is None:
            above = directory_of(ledger)
            found = await self._session.exists(f"{self._ledgers}/{above}")
            if found is not None and found.children == 0:
                await self._prune(above.split("/"))
        return taken

    async def _take_lock(self, ledger: int, session: int | str) -> bool:
        await self._prepare()
        path, data = self._lock_of(ledger), repair_text.encode_owner(socket.gethostname())
        try:
            await self._session.transact([Create(path, data, claim=True)], session=int(session))
        except NodeExists:
            # a create whose answer was lost finds what it made itself
            found = await self._session.exists(path)
            return found is not None and found.owner == session
        except NoNode:
            await self._prepare_again()
            return await self._take_lock(ledger, session)
        return self._session.id == session  # unless the session has ended since

    async def _drop_lock(self, ledger: int, session: int | str) -> None:
        with suppress(NoNode):
            await self._session.delete_own(self._lock_of(ledger), int(session))

    async def _extend(self, shortage: Shortage) -> int | None:
        data = repair_text.encode_shortage(shortage.missing, shortage.since_ms)
        try:
            await self._session.set(self._path(shortage.ledger), data, shortage.version)
        except (NoNode, BadVersion):  # or an earlier try of ours, whose answer was lost
            return None
        return shortage.version + 1

    async def _settle(self, shortage: Shortage, session: int | str) -> bool:
        ledger = shortage.ledger
        steps = [Delete(self._lock_of(ledger), ANY), Delete(self._path(ledger), shortage.version)]
        try:
            await self._session.transact(steps, session=int(session))
        except SessionOver:
            raise self._lost(shortage) from None
        except NodeError as error:
            if error.step == 1:  # the queue says something else by now, or nothing
                await self._drop_lock(ledger, session)
            elif not error.retried:
                raise self._lost(shortage) from None
            if await self._read(ledger) is not None:
                return False
        await self._prune(directory_of(ledger).split("/"))
        return True

    async def _write_under(
        self, lock: RepairLock, metadata: LedgerMetadata, version: int, last: bool
    ) -> Versioned[LedgerMetadata] | None:
        ledger, data = lock.ledger, ledger_codec.encode(metadata)
        paths, _ = await self._cluster.layout()
        path, held = paths.path_of(ledger), self._lock_of(ledger)
        steps: list[Step] = [Write(path, data, version), Delete(held, ANY) if last else Check(held)]
        if last and lock.shortage is not None:
            above = self._path(ledger).rpartition("/")[0]  # where no other ledger is; a look prunes those above
            steps += [Delete(self._path(ledger), lock.shortage.version), Delete(above, ANY)]
        try:
            await self._session.transact(steps, session=int(lock.session))
        except SessionOver:
            raise self._lost(lock) from None
        except NodeError as error:
            if error.step > 1:
                return None
            if error.step == 1:
                raise self._lost(lock) from None
            if isinstance(error, NoNode):
                raise no_ledger(self._session.uri, ledger) from None
            if not (error.retried and await self._session.holds(path, data, version + 1)):
                if error.retried and last:  # it may have been done, and with it the lock went
                    raise self._lost(lock) from None
                raise MetadataVersion(f"ledger {ledger} is no longer at version {version}") from None
        return Versioned(metadata, version + 1)


class QueueWatch:
    """One watcher of the queue: arms, calls, and waits for the next event, until it is cancelled."""

    def __init__(
        self,
        reactor: Reactor,
        arm: Callable[[Wake], Awaitable[None]],
        fn: Callable[[], None],
        gone: Callable[["QueueWatch"], None],
    ) -> None:
        self.watch = Watch(self._cancelled)
        self._reactor = reactor
        self._arm = arm
        self._fn = fn
        self._gone = gone
        self._event: Deferred[None] = Deferred()

    def _cancelled(self) -> None:
        self._gone(self)
        self._wake()

    def _wake(self) -> None:
        if not self._event.called:
            self._event.callback(None)

    def _is_over(self) -> bool:
        return self.watch.cancelled

    async def run(self) -> None:
        """As long as it is watched.  What changes while it is armed is an event, too, so nothing is missed."""
        complained = False
        while not self._is_over():
            self._event = Deferred()
            begun = self._reactor.seconds()
            try:
                await self._arm(self._wake)
            except Exception as error:  # the connection is away, mostly, or the cluster; the next round tells
                if (isinstance(error, MetaStoreRefused) or not isinstance(error, MetaStore)) and not complained:
                    log.error("the repair queue can't be watched, will go on trying: {error!r}", error=error)
                    complained = True
                await pause(self._reactor, pause_after(error, PACE_S))
                continue
            complained = False
            if self._is_over():
                return
            called = self._reactor.seconds()
            notify(self._fn)
            timer = self._reactor.callLater(IDLE_S, self._wake)
            await self._event
            if timer.active():
                timer.cancel()
            if not self._is_over():
                rest_s = max(PACE_S, min(IDLE_S, ARMED_PART * (called - begun)))
                await pause(self._reactor, max(0.0, called + rest_s - self._reactor.seconds()))
