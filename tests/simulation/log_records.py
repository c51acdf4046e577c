"""
What a log's ledgers and records hold, read from outside: an entry's values by the drawing in `log/core/frame.py`, the
metadata store's records as each change leaves them.

Nothing here uses the code that is judged.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from quire.metadata.memory.cluster import RECORDS
from quire.metadata.memory.tree import Node, Nodes
from quire.metadata.tree import Check, Done, SessionId, Step
from tests.simulation.nodes import WatchedNodes, World

HEADER = struct.Struct(">4sBBBBQQQIIII")
PART = struct.Struct(">IIQ")
VALUES, SKIPS, INDEXES = 1, 6, 7


class Content(NamedTuple):
    """
    Of a ledger: its values and each one's stamp, how many entries it has; of a compacted one original indexes; the
    bytes skipped before each value, and how many values there are up to each entry.
    """

    values: list[bytes]
    stamps: list[int]
    entries: int
    indexes: Sequence[int] = ()
    skips: Sequence[int] = ()
    ends: Sequence[int] = ()

    @property
    def bytes(self) -> int:
        return sum(map(len, self.values)) + sum(self.skips)

    def places(self, at: int) -> Iterator[tuple[int, bytes]]:
        """Each value behind the byte position at which it is; the ledger begins at `at`."""
        for value, skip in zip(self.values, self.skips or (0,) * len(self.values), strict=True):
            at += skip
            yield at, value
            at += len(value)


class NotALog(Exception):
    """Entries that contradict the format."""


def content(entries: Sequence[bytes]) -> Content:
    """`NotALog`."""
    values: list[bytes] = []
    stamps: list[int] = []
    indexes: list[int] = []
    skips: list[int] = []
    ends: list[int] = []
    group = b""
    size = 0
    for number, entry in enumerate(entries):
        if entry[:4] != b"qlog":
            raise NotALog(f"entry {number} begins with {entry[:4]!r}")
        _, _, kind, packed, _, ordinal, offset, stamp, records, own, _, _ = HEADER.unpack_from(entry)
        if (ordinal, offset) != (len(values), size):
            raise NotALog(f"entry {number} begins at {ordinal}, {offset}; before it are {len(values)}, {size}")
        body = entry[HEADER.size :]
        ends.append(len(values))
        if kind == 1:
            part, parts, _whole = PART.unpack_from(body)
            group = (b"" if part == 0 else group) + body[PART.size :]
            if part < parts - 1:
                continue
            body = group
        elif kind > 1:
            continue
        found, skipped, original = batch(zlib.decompress(body) if packed else body, records)
        if sum(map(len, found)) + sum(skipped) != own or (stamps and stamp < stamps[-1]):
            raise NotALog(f"entry {number} has {own} bytes and the stamp {stamp} after {stamps[-1:]}")
        values += found
        indexes += original
        skips += skipped
        ends[-1] = len(values)
        stamps += [stamp] * records
        size += own
    return Content(values, stamps, len(entries), indexes, skips, ends)


def batch(body: bytes, records: int) -> tuple[list[bytes], Sequence[int], Sequence[int]]:
    """The values among its columns, the bytes skipped before each, and the original indexes of a compacted one."""
    at = 1 + body[0] * 5
    indexes: Sequence[int] = ()
    skips: Sequence[int] = (0,) * records
    for column in range(body[0]):
        kind, length = struct.unpack_from(">BI", body, 1 + column * 5)
        if kind == VALUES:
            ends = at + 4 * records
            found = []
            for one in struct.unpack_from(f">{records}I", body, at):
                found.append(body[ends : ends + one])
                ends += one
            if ends != at + length:
                raise NotALog(f"a column of values has {length} bytes")
            return found, skips, indexes
        if kind == INDEXES:
            indexes = struct.unpack_from(f">{records}Q", body, at)
        if kind == SKIPS:
            skips = struct.unpack_from(f">{records}I", body, at)
        at += length
    raise NotALog("a batch without values")


class Change(NamedTuple):
    """A record that changed."""

    path: str
    before: Any  # its JSON; None: there was none
    after: Any


class WatchedRecords(WatchedNodes):
    """The stored records; `heard` is called with all that one operation changed, once it has taken effect."""

    def __init__(self, of: Nodes, world: World, heard: Callable[[list[Change]], None]) -> None:
        super().__init__(of, world)
        self._heard = heard

    def transact(self, steps: Sequence[Step], session: SessionId) -> list[Done]:
        start = f"{RECORDS}/"
        changing = [step.path for step in steps if not isinstance(step, Check) and step.path.startswith(start)]
        before = {path: self.nodes.get(path) for path in changing}
        done = super().transact(steps, session)
        self._heard(
            [Change(path[len(start) :], value(old), value(self.nodes.get(path))) for path, old in before.items()]
        )
        return done


def value(record: Node | None) -> Any:
    """Its JSON; None where there is no record."""
    return None if record is None else json.loads(record.data) if record.data else {}
