"""
The repair queue in the tree: which ledgers are short of copies, in Apache's layout (metadata-rules.md 11).

    U/LAYOUT                              the layout of this part of the tree
    U/ledgers/hhhh/hhhh/hhhh/hhhh/urL…    a shortage; the directories are the ledger's id in hex
    U/disable                             there while no ledger may be taken

Knows: which node holds what, in which order it is made, and how a shortage that is there takes in another one; U is
`underreplication` below the cluster's root.
Does not know: locks (`repairs`), how a tree is kept, how a shortage is found or ended.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: a mark is added to what is there by compare-and-set, so none is lost; after a lost answer it is read again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.metadata.clock import Clock, pause
from quire.metadata.formats import repair_text
from quire.metadata.ledger import check_ledger_id, check_page
from quire.metadata.store import Watch, no_cluster, notify
from quire.metadata.tree import BadVersion, Create, NodeError, NodeExists, NoNode, Tree, Wake
from quire.metadata.watches import pause_after
from quire.protocol.errors import IncorrectParameter, MetaStore, MetaStoreRefused

# SPDX-License-Identifier: Apache-2.0

log = Logger()

PAGE = 1000
LAYOUT = b'type: "BASIC"\nversion: 1\n'
LEVELS = 4  # directories above a shortage, of four hex digits each
READS_MAX = 100  # shortages that are read at the same time
PACE_S = 0.5  # from one call of a watcher to the next, at least
ARMED_PART = 10  # times as long as it took to ask for all of the queue a watcher rests, up to `IDLE_S`
IDLE_S = 5.0  # at most, for strangers who make directories may hang before they make what belongs into them


@dataclass(frozen=True, slots=True)
class Shortage:
    """
    A ledger's entry in the queue: bookies whose copies may be missing (none: the copies are in the wrong places), and
    when one of them was named last, in ms since 1970 (None: nobody has noted it).
    """

    ledger: int
    missing: tuple[str, ...]
    since_ms: int | None
    version: int

    def with_more(self, missing: Iterable[str], since_ms: int | None, afresh: bool = False) -> "Shortage | None":
        """
        Returns this shortage with further bookies; None when it names them all already, unless it is to be noted
        `afresh`.
        """
        more = [bookie for bookie in dict.fromkeys(missing) if bookie not in self.missing]
        if not more and not afresh:
            return None
        return replace(self, missing=(*self.missing, *more), since_ms=self.since_ms if since_ms is None else since_ms)

    def fits(self, missing: str | None, excluding: str | None) -> bool:
        """True if it names the one bookie, where one is given, and does not name the other."""
        return (not missing or missing in self.missing) and (not excluding or excluding not in self.missing)


def check_missing(ledger: int, missing: Sequence[str]) -> None:
    """`IncorrectParameter` for a shortage that can't be noted."""
    check_ledger_id(ledger)
    if not all(missing):
        raise IncorrectParameter(f"ledger {ledger}: a bookie without an id can't be short of it")


def directory_of(ledger: int) -> str:
    """The directories of a shortage, below `ledgers`."""
    digits = f"{ledger:016x}"
    return "/".join(digits[start : start + 4] for start in range(0, 16, 4))


def name_of(ledger: int) -> str:
    """The name of a shortage and of a lock."""
    return f"urL{ledger:010d}"


