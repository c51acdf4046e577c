"""
The appends of a user before they have a place: checked, cut to entries, gathered; and what the user is answered.

Knows: the limits of one append, and which appends may share an entry.
Does not know: when something is sent, what becomes of it.
"""

import operator
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from quire.log.core.batch import (
    ADVANCE_MAX,
    BODY_BYTES_MAX,
    HEADER_NAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    NO_TIME,
    Headers,
    ProducerRun,
    Records,
    runs_between,
)
from quire.log.core.ownership_messages import UNSENT, Item
from quire.log.core.packed import Packed
from quire.log.owner.appending.encoder import Placed
from quire.protocol.log_errors import AppendUnknown

# SPDX-License-Identifier: Apache-2.0

RECORDS_PER_ENTRY_MAX = 8192
NOWHERE = Placed(-1, [], 0)  # not encoded yet
VALUE_BYTES_MAX = BODY_BYTES_MAX - (1 << 20)
T = TypeVar("T")


class Position(NamedTuple):
    """Where a record is: its index, and the byte position of its value."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    at: int
    duplicate: bool = False  # it was in the log already; index -1: where is not known any more, at -1 likewise


class Appended(NamedTuple):
    """Where the records of one call are."""

    indexes: Sequence[int]
    positions: list[int]
    duplicates: int = 0  # records that were in the log already


class Call:
    """One append, which may become several entries, or share one with others."""

    __slots__ = ("_entries", "count", "deadline", "done", "is_under_way", "left", "one")

    def __init__(self, count: int, one: bool, deadline: float) -> None:
        """`deadline`: of all its entries, so that none is stored after the others were too late."""
        self.deadline = deadline
        self.done: Deferred[Any] = Deferred()
        self.count = count
        self.one = one
        self.left = count  # records that are not acknowledged
        self.is_under_way = False  # some of it may come to be in the log though another entry of it fails
        self._entries: tuple[tuple[range, list[int]], ...] = ()  # of each its indexes and positions

    def stored(self, indexes: range, positions: list[int]) -> None:
        """Notes that so many more of its records are acknowledged; a barrier's index is that of the next record."""
        self._entries += ((indexes, positions),)
        self.left -= len(indexes)

    def fail(self, error: BaseException) -> None:
        """The first failure of an entry is that of the call; what is in the log already is not denied."""
        if self.done.called:
            return
        stored = self.count - self.left
        if (stored or self.is_under_way) and not isinstance(error, AppendUnknown):
            others = "what was sent behind them may be" if self.is_under_way else "the others not"
            error = AppendUnknown(f"the first {stored} of {self.count} records are in the log, {others}: {error}")
        self.done.errback(error)

    @property
    def answer(self) -> Position | Appended:
        """Where its records are."""
        indexes, positions = self._entries[0]
        if self.one:
            return Position(indexes.start, positions[0])
        if len(self._entries) == 1:
            return Appended(indexes, positions)
        positions = list(chain.from_iterable(positions for _, positions in self._entries))
        whole = range(indexes.start, self._entries[-1][0].stop)
        if len(whole) == len(positions):
            return Appended(whole, positions)
        return Appended(list(chain.from_iterable(indexes for indexes, _ in self._entries)), positions)


class Batch(Item):
    """
    Records that are acknowledged as a whole, and how many of them are whose.  Once it is encoded, `placed` says where
    they are, and `stored` what a hook made of them.
    """

    __slots__ = ("barrier", "calls", "placed", "records", "stored")

    def __init__(self, records: Records, calls: list[tuple[Call, int]], barrier: bool = False) -> None:
        super().__init__(calls[0][0].deadline)
        self.records = self.stored = records
        self.calls = calls
        self.placed = NOWHERE
        self.barrier = barrier

    def refused_among(self, items: Iterable[Item]) -> "Batch":
        """Notes that the batch fails; its calls learn whether other entries of theirs are sent already."""
        cut = [call for call, count in self.calls if count < call.count and not call.done.called]
        if cut:
            sent = {call for item in items if isinstance(item, Batch) and item.last != UNSENT for call, _ in item.calls}
            for call in cut:
                call.is_under_way = call in sent
        return self

    def acknowledged(self) -> None:
        """Each call learns where its records are; a barrier's, where the next one will be."""
        first, positions = self.placed.first, self.placed.positions
        if len(self.calls) == 1:
            ((call, count),) = self.calls
            call.stored(range(first, first + count), positions)
            return
        start = 0
        for call, count in self.calls:
            call.stored(range(first + start, first + start + count), positions[start : start + count])
            start += count


