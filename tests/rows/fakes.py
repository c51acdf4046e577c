"""Rows in memory, the slow twin of `RocksRows`, which lose what a disk would."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from quire.rows.contract import Row, Rows

# SPDX-License-Identifier: Apache-2.0


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
