"""
A log followed by its name: its manifest as it changes, also when the name comes to point at another log.

Knows: that a name points at a log.  Does not know: what is done with a manifest.

Nothing may rest on being called: who waits for an outcome looks, too.
"""

from collections.abc import Callable

from twisted.logger import Logger

from quire.log.core.manifest import Manifest, decode_name
from quire.log.store.paths import log_path, name_path
from quire.metadata.records import Records
from quire.metadata.store import Versioned, Watch
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

log = Logger()

Seen = Callable[[Manifest | None], object]


class NameFollower:
    """Calls `seen` with the manifest that the name stands for, now and after changes; None: there is none."""

    def __init__(self, records: Records, name: str, seen: Seen) -> None:
        self._records = records
        self._seen = seen
        self._log: str | None = None
        self._manifest: Watch | None = None
        self._ended = False
        self._name = records.watch(name_path(name), self._named)

    def _named(self, found: Versioned[bytes] | None) -> None:
        try:
            now = None if found is None else decode_name(found.value)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("a name of a log can't be read: {error}", error=str(error))
            return
        if now is not None and now == self._log:
            return
        self._log = now
        self._forget()
        if now is None:
            self._seen(None)
        elif not self._ended:
            self._manifest = self._records.watch(log_path(now), lambda found: self._changed(now, found))

    def _changed(self, of: str, found: Versioned[bytes] | None) -> None:
        if of != self._log:
            return
        try:
            manifest = None if found is None else Manifest.decode(found.value)
        except (LogDamaged, UnknownFormat) as error:
            log.warn("a manifest can't be read: {error}", error=str(error))
            return
        self._seen(manifest)

    def _forget(self) -> None:
        if self._manifest is not None:
            self._manifest.cancel()
            self._manifest = None

    def cancel(self) -> None:
        """No further call."""
        self._ended = True
        self._name.cancel()
        self._forget()


def follow(records: Records, name: str, seen: Seen) -> Watch:
    """Until the watch is cancelled.  `ValueError` for what can't be a name."""
    return Watch(NameFollower(records, name, seen).cancel)
