"""
How full the disks are, and what that means for a bookie.

Knows: the thresholds (storage-order.md 8).  Does not know: what else makes a bookie read-only.
Journal directories are watched like the others: a journal that can't grow stops the bookie.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from quire.bookie.files import Files, NotBegun
from quire.bookie.layout import directories
from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class DiskReport:
    """
    What one check found.  `full` and `nearly_full` are (directory, used part) pairs; `broken` is (directory, reason).
    """

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


def check_disks(files: Files, options: BookieOptions) -> DiskReport:
    """Asks the file system about every directory.  Raises `NotBegun` when it could not be asked."""
    full, nearly, broken = [], [], []
    room = False
    for directory in directories(options):
        try:
            usage = files.usage(directory)
        except NotBegun:
            raise
        except OSError as failure:
            broken.append((directory, failure.strerror or str(failure)))
            continue
        used = 1 - usage.free / usage.total if usage.total else 1.0
        if used > options.disk_usage_threshold:
            full.append((directory, used))
        elif used > options.disk_usage_warn_threshold:
            nearly.append((directory, used))
        if directory in options.ledger_directories and usage.free > options.high_priority_free_bytes_min:
            room = True
    return DiskReport(tuple(full), tuple(nearly), tuple(broken), room)
