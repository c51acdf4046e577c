"""
An entry log read from its start to its end.

Knows: where a record can begin, and how a log ends that was cut off.  Does not know: which ledgers are wanted, runs.
Safety: reading stops where no record begins, and `problem` says so; it never guesses where the next one is.
"""

from collections.abc import Callable, Iterator
from functools import partial

from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import (
    HEADER_BYTES,
    IDS,
    MAP_LEDGER,
    PADDED_BYTES,
    SIZE,
    ZEROS_AT_ONCE,
    log_name,
    padding,
    past_zeros,
    read_map,
)

# SPDX-License-Identifier: Apache-2.0

BLOCK_BYTES = 1 << 20
RECORD_BYTES_MAX = 64 << 20  # a larger size field can't be one
HEADS_BLOCK_BYTES = ZEROS_AT_ONCE  # read at once where only ids are wanted
UNLIMITED = 1 << 62
RANGES_MAX = 50_000  # ledgers of which the last range of named entries is remembered
NONE = (0, -1)


class LogWalk:
    """
    The records of one log.  `end` is behind what was read.  After `heads` or `records` is exhausted, `problem` says
    why it ended too early, if it did, and `cut` whether only the last record is incomplete, as after a power loss.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        path: str,
        body_bytes_max: int,
        pause: Callable[[], None] = lambda: None,
        block_bytes: int = BLOCK_BYTES,
        begin: int = HEADER_BYTES,
    ) -> None:
        """`pause` is called between any two steps; `begin` is where a record begins."""
        self.end = begin
        self.problem: str | None = None
        self.cut = False
        self.path = path
        self._read = read
        self._size = size
        self._body_bytes_max = body_bytes_max
        self._pause = pause
        self._block_bytes = block_bytes
        self._block = b""
        self._at = 0

    def _bytes(self, offset: int, count: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + count > len(self._block):
            self._block = self._read(offset, max(count, self._block_bytes))
            self._at, start = offset, 0
        return self._block[start : start + count]

    def _zeros(self, at: int) -> int:
        """How many bytes behind `at`, where a size of 0 was just read, the next size is that may be another one."""
        return past_zeros(self._block[at - self._at : at - self._at + ZEROS_AT_ONCE])

    def _padding(self, at: int) -> int:
        """How many bytes of padding, where no size may be."""
        return padding(at, self._bytes(at, min(-at % PADDED_BYTES, self._size - at)))

    def heads(self) -> Iterator[tuple[int, int, int, int]]:
        """(ledger, entry, offset, size of the body), bodies unread; zeros and padding are passed over.  `OSError`."""
        at = self.end
        while at + SIZE.size <= self._size:
            self._pause()
            (size,) = SIZE.unpack(self._bytes(at, SIZE.size))
            if size == 0:
                at += self._zeros(at)
                self.end = at
                continue
            if size < 0 and (padded := self._padding(at)):
                self.end = at = at + padded
                continue
            head = self._bytes(at + SIZE.size, IDS.size)
            ledger, entry = IDS.unpack(head) if len(head) == IDS.size else (-2, -2)
            no_entry = ledger != MAP_LEDGER and (entry < 0 or size > self._body_bytes_max)
            if size < IDS.size or ledger < MAP_LEDGER or no_entry:
                follow = f"{self._size - at} bytes follow"
                self.problem = f"{self.path} at offset {at}: no record of an entry begins here, and {follow}"
                self.cut = len(head) < IDS.size
                return
            if ledger != MAP_LEDGER:
                yield ledger, entry, at, size
            at += SIZE.size + size
            self.end = min(at, self._size)
        if at < self._size:
            self.end += self._padding(at)

    def records(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(ledger, entry, offset of the record, body) of every whole record.  As `heads`."""
        for ledger, entry, at, size in self.heads():
            body = self._bytes(at + SIZE.size, size)
            if len(body) < size:
                self.problem = f"{self.path} at offset {at}: the record of entry {entry} of ledger {ledger} is cut off"
                self.cut = True
                return
            yield ledger, entry, at, body


def ledgers_in(logs: EntryLogs, log: int, pause: Callable[[], None] = lambda: None) -> frozenset[int] | None:
    """The ledgers with records in a log, from its map, else from its records; None when it can't be read to its end."""
    read = partial(logs.read, log)
    mapped = read_map(read)
    if mapped is not None:
        return frozenset(mapped)
    walk = LogWalk(read, logs.size(log), log_name(log), UNLIMITED, pause, HEADS_BLOCK_BYTES)
    found = frozenset(ledger for ledger, _entry, _at, _size in walk.heads())
    return found if walk.problem is None or walk.cut else None


def unnamed(
    walk: LogWalk, size: int, named: Callable[[int, int], int], counts: Callable[[int], bool]
) -> Iterator[tuple[int, int, int]]:
    """
    Yields (ledger, entry, offset of the record) of each record in a log of `size` bytes that no index names: the look
    from the logs to the index, the other way than a read.  Whether one was lost, or is what a deletion, a copy that was
    given up or an overwritten entry left, it does not tell; one that the log is too short for was never acknowledged.

    `named(ledger, entry)`: the last of the consecutive entries from this one on that are named, less than it for none.
    `counts(ledger)`: whether its entries are looked for.  Bodies are not read.  Raises `OSError`.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for ledger, entry, at, body in walk.heads():
        first, last = ranges.get(ledger, NONE)
        if first <= entry <= last or at + SIZE.size + body > size or not counts(ledger):
            continue
        last = named(ledger, entry)
        if last < entry:
            yield ledger, entry, at
        else:
            if len(ranges) >= RANGES_MAX:
                ranges.clear()
            ranges[ledger] = entry, last