class RepairQueue:
    """The queue through one handle, below the cluster's `root`."""

    def __init__(self, clock: Clock, tree: Tree, root: str, random: Random) -> None:
        self._clock = clock
        self._tree = tree
        self._random = random
        self._root = f"{root}/underreplication"
        self._ledgers = f"{self._root}/ledgers"
        self._locks = f"{self._root}/locks"
        self._ready = False  # its part of the tree is there
        self._watchers: list[QueueWatch] = []

    def end(self) -> None:
        """Ends the watches."""
        for watcher in list(self._watchers):
            watcher.watch.cancel()

    def _path(self, ledger: int) -> str:
        return f"{self._ledgers}/{directory_of(ledger)}/{name_of(ledger)}"

    async def _prepare(self) -> None:
        """Makes the upper nodes, in Apache's order.  `NoCluster`; `MetaStore` when it has another layout."""
        if self._ready:
            return
        for path, data in (
            (self._root, b""),
            (f"{self._root}/LAYOUT", LAYOUT),
            (self._ledgers, b""),
            (self._locks, b""),
        ):
            try:
                await self._tree.ensure(path, data)
            except NoNode:
                raise no_cluster(self._tree.uri) from None
        found, _ = await self._tree.get(f"{self._root}/LAYOUT")
        if found.split() != LAYOUT.split():
            raise MetaStore(
                f"{self._tree.uri}: the repair queue has the layout {found[:200]!r}, and only {LAYOUT!r} is known"
            )
        self._ready = True

    async def _prepare_again(self) -> None:
        """Something was not there: the cluster may have been destroyed meanwhile, or made anew."""
        self._ready = False
        await self._prepare()

    def mark(
        self, ledger: int, missing: Sequence[str], since_ms: int | None, *, afresh: bool = False
    ) -> Deferred[None]:
        """
        Puts a ledger into the queue, or adds to what it is short of; done without a change when all of it is known,
        unless it is to be noted `afresh`: then who repairs the ledger now does not take it off the queue.
        `since_ms` None notes no time.  `NoCluster`.
        """
        return Deferred.fromCoroutine(self._mark(ledger, missing, since_ms, afresh))

    async def _mark(self, ledger: int, missing: Sequence[str], since_ms: int | None, afresh: bool) -> None:
        check_missing(ledger, missing)
        await self._prepare()
        path, data = self._path(ledger), repair_text.encode_shortage(missing, since_ms)
        while True:
            try:
                # one write for a ledger that is new; the directory is there if it is not, or was left empty
                await self._tree.transact([Create(path.rpartition("/")[0]), Create(path, data)])
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
                await self._tree.create(self._path(ledger), data)
            elif found is not None:
                data = repair_text.encode_shortage(found.missing, found.since_ms)
                await self._tree.set(self._path(ledger), data, known.version)
        except (NodeExists, NoNode, BadVersion):
            return False
        return True

    async def _make_directories(self, ledger: int) -> None:
        """Makes the directories above the lowest; others may prune them at any time, so the caller tries again."""
        path = self._ledgers
        for name in directory_of(ledger).split("/")[:-1]:
            path = f"{path}/{name}"
            try:
                await self._tree.create(path)
            except NodeExists:
                continue
            except NoNode:
                await self._prepare_again()
                return

    async def _read(self, ledger: int) -> Shortage | None:
        try:
            data, stat = await self._tree.get(self._path(ledger))
        except NoNode:
            return None
        return Shortage(ledger, *repair_text.decode_shortage(ledger, data), stat.version)

    async def _read_each(self, ledgers: Sequence[int]) -> list[Shortage | None]:
        """Reads the entries of several ledgers at once."""
        found = await self._tree.get_each(list(map(self._path, ledgers))) if ledgers else []
        return [
            None if node is None else Shortage(ledger, *repair_text.decode_shortage(ledger, node[0]), node[1].version)
            for ledger, node in zip(ledgers, found, strict=True)
        ]

    def shortage(self, ledger: int) -> Deferred[Shortage | None]:
        """Reads a ledger's entry in the queue; None when it is not in it."""

        async def read() -> Shortage | None:
            check_ledger_id(ledger)
            await self._prepare()
            return await self._read(ledger)

        return Deferred.fromCoroutine(read())

    def shortages(self, after: int = -1, limit: int = PAGE) -> Deferred[list[Shortage]]:
        """
        The next at most `limit` above ledger `after`, ascending; [] at the end and only there.  `NoCluster`,
        `IncorrectParameter` for a limit below 1.
        """
        return Deferred.fromCoroutine(self._shortages(after, limit))

    async def _shortages(self, after: int, limit: int) -> list[Shortage]:
        check_page(after, limit)
        await self._prepare()
        await self._tree.sync(self._ledgers)
        found: list[Shortage] = []
        ids: list[int] = []

        async def read() -> None:
            found.extend(each for each in await self._read_each(ids) if each is not None)
            ids.clear()

        async for ledger in self._ids(after):
            ids.append(ledger)
            if len(ids) >= min(READS_MAX, limit - len(found)):
                await read()
                if len(found) >= limit:
                    break
        if ids:
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
                names = await self._tree.children("/".join([self._ledgers, *above]), wake)
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
                await self._tree.delete("/".join([self._ledgers, *above[:depth]]))
            except NodeError:
                return

    def watch(self, fn: Callable[[], None], busy: Callable[[], bool] = lambda: False) -> Watch:
        """
        Calls `fn` now, and again when there may be something to take that was not there before: a shortage, a lock that
        was given back, the switch.  It may be called without a reason, and is never missed, except while the watcher
        is `busy`: to listen costs a look at all of the queue, and many workers that empty it change it all the time.
        """
        idle_s = IDLE_S if self._tree.has_strangers else None
        watcher = QueueWatch(self._clock, self._arm, fn, self._gone, idle_s, busy)
        self._watchers.append(watcher)
        Deferred.fromCoroutine(watcher.run())
        return watcher.watch

    def _gone(self, watcher: "QueueWatch") -> None:
        self._watchers.remove(watcher)
        self._tree.disarm(watcher.wake)

    async def _locked(self, wake: Wake | None = None) -> list[str]:
        """The names of the locks."""
        await self._prepare()
        try:
            return await self._tree.children(self._locks, wake)
        except NoNode:
            await self._prepare_again()
            return await self._tree.children(self._locks, wake)

    async def _arm(self, wake: Wake) -> None:
        """Calls `wake` at the next change of anything that `watch` is about."""
        await self._tree.exists(f"{self._root}/disable", wake)
        await self._locked(wake)
        async for _ in self._ids(wake=wake):
            pass

    def enabled(self) -> Deferred[bool]:
        """True if ledgers may be taken from the queue, which they may at first."""

        async def read() -> bool:
            await self._prepare()
            return await self._tree.exists(f"{self._root}/disable") is None

        return Deferred.fromCoroutine(read())

    def set_enabled(self, enabled: bool) -> Deferred[None]:
        """The switch.  Once it is off none is taken; what was taken before may be repaired to its end."""

        async def switch() -> None:
            await self._prepare()
            if enabled:
                with suppress(NoNode):
                    await self._tree.delete(f"{self._root}/disable")
            else:
                with suppress(NodeExists):
                    await self._tree.create(f"{self._root}/disable")

        return Deferred.fromCoroutine(switch())


