"""
Every entry that can be had of an entry log, also behind damage: for an operator, or a job, in search of what is left.

Knows: where a record can begin again behind bytes that are none.
Does not know: digests; `opened` tells whether bytes are an entry.
Safety: nothing is changed.  A place where no record begins is told as a hole with its offset and length, and what
comes behind it is taken only when `opened` says that it is an entry.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quire.bookie.logs.format import HEADER_BYTES, IDS, PADDING, SIZE
from quire.bookie.logs.walk import RECORD_BYTES_MAX, LogWalk
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

WINDOW_BYTES = 8 << 20  # looked at once in search of a record
CHAIN_BYTES = 1 << 20  # the same, from its end to its beginning
# What looks like a record and is larger is tried while all that was tried is below so many times what was passed over,
# and a record: else an array of numbers, or who may write entries, could make the search as long as he likes.
TRIED_BYTES, TRIED_PART = 256, 64
# A size below 64 MiB, then a ledger and an entry below 2^40.
LOOKS_LIKE_ONE = re.compile(rb"(?s)(?=[\x00-\x03].{3}\x00{3}.{5}\x00{3})")


class Found(NamedTuple):
    """A record with a body of `size` bytes and its payload, None where its sum fails; or a hole, which has no body."""

    offset: int
    size: int
    body: bytes | None
    payload: bytes | None


# (ledger, entry, body) -> the payload, None when the sum does not hold.
Opened = Callable[[int, int, bytes], bytes | None]


def bounds(files: Files, path: str, split_bytes: int) -> list[tuple[int, int]]:
    """Where an entry log can be divided: (begin, end) of pieces of about that size; a damaged rest is one piece."""
    with files.closing(files.open(path)) as handle:
        size = files.size(handle)
        walk = LogWalk(lambda offset, count: files.read(handle, count, offset), size, path, RECORD_BYTES_MAX)
        cuts = [HEADER_BYTES]
        for _ledger, _entry, offset, _size in walk.heads():
            if offset - cuts[-1] >= split_bytes:
                cuts.append(offset)
        return list(zip(cuts, [*cuts[1:], max(size, HEADER_BYTES)], strict=True))


def entries(files: Files, path: str, begin: int, end: int, opened: Opened) -> Iterator[Found]:
    """
    The records from `begin`, where one begins, to `end`, and the holes between them.  A record whose sum does not hold
    is told as a hole when another one begins in it: then its size is wrong.
    """
    handle = files.open(path)

    def read(offset: int, count: int) -> bytes:
        return files.read(handle, min(count, end - offset), offset) if offset < end else b""

    with files.closing(handle):
        at = begin
        while at < end:
            walk = LogWalk(read, end, path, RECORD_BYTES_MAX, begin=at)
            for ledger, entry, offset, body in walk.records():
                payload = opened(ledger, entry, body)
                at = offset + SIZE.size + len(body)
                if payload is None:
                    place = behind(read, offset, at, opened, end)
                    if place < at:
                        yield Found(offset, place - offset, None, None)
                        at = place
                        break
                yield Found(offset, len(body), body, payload)
            else:
                if walk.problem is None:
                    if any(read(walk.end, end - walk.end)):  # less than a size
                        yield Found(walk.end, end - walk.end, None, None)
                    return
                damage, at = at, behind(read, at, end, opened, end)
                yield Found(damage, at - damage, None, None)


def behind(read: Callable[[int, int], bytes], damage: int, end: int, opened: Opened, limit: int) -> int:
    """Where a record begins behind `damage` and before `end`, or `end`.  It ends by `limit`, where the log does."""
    start, tried, is_whole = damage + 1, 0, True
    while start < (last := end if is_whole else limit):
        stop = min(start + WINDOW_BYTES, last)
        for place, size in looks(read, start, stop, limit):
            if size > TRIED_BYTES and tried + size > RECORD_BYTES_MAX + TRIED_PART * (place - damage):
                is_whole = False
                continue
            tried += size
            if is_record(read, place, size, opened):
                return place if is_whole else min(end, chained(read, damage, place, opened))
        start = stop
    return end if is_whole else min(end, chained(read, damage, limit, opened))


def chained(read: Callable[[int, int], bytes], damage: int, place: int, opened: Opened) -> int:
    """
    Where the first of the records begins that follow each other from behind `damage` to `place`, where one begins or
    all ends, perhaps with zeros or padding before; `place` when there are none.  Of what was not tried few end just
    there, and those are tried from the last on, so what a writer put before them is none of their matter.
    """
    begins, tried, stop, unused = {place}, 0, place, place
    while stop > damage + 1:
        start = max(damage + 1, stop - CHAIN_BYTES)
        if unused == stop:
            unused = start + len(read(start, stop - start).rstrip(b"\0" + PADDING))
        for at, size in reversed(list(looks(read, start, stop, place))):
            following = at + SIZE.size + size
            if following not in begins and following < unused:
                continue
            if tried <= RECORD_BYTES_MAX + TRIED_PART * (place - damage):
                tried += size
                if is_record(read, at, size, opened):
                    begins.add(at)
        stop = start
    return min(begins)


def looks(read: Callable[[int, int], bytes], start: int, stop: int, end: int) -> Iterator[tuple[int, int]]:
    """(offset, size of the body) of what begins from `start` on and before `stop`, ends by `end`, and may be one."""
    window = read(start, stop - start + SIZE.size + IDS.size)
    for match in LOOKS_LIKE_ONE.finditer(window):
        place = start + match.start()
        if place >= stop:
            return
        (size,) = SIZE.unpack_from(window, match.start())
        if IDS.size <= size <= min(RECORD_BYTES_MAX, end - place - SIZE.size):
            yield place, size


def is_record(read: Callable[[int, int], bytes], place: int, size: int, opened: Opened) -> bool:
    """True if there is an entry."""
    body = read(place + SIZE.size, size)
    return len(body) == size and opened(*ids(body), body) is not None


def ids(body: bytes) -> tuple[int, int]:
    """Ledger and entry."""
    ledger, entry = IDS.unpack_from(body)
    return ledger, entry
