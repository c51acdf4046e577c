"""
The directories of a bookie that does not run, for the commands that look at them or mend them.

Knows: how to be alone with them, and what of the journals is not stored elsewhere yet.
Does not know: what is looked for.

Safety: it holds the lock of every directory until `close`, so no bookie of ours starts meanwhile (Apache's takes no
lock of ours; RocksDB's keeps it out).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from quire.bookie.directory import notes
from quire.bookie.journal.format import BODIES, END, FRAMES, Position, blocks
from quire.bookie.journal.mark import check_marked, lowest, reaches, read_mark
from quire.bookie.journal.replay import Replay
from quire.bookie.layout import LOCK, current, pairs
from quire.conf.bookie import BookieOptions
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0


class Stopped:
    def __init__(self, files: Files, options: BookieOptions) -> None:
        """Raises `StorageError` when a bookie runs there or a directory is missing."""
        self.files = files
        self.options = options
        self.journals = list(map(current, options.journal_directories))
        self.pairs = pairs(options)
        self._locks: list[int] = []
        try:
            for directory in dict.fromkeys((*self.journals, *(pair.logs for pair in self.pairs))):
                self._lock(directory)
        except StorageError:
            self.close()
            raise

    def _lock(self, directory: str) -> None:
        try:
            self._locks.append(self.files.lock(os.path.join(directory, LOCK)))
        except BlockingIOError:
            raise StorageError(f"{directory} is in use: a bookie runs on it; stop it first") from None
        except OSError as error:
            raise StorageError(f"{directory}: {error.strerror or error}") from None

    def close(self) -> None:
        for lock in self._locks:
            self.files.close(lock)
        self._locks = []

    def marks(self) -> Sequence[Position | None]:
        """Where the next start's replay of each journal begins.  `StorageError` for a damaged mark or note."""
        marks = [(current(path), mark) for path, mark in self._known().items()]
        return lowest(marks, len(self.journals)) or [None] * len(self.journals)

    def replays(self) -> Iterator[tuple[str, Callable[[], Replay]]]:
        """
        Each of our journals: its directory, and a call that looks at it as the next start will.  `StorageError` as
        `marks`, and for a mark that is gone; the call raises what `Replay` does.
        """
        complete = [
            (current(path), mark)
            for path, mark in self._known().items()
            if mark is not None or not notes.is_restoring(self.files, path)
        ]
        check_marked(self.files, complete, self.journals)
        marks, reach = self.marks(), reaches(complete, len(self.journals))
        ran = any(notes.has_run(self.files, path) for path in self.options.ledger_directories)
        for number, path in enumerate(self.options.journal_directories):
            begun = ran and not notes.is_restoring(self.files, path)
            directory = self.journals[number]
            yield directory, partial(Replay, self.files, directory, marks[number], reach=reach[number], ran=begun)

    def _known(self) -> dict[str, list[Position] | None]:
        """The mark of each configured ledger directory that has missed nothing."""
        behind = notes.noted_failed(self.files, self.options.ledger_directories)
        return {
            path: read_mark(self.files, current(path)) for path in self.options.ledger_directories if path not in behind
        }

    def journaled(self) -> set[int]:
        """The ledgers that a replay of our journals will come to.  Raises `StorageError` on damage."""
        found = set()
        for directory, replay in self.replays():
            for data, offset, length in replay().groups():
                try:
                    found |= {
                        ledger for kind, _count, ledger, _begin, _end in blocks(data, offset, length) if kind != END
                    }
                except ValueError as error:
                    raise StorageError(f"journal {directory}: {error}") from error
        return found

    def unflushed(self) -> Iterator[str]:
        """A line for each of our journals that holds something which is not stored elsewhere, or that is damaged."""
        for directory, replay in self.replays():
            entries = others = 0
            try:
                for data, offset, length in replay().groups():
                    for kind, count, _ledger, _begin, _end in blocks(data, offset, length):
                        if kind in (FRAMES, BODIES):
                            entries += count
                        elif kind != END:
                            others += 1
            except (StorageError, ValueError) as error:
                yield f"journal {directory}: {error}"
            if entries or others:
                yield (
                    f"journal {directory} holds {entries} entries and {others} other records that are nowhere else "
                    "yet: start the bookie and stop it cleanly"
                )
