"""
An owner of partitions: what is appended goes to the partition of its key.

Knows: which partitions are this handle's, which it waits for, and which it gives back to one that wants them first.
Does not know: how a log is owned, what an owner of one does.

Safety: a batch of which a partition is not this handle's is refused before any of it is sent.  Records of one partition
are appended in their order.  A batch of which a part failed is never said to be in the log, nor not to be in it: it may
be sent again with its producer and sequences, which stores nothing twice.  Until its caller was told, no later sequence
of that producer goes to the partition, which may have another owner by then: what is sent again would count as stored.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.log.core.batch import Headers, ProducerRun, Records
from quire.log.core.partitions import partition_for, partition_name, placed, runs, split
from quire.log.core.streams.producers import check_producer
from quire.log.owner.appending.appends import Appended, Position, check, copied
from quire.log.owner.claims import Candidate
from quire.log.owner.handle import append_when_ready
from quire.log.partitions.following import PartitionHandles, Whole, together
from quire.log.upkeep.keeping import KeptOwner as Owner
from quire.metadata.clock import pause
from quire.protocol.errors import ClientClosed, LedgerError, MetaStore, NotEnoughBookies
from quire.protocol.log_errors import AppendUnknown, LogFenced, LogMoved, LogTerminated, NoSuchLog, NotOwner

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LOOK_S = 1.0  # for who wants a partition first
RETRY_S = 1.0
TRIED_AGAIN = (NotOwner, LogFenced, NoSuchLog, MetaStore, NotEnoughBookies)  # without a word


class Placed(NamedTuple):
    """Where a record is: its partition, and there its index and the byte position of its value."""

    partition: int
    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    at: int
    duplicate: bool = False


class Spread(NamedTuple):
    """Where the records of one call are, in its order; `duplicates`: how many were in the log already."""

    partitions: list[int]
    indexes: list[int]
    positions: list[int]
    duplicates: int = 0


class Standing(NamedTuple):
    """
    How partitions are owned: `own` with a name, a priority and whether it may wait and force as the caller said.
    `stand`: for partitions that were not chosen, too.  `address`: of this handle alone, where it stands.
    """

    own: Callable[[str, int, bool], Any]
    candidates: Callable[[str], AsyncGenerator[Candidate, None]]
    priority: int
    stand: bool
    address: str


class PartitionedOwner(PartitionHandles[Owner]):
    """
    The partitions of a log that this process owns, `parts`; made by `Logs.own_partitions`.  With `stand` it waits for
    the others, and owns those whose owners end until one comes that wants them first; one that it lost it waits for.
    Where it stands and chose none, it shares them with the others that stand: who has more than an even share gives
    some to who has least.
    """

    def __init__(self, whole: Whole, chosen: Iterable[int] | None, standing: Standing) -> None:
        super().__init__(whole, chosen, self._own)
        self._standing = standing
        self._shares = standing.stand and chosen is None
        if self._shares:
            self._wanted, self._has_all = [], False
        self._even: Any = None  # the members and partitions with which nothing was to be given
        self._waiting: dict[int, Deferred[None]] = {}  # by partition that this handle stands for
        self._looking: Deferred[None] | None = None
        self._turn = 0
        self._untold: Counter[tuple[str, int]] = Counter()  # producers whose part failed there, in calls under way

    async def begin(self) -> None:
        """
        Owns the chosen partitions; then stands for the others, where it is to.  Where it shares them, it waits a second
        at most until it has those that are free.
        """
        await super().begin()
        try:
            if self._standing.stand:
                self._stand_for_missing()
                if self._shares:
                    await self._settled()
                self._looking = Deferred.fromCoroutine(self._look()).addErrback(self._ended)
        except BaseException:  # no caller is left who would close it
            await self.close()
            raise

    async def _settled(self) -> None:
        """Waits until all partitions that are free are this handle's; a second at most."""
        settled: Deferred[None] = Deferred()
        late = self._clock.callLater(LOOK_S, settled.callback, None)
        owned = DeferredList(list(self._waiting.values()))
        owned.addCallback(lambda _all: None if settled.called else settled.callback(None))
        try:
            await settled
        finally:
            if late.active():
                late.cancel()

    @property
    def partitions(self) -> list[int]:
        """The partitions that are this handle's now, ascending."""
        return [] if self._has_ended() else sorted(n for n, owner in self.parts.items() if not owner.lost)

    def partition_for(self, key: bytes) -> int:
        """The partition of a key, as long as the log does not grow."""
        return partition_for(key, self.count)

    # -- appending ---------------------------------------------------------------------------------------------------

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        time_ms: int | None = None,
        headers: Headers | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Placed:
        """
        Durable on the ack quorum when it returns; waits for room.  `partition`: instead of that of the key.  The errors
        of `Owner.append`; `NotOwner` when the partition is another's.
        """
        keys, partitions, times, given = (
            None if each is None else [each] for each in (key, partition, time_ms, headers)
        )
        done = await self._append([value], keys, partitions, times, given, producer, sequence)
        return Placed(done.partitions[0], done.indexes[0], done.positions[0], bool(done.duplicates))

    async def append_many(
        self,
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        partitions: Sequence[int | None] | None = None,
        times_ms: Sequence[int | None] | None = None,
        headers: Sequence[Headers] | None = None,
        producer: str | None = None,
        first_sequence: int | None = None,
    ) -> Spread:
        """
        As `append`; the records of each partition travel as one batch, and those without a key all go to one partition,
        another one with each call.  Sequences rise by one from `first_sequence` on, over all partitions.
        `AppendUnknown` when a part failed and others did not.
        """
        return await self._append(list(values), keys, partitions, times_ms, headers, producer, first_sequence)

    async def _append(
        self,
        values: list[bytes],
        keys: Any,
        partitions: Any,
        times: Any,
        headers: Any,
        producer: str | None,
        first: int | None,
    ) -> Spread:
        records = Records(values, copied(keys), copied(times), copied(headers))
        check(records)
        check_producer(producer, first)
        if not values:
            return Spread([], [], [])
        places = placed(records.keys, copied(partitions), len(values), self.count, self._next(), first)
        parts = split(places)
        for number in parts:
            if number not in self.parts:
                raise self._not_owned(number)
            if producer is not None and self._untold[producer, number]:
                raise _untold(self.name, number, producer)
        failing: Counter[tuple[str, int]] = Counter()
        pieces: list[list[int]] = []
        work: list[Deferred[Appended]] = []
        for number, piece in parts.items():
            some = picked(records, piece)
            if producer is not None and first is not None:
                found = runs(piece)
                starts = accumulate(map(len, found), initial=0)
                some.producers = [
                    ProducerRun(producer, start, len(run), first + run[0])
                    for start, run in zip(starts, found, strict=False)
                ]
            pieces.append(piece)
            sent = Deferred.fromCoroutine(append_when_ready(self.parts[number], some, some.weight))
            work.append(sent.addErrback(self._failed, failing, producer, number))
        try:
            done = await together([_outcome(each) for each in work])
        finally:
            self._untold -= failing
        failed = [(piece, each) for piece, each in zip(pieces, done, strict=True) if isinstance(each, BaseException)]
        if failed:
            errors = [error for _piece, error in failed]
            raise _partly(self.name, len(values), sum(len(piece) for piece, _error in failed), errors)
        indexes, positions = [0] * len(values), [0] * len(values)
        for piece, each in zip(pieces, done, strict=True):
            for number, index, at in zip(piece, each.indexes, each.positions, strict=True):
                indexes[number], positions[number] = index, at
        return Spread(places, indexes, positions, sum(each.duplicates for each in done))

    def _failed(
        self, failure: Failure, failing: "Counter[tuple[str, int]]", producer: str | None, number: int
    ) -> Failure:
        """Notes that a part failed whose caller will be told when all parts have ended."""
        if producer is not None:
            failing[producer, number] += 1
            self._untold[producer, number] += 1
        return failure

    def _next(self) -> int:
        """The partition of the next records without a key."""
        mine = self.partitions
        self._turn += 1
        return mine[self._turn % len(mine)] if mine else self._turn % self.count

    def _not_owned(self, number: int) -> NotOwner:
        where = partition_name(self.name, number)
        return NotOwner(
            f"partition {number} of the log {self.name!r} is not this handle's, and nothing was sent: append where it "
            f"is, `quire log show {where}` says who owns it"
        )

    async def barrier(self) -> dict[int, Position]:
        """Waits until all that was appended before is durable: the end of each partition."""
        numbers = self.partitions

        async def ended(number: int) -> Position:
            await self.parts[number].ready()
            return await self.parts[number].barrier()

        return dict(zip(numbers, await together([ended(number) for number in numbers]), strict=True))

    # -- owning ------------------------------------------------------------------------------------------------------

    async def _own(self, number: int, is_new: bool) -> Owner:
        """A partition that was chosen, or came."""
        name, priority = partition_name(self.name, number), self._standing.priority
        owner: Owner = await self._standing.own(name, priority + self._standing.stand, not is_new)
        owner.on_lost = lambda: self._lost(number)
        return owner

    def _lost(self, number: int) -> None:
        """Another one has taken the partition."""
        if self._standing.stand and not self._has_ended():
            self._stand_for(number)

    def _grew(self, new: range) -> None:
        if self._standing.stand:
            self._stand_for_missing()

    def _stand_for_missing(self) -> None:
        for number in range(self.count):
            if number not in self.parts:
                self._stand_for(number)

    def _stand_for(self, number: int) -> None:
        if number not in self._waiting:
            self._waiting[number] = Deferred.fromCoroutine(self._wait_for(number)).addErrback(self._ended)

    async def _wait_for(self, number: int) -> None:
        """Waits for a partition of another's, or that is still to be made, until it is this handle's."""
        name, priority = partition_name(self.name, number), self._standing.priority
        try:
            while not self._has_ended():
                try:
                    wanted = self._has_all or number in self._wanted
                    owner = await self._standing.own(name, priority + wanted, False)
                except (LogTerminated, LogMoved, ClientClosed):
                    raise
                except (LedgerError, ValueError) as error:  # `ValueError`: the lease is too long for this session
                    if isinstance(error, NoSuchLog) and not self._is_there:
                        raise
                    if not isinstance(error, TRIED_AGAIN):
                        log.warn("{name} can't be owned, and is tried again: {error}", name=name, error=str(error))
                    await pause(self._clock, RETRY_S)
                    continue
                if self._has_ended():
                    await owner.close()
                    return
                owner.on_lost = lambda: self._lost(number)
                self.parts[number] = owner
                return
        finally:
            self._waiting.pop(number, None)

    async def _look(self) -> None:
        """Gives partitions that were not chosen to those who want them first, or have fewer."""
        while not self._has_ended():
            await pause(self._clock, LOOK_S)
            try:
                await self._give_back()
            except LedgerError:  # the next look
                continue

    async def _give_back(self) -> None:
        waiting: dict[int, list[Candidate]] = {}  # for each partition that is not to be kept
        for number, owner in list(self.parts.items()):
            if self._has_all or number in self._wanted or owner.lost:
                continue
            found = await self._candidates(number)
            better = [each for each in found if not each.owns and each.priority > self._standing.priority]
            if better:
                await self._give(number, owner, better[0])
            else:
                waiting[number] = found
        if self._shares and waiting:
            await self._even_out(waiting)

    async def _even_out(self, waiting: dict[int, list[Candidate]]) -> None:
        """Gives what is above an even share to those who have least; `waiting`: for each partition of this handle."""
        members = set.intersection(*({each.address for each in found} for found in waiting.values()))
        fair, now = self.count // max(1, len(members)), (frozenset(members), frozenset(waiting))
        if len(waiting) <= fair or now == self._even:
            return
        held = Counter(dict.fromkeys(members, 0))
        for number in range(self.count):
            found = waiting[number] if number in waiting else await self._candidates(number)
            held.update(each.address for each in found if each.owns)
        me, given = self._standing.address, False
        for number in sorted(waiting, reverse=True):
            least = min(members, key=lambda address: (held[address], address))
            if held[me] <= max(fair, held[least] + 1):
                break
            to = [each for each in waiting[number] if each.address == least and not each.owns]
            if to and number in self.parts:
                await self._give(number, self.parts[number], to[0])
                held[me] -= 1
                held[least] += 1
                given = True
        self._even = None if given else now

    async def _give(self, number: int, owner: Owner, to: Candidate) -> None:
        """Hands a partition over, and waits for it from then on."""
        if self.parts.get(number) is owner:
            del self.parts[number]
            await owner.transfer(to.token)
            if not self._has_ended():
                self._stand_for(number)

    async def _candidates(self, number: int) -> list[Candidate]:
        return [each async for each in self._standing.candidates(partition_name(self.name, number))]

    def _ended(self, failure: Failure) -> None:
        """Standing for a partition came to its end: by the close, or since the log is gone."""
        if isinstance(failure.value, CancelledError) or self._has_ended():
            return
        if isinstance(failure.value, LedgerError):
            log.warn("partitions of {name} are not waited for: {error}", name=self.name, error=str(failure.value))
        else:
            log.failure("a bug in standing for partitions of {name}", failure, name=self.name)

    async def close(self) -> None:
        """Stores what was appended, and gives all partitions back."""
        waiting = [*self._waiting.values(), *([self._looking] if self._looking is not None else [])]
        self._waiting.clear()
        self._looking = None
        closing = Deferred.fromCoroutine(super().close())
        for each in waiting:
            each.cancel()
        await closing


