"""
What a disk was asked to do, written down, so that the power can be cut at every place of it afterwards.

`RecordingDisk` is the simulated disk of the storage's tests that also writes a `Tape`: every write, sync, rename,
unlink, every change and sync of the rows (index, ledger table), and what the story says in between (`note`: asked for,
acknowledged).  `Ground` follows a tape event by event and knows at each one what a power loss leaves for certain
(`durable`) and what may or may not have come through (`loose`, in order).  `aftermaths` gives the disks that a cut
there may leave.
"""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from quire.rows.contract import Row
from quire.rows.files import Buffer
from tests.bookie.fakes.disk import SECTOR, Disk, Inode, WatchedRows, put
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


class Tearable(ABC):
    """A change of rows that a crash may tear."""

    @abstractmethod
    def tears(self, dice: random.Random, every: bool) -> Iterator["Tearable"]: ...


class Event(NamedTuple):
    """`kind` and what it is about; `kind` "note" is the story's, all others are calls that change the disk."""

    kind: str
    subject: Any  # file: its number on this tape; rows and directories: their path; note: anything
    detail: Any = None

    def __str__(self) -> str:
        detail = (
            f"{len(self.detail[1])} bytes at {self.detail[0]}"
            if self.kind == "write"
            else ("" if callable(self.detail) else self.detail)
        )
        return f"{self.kind} {self.subject} {detail}"


class TapedRows(WatchedRows):
    """Rows whose changes go to the tape too."""

    def __init__(self, rows: DictRows | None, path: str, events: list[Event], ask: Callable[[str, str], None]) -> None:
        super().__init__(rows, lambda call: ask(call, path))
        self._path = path
        self._events = events

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        puts, deletes = list(puts), list(deletes)
        super().write(puts, deletes)
        self._events.append(Event("rows", self._path, lambda rows: rows.write(puts, deletes)))

    def delete_range(self, low: bytes, high: bytes) -> None:
        super().delete_range(low, high)
        self._events.append(Event("rows", self._path, lambda rows: rows.delete_range(low, high)))

    def sync(self) -> None:
        super().sync()
        self._events.append(Event("sync rows", self._path))


