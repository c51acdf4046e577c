"""
Bookies in a tree: registering, listing, and hearing of changes (metadata-rules.md 5, 8.1).

    R/available/<id>             ephemeral, service information: a writable bookie
    R/available/readonly         persistent, no data
    R/available/readonly/<id>    ephemeral, service information: a read-only bookie

Knows: which node to make before which is removed, whose a node is, and that what was read holds until its watch says
otherwise.
Does not know: how a tree is kept; what a bookie does when its registration is lost.

Long: our own registrations and the lists of all share the two listings, their watches and their session.

Safety: a bookie that changes its list joins one before it leaves the other.  The two are read, and their changes heard
of, at moments of their own, so one that is missing in both, and was there, is looked for once more.  A registration of
another living session is never touched; its end is waited for.  Our own are watched: one that goes, or becomes
another's, while our session lives is reported like one that went with its session.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.clock import Clock, pause
from quire.metadata.formats import service_info
from quire.metadata.ledger import check_bookie_id, is_bookie_id
from quire.metadata.store import (
    ANY,
    BookieList,
    BookieRegistered,
    BookieWatcher,
    NotRegistered,
    ServiceInfo,
    StoreClosed,
    Watch,
    no_cluster,
    notify,
)
from quire.metadata.tree import Check, NodeExists, NoNode, SessionId, SessionOver, Tree, together
from quire.metadata.watches import pause_after
from quire.protocol.errors import IncorrectParameter

# SPDX-License-Identifier: Apache-2.0

log = Logger()

READ_ONLY = "readonly"
GRACE_S = 1.0
RETRY_S = 0.2
READ_PART = 10  # times as long as the lists took to be read a watcher rests before it reads them again, up to `REST_S`
REST_S = 1.0


@dataclass(eq=False, slots=True)
class Subscription:
    watch: Watch
    fn: BookieWatcher
    heard: BookieList | None = None


class Registered(NamedTuple):
    """A bookie's node, as it was read: what it announces, and the transaction that made it."""

    info: ServiceInfo
    made: int


@dataclass(slots=True)
class Listing:
    """
    One of the two lists as it was last read; `names` is None when it must be read again, an info is missing for the
    same reason, or since the bookie has just left.
    """

    path: str
    names: list[str] | None = None
    infos: dict[str, Registered] = field(default_factory=dict)
    cleared: int = 0  # how often it had changed once all that were in it had left
    last: int = 0  # the transaction of its last change: a node that is younger is not the one that was listed

    def forget(self) -> None:
        """Reads all of it again before the next answer; a reading that is under way keeps what it began with."""
        self.names = None
        self.infos = {}


@dataclass(eq=False, slots=True)
class Own:
    """A registration of ours; `changed` fires when its node may have, or when it is ours no longer."""

    path: str
    session: SessionId
    changed: "Deferred[None]" = field(default_factory=Deferred)

    def wake(self) -> None:
        """Makes the loop that follows the registration look at its node."""
        _fire(self.changed)


