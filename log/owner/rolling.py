"""
When an owner's segment ends: it is large or old enough, someone asks, or the log's settings changed.

Knows: the settings of now, and those that the open segment was made with.
Does not know: how a segment ends.
"""

from collections.abc import Callable

from quire.conf.log import LogSettings
from quire.log.core.manifest import Manifest
from quire.log.core.values import Counts
from quire.log.owner.timers import OwnerTimers
from quire.log.store.editing import LogRecords

# SPDX-License-Identifier: Apache-2.0

# What no open segment can change.
OF_A_SEGMENT = ("ensemble", "write", "ack", "digest", "compression", "lease_ms", "dedup")


class Rolling:
    """`end` asks for the end of the open segment; it is asked for once in each."""

    def __init__(self, records: LogRecords, timers: OwnerTimers, end: Callable[[], object]) -> None:
        self._records = records
        self._timers = timers
        self._end = end
        self._settings: tuple[Manifest, LogSettings] | None = None
        self._made_with: LogSettings | None = None
        self._is_open = False
        self._why = ""  # its end was asked for

    @property
    def settings(self) -> LogSettings:
        """
        Those of the newest manifest that is known: checked once for each, not for each entry.  Of a log that is gone
        the last ones, until its owner has heard of that.
        """
        known = self._records.known
        if known is not None and (self._settings is None or self._settings[0] is not known.value):
            self._settings = known.value, LogSettings.of(known.value.settings)
        return LogSettings() if self._settings is None else self._settings[1]

    def making(self) -> LogSettings:
        """Those of the ledger that is made now."""
        self._made_with = self.settings
        return self._made_with

    def begun(self) -> None:
        """A segment is open, with the ledger that was made last."""
        self._is_open, self._why = True, ""
        self._timers.roll(self.settings, lambda: self.roll("age"), begins=True)

    def look(self) -> None:
        """There is a newer manifest."""
        before = self._made_with
        if not self._is_open or before is None or self._records.known is None:
            return
        now = self.settings
        if any(getattr(now, name) != getattr(before, name) for name in OF_A_SEGMENT):
            self.roll("settings")
        elif now.roll_age_ms != before.roll_age_ms:
            self._made_with = now
            self._timers.roll(now, lambda: self.roll("age"))

    def filled(self, counts: Counts) -> None:
        """So much was sent."""
        settings = self.settings
        if counts.records >= settings.roll_records:
            self.roll("records")
        elif counts.bytes >= settings.roll_bytes:
            self.roll("bytes")

    def roll(self, why: str) -> None:
        """The open segment ends, if there is one; the next append begins another."""
        if self._is_open and not self._why:
            self._why = why
            self._end()

    def ended(self) -> None:
        """It is no longer written, for whatever reason."""
        if self._is_open and self._why:
            self._records.counters.rolled(self._why)
        self._is_open = False
        self._timers.cancel("roll")