def picked(records: Records, numbers: Sequence[int]) -> Records:
    """Some of the records, in order."""
    if len(numbers) == len(records.values):
        return Records(records.values, records.keys, records.times, records.headers)
    columns = (records.values, records.keys, records.times, records.headers)
    values, keys, times, headers = (None if each is None else [each[number] for number in numbers] for each in columns)
    return Records(values or [], keys, times, headers)  # type: ignore[arg-type]  # each column has its own kind


async def _outcome(work: "Deferred[Appended]") -> Appended | BaseException:
    try:
        return await work
    except (LedgerError, TypeError, ValueError) as error:
        return error


def _partly(name: str, count: int, failed: int, errors: Sequence[BaseException]) -> BaseException:
    """The error of a batch of which some, or all, failed: of the whole it is known what is known of each part."""
    unknown = [error for error in errors if isinstance(error, AppendUnknown)]
    if failed == count or not isinstance(errors[0], LedgerError):
        return (unknown or errors)[0]
    return AppendUnknown(
        f"{count - failed} of {count} records are in the partitions of the log {name!r}, the others not, or it is not "
        f"known: {errors[0]}; sent again with a producer and the same sequences, none is stored twice"
    )


def _untold(name: str, number: int, producer: str) -> AppendUnknown:
    return AppendUnknown(
        f"an append of the producer {producer!r} before this one has failed in partition {number} of the log {name!r}, "
        f"and its caller is still to be told: this was not sent; send again what fails, in order, the lowest first"
    )
