"""
A file on its way: `<name>.part` until it is whole and on stable storage.

Knows: that contiguous writes are gathered, and that what is left out is a hole.
Does not know: what it holds.
Safety: a file has its name only when all of it is on stable storage.
"""

import os

from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

PART = ".part"
WRITE_BYTES = 1 << 20  # writes are gathered up to that


class Part:
    """Written in order; an older part of the same name goes, unless this one `goes_on` with it."""

    def __init__(self, files: Files, path: str, goes_on: bool = False) -> None:
        self._files, self._path, self._now = files, path, path + PART
        if not goes_on:
            files.make_directories(os.path.dirname(path))
            files.unlink(self._now)
        self._handle: int | None = files.open(self._now, create=True)
        self._gathered: list[bytes] = []
        self._from = self._to = 0  # what is gathered is between

    def write(self, at: int, data: bytes) -> None:
        if at != self._to or self._to - self._from >= WRITE_BYTES:
            self.flush()
            self._from = at
        self._gathered.append(data)
        self._to = at + len(data)

    def flush(self) -> None:
        """Writes what was gathered."""
        try:
            assert self._handle is not None
            self._files.write(self._handle, self._gathered, self._from)
        except OSError as error:
            error.filename = error.filename or self._now  # a write knows its handle only
            raise
        self._gathered = []
        self._from = self._to

    def sync(self, size: int) -> None:
        """Makes it so many bytes long, and puts it on stable storage."""
        assert self._handle is not None
        self.flush()
        if self._files.size(self._handle) < size:
            self._files.write(self._handle, [b"\0"], size - 1)
        self._files.sync(self._handle)
        self.close()

    def close(self) -> None:
        if self._handle is not None:
            self._files.close(self._handle)
            self._handle = None

    def rename(self) -> None:
        self._files.rename_durably(self._now, self._path)
