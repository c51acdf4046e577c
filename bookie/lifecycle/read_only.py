"""
Why a bookie is read-only, and the watch over its disks, which may be one of the reasons.

Knows: the reasons, and who must hear when the first comes or the last goes: requests, the list of bookies.
Journal directories are watched like the others: a journal that can't grow stops the bookie.
Knows too when a disk counts as full (storage-order.md 8).  Does not know: how the bookie is listed.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import cast

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from quire.bookie.layout import directories, pairs, with_indexes
from quire.bookie.lifecycle.registration import Registration
from quire.bookie.server.service import Service
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.garbage import Garbage
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock
from quire.rows.files import Files, NotBegun

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class DiskReport:
    """One look at the disks: (directory, used part) of `full` and `nearly_full`, (directory, reason) of `broken`."""

    full: tuple[tuple[str, float], ...] = ()
    nearly_full: tuple[tuple[str, float], ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    room_for_recovery: bool = True  # some ledger directory has room for what ledger recovery writes

    @property
    def reason(self) -> str | None:
        """Why the bookie should be read-only; None when it need not."""
        if self.broken:
            return "; ".join(f"{directory} can't be used ({why})" for directory, why in self.broken)
        if self.full:
            return "; ".join(f"{directory} is {used:.1%} full" for directory, used in self.full)
        return None

    def without(self, directories: Collection[str]) -> "DiskReport":
        """Directories that failed while others are usable are no reason any more."""
        return replace(self, broken=tuple(each for each in self.broken if each[0] not in directories))


def check_disks(
    files: Files, options: BookieOptions, full_before: Collection[str] = (), without: Collection[str] = ()
) -> DiskReport:
    """
    Asks the file system about every directory but those that the bookie does `without`; those that were full stay so
    down to the low water mark.  Raises `NotBegun` when it could not be asked.
    """
    low_water_mark = options.disk_usage_low_water_mark
    full, nearly, broken = [], [], []
    room = False
    for directory in directories(options):
        if directory in without:
            continue
        try:
            usage = files.usage(directory)
        except NotBegun:
            raise
        except OSError as failure:
            broken.append((directory, failure.strerror or str(failure)))
            continue
        used = 1 - usage.free / usage.total if usage.total else 1.0
        stays_full = low_water_mark is not None and directory in full_before and used >= low_water_mark
        if used > options.disk_usage_threshold or stays_full:
            full.append((directory, used))
        elif used > options.disk_usage_warn_threshold:
            nearly.append((directory, used))
        if directory in options.ledger_directories and usage.free > options.high_priority_free_bytes_min:
            room = True
    return DiskReport(tuple(full), tuple(nearly), tuple(broken), room)


FORCED, OPERATOR, DRAINED = "forceReadOnlyBookie", "operator", "drained"
DISK, STORAGE, RESTORING = "disk", "storage", "restoring"
BY_OPERATOR = "an operator said so"


class ReadOnly:
    """The reasons of one bookie.  All of it belongs to the reactor thread."""

    log = Logger()

    def __init__(self, bookie: str, service: Service, registration: Registration) -> None:
        self._bookie = bookie
        self._service = service
        self._registration = registration
        self._reasons: dict[str, str] = {}  # by kind

    @property
    def on(self) -> bool:
        return bool(self._reasons)

    @property
    def reasons(self) -> list[str]:
        return list(self._reasons.values())

    @property
    def restoring(self) -> bool:
        """True if one of the reasons is that ledgers in limbo were never compared with other bookies."""
        return RESTORING in self._reasons

    def begin(self, forced: bool, restoring: bool, by_operator: bool) -> None:
        """The reasons that there are from the start on.  `by_operator`: before it."""
        if forced:
            self._reasons[FORCED] = "forceReadOnlyBookie is set"
        if by_operator:
            self._reasons[OPERATOR] = BY_OPERATOR
        if restoring:
            self._reasons[RESTORING] = "what it may have lost is being copied from other bookies"
        self._tell_service()

    def by_operator(self, on: bool) -> str | None:
        """Sets an operator's request, until it is taken back or ends.  The text says why it is refused."""
        if not on and FORCED in self._reasons:
            return "forceReadOnlyBookie is set in the configuration; take it out and restart the bookie"
        self._set(OPERATOR, BY_OPERATOR if on else None)
        return None

    def by_order(self, standing: bool) -> None:
        """The order to empty this bookie, in the metadata store, stands, or does not."""
        what = f"it is being emptied; `quire decommission --undo {self._bookie}` makes it writable again"
        self._set(DRAINED, what if standing else None)

    def by_disks(self, reason: str | None) -> None:
        self._set(DISK, reason)

    def by_storage(self, reason: str | None) -> None:
        self._set(STORAGE, reason)

    def restored(self) -> None:
        """Every ledger in limbo was compared once."""
        self._set(RESTORING, None)

    def allow_recovery(self, on: bool) -> None:
        """Lets entries of ledger recovery in while the bookie is read-only, or refuses them."""
        self._service.high_priority_writes = on

    def _set(self, kind: str, reason: str | None) -> None:
        before = self.on
        if reason is None:
            self._reasons.pop(kind, None)
        else:
            self._reasons[kind] = reason
        self._tell_service()
        if before == self.on:
            return
        if self.on:
            self.log.warn("{bookie} is read-only now: {reason}", bookie=self._bookie, reason="; ".join(self.reasons))
        else:
            self.log.info("{bookie} is writable again", bookie=self._bookie)
        self._registration.switch(self.on)  # does nothing before the first registration and after the last

    def _tell_service(self) -> None:
        # limbo itself refuses what must not be taken
        self._service.read_only = bool(self._reasons.keys() - {RESTORING})


