"""
The snapshots of a log: the edit that names one, and what the entries of its ledger say.

    entry 0         JSON {"quire":"snapshot","format":1,"log","index","epoch","machine"}
    entry 1 to n    data, at most 1 MiB each
    entry n + 1     JSON {"entries","bytes","crc"}: n, their bytes, CRC-32C over them

Knows: this layout, and that a ledger which does not end so was not completed; which snapshots are kept.
Does not know: what the data mean, how entries are stored; tries and versions.

Safety: the caller has looked the ledger up, closed and complete, after the version that is replaced was read; only a
newer snapshot than the newest is named, so the log from the oldest kept one on is there.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from quire.log.core.edits import check_exists, is_doomed
from quire.log.core.manifest import Manifest
from quire.log.core.values import Doomed, Snapshot, Value
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0

KEPT = 3


@dataclass(frozen=True, slots=True)
class NameSnapshot:
    """The newest snapshot; the oldest of more than three goes, or itself: if not newer, or below the log's begin."""

    snapshot: Snapshot
    now_ms: int
    name = "snapshot"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        made, kept = self.snapshot, manifest.snapshots
        if is_doomed(manifest, made.ledger) or any(each.ledger == made.ledger for each in kept):
            return None
        if made.index < manifest.begin.index or (kept and made.index <= newest(manifest)):
            return replace(manifest, doomed=(*manifest.doomed, Doomed(made.ledger, "old snapshot", self.now_ms)))
        kept = (*kept, made)
        gone = [Doomed(each.ledger, "old snapshot", self.now_ms) for each in kept[:-KEPT]]
        return replace(manifest, snapshots=kept[-KEPT:], doomed=(*manifest.doomed, *gone))


def newest(manifest: Manifest) -> int:
    """The index of the newest snapshot; 0 when there is none."""
    return max((each.index for each in manifest.snapshots), default=0)


SLICE_BYTES_MAX = 1 << 20
Data = bytes  # by another name, for a class that has a member `bytes`
Sum = Callable[[bytes, int], int]  # CRC-32C of bytes behind those of which a sum is given


@dataclass(frozen=True, slots=True)
class Head(Value):
    """The first entry: of which log, the first index that is not in it, by whom."""

    what = tag = "snapshot"
    log: str
    index: int
    epoch: int
    machine: str


@dataclass(frozen=True, slots=True)
class End(Value):
    """The last entry: how much data is before it."""

    what = "snapshot's end"
    entries: int
    bytes: int
    crc: int


def slices(data: Iterable[bytes], size: int = SLICE_BYTES_MAX) -> Iterator[bytes]:
    """Cuts bytes to pieces of that size, the last one smaller; one piece of the data at a time is asked for."""
    waiting = bytearray()
    for piece in data:
        waiting += piece
        while len(waiting) >= size:
            yield bytes(waiting[:size])
            del waiting[:size]
    if waiting:
        yield bytes(waiting)


class Content:
    """The sums over the entries of one snapshot, as they are written or read."""

    def __init__(self, sum_of: Sum) -> None:
        self._sum_of = sum_of
        self.end = End(0, 0, 0)

    def add(self, data: bytes) -> bytes:
        """One more entry of data."""
        entries, size, crc = self.end.entries, self.end.bytes, self.end.crc
        self.end = End(entries + 1, size + len(data), self._sum_of(data, crc))
        return data


def check_head(head: Head, log: str, snapshot: Snapshot) -> None:
    """`LogDamaged` when the ledger is not what the manifest says."""
    if (head.log, head.index, head.epoch) != (log, snapshot.index, snapshot.epoch):
        raise LogDamaged(
            f"ledger {snapshot.ledger} has the snapshot of the log {head.log} at index {head.index}, epoch "
            f"{head.epoch}, not that of {log} at index {snapshot.index}, epoch {snapshot.epoch}"
        )


def check_end(end: End, content: Content, snapshot: Snapshot) -> None:
    """`LogDamaged` when the data are not what its last entry or the manifest says."""
    found = content.end.entries, content.end.bytes, content.end.crc
    for who, says in (("its last entry", end), ("the manifest", snapshot)):
        if found != (says.entries, says.bytes, says.crc):
            raise LogDamaged(
                f"ledger {snapshot.ledger} holds {found[0]} entries of {found[1]} bytes with the sum {found[2]}, "
                f"{who} says {says.entries} of {says.bytes} with {says.crc}"
            )
