"""
The batches that a reader is given: the records of one entry, as columns or as objects.

Knows: how places in a ledger become places in the log.  Does not know: how entries are read.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from quire.log.core.batch import HEADERS, KEYS, VALUES, Batch, Headers, Original, ProducerRun, Records, runs_between
from quire.log.core.packed import Packed
from quire.log.core.values import Segment
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0


class Record(NamedTuple):
    """One record as a reader gets it."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    at: int
    stamp_ms: int
    value: bytes
    key: bytes | None
    time_ms: int | None
    headers: tuple[tuple[str, bytes], ...]


class Place(NamedTuple):
    """
    Where a batch is stored: the number of its segment, and the first of its entries in that segment's ledger, or above
    those that segments of that number had before it was made of small ones.
    """

    segment: int
    entry: int


class Piece(NamedTuple):
    """A part of a large value: piece `number` of `of`, from 0, of the record with that index."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    number: int
    of: int
    data: bytes

    @property
    def end(self) -> int:
        """The index after the last record of which all was given out."""
        return self.index + (self.number == self.of - 1)


class RawBatch:
    """Consecutive entries of a plain ledger as one batch: each is a record, its value the payload."""

    __slots__ = ("count", "first", "offset", "size", "values")
    stamp = 0
    keys = times = headers = packed_times = skips = None
    producers: Sequence[ProducerRun] = ()

    def __init__(self, values: list[bytes], first: int, offset: int) -> None:
        """`first`: the entry of the first; `offset`: the bytes of the entries before it."""
        self.values = values
        self.count = len(values)
        self.size = sum(map(len, values))
        self.first = first
        self.offset = offset

    @property
    def offsets(self) -> list[int]:
        """The byte position of each record in the ledger."""
        return list(accumulate(map(len, self.values[:-1]), initial=self.offset))

    @property
    def stored_bytes(self) -> int:
        """Counts the bytes that the batch takes in memory."""
        return self.size

    def packed(self, column: int) -> Packed[bytes] | None:
        """The values as one piece; there is nothing else."""
        return Packed.of(self.values) if column == VALUES else None


class LogBatch:
    """Records of one entry or of adjacent raw ones: `index` of the first, `count`, columns without objects."""

    __slots__ = ("_batch", "_entry", "_from", "_segment", "count", "index")

    def __init__(self, segment: Segment, batch: Batch | RawBatch, entry: int, start: int = 0) -> None:
        """
        `entry`: the first that holds it; `start`: how many records of the batch come before those that were asked for.
        """
        self._segment = segment
        self._batch = batch
        self._entry = entry
        self._from = start
        self.index = segment.first + batch.first + start
        self.count = batch.count - start

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.index + self.count

    @property
    def indexes(self) -> Sequence[int]:
        """The index of each record."""
        return range(self.index, self.end)

    @property
    def at(self) -> int:
        """The byte position at which its entry begins."""
        return self._segment.at + self._batch.offset

    @property
    def place(self) -> Place:
        """
        Where its entry is, or the first of its entries: `LogReader.entries` gives the whole batch for it, of raw ones
        the first record.  Of what a compaction left, segment -1.
        """
        return Place(self._segment.n, self._segment.place + self._entry)

    @property
    def size(self) -> int:
        """How many bytes the values and skips of all records of its entry have."""
        return self._batch.size

    @property
    def stamp_ms(self) -> int:
        """The log's time of all its records."""
        stamp = self._segment.stamp
        return self._batch.stamp if stamp is None else stamp

    @property
    def values(self) -> list[bytes]:
        """The value of each record."""
        return self._batch.values[self._from :] if self._from else self._batch.values

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record, or None."""
        keys = self._batch.keys
        return [None] * self.count if keys is None else keys[self._from :]

    @property
    def times(self) -> list[int | None]:
        """The writer's own time of each record, in ms since 1970, or None."""
        times = self._batch.times
        return [None] * self.count if times is None else list(times[self._from :])

    @property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        headers = self._batch.headers
        return [()] * self.count if headers is None else list(headers[self._from :])

    @property
    def stored_bytes(self) -> int:
        """Counts the bytes that all records of its entry take in memory."""
        return self._batch.stored_bytes

    @property
    def packed_values(self) -> Packed[bytes]:
        """As `values`; those and the next three are as they lie in the entry, without an object for each record."""
        found = self._packed(VALUES)
        assert found is not None, "a batch has values"
        return found

    @property
    def packed_keys(self) -> Packed[bytes | None] | None:
        """As `keys`; None when no record has one."""
        return self._packed(KEYS)

    @property
    def packed_times(self) -> "array[int] | None":
        """As `times`, with -2^63 where there is none; None when no record has one."""
        found = self._batch.packed_times
        return found if found is None or not self._from else found[self._from :]

    @property
    def packed_headers(self) -> Packed[bytes] | None:
        """The headers of each record, encoded: `unpack_headers` makes pairs of them; None when no record has any."""
        return self._packed(HEADERS)

    def _packed(self, column: int) -> Packed[Any] | None:
        found = self._batch.packed(column)
        return found if found is None or not self._from else found[self._from :]

    @property
    def positions(self) -> list[int]:
        """The byte position of each record in the log."""
        at = self._segment.at
        return [at + offset for offset in self._batch.offsets[self._from :]]

    def copied(self, begin_at: int | None = None) -> Records:
        """
        Gives the records to a log that is to have them at the same place: their batch as it is stored, or what is left
        of it where the log begins with its records, at the first byte of a value.  `begin_at`: where a log begins that
        has none yet.
        """
        batch, start = self._batch, self._from
        skips, runs = batch.skips, batch.producers
        if isinstance(batch, Batch) and not start and begin_at in {None, self.at}:
            original = Original(self.index, self.at, self.stamp_ms, batch.body)
            return Records(self.packed_values, producers=runs, skips=skips, original=original)
        skipped = None if skips is None else (0, *skips[start + 1 :])
        return Records(
            self.packed_values,
            self.packed_keys,
            self.packed_times,
            None if batch.headers is None else self.headers,
            tuple(runs_between(runs, start, batch.count)),
            skipped,
            original=Original(self.index, self.positions[0], self.stamp_ms),
        )

    def records(self) -> list[Record]:
        """An object for each."""
        stamp = self.stamp_ms
        columns = zip(
            self.indexes,
            self.positions,
            self.values,
            self.keys,
            self.times,
            self.headers,
            strict=True,
        )
        return [
            Record(index, at, stamp, value, key, time, tuple(header)) for index, at, value, key, time, header in columns
        ]


