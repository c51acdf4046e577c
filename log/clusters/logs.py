"""
The named logs of all clusters of a directory: whoever names a log is led to the cluster that holds it, and its handles
go on where it went.

Knows: which cluster holds which log, as far as it was asked for; a client of each that was needed; the open handles.
Does not know: what is done with a log there, how it moves.

Safety: what is known of a place may be old.  The cluster that held a log says that it has gone, and takes nothing for
it; then the directory is asked again.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cached_property, partial, wraps
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, gatherResults

from quire.client.api import Client
from quire.client.api import connect as connect_client
from quire.conf.client import ClientOptions, store_named
from quire.conf.log import LogOptions
from quire.log.api import Cursor, LogReader, Logs, OrSkip, Owner, Start
from quire.log.clusters.directory import CHANGES, PREFIX, Directory, is_directory
from quire.log.clusters.following import HERE_NO_MORE, Located, forget_moved
from quire.log.clusters.owning import FollowingOwner
from quire.log.clusters.reading import FollowingCursor, FollowingReader, PlaceWatch
from quire.log.core.manifest import Manifest
from quire.log.core.partitions import parted
from quire.log.core.values import Moved
from quire.log.streams.cursors import close_all
from quire.log.upkeep.known_logs import LogInfo
from quire.metadata.clock import pause
from quire.metadata.store import Watch
from quire.protocol.errors import ClientClosed, LedgerError
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
LOCATED_MAX = 10_000  # places that are remembered
LOOK_S, LOOK_MORE = 0.003, 1.25  # between two looks whether a log goes on elsewhere: each time longer by so much
TURN_S = 0.5  # that who waited to own a log leaves it to the owner that it had, when it moves
Opening = Callable[[str], Awaitable[Logs]]


async def connect(
    reactor: Any, uri: str | None = None, options: LogOptions | None = None, client_options: ClientOptions | None = None
) -> Logs:
    """
    Opens the cluster at `uri`, or with `directory+` before it all clusters of the directory there.  The errors of
    `quire.client.api.connect`.
    """
    chosen, given, named = LogOptions.given(options), ClientOptions.given(client_options), store_named(uri)
    client = await connect_client(reactor, named.removeprefix(PREFIX), given)
    return logs_of(named, client, chosen, owns_client=True)


def logs_of(uri: str, client: Client, options: LogOptions, owns_client: bool = False) -> Logs:
    """The logs at `uri`, of whose cluster, or directory, this is a client."""
    kind = DirectoryLogs if is_directory(uri) else Logs
    return kind(client, options, owns_client=owns_client)


async def manifest_of(logs: Logs, name: str) -> Manifest | None:
    """The manifest of a log; None where there is none of that name."""
    try:
        return Manifest.decode(await logs.manifest(name))
    except NoSuchLog:
        return None


def there(method: Callable[..., Any]) -> Any:
    """A method of `Logs`, of the cluster that holds the log which it names."""

    @wraps(method)
    async def led(self: "DirectoryLogs", name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.at(name, lambda logs: method(logs, name, *args, **kwargs))

    return led


def each_there(method: Callable[..., AsyncGenerator[Any, None]]) -> Any:
    """As `there`, of one that gives several answers; a log that leaves between two of them is an error."""

    @wraps(method)
    async def led(self: "DirectoryLogs", name: str, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        await self.at(name, lambda logs: logs.info(name))
        async for each in method((await self.locate(name)).logs, name, *args, **kwargs):
            yield each

    return led


def in_one_cluster(method: Callable[..., Any]) -> Any:
    """A method of `Logs` that is about all ledgers of one cluster: `ValueError`."""

    @wraps(method)
    def refused(self: "DirectoryLogs", *_args: Any, **_kwargs: Any) -> Any:
        raise ValueError(
            f"{method.__name__} is for the logs of one cluster: give its own URI, which `quire clusters list` shows"
        )

    return refused


class DirectoryLogs(Logs):
    """
    As `Logs`, of all clusters of the directory beside the cluster of `client`.  `opening` opens the logs of another
    one.  Owners, readers and cursors go on where their log goes.  A replica, a publisher and handles of partitioned
    logs fail with `LogMoved`, and are opened again.
    """

    @property
    def opened(self) -> list[Logs]:
        """The logs of each cluster that is open, beside these, of the cluster of the directory."""
        return list(self._opened.values())

    @property
    def reached(self) -> Callable[[str], None]:
        """Called right after each step that a test may want to end the process at."""
        return self._reached

    @cached_property
    def directory(self) -> Directory:
        """The directory itself."""
        return Directory(self._records, self.bk.store.uri)

    @cached_property
    def _opened(self) -> dict[str, Logs]:
        """The logs of each cluster that was needed, by its URI."""
        return {}

    @cached_property
    def _opening(self) -> dict[str, DeferredLock]:
        """Locks that who opens a cluster holds meanwhile, by its URI."""
        return {}

    @cached_property
    def _located(self) -> dict[str, Located]:
        """The places that are remembered."""
        return {}

    @cached_property
    def _handles(self) -> dict[FollowingOwner | FollowingReader | FollowingCursor, None]:
        """The open handles, in the order in which they were opened."""
        return {}

    # -- clusters --------------------------------------------------------------------------------------------------

    async def in_cluster(self, uri: str) -> Logs:
        """The logs of a cluster, by one client for all.  The errors of `quire.client.api.connect`."""
        async with self._opening.setdefault(uri, DeferredLock()):
            if self._closed:
                raise ClientClosed("these logs were closed")
            if uri not in self._opened:
                self._opened[uri] = self._made(await connect_client(self.bk.reactor, uri, self.bk.options))
            return self._opened[uri]

    def _made(self, client: Client) -> Logs:
        return Logs(
            client,
            self.options,
            reached=self._reached,
            now=self._now,
            boottime=self._ages.boottime,
            owns_client=True,
        )

    # -- where a log is --------------------------------------------------------------------------------------------

    async def locate(self, name: str) -> Located:
        """The cluster that holds a log, as it is remembered, or as the directory says.  `NoSuchLog`."""
        found = self._located.get(name)
        return found if found is not None else await self._look_up(name)

    async def _look_up(self, name: str) -> Located:
        try:
            place = await self.directory.find(name)
        except NoSuchLog:
            whole = parted(name)
            if whole is None:
                raise
            place = await self.directory.find(whole[0])
        found = Located(place.cluster, place.settled, await self.in_cluster(place.uri))
        self._located.pop(name, None)
        self._located[name] = found
        while len(self._located) > LOCATED_MAX:
            del self._located[next(iter(self._located))]
        return found

    async def followed(self, name: str, before: Located, error: LedgerError) -> Located:
        """
        The cluster that holds a log which is not where it was.  While a move is under way it is waited for, for
        `takeover_ms` at most.  The error where the log did not move.
        """
        clock = self.bk.reactor
        until = clock.seconds() + self.options.takeover_ms / 1000
        look_s = LOOK_S
        while True:
            self._located.pop(name, None)
            source = await manifest_of(before.logs, name)
            found = await self._gone_on(name, await self._look_up(name), source)
            if (found.cluster, found.version) != (before.cluster, before.version):
                return found
            if clock.seconds() >= until or source is None or source.moved is None:
                raise error
            look_s = min(LOOK_MORE * look_s, self.options.poll_ms / 1000)
            await self._changed(name, min(look_s, until - clock.seconds()))

    async def prepare(self, moved: Moved) -> None:
        """Opens the cluster that a log is to go to, so that its handles go on there at once."""
        await self.in_cluster(moved.uri)

    async def _gone_on(self, name: str, found: Located, source: Manifest | None) -> Located:
        """
        The cluster in which a log takes appends by now, as the manifest of the log that it left says, also before the
        directory says so, which follows; else the one that the directory says.
        """
        if source is None or source.moved is None or source.moved.done or source.mirrored is None:
            return found
        logs = await self.in_cluster(source.moved.uri)
        copy = await manifest_of(logs, name)
        if found.logs is logs or copy is None or copy.id != source.mirrored.log or copy.mirrored is not None:
            return found
        self._located[name] = gone = Located(source.moved.cluster, found.version + CHANGES, logs)
        return gone

    async def _changed(self, name: str, seconds: float) -> None:
        """Waits for news of a log's place, or so long."""
        news: Deferred[None] = Deferred()

        told: set[int | None] = set()  # as it is now, and what becomes of it

        def heard(version: int | None = None, *, is_over: bool = False) -> None:
            told.add(version)
            if (is_over or len(told) > 1) and not news.called:
                news.callback(None)

        timer = self.bk.reactor.callLater(max(0.0, seconds), partial(heard, is_over=True))
        watch = self.directory.watch(name, heard)
        try:
            await news
        finally:
            watch.cancel()
            if timer.active():
                timer.cancel()

    async def at(self, name: str, ask: Callable[[Logs], Awaitable[T]]) -> T:
        """Asks the cluster that holds a log."""
        located = await self.locate(name)
        while True:
            try:
                return await ask(located.logs)
            except HERE_NO_MORE as error:
                located = await self.followed(name, located, error)

    # -- handles ---------------------------------------------------------------------------------------------------

    async def own(self, name: str, **options: Any) -> Any:
        """As `Logs.own`; the owner goes on in the cluster to which the log moves."""

        async def owned(logs: Logs, goes_on: bool = False) -> Owner:
            if not goes_on:
                return await logs.own(name, **options)
            copy = await manifest_of(logs, name)
            free = copy is not None and copy.owner is None  # but for the claim of the mirror, which it gives back
            wait_s = self.options.takeover_ms / 1000  # its appends wait, and do not queue behind who was faster
            return await logs.own(name, **{**options, "force": free or options.get("force", False), "wait_s": wait_s})

        located = await self.locate(name)
        while True:
            try:
                owner = await owned(located.logs)
                break
            except HERE_NO_MORE as error:
                located = await self.followed(name, located, error)
                await pause(self.bk.reactor, TURN_S)
        return self._kept(FollowingOwner(self, located, owner, owned, self._forget))

    async def read(
        self,
        name: str,
        start: Start = "begin",
        *,
        compacted: bool = False,
        on_trim: OrSkip = "raise",
        on_loss: OrSkip = "raise",
    ) -> Any:
        """As `Logs.read`; the reader goes on in the cluster to which the log moves."""

        async def opened(logs: Logs, at: Start) -> LogReader:
            return await logs.read(name, at, compacted=compacted, on_trim=on_trim, on_loss=on_loss)

        reader = await self.at(name, lambda logs: opened(logs, start))
        located = await self.locate(name)
        return self._kept(FollowingReader(self, name, located, reader, opened, self._forget))

    async def cursor(self, name: str, cursor: str, *, start: Start = "end", create: bool = True) -> Any:
        """As `Logs.cursor`; the cursor goes on in the cluster to which the log moves."""
        token = f"{self.bk.random.getrandbits(128):032x}"

        async def opened(logs: Logs) -> Cursor:
            return await logs.carried_cursor(name, cursor, token)

        found = await self.at(name, lambda logs: logs.cursor(name, cursor, start=start, create=create))
        located = await self.locate(name)
        return self._kept(FollowingCursor(self, name, located, found, opened, self._forget))

    def _kept(self, handle: Any) -> Any:
        self._handles[handle] = None
        return handle

    def _forget(self, handle: Any) -> None:
        self._handles.pop(handle, None)

    # -- which logs there are --------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        begin_at: int = 0,
        children: Mapping[str, bytes] | None = None,
        cluster: str = "",
        **settings: Any,
    ) -> LogInfo:
        """
        As `Logs.create`, in that cluster; in the only one where there is one.  `ValueError` without a cluster where
        there are several; `LogError` for one that is not in the directory.  A call that was interrupted is finished by
        the same one.
        """
        chosen = cluster or await self._only_cluster()
        await self.directory.place(name, chosen)
        logs = await self.in_cluster(await self.directory.uri_of(chosen))
        await forget_moved(logs.bk.store.records, name)
        return await logs.create(name, begin_at=begin_at, children=children, **settings)

    async def _only_cluster(self) -> str:
        known = [each.name for each in await self.directory.clusters()]
        if len(known) != 1:
            raise ValueError(
                f"the directory has the clusters {', '.join(known) or '(none)'}: say in which one the log is to be, as "
                "cluster=NAME"
            )
        return known[0]

    def names(self) -> AsyncGenerator[str, None]:
        """Lists the names of all logs in the directory, by shard, then by name."""
        return self.directory.logs()

    async def rename(self, name: str, new: str, *, use: str = "") -> LogInfo:
        """As `Logs.rename`; a call that was interrupted leaves both names in the directory, and is called again."""
        await self.info(name)  # where it is by now
        located = await self.locate(name)
        await self.directory.place(new, located.cluster)
        info = await self.at(name, lambda logs: logs.rename(name, new, use=use))
        await self.directory.forget(name, located.cluster)
        self._located.pop(name, None)
        return info

    async def delete(self, name: str, *, use: str = "") -> None:
        """As `Logs.delete`; its place goes after it."""
        await self.at(name, lambda logs: logs.delete(name, use=use))
        await self.directory.forget(name, (await self.locate(name)).cluster)
        self._located.pop(name, None)

    async def tidy(self, name: str | None = None, dry_run: bool = False, abandon: bool = False) -> Any:
        """As `Logs.tidy`; without a name `ValueError`, for that is for the logs of one cluster."""
        if name is None:
            raise ValueError("all logs of one cluster are tidied: give its own URI, which `quire clusters list` shows")
        return await self.at(name, lambda logs: logs.tidy(name, dry_run, abandon))

    def watch(self, name: str, fn: Callable[[LogInfo | None], object]) -> Watch:
        """As `Logs.watch`, also when the log goes to another cluster."""
        return Watch(PlaceWatch(self, name, fn).cancel)

    async def close(self) -> None:
        """Ends every handle, and the clients of all clusters."""
        if self._closed:
            return
        handles = list(self._handles)
        owners = [handle for handle in handles if isinstance(handle, FollowingOwner)]
        others = [handle for handle in handles if not isinstance(handle, FollowingOwner)]
        await gatherResults([owner.close() for owner in owners])
        await close_all(others)
        opened = self.opened
        self._closed = True
        await gatherResults([Deferred.fromCoroutine(each.close()) for each in opened])
        await super().close()

    info = there(Logs.info)
    manifest = there(Logs.manifest)
    child = there(Logs.child)
    write_child = there(Logs.write_child)
    snapshots = there(Logs.snapshots)
    holds = there(Logs.holds)
    janitor = there(Logs.janitor)
    update = there(Logs.update)
    trim = there(Logs.trim)
    compact = there(Logs.compact)
    terminate = there(Logs.terminate)
    truncate = there(Logs.truncate)
    give_up = there(Logs.give_up)
    mark = there(Logs.mark)
    merge = there(Logs.merge)
    carried_cursor = there(Logs.carried_cursor)
    delete_cursor = there(Logs.delete_cursor)
    seek = there(Logs.seek)
    find = there(Logs.find)
    entries = there(Logs.entries)
    sink = there(Logs.sink)
    adopt = there(Logs.adopt)
    replica = there(Logs.replica)
    save_snapshot = there(Logs.save_snapshot)
    own_partitions = there(Logs.own_partitions)
    read_partitions = there(Logs.read_partitions)
    partition_cursor = there(Logs.partition_cursor)
    partitions = there(Logs.partitions)
    txns = each_there(Logs.txns)
    unpublished = each_there(Logs.unpublished)
    candidates = each_there(Logs.candidates)
    cursors = each_there(Logs.cursors)
    segments = each_there(Logs.segments)
    check = each_there(Logs.check)
    orphans = in_one_cluster(Logs.orphans)
    purge = in_one_cluster(Logs.purge)