class QueueWatch:
    """One watcher of the queue: arms, calls, and waits for the next event, until it is cancelled."""

    def __init__(
        self,
        clock: Clock,
        arm: Callable[[Wake], Awaitable[None]],
        fn: Callable[[], None],
        gone: Callable[["QueueWatch"], None],
        idle_s: float | None = IDLE_S,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.watch = Watch(self._cancelled)
        self._clock = clock
        self._arm = arm
        self._fn = fn
        self._gone = gone
        self._idle_s = idle_s
        self._busy = busy
        self._event: Deferred[None] = Deferred()

    def _cancelled(self) -> None:
        self._gone(self)
        self.wake()

    def wake(self) -> None:
        """Something changed."""
        if not self._event.called:
            self._event.callback(None)

    def _is_over(self) -> bool:
        return self.watch.cancelled

    async def run(self) -> None:
        """As long as it is watched.  What changes while it is armed is an event, too, so nothing is missed."""
        complained = False
        while not self._is_over():
            self._event = Deferred()
            begun = self._clock.seconds()
            try:
                await self._arm(self.wake)
            except Exception as error:  # the connection is away, mostly, or the cluster; the next round tells
                if (isinstance(error, MetaStoreRefused) or not isinstance(error, MetaStore)) and not complained:
                    log.error("the repair queue can't be watched, will go on trying: {error!r}", error=error)
                    complained = True
                await pause(self._clock, pause_after(error, PACE_S))
                continue
            complained = False
            if self._is_over():
                return
            called = self._clock.seconds()
            notify(self._fn)
            timer = None if self._idle_s is None else self._clock.callLater(self._idle_s, self.wake)
            await self._event
            if timer is not None and timer.active():
                timer.cancel()
            if not self._is_over():
                rest_s = max(PACE_S, min(IDLE_S, ARMED_PART * (called - begun)))
                await pause(self._clock, max(0.0, called + rest_s - self._clock.seconds()))
            while self._busy() and not self._is_over():
                await pause(self._clock, PACE_S)