def copied(column: Iterable[T] | None) -> Sequence[T] | None:
    """A column in a list of its own, for it is encoded later, and the caller may use its list again; or as packed."""
    return column if column is None or isinstance(column, Packed | array) else list(column)


def checked_skips(skips: Iterable[int] | None, values: Sequence[bytes]) -> list[int] | None:
    """By how many bytes the position advances before each value; `TypeError`, `ValueError`."""
    if skips is None:
        return None
    found = list(map(operator.index, skips))
    if len(found) != len(values):
        raise ValueError(f"there are {len(values)} values, and {len(found)} skips")
    for skip, value in zip(found, values, strict=True):
        if not 0 <= skip <= ADVANCE_MAX - len(value):
            raise ValueError(
                f"a skip of {skip} bytes before a value of {len(value)}: it is 0 or more, and both have at most "
                f"{ADVANCE_MAX} bytes together"
            )
    return found


def check_keys(keys: Sequence[bytes | None]) -> None:
    """`TypeError`, `ValueError`."""
    longest = max(keys.sizes(), default=0) if isinstance(keys, Packed) else 0
    for key in () if isinstance(keys, Packed) else keys:
        if key is not None:
            if not isinstance(key, bytes):
                raise TypeError(f"a key must be bytes, not {type(key).__name__}")
            longest = max(longest, len(key))
    if longest > KEY_BYTES_MAX:
        raise ValueError(f"a key of {longest} bytes is larger than the {KEY_BYTES_MAX} that one may have")


def check(records: Records) -> int:
    """The room of a window that records take; `TypeError`, `ValueError`: bad ones.  Headers become its own tuples."""
    longest = max(records.lengths, default=0)
    if longest > VALUE_BYTES_MAX:
        raise ValueError(f"a value of {longest} bytes is larger than the {VALUE_BYTES_MAX} that one may have")
    count = len(records.values)
    for column in (records.keys, records.times, records.headers):
        if column is not None and len(column) != count:
            raise ValueError(f"there are {count} values, and {len(column)} of what belongs to them")
    check_keys(records.keys or ())
    for time in () if records.times is None or isinstance(records.times, array) else records.times:
        if time is not None and not NO_TIME < operator.index(time) < -NO_TIME:
            raise ValueError(f"a time of {time} ms has more than 64 bits")
    if records.headers is not None:
        records.headers = list(map(checked_headers, records.headers))
    return records.weight


def checked_headers(headers: Headers) -> Headers:
    """`TypeError`, `ValueError`."""
    if isinstance(headers, Mapping):
        raise TypeError("headers are pairs of a name and bytes, not a mapping: give tuple(headers.items())")
    size, found = 0, tuple(headers)
    for name, value in found:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise TypeError("a header is a str and bytes")
        length = len(name.encode())
        if length > HEADER_NAME_BYTES_MAX:
            raise ValueError(f"a header's name of {length} bytes is longer than {HEADER_NAME_BYTES_MAX}")
        size += length + len(value)
    if size > HEADERS_BYTES_MAX:
        raise ValueError(f"headers of {size} bytes are larger than the {HEADERS_BYTES_MAX} that a record may have")
    return found


def cut(records: Records, batch_bytes: int) -> "list[Records]":
    """In pieces of at most so many bytes, with keys, headers and skips; one record at least."""
    count, weight = len(records.values), records.weight
    if count == 1 or (count <= RECORDS_PER_ENTRY_MAX and weight <= batch_bytes):
        return [records]
    lengths = records.lengths
    if records.skips is not None:
        lengths = list(map(operator.add, lengths, records.skips))
    if weight != records.size:
        lengths = list(map(operator.add, lengths, records.beside()))
    return [part(records, start, end) for start, end in cut_places(lengths, batch_bytes)]