class DiskWatch:
    """Looks at the disks of one bookie from time to time: garbage collection, storage and `ReadOnly` hear of it."""

    log = Logger()

    def __init__(
        self,
        clock: Clock,
        files: Files,
        options: BookieOptions,
        storage: Storage,
        garbage: Garbage,
        read_only: ReadOnly,
    ) -> None:
        self._files = files
        self._options = options
        self._storage = storage
        self._garbage = garbage
        self._read_only = read_only
        self._nearly_full: frozenset[str] = frozenset()
        self._full: frozenset[str] = frozenset()
        self._looping = LoopingCall(self.look)
        self._looping.clock = cast("IReactorTime", clock)

    def start(self) -> None:
        """From now on a ledger directory that can't be used counts as failed, if the bookie can do without it."""
        self._looping.start(self._options.disk_check_interval_ms / 1000, now=False)

    def stop(self) -> None:
        if self._looping.running:
            self._looping.stop()

    def look(self) -> None:
        """Looks once; the next look comes, whatever this one meets."""
        try:
            self._look()
        except NotBegun as failure:
            self.log.warn("the disks could not be looked at: {reason}", reason=str(failure))
        except Exception as error:
            self._missed(error)

    def _missed(self, error: Exception) -> None:
        self.log.failure("the disks could not be looked at, and are looked at again: {error!r}", error=error)

    def _look(self) -> None:
        report = check_disks(self._files, self._options, self._full, self._given_up())
        self._full = frozenset(directory for directory, _ in report.full)
        nearly_full = frozenset(directory for directory, _ in report.nearly_full)
        for directory, used in report.nearly_full:
            if directory not in self._nearly_full:
                self.log.warn("{directory} is {used:.1%} full (diskUsageWarnThreshold)", directory=directory, used=used)
        if nearly_full - self._nearly_full:
            self._garbage.under_pressure()
        self._nearly_full = nearly_full
        self._read_only.allow_recovery(report.room_for_recovery)
        if self._looping.running:
            for path, why in report.broken:
                for pair in pairs(self._options):
                    if path in pair:
                        self._storage.fail_directory(pair.ledger_directory, why)
            report = report.without(self._given_up())
        self._read_only.by_disks(report.reason)

    def _given_up(self) -> set[str]:
        """The directories, with those of their indexes, that have failed while the bookie goes on with others."""
        return with_indexes(self._options, self._storage.failed_directories) - {*self._options.journal_directories}
