"""
An entry log read from its start to its end.

Knows: where a record can begin.  Does not know: which ledgers are wanted, runs.
Safety: reading stops where no record begins, and says so; it never guesses the next place.
"""

from collections.abc import Callable, Iterator

from quire.bookie.logs.format import HEADER_BYTES, IDS, MAP_LEDGER, SIZE, ZEROS_AT_ONCE, past_zeros

# SPDX-License-Identifier: Apache-2.0

BLOCK_BYTES = 1 << 20


class LogWalk:
    """The records of one log.  `end` is behind what was read, and after `records` is exhausted `problem` says why it ended too early, if it did."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, path: str, body_bytes_max: int) -> None:
        self.end = HEADER_BYTES
        self.problem: str | None = None
        self._read = read
        self._size = size
        self.path = path
        self._body_bytes_max = body_bytes_max
        self._block = b""
        self._at = 0

    def _bytes(self, offset: int, count: int) -> bytes:
        start = offset - self._at
        if start < 0 or start + count > len(self._block):
            self._block = self._read(offset, max(count, BLOCK_BYTES))
            self._at, start = offset, 0
        return self._block[start : start + count]

    def _zeros(self, at: int) -> int:
        """How many bytes behind `at`, where a size of 0 was just read, the next size is that may be another one."""
        return past_zeros(self._block[at - self._at : at - self._at + ZEROS_AT_ONCE])

    def records(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(ledger, entry, offset of the record, body).  Zeros are passed over, as Apache does.  Raises `OSError`."""
        at = HEADER_BYTES
        while at + SIZE.size <= self._size:
            (size,) = SIZE.unpack(self._bytes(at, SIZE.size))
            if size == 0:
                at += self._zeros(at)
                self.end = at
                continue
            head = self._bytes(at + SIZE.size, IDS.size)
            ledger, entry = IDS.unpack(head) if len(head) == IDS.size else (-2, -2)
            if size < IDS.size or ledger < MAP_LEDGER or (ledger != MAP_LEDGER and (entry < 0 or size > self._body_bytes_max)):
                self.problem = f"{self.path} at offset {at}: no record of an entry begins here, and {self._size - at} bytes follow"
                break
            if ledger != MAP_LEDGER:
                body = self._bytes(at + SIZE.size, size)
                if len(body) < size:
                    self.problem = f"{self.path} at offset {at}: the record of entry {entry} of ledger {ledger} is cut off"
                    break
                yield ledger, entry, at, body
            at += SIZE.size + size
            self.end = min(at, self._size)


def scan(read: Callable[[int, int], bytes], frame_bytes_max: int, pause: Callable[[], None] = lambda: None) -> Iterator[tuple[int, int, int, bytes]]:
    """
    (ledger, entry, offset of the record, body) of every entry of a log, from its start up to the first record that is cut off or
    larger than any frame.  Records of ledger -1 (maps, fillers) are passed over, and zeros, as Apache does.  `pause` is called between any two steps.
    """
    at = HEADER_BYTES
    while True:
        head = read(at, SIZE.size + IDS.size)
        if len(head) < SIZE.size + IDS.size:
            return
        (size,) = SIZE.unpack_from(head)
        if size <= 0:
            at += past_zeros(read(at, ZEROS_AT_ONCE)) if size == 0 else 1
            pause()
            continue
        ledger, entry = IDS.unpack_from(head, SIZE.size)
        if ledger != MAP_LEDGER:
            if size > frame_bytes_max:
                return
            body = read(at + SIZE.size, size)
            if len(body) < size:
                return
            yield ledger, entry, at, body
        at += SIZE.size + size
        pause()
