"""
How bookies did lately, as this client saw it: who failed, who was slow, who is in quarantine, and so whom to ask first.

Knows: times of failures, errors counted over an interval, the lists of registered bookies if it is given them.
Does not know: what a request was about; placement; the network.
"""

from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple

from quire.metadata.store import BookieList
from quire.protocol.errors import (
    OK,
    BookieHandleNotAvailable,
    DuplicateEntryId,
    LedgerExist,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedgerExists,
    WriteOnReadOnlyBookie,
)

# SPDX-License-Identifier: Apache-2.0

# Answers that are no fault of the bookie (docs/placement.md).
INNOCENT = frozenset(
    kind.code
    for kind in (
        BookieHandleNotAvailable,
        NoSuchLedgerExists,
        NoSuchEntry,
        LedgerFenced,
        LedgerExist,
        DuplicateEntryId,
        WriteOnReadOnlyBookie,
    )
) | {OK}


class HealthLimits(NamedTuple):
    """Milliseconds, and errors in an interval.  `quarantine`: whether there is any."""

    memory_ms: int = 60_000
    quarantine: bool = False
    interval_ms: int = 60_000
    errors: int = 100
    quarantine_ms: int = 1_800_000
    ratio: float = 1.0


class Health:
    """`seconds`: the clock; `random` decides who of the bad ones is put into quarantine."""

    def __init__(
        self, seconds: Callable[[], float], limits: HealthLimits = HealthLimits(), random: Random | None = None
    ) -> None:
        self._seconds = seconds
        self._limits = limits
        self._random = random
        self._failed: dict[str, float] = {}
        self._slow: dict[str, float] = {}
        self._errors: dict[str, tuple[float, int]] = {}  # since when, how many
        self._quarantined: dict[str, float] = {}  # until when
        self.registered: BookieList | None = None  # None: not known

    def failed(self, bookie: str) -> None:
        """Notes a bookie that failed just now."""
        self._failed[bookie] = self._seconds()

    def slow(self, bookie: str) -> None:
        """Another one was asked because it did not answer in time."""
        self._slow[bookie] = self._seconds()

    def answered(self, bookie: str, code: int) -> None:
        """Counts what is a bookie's fault."""
        limits = self._limits
        if code in INNOCENT or not limits.quarantine:
            return
        now = self._seconds()
        since, count = self._errors.get(bookie, (now, 0))
        if now - since > limits.interval_ms / 1000:
            since, count = now, 0
        self._errors[bookie] = (since, count + 1)
        if count + 1 == limits.errors and (
            limits.ratio >= 1 or (self._random is not None and self._random.random() < limits.ratio)
        ):
            self._quarantined[bookie] = now + limits.quarantine_ms / 1000

    def suspects(self, registered: Collection[str]) -> list[str]:
        """The bookies that failed lately without leaving since, and those in quarantine, which leaving does not end."""
        since = self._seconds() - self._limits.memory_ms / 1000
        self._failed = {bookie: at for bookie, at in self._failed.items() if at > since and bookie in registered}
        return sorted({*self._failed, *(bookie for bookie in self.quarantined() if bookie in registered)})

    def quarantined(self) -> list[str]:
        now = self._seconds()
        self._quarantined = {bookie: until for bookie, until in self._quarantined.items() if until > now}
        return sorted(self._quarantined)

    def ranks(
        self, bookies: Collection[str], pending: Callable[[str], int] = lambda _bookie: 0, many: int = 0
    ) -> dict[str, tuple[int, int, float]]:
        """
        The order of asking, lowest rank first: healthy, failed lately (the longer ago the better), read-only, slow, not
        registered; among equals who has fewer reads under way (`pending`), in steps of `many`; 0: their number counts
        among slow ones only.  Empty while all are healthy and none has `many`: then any order will do.
        """
        registered = self.registered
        leaving = registered is not None and not registered.writable.keys() >= set(bookies)
        if not (leaving or self._failed or self._slow) and (many <= 0 or max(map(pending, bookies), default=0) < many):
            return {}
        since = self._seconds() - self._limits.memory_ms / 1000
        ranks = {}
        for bookie in bookies:
            failed, slow = self._failed.get(bookie, since), self._slow.get(bookie, since)
            waiting = pending(bookie)
            load = waiting // many if many else 0
            writable = registered is None or bookie in registered.writable
            if not writable and registered is not None and registered.find(bookie) is None:
                rank = (4, load, 0.0)
            elif slow > since:
                rank = (3, waiting, slow)
            elif not writable:
                rank = (2, load, 0.0)
            else:
                rank = (1, load, failed) if failed > since else (0, load, 0.0)
            ranks[bookie] = rank
        return ranks
