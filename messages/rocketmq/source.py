"""
Store directories of a RocketMQ broker: which files they have, and their bytes.

Three kinds: `plain` has `commitlog/`, `dledger` has `dledger-<id>/data`, `upgraded` has both, the first sealed.  Read
are the files of these, of `consumequeue/` and `batchconsumequeue/`, the documents (`config/*` but `*.bak`,
`timerwheel`, `timerlog/*`), `abort` by name, the checkpoint of DLedger for its committed index, and who has locked
`lock`.  `checkpoint` and `index/` are not read: their content is not what the log says.

Knows: names, sizes and holes of files, and what is refused for them.
Does not know: what is in them.
Safety: files are opened for reading only.  None is created, changed, renamed, deleted or locked.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from quire.messages.core.layout import NAME_DIGITS, Rule, file_name
from quire.protocol.message_errors import ImportRefused

# SPDX-License-Identifier: Apache-2.0

Kind = Literal["plain", "dledger", "upgraded"]

OPEN_MAX = 16  # descriptors that stay open
FLOCK = struct.Struct("hhqqi")  # type, whence, start, length, process
GROUP = "dledger-"
KEPT_AWAY = ".bak"


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    The wish of who imports.  `roots`: store directories.  `commit_logs`: further directories of a plain
    one.  `group_size`: nodes of the DLedger group; `single`: what is there is taken, whatever others may have.
    `accept_tail`: a torn tail is left out.  `end`: an offset from which on nothing is taken.
    """

    roots: tuple[str, ...]
    commit_logs: tuple[str, ...] = ()
    group_size: int | None = None
    single: bool = False
    accept_tail: bool = False
    end: int | None = None


class Name(NamedTuple):
    """A file or directory in a directory."""

    name: str
    is_directory: bool
    size: int


class Tree:
    """Files, for reading only, by their paths.  `with` closes those that stay open in between."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # the latest last
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def names(self, path: str) -> list[Name]:
        """Lists a directory, in order; nothing if it is not there."""
        found = []
        try:
            with os.scandir(path) as entries:
                for each in entries:
                    with suppress(FileNotFoundError):  # a link to what is not there
                        state = each.stat()
                        found.append(Name(each.name, stat.S_ISDIR(state.st_mode), state.st_size))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def size(self, path: str) -> int | None:
        """The bytes of a file; None: it is not there."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, path: str, at: int, count: int) -> bytes:
        """Up to so many bytes from `at` on; fewer only at the file's end."""
        descriptor = self._descriptor(path)
        pieces = []
        while count > 0:
            if self._is_stopped:
                raise InterruptedError(f"{path}: the read was stopped")
            piece = os.pread(descriptor, count, at)
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def holder(self, path: str) -> int | None:
        """The process that has a lock on a file; None: nobody has, or there is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, process = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                return None
            raise
        finally:
            os.close(descriptor)
        return None if kind == fcntl.F_UNLCK else process

    def stop(self) -> None:
        """Ends a read on another thread, and all further ones: `InterruptedError`."""
        self._is_stopped = True

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: str) -> int:
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            if len(self._open) >= OPEN_MAX:
                os.close(self._open.pop(next(iter(self._open))))
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
        self._open[path] = descriptor
        return descriptor


class LogFile(NamedTuple):
    """A file of the commit log or of DLedger's data: the offset of its first byte, and how many it has."""

    path: str
    begin: int
    size: int
    rule: Rule

    @property
    def end(self) -> int:
        return self.begin + self.size

    @property
    def name(self) -> str:
        """A name that is the same wherever the store is."""
        return f"{self.rule}/{file_name(self.begin)}"


class DocumentFile(NamedTuple):
    """A document: its name below the store's directory, its path and size."""

    name: str
    path: str
    size: int


class QueueFiles(NamedTuple):
    """The files of one consume queue, with the byte offsets that are their names.  `is_batch`: of a batch queue."""

    topic: str
    queue: int
    is_batch: bool
    files: tuple[tuple[str, int, int], ...]  # path, offset, size


@dataclass(frozen=True, slots=True)
class Source:
    """
    One store directory.  `files`: plain ones first, without a hole, of `file_bytes` each (the last may be empty).
    `committed`: DLedger's committed index by its checkpoint, a lower bound; -1: unknown.
    """

    root: str
    kind: Kind
    file_bytes: int
    files: tuple[LogFile, ...]
    group: str
    is_clean: bool
    committed: int
    documents: tuple[DocumentFile, ...]
    holder: int | None  # the process that has the directory in use

    @property
    def divided(self) -> int | None:
        """Where DLedger's data begin; None: there are none."""
        return next((file.begin for file in self.files if file.rule == "dledger"), None)

    def check_unused(self) -> None:
        """`ImportRefused` while a broker has the directory."""
        if self.holder is not None:
            raise ImportRefused(
                "SourceInUse",
                f"it is locked by process {self.holder}: stop the broker, then import again",
                file=f"{self.root}/lock",
            )


