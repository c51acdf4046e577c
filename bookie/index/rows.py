"""
Ordered rows on disk: the contract that index and ledger table are built on, and its slow twin.

`DictRows` is a dict in memory that loses what came after the last sync when its disk crashes; `RocksRows` in `rocks` is
RocksDB.

The contract: keys and values are bytes, ordered bytewise.  A `write` is atomic.  What was written before `sync`
returned survives a crash; of what came later any prefix of writes may survive.  All may be called from any thread.
Does not know: what keys and values mean.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

# SPDX-License-Identifier: Apache-2.0

BATCH_BYTES_MAX = 64 << 10
Row = tuple[bytes, bytes]


class Rows(ABC):
    @abstractmethod
    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        """Deletes first, then puts; all or nothing."""

    @abstractmethod
    def delete_range(self, low: bytes, high: bytes) -> None:
        """Removes every key in [low, high)."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def floor(self, key: bytes) -> Row | None:
        """The row with the greatest key that is not above `key`."""

    @abstractmethod
    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        """`floor` of each; ascending keys are found fastest."""

    @abstractmethod
    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        """The first rows of a scan, `most` at most."""

    @abstractmethod
    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        """The rows with keys in [low, high), ascending, as they were when the scan began."""

    @abstractmethod
    def sync(self) -> None:
        """
        All that was written is on stable storage afterwards.  Raises `OSError`; then it is unknown what was,
        and it may not be tried again, except with ENOSPC: then nothing was done yet.
        """

    @property
    @abstractmethod
    def sequence(self) -> int:
        """
        The number of the last write; it rises with each, and after a start it is that of the last write found.  Raises
        as `sync`.
        """

    @property
    def is_stuck(self) -> bool:
        """True if writes are refused, and perhaps reads, until a write or a sync opens the store again."""
        return False

    @abstractmethod
    def close(self) -> None: ...


OpenRows = Callable[[str], Rows]


class DictRows(Rows):
    """
    Rows in memory.  `crash` gives what a disk would have: all that was synced, and the first `kept` writes after that.
    """

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        self._rows = dict(rows or {})
        self._keys = sorted(self._rows)
        self._synced = dict(self._rows)
        self._since: list[Callable[[DictRows], None]] = []

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        puts, deletes = list(puts), list(deletes)
        self._since.append(lambda rows: rows.write(puts, deletes))
        for key in deletes:
            self._remove(key)
        for key, value in puts:
            if key not in self._rows:
                insort(self._keys, key)
            self._rows[key] = value

    def _remove(self, key: bytes) -> None:
        if self._rows.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, low: bytes, high: bytes) -> None:
        self._since.append(lambda rows: rows.delete_range(low, high))
        for key in self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]:
            self._remove(key)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def floor(self, key: bytes) -> Row | None:
        index = bisect_left(self._keys, key)
        if index == len(self._keys) or self._keys[index] != key:
            index -= 1
        return (self._keys[index], self._rows[self._keys[index]]) if index >= 0 else None

    def floors(self, keys: Sequence[bytes]) -> list[Row | None]:
        return [self.floor(key) for key in keys]

    def page(self, low: bytes, high: bytes, most: int) -> list[Row]:
        return list(islice(self.scan(low, high), most))

    def scan(self, low: bytes, high: bytes) -> Iterator[Row]:
        keys = self._keys[bisect_left(self._keys, low) : bisect_left(self._keys, high)]
        return iter([(key, self._rows[key]) for key in keys])

    def sync(self) -> None:
        self._synced = dict(self._rows)
        self._since = []

    @property
    def sequence(self) -> int:
        """None is kept: a dict forgets nothing that was synced."""
        return 0

    def close(self) -> None:
        """Nothing to give back; the rows can still be read."""

    def crash(self, kept: int = 0) -> "DictRows":
        after = DictRows(self._synced)
        for change in self._since[:kept]:
            change(after)
        return DictRows(after.as_dict())

    @property
    def unsynced(self) -> int:
        """Writes since the last sync."""
        return len(self._since)

    def as_dict(self) -> dict[bytes, bytes]:
        return dict(self._rows)
