"""
The records of runs in entry logs: made for a flush, and checked whenever they are read, moved or verified.

Knows: what an intact record is: the size field, the ids and the CRC32C that its index row says.
Does not know: the index, which logs there are (`ReadLog` reads them).
Safety: a body that differs from its sum is never returned.
"""

import os
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from quire.bookie.index.run import Run, run_bytes
from quire.bookie.logs.format import IDS, SIZE, ReadLog, log_name
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

BATCH_START, BATCH_ENTRY = 36, 4  # how the size of a batch read is counted (wire.md 2.4)


class EntryDamaged(StorageError):
    """An entry is indexed, but its bytes can't be read or are not those that were written."""


def records_of(bodies: Sequence[bytes]) -> tuple[bytes, Sequence[int]]:
    """Entry-log records of the bodies, joined; and the bodies' sizes."""
    sizes = list(map(len, bodies))
    if len(sizes) == 1:
        return SIZE.pack(sizes[0]) + bodies[0], sizes
    if min(sizes) == max(sizes):
        size = SIZE.pack(sizes[0])
        return size + size.join(bodies), sizes
    parts: list[bytes] = [b""] * (2 * len(bodies))
    parts[::2] = map(SIZE.pack, sizes)
    parts[1::2] = bodies
    return b"".join(parts), sizes


def damaged(directory: str, run: Run, entry: int, offset: int) -> EntryDamaged:
    """The error for a record at `offset` of the run's log in `directory` (`<dir>/current`)."""
    path = os.path.join(directory, log_name(run.log))
    return EntryDamaged(
        f"{path} at offset {offset}: entry {entry} of ledger {run.ledger} is cut off or differs from its checksum"
    )


def read_body(read: ReadLog, directory: str, run: Run, entry: int) -> bytes:
    """The body of one entry of a run.  Raises `EntryDamaged`, `OSError`."""
    offset, size, _check = run.at(entry)
    return body_of(read(run.log, offset, size + SIZE.size), directory, run, entry)


def body_of(record: bytes, directory: str, run: Run, entry: int) -> bytes:
    """The body of one entry of a run whose record was read.  Raises `EntryDamaged`."""
    offset, size, check = run.at(entry)
    body = record[SIZE.size :]
    wrong = record[: SIZE.size] != SIZE.pack(size) or len(body) != size or crc32c(body) != check
    if wrong or not body.startswith(IDS.pack(run.ledger, entry)):
        raise damaged(directory, run, entry, offset)
    return body


def read_bodies(read: ReadLog, directory: str, run: Run, first: int, last: int, room: int, begun: bool) -> list[bytes]:
    """
    The bodies of first to last of one run that fit into `room`; at least one unless the batch has `begun`.  One read.
    Ends before the first that is damaged; raises `EntryDamaged` if that is `first`, `OSError`.
    """
    low = first - run.first
    offset = run.at(first)[0] if low else run.offset
    sizes = run.sizes()[low : last - run.first + 1]
    equal = min(sizes) == max(sizes)
    if equal:
        count = min(len(sizes), max(0, room // (sizes[0] + BATCH_ENTRY)))
    else:
        count = total = 0
        for size in sizes:
            total += size + BATCH_ENTRY
            if total > room:
                break
            count += 1
    if not count:
        if begun:
            return []
        count = 1
    sizes = sizes[:count]
    data = read(run.log, offset, sum(sizes) + SIZE.size * count)
    bodies = intact(run, first, sizes, equal, data)
    if (
        not bodies
        or not bodies[0].startswith(IDS.pack(run.ledger, first))
        or not bodies[-1].startswith(IDS.pack(run.ledger, first + len(bodies) - 1))
    ):
        raise damaged(directory, run, first, offset)
    return bodies


def read_records(read: ReadLog, directory: str, run: Run) -> bytes:
    """The records of a whole run as they are in its log, each checked.  Raises `EntryDamaged`, `OSError`."""
    data = read(run.log, run.offset, run_bytes(run))
    bad = next(damages(run, data), None)
    if bad is not None:
        raise damaged(directory, run, *bad)
    return data


def damages(run: Run, data: bytes) -> Iterator[tuple[int, int]]:
    """(entry, offset in the log) of each record of a whole run, read as `data`, that is not intact."""
    sizes = run.sizes()
    equal = min(sizes) == max(sizes)
    low = offset = 0
    while low < len(sizes):
        for body in intact(run, run.first + low, sizes[low:], equal, data[offset:] if offset else data):
            if body[: IDS.size] != IDS.pack(run.ledger, run.first + low):
                break
            offset += SIZE.size + len(body)
            low += 1
        if low < len(sizes):
            yield run.first + low, run.offset + offset
            offset += SIZE.size + sizes[low]
            low += 1


def intact(run: Run, first: int, sizes: Sequence[int], equal: bool, data: bytes) -> list[bytes]:
    """
    The bodies of `first` and those after it, of these sizes (`equal`: all the same), up to the first whose record in
    `data` is cut off or differs from its size or its sum.  Ids are left to the caller: a sum covers them.
    """
    low = first - run.first
    sums = run.sums()[low : low + len(sizes)]
    # Only a scan of the log needs the size fields; a bad one counts as damage, because the next scan would end there.
    framed = True
    if equal:
        step = sizes[0] + SIZE.size
        bodies = [data[offset + SIZE.size : offset + step] for offset in range(0, len(sizes) * step, step)]
        field = SIZE.pack(sizes[0])
        framed = all(data[offset::step] == field[offset : offset + 1] * len(sizes) for offset in range(SIZE.size))
    else:
        bodies = []
        offset = 0
        for size in sizes:
            framed = framed and data[offset : offset + SIZE.size] == SIZE.pack(size)
            offset += SIZE.size
            bodies.append(data[offset : offset + size])
            offset += size
    if not framed or tuple(map(crc32c, bodies)) != sums:
        good = offset = 0
        while crc32c(bodies[good]) == sums[good] and data[offset : offset + SIZE.size] == SIZE.pack(sizes[good]):
            offset += SIZE.size + sizes[good]
            good += 1
        del bodies[good:]
    return bodies
