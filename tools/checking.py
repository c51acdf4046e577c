"""
Which entries of a ledger miss which copies: every replica of every entry is read and its digest verified.

Knows: which bookie must hold which entry, and what each way of not having it is called.
Does not know: how a copy is made good; that is `quire.replication`.

Safety: it only reads, never fences, and trusts no listing: a copy counts only when its bytes were read and their digest is right.
A bookie's list of its entries is asked for only to pass over holes quickly.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from quire.client.answers import Answer, BatchAnswer, ListAnswer
from quire.client.core.quorum import Quorums
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import BY_CODE, OK, DigestMatch, NoSuchEntry, NoSuchLedgerExists

# SPDX-License-Identifier: Apache-2.0

WINDOW_ENTRIES = 50_000  # entry ids looked at in one piece, so that a long ledger needs no more memory than a short one
BATCH_ENTRIES = 10_000
BATCH_BYTES = 4 << 20
SINGLE_READS = 200  # under way at once, where entries are striped over the ensemble
REPLICAS_AT_ONCE = 6

ABSENT = "absent"
DAMAGED = "damaged"
NEGATIVE = {NoSuchEntry.code, NoSuchLedgerExists.code}


class Missing(NamedTuple):
    """A bookie lacks entries first..last of a ledger, and why."""

    bookie: str
    first: int
    last: int
    why: str


class ReplicaPool(Protocol):
    """What a check needs of a `BookiePool`."""

    def read(self, bookie: str, ledger: int, entry: int) -> Deferred[Answer]: ...

    def batch_read(self, bookie: str, ledger: int, first: int, count_max: int, bytes_max: int) -> Deferred[BatchAnswer]: ...

    def list_entries(self, bookie: str, ledger: int) -> Deferred[ListAnswer]: ...


class Check:
    """One ledger's copies up to entry `end`.  `read` is called with the number of copies read, per batch."""

    def __init__(self, pool: ReplicaPool, ledger: int, metadata: LedgerMetadata, end: int, read: Callable[[int], None]) -> None:
        self._pool = pool
        self._ledger = ledger
        self._digest = Digest(metadata.digest or DigestType.CRC32, metadata.password or b"")
        self._quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._read = read
        self._missing: list[Missing] = []
        self._parts = [(first, end if last is None else min(last, end), bookies) for first, last, bookies in metadata.fragment_ranges() if first <= end]
        self.copies = (end + 1) * metadata.write_quorum  # that there should be

    async def run(self) -> list[Missing]:
        """Everything that is missing, by bookie and entry, neighbours joined."""
        limit = DeferredSemaphore(REPLICAS_AT_ONCE)
        await gatherResults(
            [
                limit.run(lambda *part: Deferred.fromCoroutine(self._replica(*part)), first, last, index, bookie)
                for first, last, bookies in self._parts
                for index, bookie in enumerate(bookies)
            ]
        )
        return joined(self._missing)

    async def _replica(self, first: int, last: int, index: int, bookie: str) -> None:
        """All entries of one fragment that belong on one bookie."""
        listed = await self._pool.list_entries(bookie, self._ledger)
        holes = listed.runs if listed.code == OK else None
        for start in range(first, last + 1, WINDOW_ENTRIES):
            wanted = self._quorums.entries_of(index, start, min(last, start + WINDOW_ENTRIES - 1))
            if holes is not None:
                wanted = self._held(bookie, wanted, holes)
            failed = await (self._singles(bookie, wanted) if self._quorums.striped else self._batches(bookie, wanted))
            if failed:
                self._lost(bookie, self._quorums.entries_of(index, start + WINDOW_ENTRIES, last), failed)
                return

    def _held(self, bookie: str, wanted: Sequence[int], runs: Sequence[tuple[int, int]]) -> Sequence[int]:
        """Those of `wanted` that the bookie lists; the others are absent."""
        held = sorted(entry for first, count in runs for entry in range(max(first, wanted[0]), min(first + count, wanted[-1] + 1))) if wanted else []
        if len(held) == len(wanted) and held == list(wanted):
            return wanted
        listed = set(held)
        self._lost(bookie, [entry for entry in wanted if entry not in listed], ABSENT)
        return [entry for entry in wanted if entry in listed]

    async def _batches(self, bookie: str, wanted: Sequence[int]) -> str:
        """Reads entries run by run; why the bookie can't be asked any more, "" when it can."""
        for first, last in runs_of(wanted):
            entry = first
            while entry <= last:
                answer = await self._pool.batch_read(bookie, self._ledger, entry, min(BATCH_ENTRIES, last - entry + 1), BATCH_BYTES)
                if answer.code == OK and answer.bodies:
                    good = len(self._digest.open_run(self._ledger, entry, answer.bodies))
                    self._read(good)
                    entry += good
                    if good < len(answer.bodies):
                        self._lost(bookie, [entry], DAMAGED)
                        entry += 1
                elif answer.code in NEGATIVE:
                    self._lost(bookie, [entry], ABSENT)
                    entry += 1
                else:
                    failed = reason(answer.code)
                    self._lost(bookie, [each for each in wanted if each >= entry], failed)
                    return failed
        return ""

    async def _singles(self, bookie: str, wanted: Sequence[int]) -> str:
        """Reads entries one by one, many under way; why the bookie can't be asked any more, "" when it can."""
        for at in range(0, len(wanted), SINGLE_READS):
            asked = wanted[at : at + SINGLE_READS]
            answers = await gatherResults([self._pool.read(bookie, self._ledger, entry) for entry in asked])
            failed = ""
            good = 0
            for entry, answer in zip(asked, answers, strict=True):
                if answer.code == OK and answer.body is not None:
                    try:
                        self._digest.open(self._ledger, entry, answer.body)
                        good += 1
                    except DigestMatch:
                        self._lost(bookie, [entry], DAMAGED)
                elif answer.code in NEGATIVE:
                    self._lost(bookie, [entry], ABSENT)
                else:
                    failed = reason(answer.code)
                    self._lost(bookie, [entry], failed)
            self._read(good)
            if failed:
                self._lost(bookie, wanted[at + SINGLE_READS :], failed)
                return failed
        return ""

    def _lost(self, bookie: str, entries: Sequence[int], why: str) -> None:
        self._missing += [Missing(bookie, first, last, why) for first, last in runs_of(entries)]


def runs_of(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of consecutive ids in an ascending sequence."""
    if isinstance(entries, range) and entries.step == 1:
        if entries:
            yield entries[0], entries[-1]
        return
    first = last = None
    for entry in entries:
        if last is not None and entry == last + 1:
            last = entry
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = entry
    if first is not None and last is not None:
        yield first, last


def joined(missing: Sequence[Missing]) -> list[Missing]:
    """The same, sorted, with neighbours of one bookie and reason made one."""
    out: list[Missing] = []
    for each in sorted(missing, key=lambda one: (one.bookie, one.why, one.first)):
        if out and (out[-1].bookie, out[-1].why) == (each.bookie, each.why) and each.first <= out[-1].last + 1:
            out[-1] = out[-1]._replace(last=max(out[-1].last, each.last))
        else:
            out.append(each)
    return sorted(out, key=lambda one: (one.bookie, one.first))


def reason(code: int) -> str:
    """Why a bookie did not answer, in a word."""
    if code == -8:
        return "not reached"
    return BY_CODE[code].__name__ if code in BY_CODE else f"code {code}"