def cut_places(lengths: Sequence[int], batch_bytes: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends, of values of those lengths."""
    ends = list(accumulate(lengths, initial=0))
    pieces: list[tuple[int, int]] = []
    start, count = 0, len(lengths)
    while start < count:
        most = bisect_right(ends, ends[start] + batch_bytes, start + 1, count + 1) - 1
        end = min(max(most, start + 1), start + RECORDS_PER_ENTRY_MAX)
        pieces.append((start, end))
        start = end
    return pieces


def part(records: Records, start: int, end: int) -> Records:
    """Cuts out these records; those that are copied from another log stay together."""
    if records.original is not None:
        return records
    return Records(
        records.values[start:end],
        None if records.keys is None else records.keys[start:end],
        None if records.times is None else records.times[start:end],
        None if records.headers is None else records.headers[start:end],
        tuple(runs_between(records.producers, start, end)),
        None if records.skips is None else records.skips[start:end],
    )


def alike(one: Records, other: Records) -> bool:
    """True if both have the same columns, so that they can be one batch; what is copied is a batch already."""
    if one.original is not None or other.original is not None:
        return False
    return (one.keys is None, one.times is None, one.headers is None) == (
        other.keys is None,
        other.times is None,
        other.headers is None,
    )


def joined(taken: Sequence[Records]) -> Records:
    """Records with the same columns as one batch; skips may be with some only."""
    if len(taken) < 2:
        return taken[0] if taken else Records([])
    first = taken[0]
    skips = None
    if any(records.skips is not None for records in taken):
        skips = [skip for records in taken for skip in records.skips or (0,) * len(records.values)]
    return Records(
        [value for records in taken for value in records.values],
        None if first.keys is None else [key for records in taken for key in records.keys or ()],
        None if first.times is None else [time for records in taken for time in records.times or ()],
        None if first.headers is None else [each for records in taken for each in records.headers or ()],
        tuple(_shifted(taken)),
        skips=skips,
    )


def _shifted(taken: Sequence[Records]) -> Iterator[ProducerRun]:
    """The runs of several batches, as they are in one."""
    start = 0
    for records in taken:
        for name, first, count, sequence in records.producers:
            yield ProducerRun(name, start + first, count, sequence)
        start += len(records.lengths)


def drop_failed(batch: Batch) -> list[Records]:
    """Leaves out of a batch the records of calls that have failed; which."""
    if batch.barrier or not any(call.done.called for call, _count in batch.calls):
        return []
    kept: list[Records] = []
    dropped: list[Records] = []
    start = 0
    for call, count in batch.calls:
        (dropped if call.done.called else kept).append(part(batch.records, start, start + count))
        start += count
    batch.calls = [each for each in batch.calls if not each[0].done.called]
    batch.records = joined(kept)
    return dropped


def gather(
    gathered: deque[tuple[Records, Call]], batch_bytes: int, most: int, limits: tuple[int, int] | None = None
) -> tuple[list[Batch], list[Records]]:
    """
    The next entries of what was gathered, in order; and what is left out, for another entry of its call has failed.
    `limits`: one entry, of so many records and bytes, or of one call.
    """
    records_most = RECORDS_PER_ENTRY_MAX
    if limits is not None:
        most, records_most, batch_bytes = 1, min(records_most, limits[0]), min(batch_bytes, limits[1])
    batches: list[Batch] = []
    dropped: list[Records] = []
    taken: list[Records] = []
    calls: list[tuple[Call, int]] = []
    size = count = 0
    while gathered:
        records, call = gathered[0]
        number, weight = len(records.lengths), records.weight
        if call.done.called:
            dropped.append(records)
        elif taken and (size + weight > batch_bytes or count + number > records_most or not alike(records, taken[0])):
            batches.append(Batch(joined(taken), calls))
            taken, calls, size, count = [], [], 0, 0
            if len(batches) == most:
                break
            continue
        else:
            taken.append(records)
            calls.append((call, number))
            size += weight
            count += number
        gathered.popleft()
    if taken:
        batches.append(Batch(joined(taken), calls))
    return batches, dropped