class RecordingDisk(Disk):
    """A disk that begins as `left` (what an earlier crash left, all of it durable) and tapes what is done to it."""

    def __init__(self, left: Disk | None = None) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._numbers: dict[Inode, int] = {}  # keeps them, so that no other is taken for one that is gone
        if left is not None:
            self.inodes, self.rows, self.salts = dict(left.inodes), dict(left.rows), left.salts
        self.start = Ground(self)

    def note(self, subject: object) -> None:
        self.events.append(Event("note", subject))

    def number(self, inode: Inode) -> int:
        """A file's number; it keeps it through renames."""
        return self._numbers.setdefault(inode, len(self._numbers))

    def open(self, path: str, create: bool = False) -> int:
        new = path not in self.inodes
        handle = super().open(path, create)
        if new:
            self.events.append(Event("create", path, self.number(self.inodes[path])))
        return handle

    def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        done = super().pwritev(handle, [data], offset)
        self.events.append(Event("write", self.number(self._handles[handle][1]), (offset, data[:done])))
        return done

    def pwritev_synced(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        done = super().pwritev_synced(handle, buffers, offset)
        self.events.append(Event("sync last", self.number(self._handles[handle][1])))
        return done

    def datasync(self, handle: int) -> None:
        super().datasync(handle)
        self.events.append(Event("sync", self.number(self._handles[handle][1])))

    def sync_names(self, handle: int) -> None:
        path, _inode = self._handles[handle]
        super().sync_names(handle)
        self.events.append(Event("sync directory", path))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.events.append(Event("rename", old, (new, self.number(self.inodes[new]))))

    def unlink(self, path: str) -> None:
        there = path in self.inodes
        super().unlink(path)
        if there:
            self.events.append(Event("unlink", path))

    def remove_tree(self, path: str) -> None:
        there = f"{path}/CURRENT" in self.inodes
        super().remove_tree(path)
        if there:
            self.events.append(Event("remove rows", path))

    def open_rows(self, path: str) -> DictRows:
        self._ask("open rows", path)
        rows = self.rows.get(path)
        if not isinstance(rows, TapedRows):
            self.tape_new(path, {})
            rows = self.rows[path] = TapedRows(rows, path, self.events, self._ask)
        return rows

    def tape_new(self, path: str, image: object) -> None:
        """Rows that were not there yet are made, as `image`."""
        if f"{path}/CURRENT" not in self.inodes:
            inode = self.inodes[f"{path}/CURRENT"] = Inode()
            self.events.append(Event("new rows", path, (self.number(inode), image)))


def dict_disk(images: dict[str, Any]) -> Disk:
    """A disk with these rows."""
    disk = Disk()
    disk.rows = {path: DictRows(found) for path, found in images.items()}
    return disk


def changed(image: Any, changes: Sequence[Callable[[DictRows], None]]) -> dict[bytes, bytes]:
    """A dict of rows after some changes."""
    rows = DictRows(image)
    for change in changes:
        change(rows)
    return rows.as_dict()


class Ground:
    """
    A disk at one event of a tape.  What is in rows is an image: a dict, if no other is known to `changed` (an image
    after the details of some events) and `blank` (a disk without files, with the images of its rows).
    """

    def __init__(
        self,
        disk: RecordingDisk,
        changed: Callable[[Any, Sequence[Any]], Any] = changed,
        blank: Callable[[dict[str, Any]], Disk] = dict_disk,
    ) -> None:
        self._changed = changed
        self._blank = blank
        self.content = {disk.number(inode): bytes(inode.data) for inode in disk.inodes.values()}
        self.names = {path: disk.number(inode) for path, inode in disk.inodes.items()}
        self.rows: dict[str, Any] = {path: rows.as_dict() for path, rows in disk.rows.items()}
        self.salts = disk.salts + 100  # those to come differ from those of the tape
        self.loose: list[Event] = []  # done, and not certain to survive; in the order done

    def follow(self, event: Event) -> None:
        match event.kind:
            case "note":
                return
            case "sync":
                self._settle(lambda loose: loose.kind == "write" and loose.subject == event.subject)
            case "sync last":
                last = self.loose[-1]
                assert (last.kind, last.subject) == ("write", event.subject)
                self._settle(lambda loose: loose is last)
            case "sync directory":
                self._settle(
                    lambda loose: (
                        loose.kind in ("create", "rename", "unlink") and os.path.dirname(loose.subject) == event.subject
                    )
                )
            case "sync rows":
                self._settle(lambda loose: loose.kind == "rows" and loose.subject == event.subject)
            case "new rows":  # RocksDB syncs its own files when it makes them
                number, image = event.detail
                self.content[number] = b""
                self.names[f"{event.subject}/CURRENT"] = number
                self.rows[event.subject] = image
            case "remove rows":
                del self.names[f"{event.subject}/CURRENT"]
                del self.rows[event.subject]
                self.loose = [loose for loose in self.loose if (loose.kind, loose.subject) != ("rows", event.subject)]
            case _:
                self.loose.append(event)

    def name_of(self, number: int) -> str:
        """One that the file had or may have had; empty for none."""
        for loose in reversed(self.loose):
            if loose.kind == "rename" and loose.detail[1] == number:
                return str(loose.detail[0])
            if loose.kind == "create" and loose.detail == number:
                return str(loose.subject)
        return next((path for path, found in self.names.items() if found == number), "")

    def _settle(self, settled: Callable[[Event], bool]) -> None:
        now = [event for event in self.loose if settled(event)]
        if now:
            self.loose = [event for event in self.loose if not settled(event)]
            self.content, self.names, self.rows = self.after(now)

    def after(self, kept: Sequence[Event]) -> tuple[dict[int, bytes], dict[str, int], dict[str, Any]]:
        """What certainly survives, and of the loose events those `kept`."""
        names = dict(self.names)
        written: dict[int, bytearray] = {}
        changes: dict[str, list[Any]] = {}
        for event in kept:
            match event.kind:
                case "create":
                    names[event.subject] = event.detail
                case "rename":
                    names.pop(event.subject, None)
                    new, number = event.detail
                    names[new] = number
                case "unlink":
                    names.pop(event.subject, None)
                case "write":
                    if event.subject not in written:
                        written[event.subject] = bytearray(self.content.get(event.subject, b""))
                    put(written[event.subject], *event.detail)
                case "rows":
                    changes.setdefault(event.subject, []).append(event.detail)
        content = {**self.content, **{number: bytes(data) for number, data in written.items()}}
        rows = {**self.rows, **{path: self._changed(self.rows.get(path), some) for path, some in changes.items()}}
        return content, names, rows

    def disk(self, kept: Sequence[Event]) -> Disk:
        """The disk that a process finds after the power came back."""
        content, names, rows = self.after(kept)
        left = self._blank(rows)
        left.salts = self.salts
        left.inodes = {path: Inode(content.get(number, b"")) for path, number in names.items()}
        left.durable = dict(left.inodes)
        return left

    def aftermaths(self, dice: random.Random, every: bool) -> Iterator[tuple[str, list[Event]]]:
        """
        What may have come through: (in words, events kept).  Nothing; everything; with `every` each prefix of the loose
        events, each of those with the next write torn, each single event lost alone.  Otherwise a torn last write and
        one prefix.  And some part of everything, by sectors.  Rows always keep a prefix of their changes: RocksDB's log
        is replayed in order.
        """
        loose = self.loose
        yield "nothing unsynced survives", []
        if not loose:
            return
        yield "everything survives", loose
        for end in range(len(loose)) if every else {dice.randrange(len(loose)), len(loose) - 1}:
            if end:
                yield f"the first {end} of {len(loose)} unsynced survive", loose[:end]
            for torn in tears(loose[end], dice, every):
                yield f"the first {end} survive, the next is torn: {torn}", [*loose[:end], torn]
        for lost in range(len(loose) - 1) if every else ():
            if loose[lost].kind != "rows":
                yield f"all survive but {loose[lost]}", loose[:lost] + loose[lost + 1 :]
        for number in range(3 if every else 1):
            yield f"some of the unsynced survive ({number})", some_of(loose, dice)


def tears(event: Event, dice: random.Random, every: bool) -> Iterator[Event]:
    """A write of which only the beginning came through, or only the end."""
    if event.kind == "rows" and isinstance(event.detail, Tearable):
        for torn in event.detail.tears(dice, every):
            yield Event("rows", event.subject, torn)
    if event.kind != "write":
        return
    offset, data = event.detail
    if len(data) < 2:
        return
    cuts = {dice.randrange(1, len(data)), len(data) - 1} if every else {dice.randrange(1, len(data))}
    if every and len(data) > SECTOR:
        cuts |= {SECTOR, (len(data) - 1) // SECTOR * SECTOR}
        yield Event("write", event.subject, (offset + SECTOR, data[SECTOR:]))
    for cut in sorted(cuts):
        yield Event("write", event.subject, (offset, data[:cut]))


def some_of(loose: Sequence[Event], dice: random.Random) -> list[Event]:
    """Each sector of each write and each change of names by chance; of each store's rows a prefix."""
    kept: list[Event] = []
    rows_left = {
        path: dice.randrange(1 + sum(event.kind == "rows" and event.subject == path for event in loose))
        for path in {e.subject for e in loose if e.kind == "rows"}
    }
    for event in loose:
        if event.kind == "rows":
            if rows_left[event.subject]:
                rows_left[event.subject] -= 1
                kept.append(event)
        elif event.kind != "write":
            if dice.random() < 0.5:
                kept.append(event)
        else:
            offset, data = event.detail
            for at in range(0, len(data), SECTOR):
                if dice.random() < 0.5:
                    kept.append(Event("write", event.subject, (offset + at, data[at : at + SECTOR])))
    return kept
