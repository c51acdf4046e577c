"""
Files that may change while a process runs: certificates, users, rights; and who else can read a file of secrets.

Knows: when they are looked at again, and that what can't be used changes nothing and is an alarm.
Does not know: what is in them; who is told of a change.

Safety: what was read before goes on to hold until all of the files can be used again.
"""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from twisted.logger import Logger

from quire.conf.properties import ConfigurationError

# SPDX-License-Identifier: Apache-2.0

log = Logger()

Signature = tuple[object, ...]


def warn_of_readers(path: str) -> None:
    """Says in the log that everybody here can read a file of passwords or keys, if that is so."""
    if os.stat(path).st_mode & stat.S_IROTH:
        log.warn("everybody on this machine can read the secrets in {path}: chmod o-r {path}", path=path)


def content_of(path: str, key: str) -> bytes:
    """The bytes of a configured file.  `ConfigurationError` when it can't be read."""
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise ConfigurationError(f"{path} ({key}): {failure.strerror or failure}") from failure


class Watched:
    """
    Some files.  `take` reads and uses them, or raises `ConfigurationError` and changes nothing: now, and when they have
    changed, which is looked at every `every_s` (0: never).  `what` they are, for the log; `seconds`: a clock that only
    goes forward.
    """

    log = Logger()

    def __init__(
        self,
        what: str,
        paths: Sequence[str],
        take: Callable[[], None],
        every_s: int,
        seconds: Callable[[], float],
    ) -> None:
        self._what = what
        self._paths = paths
        self._take = take
        self._every_s = every_s
        self._seconds = seconds
        self._signature = self._look()
        self.reloads = 0
        self.broken: str | None = None  # why the files as they are now can't be used
        take()

    def refresh(self) -> bool:
        """
        Reads the files again if they have changed and it is time to look; whether new ones are in use.  It is always
        time while they can't be used: somebody may be writing them.
        """
        if not self._every_s or (self.broken is None and self._seconds() - self._looked < self._every_s):
            return False
        return self._look() != self._signature and self.reload()

    def reload(self) -> bool:
        """Reads the files now; whether they could be used."""
        self._signature = self._look()
        try:
            self._take()
        except Exception as failure:  # of whatever kind: who serves goes on with what it has
            known = isinstance(failure, ConfigurationError)
            self.broken = str(failure) if known else f"this went wrong: {type(failure).__name__}"
            self.log.critical(
                "{what} changed and can't be used; what was read before goes on to hold: {reason}",
                what=self._what,
                reason=self.broken,
            )
            return False
        self.reloads += 1
        self.broken = None
        self.log.info("{what} were read again", what=self._what)
        return True

    def _look(self) -> Signature:
        """Changes when a file does."""
        self._looked = self._seconds()
        return tuple(_state(path) for path in self._paths)


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