class CompactedBatch(LogBatch):
    """A batch of a compacted ledger: indexes with gaps, the stamp of its entry's last record, byte positions -1."""

    __slots__ = ("_indexes",)
    at = -1

    def __init__(self, segment: Segment, batch: Batch, entry: int, start: int) -> None:
        super().__init__(segment, batch, entry, start)
        self._indexes = (batch.indexes or ())[start:]
        self.index = self._indexes[0]

    @classmethod
    def begun(cls, segment: Segment, batch: Batch, entry: int, index: int) -> "CompactedBatch | None":
        """The records from an index of the log on, if there are any.  `LogDamaged`."""
        indexes = batch.indexes
        if indexes is None or any(each >= after for each, after in pairwise(indexes)):
            raise LogDamaged(f"ledger {segment.ledger}, record {batch.first}: its original indexes do not rise")
        start = bisect_left(indexes, index)
        return cls(segment, batch, entry, start) if start < batch.count else None

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self._indexes[-1] + 1

    @property
    def indexes(self) -> Sequence[int]:
        """The index of each record."""
        return self._indexes

    @property
    def positions(self) -> list[int]:
        """Not known."""
        return [-1] * self.count


class Span(NamedTuple):
    """Records from `index` to before `end`, of which only that they are there was asked."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    end: int

    @property
    def records(self) -> int:
        """Counts them."""
        return self.end - self.index
