"""
The formats of what is kept about the progress of the metadata store: the file in which a bookie notes how far the store
had come, and the note in the store itself that says that it was set back.

File `quire.store` in the `current/` of every ledger directory, text:

    quire.store 1                  name and version
    cluster: ID                    the cluster that the numbers are of
    changes: N                     the store's own counter
    ledgers: N …                   the first ledger id that was not given yet; where the store has several counters, as
                                   in Apache's layout of etcd, that of each one's range (`metadata/position`)
    chosen: N …                    ids from here on, up to the end of the range, may have been chosen by the ledgers'
                                   creators, not given by the store; -1: none that was seen
    accepted: N                    how often an operator accepted here that the store was set back
    note: N                        the number of the note in the store that was accepted last
    behind: N                      only while the store is behind: the number of the note about that, 0 before it is
                                   written
    found: N N …                   with it: changes and ledgers of the store, when that was found
    doubt: N N N                   only while a ledger here is in doubt: the first such id, the one behind the last, and
                                   `cleared` of the note in which that is said; -1 before it is written
    bound: N …                     with one of both: ids from here on are not raised over by this bookie
    strangers: N …                 ids that an operator said are strangers'
    CRC32C of the lines before, in hex

The note is in the store itself (`MetadataStore.read_set_back`), JSON: {"number", "accepted", "ledgers", "bookies":
{ID: {"changes", "ledgers", "unknown"}}, "doubts": {ID: [ledger, ...]}, "cleared", "passed": [[from, to], ...]}; notes
of earlier versions lack the last three: doubts of single bookies, how often an operator has cleared them, and ids from
the first up to the second, without it, that the store passed over for doubts.  Both "ledgers" are a number, or a list
where the store has several counters.

In Apache's layout an earlier version wrote, of both kinds, one number: the highest.

Knows: these formats.  Does not know: when the store is behind, what follows (`store_guard`).
Safety: a damaged file or note raises an error that names it; it is never read as "nothing was seen".
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from crc32c import crc32c

from quire.bookie.layout import STORE, current
from quire.metadata.formats.json_text import parse_json
from quire.metadata.position import END, NOTHING, RANGES_MAX, Position
from quire.metadata.store import Progress
from quire.protocol.errors import MetaStore
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0

HEAD = "quire.store 1"
START = Progress(0, NOTHING)
LATER = "doubts", "cleared", "passed"  # in the note, what earlier versions do not know


@dataclass(frozen=True, slots=True)
class Seen:
    """The contents of the file.  `behind` is None unless the store is."""

    cluster: str
    changes: int = 0
    ledgers: Position = NOTHING
    chosen: tuple[int, ...] = ()
    accepted: int = 0
    note: int = 0
    behind: int | None = None
    found: Progress = START
    doubt: tuple[int, int, int] | None = None
    bound: Position = NOTHING
    strangers: tuple[int, ...] = ()

    def encode(self) -> bytes:
        lines = [HEAD, f"cluster: {self.cluster}"]
        lines += [f"changes: {self.changes}", f"ledgers: {words(self.ledgers)}", f"chosen: {words(self.chosen) or -1}"]
        lines += [f"accepted: {self.accepted}", f"note: {self.note}"]
        if self.behind is not None:
            lines += [f"behind: {self.behind}", f"found: {self.found.changes} {words(self.found.position)}"]
        if self.doubt is not None:
            lines.append("doubt: {} {} {}".format(*self.doubt))
        if any(self.bound):
            lines.append(f"bound: {words(self.bound)}")
        if self.strangers:
            lines.append(f"strangers: {words(self.strangers)}")
        text = "".join(line + "\n" for line in lines).encode()
        return text + b"%08x\n" % crc32c(text)

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Seen":
        """`StorageError` names the file."""
        text, check = data[:-9], data[-9:]
        lines = text.decode("utf-8", "replace").splitlines()
        if check != b"%08x\n" % crc32c(text) or lines[:1] != [HEAD]:
            raise StorageError(
                f"{path} at offset {len(text)}: damaged (its checksum is wrong): if the metadata store was not set "
                "back, remove it"
            )
        try:
            values = dict(line.split(": ", 1) for line in lines[1:])
            seen = cls(
                values["cluster"],
                changes=int(values["changes"]),
                ledgers=position_of(numbers(values["ledgers"])),
                chosen=tuple(ledger for ledger in numbers(values["chosen"]) if ledger >= 0),
                accepted=int(values["accepted"]),
                note=int(values["note"]),
                bound=position_of(numbers(values.get("bound", "0"))),
                strangers=numbers(values.get("strangers", "")),
            )
            if "doubt" in values:
                low, high, cleared = map(int, values["doubt"].split())
                seen = replace(seen, doubt=(low, high, cleared))
            if "behind" not in values:
                return seen
            changes, *ledgers = numbers(values["found"])
            return replace(seen, behind=int(values["behind"]), found=Progress(changes, position_of(ledgers)))
        except (ValueError, KeyError):
            raise StorageError(f"{path} is not what this version writes: if an earlier one did, remove it") from None


def words(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def position_of(value: Any) -> Position:
    """A position as it was written, a number or several; `ValueError`, `TypeError` for what is none."""
    found = Position([value] if type(value) is int else value)
    if not 1 <= len(found) <= RANGES_MAX or END % len(found):
        raise ValueError(f"{len(found)} ranges of ids")
    if not all(type(number) is int and 0 <= number < END for number in found):
        raise ValueError(f"{value} is no position")
    return found


def plain(position: Position) -> int | list[int]:
    """A position as JSON has it."""
    return position[0] if len(position) == 1 else list(position)


def read_seen(files: Files, directories: Iterable[str], cluster: str) -> Seen | None:
    """The latest of the directories' files; None where there is none of this cluster.  `StorageError`, `OSError`."""
    latest = []
    for directory in directories:
        path = current(directory, STORE)
        data = files.read_file(path)
        if data is not None:
            latest.append(Seen.decode(data, path))
    ours = [seen for seen in latest if seen.cluster == cluster]
    return max(
        ours, key=lambda seen: (seen.accepted, seen.behind is not None, seen.changes, sum(seen.ledgers)), default=None
    )


