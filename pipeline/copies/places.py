"""
A directory of any filesystem that PyArrow opens: where copies lie.

Knows: URIs, how a file comes to be there whole or not at all.  Does not know: what is in files.

Safety: a file of this machine is on the disk before it gets its name, and its name, with the folders that it is in,
before the call returns.  A name that was written is not written again, except a manifest's, of a ledger that bookies
still have: in one step, but HDFS deletes the old one first, and Azure empties it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from crc32c import crc32c

from quire.conf.extras import installs

# SPDX-License-Identifier: Apache-2.0

MOVING = ("local", "hdfs")  # where a half-written file shows, so that it gets its name at the end
COMING, UNNAMED = ".coming-", ".tmp"
SECRETS = ("secret", "password", "token", "key")  # in the name of a parameter of a URI


def filesystems() -> ModuleType:
    """PyArrow's.  `ImportError` names the command that installs it."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ImportError(f"offloaded ledgers need PyArrow: {installs('pipeline')} ({error})") from error
    assert isinstance(fs, ModuleType)
    return fs


class Found(NamedTuple):
    """A file, and when it was written, in seconds since 1970."""

    name: str
    at_s: float


class Place:
    """`uri`: a path of this machine, or what `pyarrow.fs.FileSystem.from_uri` takes.  `ValueError` for another one."""

    def __init__(self, uri: str) -> None:
        self.uri = uri if "://" in uri else Path(uri).absolute().as_uri()
        check_open_to_all(self.uri)
        fs = filesystems()
        try:
            self._files, path = fs.FileSystem.from_uri(self.uri)
        except (ValueError, OSError) as error:
            raise ValueError(f"{uri}: no filesystem that PyArrow opens: {error}") from None
        self._path = path.rstrip("/")
        self._fs = fs
        self._moves = self._files.type_name in MOVING
        self._is_local = self._files.type_name == "local"
        self._random = SystemRandom()

    def uri_of(self, name: str) -> str:
        """Returns the URI of a file below."""
        base, question, query = self.uri.partition("?")
        return f"{base.rstrip('/')}/{name}{question}{query}"

    def _under(self, name: str) -> str:
        return f"{self._path}/{name}"

    def read(self, name: str) -> bytes | None:
        """Reads all of a file; None when there is none."""
        try:
            with self._files.open_input_stream(self._under(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def open(self, name: str) -> Any:
        """A file for reading, at any place of it.  `FileNotFoundError`."""
        return self._files.open_input_file(self._under(name))

    def begin(self, name: str) -> "Coming":
        """A file that is being written."""
        path = self._under(name)
        if self._moves:
            self._make_folder(path.rpartition("/")[0])
        return Coming(self, path)

    def _make_folder(self, path: str) -> None:
        root = Path(self._path or "/")
        missing = [each for each in (root, *root.parents) if not each.exists()] if self._is_local else []
        self._files.create_dir(path, recursive=True)
        for each in reversed(missing):
            synced(str(each.parent))

    def put(self, name: str, data: bytes, reached: Callable[[str], None]) -> None:
        """A whole file, also in the place of one."""
        coming = self.begin(name)
        coming.write(data)
        coming.end()
        reached("manifest.written")
        coming.name()

    def files(self, folder: str) -> list[Found]:
        """Lists the files in a folder; none when there is no such folder."""
        return [Found(each.base_name, each.mtime_ns / 1e9) for each in self._list(folder) if each.is_file]

    def folders(self) -> list[str]:
        """Lists the folders of the place itself."""
        return [each.base_name for each in self._list("") if not each.is_file]

    def _list(self, folder: str) -> list[Any]:
        selector = self._fs.FileSelector(self._under(folder).rstrip("/"), allow_not_found=True)
        return list(self._files.get_file_info(selector))

    def move(self, name: str, to: str) -> None:
        """Another name for a whole file, durably.  A file that is not there is success: another run has moved it."""
        with suppress(FileNotFoundError):
            self.settle(self._under(name), self._under(to))

    def remove(self, name: str) -> None:
        """A file that is not there is success."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._under(name))

    # For files that are coming.

    def create(self, path: str) -> tuple[str, Any]:
        """Where it is written, and the stream."""
        folder, _slash, name = path.rpartition("/")
        now = f"{folder}/{COMING}{self._random.getrandbits(64):016x}-{name}{UNNAMED}" if self._moves else path
        return now, self._files.open_output_stream(now)

    def settle(self, now: str, path: str) -> None:
        """Gives a file its name, durably."""
        if now == path:
            return
        if self._is_local:
            synced(now)
        if self._moves:
            self._files.move(now, path)
        else:  # what others do themselves; Azure has no other way but in accounts with folders
            self._files.copy_file(now, path)
            self._files.delete_file(now)
        while self._is_local and path != self._path:  # also folders that another process has just made
            path = path.rpartition("/")[0]
            synced(path or "/")


def check_open_to_all(uri: str) -> None:
    """`ValueError` for a key or password in it, for marks and errors have it in them."""
    parts = urlsplit(uri)
    names = [name.lower() for name, _value in parse_qsl(parts.query, keep_blank_values=True)]
    if parts.password is not None or any(secret in name for name in names for secret in SECRETS):
        raise ValueError(
            f"the {parts.scheme} URI has a key or password in it, and all who read marks would see it: "
            "give it by the environment or the filesystem's own settings"
        )


def synced(path: str) -> None:
    """Puts on the disk what was written to a file or folder of this machine."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class Coming:
    """A file on its way, as PyArrow's writers take one; `size` and `sum` (CRC32C) of what was written so far."""

    def __init__(self, place: Place, path: str) -> None:
        self._place = place
        self._path = path
        self._now, self._stream = place.create(path)
        self.size = 0
        self.sum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """All of it."""
        self._stream.write(data)
        self.sum = crc32c(data, self.sum)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """PyArrow's writers call this; `end` closes the file."""

    def end(self) -> None:
        """Ends the file: it is complete."""
        self._stream.close()
        self.closed = True

    def name(self) -> None:
        """Gives the file its name."""
        self._place.settle(self._now, self._path)
