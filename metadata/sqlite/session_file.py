"""
A session of the SQLite driver: a locked file that says its owner lives.

    offset  width  field
    0       8      big-endian nanoseconds of CLOCK_BOOTTIME at the owner's last heartbeat

The owner holds an exclusive flock on the file.  The kernel drops it when the process dies, however it dies, so a free
lock means death at once; a lock that is held beside an old heartbeat means an owner that hangs.

Knows: files and locks.  Does not know: the database, or what a session is for.

Safety: a session is announced (its row is written) only after its file is locked, so a live session is
never found unlocked. The lock does not pass to programs started with exec; a bare fork would share it.
"""

import fcntl
import os
import struct
import tempfile

from quire.metadata.clock import Boottime

# SPDX-License-Identifier: Apache-2.0

HEARTBEAT = struct.Struct(">Q")
SUFFIX = ".session"


class SessionFile:
    """The owner's side.  `name` is unique in its directory, also after it is gone."""

    def __init__(self, directory: str, boottime: Boottime) -> None:
        """Makes, locks and stamps a new file; `OSError`."""
        self._boottime = boottime
        os.makedirs(directory, exist_ok=True)
        self._fd, self.path = tempfile.mkstemp(suffix=SUFFIX, dir=directory)
        self.name = os.path.basename(self.path)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.beat()

    def beat(self) -> None:
        """Writes the time of the heartbeat; `OSError`."""
        os.pwrite(self._fd, HEARTBEAT.pack(int(self._boottime() * 1e9)), 0)

    def close(self) -> None:
        """Ends the session as every other process sees it."""
        if self._fd >= 0:
            forget(self.path)
            os.close(self._fd)
            self._fd = -1


def is_alive(path: str, now: float, timeout_s: float) -> bool:
    """
    True if the owner of a session file lives and has shown it in the last `timeout_s` seconds (of CLOCK_BOOTTIME, like
    `now`).
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stamp = os.pread(fd, HEARTBEAT.size, 0)
            return len(stamp) == HEARTBEAT.size and now - HEARTBEAT.unpack(stamp)[0] / 1e9 <= timeout_s
        return False
    finally:
        os.close(fd)


def forget(path: str) -> None:
    """Removes the file of an ended session, if it is still there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