def write_seen(files: Files, directories: Iterable[str], seen: Seen) -> None:
    """In each of the directories, durable on return.  `OSError`."""
    for directory in directories:
        files.replace(current(directory, STORE), seen.encode())


def note_of(data: bytes) -> dict[str, Any]:
    """The note in a store as a dictionary; number 0, accepted, if there is none.  `MetaStore` when it can't be read."""
    if not data:
        return {"number": 0, "accepted": True, "ledgers": 0, "bookies": {}, "doubts": {}, "cleared": 0, "passed": []}
    try:
        note: dict[str, Any] = {"doubts": {}, "cleared": 0, "passed": [], **parse_json(data)}
        bookies: dict[str, dict[str, Any]] = note["bookies"]
        numbers = [
            note["number"],
            *position_of(note["ledgers"]),
            note["cleared"],
            *(ledger for each in note["doubts"].values() for ledger in each),
            *(ledger for low, high in note["passed"] for ledger in (low, high)),
            *(each["changes"] for each in bookies.values()),
            *(next_ for each in bookies.values() for next_ in position_of(each["ledgers"])),
        ]
        numbers += [each["unknown"] for each in bookies.values() if each["unknown"] is not None]
        if type(note["accepted"]) is not bool or not all(
            type(number) is int and 0 <= number < 1 << 63 for number in numbers
        ):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise MetaStore(
            f"what is noted in the metadata store about its being set back can't be read: {data[:100]!r}; see "
            "docs/metadata.md"
        ) from None
    return note


def bytes_of(note: dict[str, Any]) -> bytes:
    """The reverse of `note_of`; without what earlier versions do not know, where it says nothing."""
    empty = {name for name in LATER if not note.get(name)}
    return json.dumps({name: value for name, value in note.items() if name not in empty}, sort_keys=True).encode()


def accepted(note: dict[str, Any]) -> dict[str, Any]:
    """The note with which an operator accepts the store as it is, and what was doubted as strangers'."""
    cleared = note["cleared"] + bool(note["doubts"])
    return {**note, "accepted": True, "doubts": {}, "passed": [], "cleared": cleared}