def open_source(tree: Tree, root: str, commit_logs: Sequence[str] = ()) -> Source:
    """
    Looks at the files of a store directory.  `commit_logs`: further directories of plain files, where a broker has
    several.  `ImportRefused`: SourceUnknown, FileMissing, FileSize, FileName.
    """
    root = root.rstrip("/") or "/"
    names = tree.names(root)
    if not names:
        raise ImportRefused("SourceUnknown", "no such directory, or nothing in it: name a broker's store", file=root)
    directories = {each.name for each in names if each.is_directory}
    groups = sorted(name for name in directories if name.startswith(GROUP))
    if len(groups) > 1:
        raise ImportRefused(
            "SourceUnknown",
            f"it has {len(groups)} directories of DLedger ({', '.join(groups)}): a store has one; "
            "import a directory in which only that of the group to keep is left",
            file=root,
        )
    _refuse_rocksdb(tree, root)
    places = [f"{root}/commitlog"] if "commitlog" in directories else []
    plain = _log_files(tree, [*places, *(each.rstrip("/") for each in commit_logs)], "plain")
    group = groups[0] if groups else ""
    entries = _log_files(tree, [f"{root}/{group}/data"], "dledger") if group else []
    files = [*plain, *entries]
    if not files:
        raise ImportRefused(
            "SourceUnknown",
            "it has no file in commitlog/ or dledger-*/data: name the directory that storePathRootDir of broker.conf "
            "names, and with --commitlog those of storePathCommitLog",
            file=root,
        )
    file_bytes = files[0].size
    _check_files(files, file_bytes)
    kind: Kind = "plain" if not entries else "upgraded" if plain else "dledger"
    return Source(
        root,
        kind,
        file_bytes,
        tuple(files),
        group,
        not any(each.name == "abort" for each in names),
        _committed(tree, f"{root}/{group}/checkpoint") if group else -1,
        tuple(_documents(tree, root)),
        tree.holder(f"{root}/lock"),
    )


def _refuse_rocksdb(tree: Tree, root: str) -> None:
    """A RocksDB has a file `CURRENT`; queues have theirs in `consumequeue/`, configuration below `config/`."""
    config = [f"{root}/config/{each.name}" for each in tree.names(f"{root}/config") if each.is_directory]
    for path in (f"{root}/consumequeue", f"{root}/config", *config):
        if tree.size(f"{path}/CURRENT") is not None:
            raise ImportRefused(
                "SourceUnknown",
                "queues or configuration are kept in RocksDB, which is not read: let the broker write files again "
                "(storeType and enableRocksDB… of broker.conf), then import",
                file=path,
            )


def _log_files(tree: Tree, directories: Sequence[str], rule: Rule) -> list[LogFile]:
    found = []
    for directory in directories:
        for each in tree.names(directory):
            path = f"{directory}/{each.name}"
            if each.is_directory or len(each.name) != NAME_DIGITS or not _is_number(each.name):
                raise ImportRefused(
                    "FileName",
                    f"a file of the log has a name of {NAME_DIGITS} digits: move what is none elsewhere",
                    file=path,
                )
            found.append(LogFile(path, int(each.name), each.size, rule))
    return sorted(found, key=lambda file: file.begin)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _check_files(files: Sequence[LogFile], file_bytes: int) -> None:
    """`ImportRefused`: FileMissing, FileSize, FileName."""
    expected = files[0].begin
    for number, file in enumerate(files):
        is_last = number == len(files) - 1
        if file.size != file_bytes and not (is_last and file.size == 0 and number):
            raise ImportRefused(
                "FileSize",
                f"it has {file.size} bytes where the first file has {file_bytes}: copy it again, or import from a "
                "directory that has it whole",
                file=file.path,
                offset=file.begin,
            )
        if not file_bytes:
            raise ImportRefused("FileSize", "the only file is empty: there is nothing to import", file=file.path)
        if file.begin % file_bytes or file.begin < expected:
            raise ImportRefused(
                "FileName",
                f"its name is no multiple of {file_bytes}, the size of a file, or the range is there twice: the next "
                f"file is {file_name(expected)}",
                file=file.path,
                offset=file.begin,
            )
        if file.begin > expected:
            raise ImportRefused(
                "FileMissing",
                f"there is no file between {expected} and {file.begin}: copy those that are missing "
                f"({file_name(expected)} is the first), or import a directory that has them",
                file=file.path,
                offset=expected,
            )
        expected = file.begin + file_bytes


def _committed(tree: Tree, path: str) -> int:
    """Java's properties, of which one counts; what can't be read is unknown."""
    size = tree.size(path)
    for line in tree.read(path, 0, min(size or 0, 1 << 16)).decode("latin-1").splitlines() if size else ():
        name, _equals, value = line.partition("=")
        if name.strip() == "committedIndex" and _is_number(value.strip()):
            return int(value)
    return -1


def _documents(tree: Tree, root: str) -> Iterator[DocumentFile]:
    for folder in ("config", "timerlog"):
        for each in tree.names(f"{root}/{folder}"):
            if not each.is_directory and not each.name.endswith(KEPT_AWAY):
                yield DocumentFile(f"{folder}/{each.name}", f"{root}/{folder}/{each.name}", each.size)
    size = tree.size(f"{root}/timerwheel")
    if size is not None:
        yield DocumentFile("timerwheel", f"{root}/timerwheel", size)


def queue_files(tree: Tree, root: str) -> Iterator[QueueFiles]:
    """The files of each consume queue and batch queue, by topic and number; other names are passed over."""
    for folder, is_batch in (("consumequeue", False), ("batchconsumequeue", True)):
        for topic in tree.names(f"{root}/{folder}"):
            for queue in tree.names(f"{root}/{folder}/{topic.name}") if topic.is_directory else ():
                if queue.is_directory and _is_number(queue.name):
                    path = f"{root}/{folder}/{topic.name}/{queue.name}"
                    files = tuple(
                        (f"{path}/{each.name}", int(each.name), each.size)
                        for each in tree.names(path)
                        if not each.is_directory and len(each.name) == NAME_DIGITS and _is_number(each.name)
                    )
                    yield QueueFiles(topic.name, int(queue.name), is_batch, files)
