"""
Ordered rows on disk: the contract; `rocks` keeps it with RocksDB.

The contract: keys and values are bytes, ordered bytewise.  A `write` is atomic.  What was written before `sync`
returned survives a crash; of what came later any prefix of writes may survive.  All may be called from any thread.
Does not know: what keys and values mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

BATCH_BYTES_MAX = 64 << 10
Row = tuple[bytes, bytes]


class StorePiece(NamedTuple):
    """A range of keys that is compacted at once, both ends included (None: no end); bytes of the files it begins."""

    low: bytes | None
    high: bytes | None
    size: int


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
        Puts all that was written on stable storage.  Raises `OSError`; then it is unknown what was,
        and it may not be tried again, except with ENOSPC: then nothing was done yet.
        """

    @property
    @abstractmethod
    def sequence(self) -> int:
        """The number of the last write, after a start of the last one found; it rises with each.  Raises as `sync`."""

    @property
    def is_stuck(self) -> bool:
        """True if writes are refused, and perhaps reads, until a write or a sync opens the store again."""
        return False

    @property
    def estimate(self) -> int:
        """About how many rows there are, without a look at them; 0: that is not known."""
        return 0

    def pieces(self) -> list[StorePiece]:
        """Cuts all keys into pieces for `compact`, ascending; none: nothing can be compacted.  Raises `OSError`."""
        return []

    def compact(self, piece: StorePiece) -> None:
        """Frees the files of a piece of rows that are gone, while other calls go on.  `OSError`: it did not, maybe."""
        raise ValueError(f"{piece} is no piece of this store")

    @abstractmethod
    def close(self) -> None: ...


OpenRows = Callable[[str], Rows]


class OnRows:
    """A table kept on some `Rows`, and closed with them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def sync(self) -> None:
        self._rows.sync()

    @property
    def estimate(self) -> int:
        """About how many rows there are; 0: that is not known."""
        return self._rows.estimate

    @property
    def sequence(self) -> int:
        """The number of the last write in the store.  Raises as `sync`."""
        return self._rows.sequence

    @property
    def is_stuck(self) -> bool:
        """See `Rows`."""
        return self._rows.is_stuck

    def pieces(self) -> list[StorePiece]:
        """See `Rows`."""
        return self._rows.pieces()

    def compact(self, piece: StorePiece) -> None:
        """See `Rows`."""
        self._rows.compact(piece)

    def close(self) -> None:
        self._rows.close()
