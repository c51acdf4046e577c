"""
The word of an operator that a bookie is read-only, kept through restarts where `persistBookieStatusEnabled` says so.

File `BOOKIE_STATUS` in the `current/` of every ledger directory, one line, which Apache's bookie writes and reads, too:

    1,READ_ONLY,<ms since 1970>,true      version of the layout; READ_ONLY or READ_WRITE; since when; by an operator

Knows: that file.  Does not know: other reasons to be read-only, which are found again at a start.

Safety: the file that was written last counts, for a directory may have been away meanwhile.  One that can't be read is
passed over, as Apache's does, and named in the log; the others have the same.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from twisted.logger import Logger

from quire.bookie.layout import STATUS, current
from quire.metadata.clock import time_of_day
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

log = Logger()


class KeptStatus(NamedTuple):
    """The contents of one file.  `by_operator` is true in files of earlier versions, which do not say it."""

    time_ms: int
    read_only: bool
    by_operator: bool

    @classmethod
    def of(cls, text: bytes) -> "KeptStatus":
        """`ValueError` for a line that is not understood."""
        version, mode, time_ms, *more = text.decode("ascii").strip().split(",")
        if version != "1" or mode not in ("READ_ONLY", "READ_WRITE") or len(more) > 1:
            raise ValueError(f"{text!r} is no status of a bookie")
        return cls(int(time_ms), mode == "READ_ONLY", not more or more[0] == "true")

    def line(self) -> bytes:
        mode = "READ_ONLY" if self.read_only else "READ_WRITE"
        return f"1,{mode},{self.time_ms},{'true' if self.by_operator else 'false'}".encode()


def kept(files: Files, directories: Iterable[str]) -> bool:
    """True if an operator made the bookie of these ledger directories read-only and did not take it back."""
    found = latest(files, directories)
    return found is not None and found.read_only and found.by_operator


def latest(files: Files, directories: Iterable[str]) -> KeptStatus | None:
    """Reads what was written last; None where nothing was."""
    found = []
    for directory in directories:
        path = current(directory, STATUS)
        try:
            text = files.read_file(path)
            if text is not None:
                found.append(KeptStatus.of(text))
        except (OSError, ValueError) as failure:
            log.warn("{path} is passed over: {reason}", path=path, reason=str(failure))
    return max(found, default=None)


def keep(files: Files, directories: Collection[str], read_only: bool) -> None:
    """Writes it down, in each directory that takes it."""
    before = latest(files, directories)
    now_ms = int(time_of_day() * 1000)
    time_ms = now_ms if before is None else max(now_ms, before.time_ms + 1)  # the clock may have been set back
    for directory in directories:
        path = current(directory, STATUS)
        try:
            files.replace(path, KeptStatus(time_ms, read_only, read_only).line())
        except OSError as failure:
            log.warn("{path} can't be written: {reason}", path=path, reason=str(failure))
