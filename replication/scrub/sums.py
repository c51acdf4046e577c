"""
A number for what a bookie holds of a chunk, by which copies on several bookies are compared without a second reading.

Knows: the head of an entry's body (`protocol.digest`) and what it can't say.
Does not know: who has what; entries whose digest does not hold.

The sum of an entry is the CRC-32 of its head with the digest, which covers the payload; where there is no digest, of
all of the body.  Sums are added up, in whatever order entries come; in a striped ledger apart for each class of entries
that have the same write set (their id modulo the size of the ensemble).  Copies that are equal have equal sums.  Copies
that differ may still both be right: a recovery writes an entry again, with another last add confirmed in its head.
"""

from array import array
from operator import ge, lt
from sys import byteorder
from typing import NamedTuple
from zlib import crc32

from quire.client.core.quorum import Quorums
from quire.protocol.digest import LAC_OFFSET, Digest
from quire.replication.scrub.plan import CHUNK

# SPDX-License-Identifier: Apache-2.0

HEAD = 8  # the ledger's id is left out
FIELDS_END = 32


class Sum(NamedTuple):
    """The sum of the entries of a class in a chunk that a bookie has."""

    entries: int
    sum: int
    payload_bytes: int


class Sums:
    """The sums of one ledger on one bookie: by (chunk, class)."""

    def __init__(self, quorums: Quorums, digest: Digest, settled: int = 0, end: int = -1) -> None:
        """Entries below `settled` may have been written again with a last add confirmed up to `end`, as Apache does."""
        self.found: dict[tuple[int, int], Sum] = {}
        self.wrong: list[int] = []  # entries whose head can't be, though the digest holds
        self._classes = quorums.ensemble if quorums.striped else 1
        self._overhead = digest.overhead
        self._end = digest.overhead if digest.size else None
        self._settled = settled
        self._lac_max = end

    def add(self, first: int, bodies: list[bytes]) -> None:
        """Consecutive entries from `first` on, digests checked."""
        self._check(first, bodies)
        crcs = list(map(crc32, [body[HEAD : self._end] for body in bodies]))
        sizes = list(map(len, bodies))
        at = 0
        while at < len(bodies):
            chunk = (first + at) // CHUNK
            stop = min(len(bodies), (chunk + 1) * CHUNK - first)
            for start in range(at, min(at + self._classes, stop)):
                some = slice(start, stop, self._classes)
                self._count((chunk, (first + start) % self._classes), crcs[some], sizes[some])
            at = stop

    def _count(self, key: tuple[int, int], crcs: list[int], sizes: list[int]) -> None:
        before = self.found.get(key, Sum(0, 0, 0))
        payload = sum(sizes) - self._overhead * len(sizes)
        self.found[key] = Sum(
            before.entries + len(crcs), (before.sum + sum(crcs)) % (1 << 64), before.payload_bytes + payload
        )

    def _check(self, first: int, bodies: list[bytes]) -> None:
        """
        A last add confirmed is from -1 on and below the entry; the ledger's length is not below the payload's.
        Apache's repairs write the last add confirmed of their own time.
        """
        fields = array("q", b"".join([body[LAC_OFFSET:FIELDS_END] for body in bodies]))
        if byteorder == "little":
            fields.byteswap()
        lacs, lengths = fields[::2], fields[1::2]
        payloads = [len(body) - self._overhead for body in bodies]
        entries = range(first, first + len(bodies))
        if min(lacs) >= -1 and all(map(lt, lacs, entries)) and all(map(ge, lengths, payloads)):
            return
        for entry, (lac, length, payload) in enumerate(zip(lacs, lengths, payloads, strict=True), first):
            lac_max = self._lac_max if entry < self._settled and entry <= lac else entry - 1
            if not -1 <= lac <= lac_max or length < payload:
                self.wrong.append(entry)
