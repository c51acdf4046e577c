"""
An owner that goes on where its log went.

It is the owner in the cluster that holds the log, until that fails because the log has left; then it is the one in the
cluster which holds it now, where appends go on at the same index, for a log keeps its indexes when it moves.

Knows: what is under way and not answered.  Does not know: directories, how a log is found (`Following`), how it moves.

Safety: an append is sent again only when it failed with an error that says that it is not in the log: never after
`AppendUnknown`.  All that was sent is answered before something is sent again, and in the order of the calls; so the
order of a program's appends is that in the log.  One that carries a producer's sequence is recognised in any cluster.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.api import Appended, Headers, Logs, Owner, Position
from quire.log.clusters.following import HERE_NO_MORE, LOST, Following, Located
from quire.log.core.batch import Records
from quire.log.core.manifest import Manifest
from quire.protocol.errors import ClientClosed, LedgerError, TooManyRequests
from quire.protocol.log_errors import LogError, NotOwner

# SPDX-License-Identifier: Apache-2.0

log = Logger()

T = TypeVar("T")


class Call:
    """One call of an owner: `ask` asks a handle for it, `done` is its answer."""

    __slots__ = ("ask", "done", "sent")

    def __init__(self, ask: Callable[[Owner], Deferred[Any]]) -> None:
        self.ask = ask
        self.done: Deferred[Any] = Deferred()
        self.sent = False


class FollowingOwner:
    """As `Owner`.  `own` makes it the owner in another cluster.  `pauses`: how long each change took, in seconds."""

    def __init__(
        self,
        following: Following,
        located: Located,
        owner: Owner,
        own: Callable[[Logs, bool], Awaitable[Owner]],
        on_end: Callable[["FollowingOwner"], object],
    ) -> None:
        self.name = owner.name
        self.on_lost: Callable[[], None] | None = None
        self.pauses: list[float] = []
        self._following = following
        self._located = located
        self._own = own
        self._on_end = on_end
        self._clock = located.logs.bk.reactor
        self._calls: dict[Call, None] = {}  # without an answer, in the order in which they came
        self._goes_on: Deferred[None] | None = None  # while another handle is sought
        self._waiting: list[Deferred[None]] = []  # for room, or for an answer to all that was sent
        self._error: LedgerError | None = None
        self._closing = False
        self._take(owner)

    def _take(self, owner: Owner) -> None:
        self._owner = owner
        self._prepared = False
        owner.on_lost = partial(self._lost, owner)
        owner.on_manifest = self._seen

    def _seen(self, manifest: Manifest) -> None:
        """Prepares for the move that the manifest speaks of."""
        if manifest.moved is not None and not self._prepared:
            self._prepared = True
            Deferred.fromCoroutine(self._following.prepare(manifest.moved)).addErrback(self._unprepared)

    def _unprepared(self, failure: Any) -> None:
        failure.trap(Exception)  # it is met again, and told, when the log has gone there

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The owner's number, one higher with each owner of a cluster's log."""
        return self._owner.epoch

    @property
    def token(self) -> str:
        """The name of this handle in the cluster that holds the log now."""
        return self._owner.token

    @property
    def end(self) -> Position:
        """Where the next record will be, if nothing is under way."""
        return self._owner.end

    @property
    def lost(self) -> bool:
        """True if the log became another's."""
        return self._owner.lost and self._goes_on is None

    @property
    def under_way(self) -> tuple[int, int]:
        """Records and bytes that were taken and are not answered; of those that wait for another cluster, calls."""
        records, size = self._owner.under_way
        return records + sum(not call.sent for call in self._calls), size

    # -- what a user does ------------------------------------------------------------------------------------------

    def append(self, value: bytes, **more: Any) -> Deferred[Position]:
        """As `Owner.append`."""
        return self._ask(lambda owner: owner.append(value, **more))

    def append_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
        atomic: bool = False,
    ) -> Deferred[Appended]:
        """As `Owner.append_many`."""
        taken = list(values)
        more = {"keys": keys, "times_ms": times_ms, "headers": headers, "producer": producer}
        return self._ask(
            lambda owner: owner.append_many(taken, first_sequence=first_sequence, atomic=atomic, **more)  # type: ignore[arg-type]  # a mapping's values have one type
        )

    def append_runs(self, records: Records) -> Deferred[Appended]:
        """As `Owner.append_runs`."""
        return self._ask(lambda owner: owner.append_runs(records))

    def ready(self, records: int = 1, size: int = 1) -> Deferred[None]:
        """Fires when the window takes so many records and bytes."""
        if self._goes_on is None:
            return self._owner.ready(records, size)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def barrier(self) -> Deferred[Position]:
        """As `Owner.barrier`."""
        return self._ask(lambda owner: owner.barrier())

    def roll(self) -> None:
        """The segment ends; the next append begins another."""
        self._owner.roll()

    def transfer(self, token: str = "") -> Deferred[None]:
        """As `Owner.transfer`, to a candidate in the same cluster."""
        self._closing = True
        return self._owner.transfer(token)

    def trim(self, before: int) -> Deferred[int]:
        """As `Owner.trim`."""
        return self._ask(lambda owner: Deferred.fromCoroutine(owner.trim(before)))

    def terminate(self) -> Deferred[Position]:
        """As `Owner.terminate`."""
        return self._ask(lambda owner: Deferred.fromCoroutine(owner.terminate()))

    def close(self) -> Deferred[None]:
        """As `Owner.close`; what waits for another cluster is answered first, and if nothing does, none is sought."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        self._closing = not self._calls
        if self._goes_on is not None:
            await self.ready()
        self._closing = True
        await self._owner.close()
        self._on_end(self)

    # -- how -------------------------------------------------------------------------------------------------------

    def _ask(self, ask: Callable[[Owner], Deferred[T]]) -> Deferred[T]:
        if self._error is not None:
            return fail(self._error)
        if self._goes_on is not None and len(self._calls) >= self._located.logs.options.window_records:
            return fail(
                TooManyRequests(f"the log {self.name!r} is changing its cluster: wait until the owner is ready")
            )
        call = Call(ask)
        self._calls[call] = None
        if self._goes_on is None:
            self._send(call)
        return call.done

    def _send(self, call: Call) -> None:
        call.sent = True

        def answered(result: Any) -> None:
            call.sent = False
            del self._calls[call]
            call.done.callback(result)
            self._look()

        def failed(failure: Failure) -> None:
            call.sent = False
            error = failure.value
            if isinstance(error, LOST) and not self._closing and self._error is None:
                self._go_on(error)
            else:
                del self._calls[call]
                call.done.errback(failure)
            self._look()

        call.ask(self._owner).addCallbacks(answered, failed)

    def _lost(self, owner: Owner) -> None:
        """Hears that a handle ended, perhaps with nothing under way."""
        if owner is self._owner and not self._closing and self._goes_on is None:
            self._go_on(NotOwner(f"the log {self.name!r} is not this handle's any more: own it again"))

    def _look(self) -> None:
        """Once all that was sent is answered, what waits for that goes on."""
        if self._goes_on is not None and not self._goes_on.called and not any(call.sent for call in self._calls):
            self._goes_on.callback(None)

    def _go_on(self, error: LedgerError) -> None:
        if self._goes_on is not None:
            return
        self._goes_on = Deferred()
        begun = self._clock.seconds()
        Deferred.fromCoroutine(self._follow(error, self._goes_on, begun)).addErrback(self._stuck)
        self._look()

    def _stuck(self, failure: Failure) -> None:
        """Nobody is to wait for what does not come: for a cluster of whose URI nothing can be made, or by a bug."""
        log.failure("an owner of the log {name} can't go on where it went", failure, name=self.name)
        why = f"{type(failure.value).__name__}: {failure.getErrorMessage()}"
        self._end(LogError(f"the log {self.name!r} can't be gone on with where it went: {why}"))

    async def _follow(self, error: LedgerError, answered: Deferred[None], begun: float) -> None:
        try:
            await answered
            while True:
                self._located = await self._following.followed(self.name, self._located, error)
                if self._closing:
                    raise ClientClosed(f"this handle of the log {self.name!r} was closed")
                try:
                    owner = await self._own(self._located.logs, True)
                    break
                except HERE_NO_MORE as gone:
                    error = gone
        except LedgerError as failed:
            self._end(failed)
            return
        self._take(owner)
        self._goes_on = None
        self.pauses.append(self._clock.seconds() - begun)
        for call in list(self._calls):
            self._send(call)
        for waiting in self._woken():
            self._owner.ready().chainDeferred(waiting)

    def _end(self, error: LedgerError) -> None:
        """The log is another's, or gone."""
        if self._error is not None:
            return
        self._error, self._goes_on = error, None
        calls, self._calls = self._calls, {}
        for call in calls:
            call.done.errback(error)
        for waiting in self._woken():
            waiting.callback(None)
        self._on_end(self)
        if self.on_lost is not None and not self._closing:
            self.on_lost()

    def _woken(self) -> list[Deferred[None]]:
        waiting, self._waiting = self._waiting, []
        return waiting