class BookieRegistry:
    """
    The registrations of one cluster, seen through one session.  `lost` is called when one of our own went and the
    session did not.
    """

    def __init__(self, clock: Clock, tree: Tree, root: str, lost: Callable[[], None]) -> None:
        self._clock = clock
        self._tree = tree
        self._root = root
        self._writable = Listing(f"{root}/available")
        self._read_only = Listing(f"{root}/available/{READ_ONLY}")
        self._subscriptions: dict[Subscription, None] = {}  # in their order; each writer of a process has one
        self._following = False
        self._stale = False
        self._current: BookieList | None = None  # the two listings, until a watch says that one has changed
        self._changes = 0  # that watches have said
        self._wakening: Deferred[None] | None = None
        # callers that wait for the reading of the two listings that is under way
        self._readers: list[Deferred[BookieList]] = []
        self._seen: tuple[set[str], set[str]] = set(), set()  # the bookies of the last reading, in each list
        self._others: set[str] = set()  # what is registered and no bookie, and was told
        self._queueing: set[Deferred[None]] = set()  # registrations that wait for another session to end
        self._own: dict[str, Own] = {}
        self._lost = lost
        self._ended = False

    def _path(self, bookie: str, read_only: bool) -> str:
        return f"{(self._read_only if read_only else self._writable).path}/{bookie}"

    # -- registering ----------------------------------------------------------------------------------------------

    async def register(self, bookie: str, info: ServiceInfo, read_only: bool) -> None:
        """
        Joins one list, then leaves the other.  `BookieRegistered` when another session keeps the id,
        `IncorrectParameter` for what is none.
        """
        try:
            check_bookie_id(bookie)
        except ValueError as error:
            raise IncorrectParameter(str(error)) from None
        began = self._clock.seconds()
        while True:
            try:
                return await self._register(bookie, info, read_only, await self._tree.session_now(), began)
            except SessionOver:
                continue  # and what it had made; the next one is there

    async def _register(
        self, bookie: str, info: ServiceInfo, read_only: bool, session: SessionId, began: float
    ) -> None:
        data = service_info.encode(info)
        path, other = self._path(bookie, read_only), self._path(bookie, not read_only)
        if read_only:
            await self.make_read_only_list()
        leaves = await self._free(other, bookie, session, began)
        while not await self._free(path, bookie, session, began):
            try:
                await self._tree.create(path, data, claim=True, session=session)
                break
            except NodeExists:
                continue  # ours, by a try whose answer was lost, or another client was faster
            except NoNode:
                raise no_cluster(self._tree.uri) from None
        else:
            if (await self._tree.get(path))[0] != data:
                await self._tree.set(path, data, ANY, session=session)
        self._disown(bookie)
        own = self._own[bookie] = Own(path, session)
        Deferred.fromCoroutine(self._follow_own(bookie, own))
        if leaves:
            with suppress(NoNode):
                await self._tree.delete_own(other, session)

    async def _free(self, path: str, bookie: str, session: SessionId, began: float) -> bool:
        """
        Waits until no session but this has the node, as long as one like this may outlive its process; whether this one
        has it.
        """
        gone: Deferred[None] | None = None
        while True:
            found = await self._tree.exists(path, watch=None if gone is None else partial(_fire, gone))
            if found is None:
                return False
            if found.owner == session:
                return True
            if gone is None:  # nothing is watched that needn't be waited for
                gone = Deferred()
                continue
            deadline = began + self._tree.outlives_s + GRACE_S
            timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), gone.cancel)
            self._queueing.add(gone)
            try:
                await gone
            except CancelledError:
                raise BookieRegistered(f"{self._tree.uri}: another live process is registered as {bookie}") from None
            finally:
                self._queueing.discard(gone)
                if timer.active():
                    timer.cancel()
            if self._ended:
                raise StoreClosed
            gone = Deferred()

    async def unregister(self, bookie: str, read_only: bool) -> None:
        """Removes our registration; `NotRegistered` when it is not this session's."""
        path = self._path(bookie, read_only)
        own = self._own.get(bookie)
        if own is not None and own.path == path:
            self._disown(bookie)
        session = self._tree.session
        try:
            if session is None:
                raise NoNode(path)
            await self._tree.delete_own(path, session)
        except NoNode as error:
            if not error.retried:
                raise NotRegistered(f"{self._tree.uri}: {bookie} is not registered by this session") from None

    async def _follow_own(self, bookie: str, own: Own) -> None:
        """Looks at a registration of ours whenever its node may have changed, until we give it up or have lost it."""
        while self._own.get(bookie) is own:
            try:
                found = await self._tree.exists(own.path, own.wake)
                gone = found is None or found.owner != own.session
                if gone:
                    await self._tree.transact([Check(self._writable.path)], session=own.session)
            except SessionOver:  # which is reported by itself
                self._own.pop(bookie, None)
                return
            except Exception as error:  # mostly the connection is away
                await pause(self._clock, pause_after(error, RETRY_S))
                continue
            if self._own.get(bookie) is not own:
                return
            if gone:
                log.warn(
                    "{uri}: the registration of {bookie} is gone, and not by this process",
                    uri=self._tree.uri,
                    bookie=bookie,
                )
                del self._own[bookie]
                self._lost()
                return
            await own.changed
            own.changed = Deferred()

    def _disown(self, bookie: str) -> None:
        own = self._own.pop(bookie, None)
        if own is not None:
            own.wake()

    async def make_read_only_list(self) -> None:
        """
        Makes R/available/readonly if it is missing, as every driver of the reference does when it opens a cluster.
        """
        if await self._tree.exists(self._read_only.path) is not None:
            return
        try:
            await self._tree.create(self._read_only.path)
        except NodeExists:
            return
        except NoNode:
            raise no_cluster(self._tree.uri) from None

    # -- looking --------------------------------------------------------------------------------------------------

    async def bookies(self) -> BookieList:
        """Both lists, read now."""
        writable, read_only = Listing(self._writable.path), Listing(self._read_only.path)
        return await self._read(writable, read_only, watching=False)

    async def known(self) -> BookieList:
        """
        Both lists as far as was heard: only what a watch has said to have changed is read, and while none has said so
        they are the same object.  Callers meanwhile share the reading under way.
        """
        if self._current is not None:
            return self._current
        waiting: Deferred[BookieList] = Deferred()
        self._readers.append(waiting)
        if len(self._readers) == 1:
            Deferred.fromCoroutine(self._read(self._writable, self._read_only, watching=True)).addBoth(self._have_read)
        return await waiting

    def _have_read(self, found: BookieList | Failure) -> None:
        readers, self._readers = self._readers, []
        for waiting in readers:
            if not waiting.called:  # by a caller that was cancelled
                waiting.callback(found)  # a Failure is one to each waiting caller

    async def service_info(self, bookie: str) -> ServiceInfo | None:
        """Reads a bookie's announcement from the server; None when it is not registered."""
        for read_only in (False, True):
            try:
                data, _ = await self._tree.get(self._path(bookie, read_only))
            except NoNode:
                continue
            return service_info.decode_or_unknown(bookie, data)
        return None

    async def _read(self, writable: Listing, read_only: Listing, watching: bool) -> BookieList:
        listings, heard = (writable, read_only), self._changes

        async def both() -> list[dict[str, Registered]]:
            return await together([Deferred.fromCoroutine(self._filled(listing, watching)) for listing in listings])

        found = await both()
        there = {*found[0], *found[1]}
        behind = [other for seen, other in zip(self._seen, (read_only, writable), strict=True) if not seen <= there]
        for listing in behind:
            listing.names = None
        if behind:
            found = await both()
        self._seen = set(found[0]), set(found[1])
        counted = self._tree.counts_children
        changes = sum(listing.cleared - len(infos) for listing, infos in zip(listings, found, strict=True))
        writable_infos, read_only_infos = ({name: infos[name].info for name in sorted(infos)} for infos in found)
        joined = {
            (name, listing is read_only): each.made
            for listing, infos in zip(listings, found, strict=True)
            for name, each in infos.items()
            if each.made <= listing.last or not counted
        }
        listed = BookieList(writable_infos, read_only_infos, changes if counted else None, joined)
        whole = all(each.names is not None and len(each.names) == len(each.infos) for each in listings)
        if watching and whole and heard == self._changes:
            self._current = listed
        return listed

    async def _filled(self, listing: Listing, watching: bool) -> dict[str, Registered]:
        """
        Reads what isn't known.  An event may overtake the answer that armed its watch, so a spent watch makes the
        answer stale: this reading has it all the same, the next one reads it again.
        """
        infos = listing.infos
        if listing.names is None:
            spent = False

            def changed() -> None:
                nonlocal spent
                spent = True
                listing.names = None
                self._changed()

            try:
                nodes, stat = await self._tree.listing(listing.path, changed if watching else None)
            except NoNode:
                await self.make_read_only_list()
                nodes, stat = await self._tree.listing(listing.path, changed if watching else None)
            names = [name for name in nodes if name in infos or is_bookie_id(name)]
            self._tell_of_others({*nodes} - {*names, READ_ONLY})
            listing.cleared = stat.family - (len(nodes) - len(names)) + len(names)
            listing.last = stat.children_changed
            if not spent and listing.infos is infos:
                listing.names = names
            for gone in set(infos) - set(names):
                del infos[gone]
        else:
            names = listing.names
        found = {name: infos[name] for name in names if name in infos}
        missing = [name for name in names if name not in infos]
        reading = [self._info(f"{listing.path}/{name}", name, infos, watching) for name in missing]
        read = await together([Deferred.fromCoroutine(each) for each in reading])
        return found | {name: info for name, info in zip(missing, read, strict=True) if info is not None}

    def _tell_of_others(self, names: set[str]) -> None:
        """No ledger can name these, so they are on no list."""
        for name in sorted(names - self._others):
            log.warn("{name!r} is registered as a bookie, and is no bookie id: it is passed over", name=name)
        self._others |= names

    async def _info(self, path: str, bookie: str, infos: dict[str, Registered], watching: bool) -> Registered | None:
        """A bookie's node; put into `infos` for as long as its watch is silent."""
        spent = False

        def changed() -> None:
            nonlocal spent
            spent = True
            infos.pop(bookie, None)
            self._changed()

        try:
            data, stat = await self._tree.get(path, changed if watching else None)
        except NoNode:
            return None  # it has just left; the list's own watch says so
        found = Registered(service_info.decode_or_unknown(bookie, data), stat.made)
        if not spent:
            infos[bookie] = found
        return found

    # -- watching -------------------------------------------------------------------------------------------------

    def watch(self, fn: BookieWatcher) -> Watch:
        """Calls `fn` with the bookies, now and after each change."""
        subscription = Subscription(Watch(lambda: self._subscriptions.pop(subscription, None)), fn)
        self._subscriptions[subscription] = None
        self._clock.callLater(0, self._begin)  # never from inside this call
        return subscription.watch

    def _begin(self) -> None:
        if self._following:
            self._wake()
        else:
            self._following = True
            Deferred.fromCoroutine(self._follow())

    def reconnected(self) -> None:
        """Every watch was lost with the connection."""
        self._writable.forget()
        self._read_only.forget()
        self._changed()

    def expired(self) -> None:
        """Our registrations went with the session."""
        for bookie in list(self._own):
            self._disown(bookie)

    def end(self) -> None:
        """Ends watches and waiting registrations."""
        self._ended = True
        self._subscriptions.clear()
        self._writable.forget()
        self._read_only.forget()
        self._changed()
        self.expired()
        for gone in list(self._queueing):
            _fire(gone)

    def _changed(self) -> None:
        """Forgets the lists as they were known."""
        self._changes += 1
        self._current = None
        self._wake()

    def _wake(self) -> None:
        """Has the followed lists read again, once for all that happens in this turn of the reactor."""
        self._stale = True
        wakening, self._wakening = self._wakening, None
        if wakening is not None:
            self._clock.callLater(0, wakening.callback, None)

    async def _follow(self) -> None:
        """
        Reads, notifies, and waits for the next event, as long as there are subscriptions.  What follows soon is read
        together: many watchers hear of each change, and where many bookies come or go each would read all for each.
        """
        complained = False
        while self._subscriptions and not self._ended:
            began = self._clock.seconds()
            try:
                while self._readers:  # what it finds may be older than the last event
                    await self.known()
                self._stale = False
                found = await self.known()
            except Exception as error:  # whatever it is, who watches is told of the next change
                if not complained and not self._ended:
                    log.warn(
                        "{uri}: can't list the bookies, will go on trying: {error!r}",
                        uri=self._tree.uri,
                        error=error,
                    )
                complained = True
                await pause(self._clock, pause_after(error, RETRY_S))
                continue
            complained = False
            for subscription in list(self._subscriptions):
                if not (found.repeats(subscription.heard) or subscription.watch.cancelled):
                    subscription.heard = found
                    notify(subscription.fn, found)
            read_at = self._clock.seconds()
            if not self._stale:
                self._wakening = Deferred()
                await self._wakening
            rest_s = read_at + min(REST_S, READ_PART * (read_at - began)) - self._clock.seconds()
            if rest_s > 0 and not self._ended:
                await pause(self._clock, rest_s)
        self._following = False


def _fire(deferred: "Deferred[None]") -> None:
    if not deferred.called:
        deferred.callback(None)
