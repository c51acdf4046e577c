"""
The start of a storage: its directories are made, locked and opened, its journals replayed and opened, what an Apache
bookie left is taken over.  A ledger directory whose disk is dead fails at once while another is usable.

Knows: the order of these steps, how a dead disk differs from a wrong configuration, and where each journal's replay
begins for each directory.
Does not know: what a block changes (`contents`), what becomes of the ledgers of a failed directory (`ledgers`).

It blocks, before any port opens and any thread runs.

Safety:
* only an error of the disk itself fails a directory.  One that is empty, damaged, locked or of another bookie stops the
  start, and so does a dead disk that has a journal, or the last one;
* what a directory's mark covers is not replayed into it, however far back a replay goes for other directories;
* nothing is written to a journal before a mark that covers it;
* a journal, a mark or a file of them that was there and is gone stops the start, unless what it held is in limbo.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from twisted.logger import Logger

from quire.bookie.apache.left_index import doubted
from quire.bookie.apache.takeover import Moving
from quire.bookie.directory import notes
from quire.bookie.directory.directories import DeadDirectory, Directories
from quire.bookie.journal.format import START, Position, blocks, sequence_at
from quire.bookie.journal.mark import check_marked, lowest, reaches, read_mark, write_mark
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import JournalOptions
from quire.bookie.layout import Pair, current, pairs
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.contents import Contents
from quire.bookie.storage.journals import Journals
from quire.bookie.storage.parts import StorageParts
from quire.conf.bookie import BookieOptions
from quire.rows.files import Files, StorageError, is_dead
from quire.rows.rocks_check import lost_writes

# SPDX-License-Identifier: Apache-2.0

log = Logger()
T = TypeVar("T")
OVERFULL = 2  # a start on full disks keeps so many times the write cache in memory


class DirectoriesAtStart:
    """`failed`: configured ledger directories that have failed, and why; it grows, and later steps skip them."""

    def __init__(
        self, files: Files, options: BookieOptions, directories: Directories, failed: Mapping[str, str]
    ) -> None:
        self.failed = dict(failed)
        self._files = files
        self._options = options
        self._directories = directories
        self._indexes = dict(pairs(options))  # of each ledger directory

    @property
    def usable(self) -> list[str]:
        """The configured ledger directories that have not failed."""
        return [path for path in self._indexes if path not in self.failed]

    def make(self) -> None:
        """Makes and locks all directories."""
        for path in self._options.journal_directories:
            self._files.make_directories(current(path))
            self._directories.lock(path)
        self.each(self._make)

    def _make(self, ledgers: str) -> None:
        for path in dict.fromkeys((ledgers, self._indexes[ledgers])):
            self._files.make_directories(current(path))
            self._files.names(current(path))
        if ledgers not in self._options.journal_directories:
            self._directories.lock(ledgers)

    def each(self, step: Callable[[str], T], paths: Sequence[str] | None = None) -> dict[str, T]:
        """Does a step in every usable directory (of `paths`), returns results; a dead disk fails its own."""
        results: dict[str, T] = {}
        for path in self.usable:
            if paths is not None and path not in paths:
                continue
            try:
                results[path] = step(path)
            except OSError as error:
                if not is_dead(error) or path in self._options.journal_directories or len(self.usable) == 1:
                    raise
                self.failed[path] = str(error)
        return results

    def moving(self, step: Callable[[Moving], None]) -> Moving:
        """Does a step of moving in, in all at once.  If it fails, each is tried alone to find the dead disk."""
        while True:
            try:
                moving = self._moving_of(self.usable)
                step(moving)
            except OSError:
                before = len(self.failed)
                self.each(lambda path: self._moving_of([path]).check())
                if len(self.failed) == before:
                    raise
            else:
                return moving

    def _moving_of(self, paths: list[str]) -> Moving:
        return Moving(
            self._files, self._options.journal_directories, [Pair(path, self._indexes[path]) for path in paths]
        )

    def open(self, marks: Mapping[str, list[Position] | None]) -> None:
        """Opens all, those that have failed as stand-ins.  `marks`: of each usable one its mark, if it has one."""

        def one(path: str) -> None:
            self._directories.open(Pair(path, self._indexes[path]), marks[path] is not None)

        for path, index in self._indexes.items():
            self.each(one, [path])
            if path in self.failed:
                self._directories.all.append(DeadDirectory(path, index, self.failed[path]))


class Opening:
    """Fills the parts of a storage, which are built and empty."""

    def __init__(
        self,
        parts: StorageParts,
        options: BookieOptions,
        journals: Journals,
        checkpoints: Checkpoints,
        contents: Contents,
    ) -> None:
        self._files = parts.files
        self._options = options
        self._directories = parts.directories
        self._journals = journals
        self._ledgers = parts.ledgers
        self._cache = parts.cache
        self._checkpoints = checkpoints
        self._contents = contents
        self._counters = parts.counters

    def start(self, failed: Mapping[str, str]) -> None:
        """Once.  `failed`: ledger directories, and why.  `StorageError`, `OSError`: the storage closes what is open."""
        directories = self._directories
        at_start = DirectoriesAtStart(self._files, self._options, directories, failed)
        at_start.make()
        moving = at_start.moving(Moving.check)
        # before anything is opened, for RocksDB removes what it has read
        if lost := [*moving.lost_journals(), *lost_writes(moving.stores, self._files)]:
            log.warn("storage: all ledgers may lack entries, keys or fences here: {lost}", lost="; ".join(lost))
            notes.note_failed(self._files, at_start.usable, at_start.usable)
        marks = at_start.each(lambda path: read_mark(self._files, current(path)))
        at_start.open(marks)
        # Which failed in an earlier run: of these, those that are back have their ledgers put in limbo after the start.
        named = set().union(*at_start.each(lambda path: notes.named_failed(self._files, path)).values())
        self._notice(at_start.failed)
        directories.are_stale(named)
        noted = at_start.each(lambda path: notes.noted_doubted(self._files, path))
        directories.doubt_again(frozenset().union(*noted.values()))
        if at_start.failed and moving.arriving:
            reasons = "; ".join(at_start.failed.values())
            raise StorageError(f"{reasons}: what an Apache bookie left is taken over as a whole or not at all")
        moving.begin(directories.usable)
        # Damage is no torn end in what cannot have been lost; where it can, all ledgers are put in limbo.
        boot = self._files.boot_id()
        said = at_start.each(lambda path: notes.whole(self._files, path, self._options, boot))
        # all are stale after a rebuild of the index, and their notes are of the last run
        told = [path for path in said if path not in directories.stale] or said
        whole = [each for path in told if (each := said[path]) is not None]
        synced = all(whole) if whole else self._options.journal_sync_data
        restored = at_start.each(lambda path: notes.is_restoring(self._files, path))
        ran = any(at_start.each(lambda path: notes.has_run(self._files, path)).values())
        complete = {path: marks[path] for path in at_start.usable if path not in directories.stale}
        behind = self._replay(
            complete,
            [path for path, being_restored in restored.items() if being_restored],
            synced,
            ran,
        )
        self._move_in(moving)
        if behind:
            self._checkpoints.make_now()
        elif not moving.arriving:  # then a checkpoint has written them
            # one that failed before it had a mark, and is back, gets what is replayed into the others
            journals = len(self._options.journal_directories)
            begins = lowest([(current(path), mark) for path, mark in complete.items()], journals)
            start = [START] * journals if begins is None else begins
            bare = [path for path, mark in marks.items() if mark is None]
            at_start.each(
                lambda path: write_mark(self._files, current(path), start),
                [path for path in bare if not restored.get(path, False)],
            )
        at_start.moving(Moving.finish)
        self._notice(at_start.failed)
        if any(marks.get(path) is None for path in at_start.failed):
            directories.note()  # the next start misses no mark there
        for journal in self._journals.all:
            journal.start()

    def _notice(self, failed: Mapping[str, str]) -> None:
        self._directories.fail_configured(failed)
        self._checkpoints.notice_failed()

    def _replay(
        self, marks: Mapping[str, list[Position] | None], restored: Sequence[str], synced: bool, ran: bool
    ) -> bool:
        """
        Replays and opens all journals.  `marks`: of each directory that missed nothing its mark, if it has one.
        `restored`: the directories that lost what they had.  `synced`: what the last run wrote to the journals was
        synced, or has been in the page cache since.  `ran`: that run did not end cleanly.
        True: what is written from now on would come before a mark, or before what it follows, though it is in no
        directory; a checkpoint must be made first.
        """
        journals = self._options.journal_directories
        begins = lowest([(current(path), mark) for path, mark in marks.items()], len(journals))
        same = not self._directories.stale and all(mark == begins for mark in marks.values())
        self._checkpoints.begin_at(begins if same else None)
        complete = [(current(path), mark) for path, mark in marks.items() if mark is not None or path not in restored]
        check_marked(self._files, complete, list(map(current, journals)))
        reach = reaches(complete, len(journals))
        ahead = False
        for number, path in enumerate(journals):
            stored = [
                None if mark is None or number >= len(mark) else mark[number]
                for mark in map(marks.get, self._options.ledger_directories)
            ]
            replay = Replay(
                self._files,
                current(path),
                None if begins is None else begins[number],
                synced,
                reach[number],
                ran and not notes.is_restoring(self._files, path),
            )
            end = self._open_journal(path, replay, stored)
            ahead = ahead or any(position is not None and end < position for position in stored)
        # Ledgers have another journal than before when one was added, and a later replay would come to that of some
        # first.
        added = self._counters.replayed_groups > 0 and not all(journal.segments for journal in self._journals.all)
        return ahead or added

    def _open_journal(self, path: str, replay: Replay, stored: Sequence[Position | None]) -> Position:
        """
        Replays and opens a journal; returns where it ends.  `stored`: up to where each ledger directory has what the
        journal holds of its ledgers; None: it may lack any of it.  Blocks before that are not applied: since then rows
        may have come to say what was never in the journal.
        """
        count = len(stored)
        for data, offset, length in replay.groups():
            self._counters.replayed_groups += 1
            sequence = sequence_at(data, offset)
            old = {
                number
                for number, position in enumerate(stored)
                if position is not None and sequence < position.sequence
            }
            try:
                for block in blocks(data, offset, length):
                    if block[2] % count not in old:
                        self._contents.apply(data, *block)
            except ValueError as error:
                raise StorageError(f"journal {current(path)}: {error}") from error
            self._spill_if_full()
        if replay.torn is not None:
            log.info("journal: torn tail at {where}; what was not acknowledged is cut off", where=replay.torn)
        return self._journals.open(current(path), replay, JournalOptions.of(self._options)).position

    def _move_in(self, moving: Moving) -> None:
        """Makes ours what an Apache bookie's journals hold, durably, and keeps Apache out."""
        if not moving.arriving:
            return
        log.info("storage: taking over what an Apache bookie left")
        for block in moving.blocks():
            self._contents.apply_apache(*block)
            self._spill_if_full()
        for cut in moving.cuts:
            log.info("journal: torn tail at {where}; what was not acknowledged is cut off", where=cut)
        if self._ledgers.in_limbo(self._directories.limbo_ledgers(), self._directories.has_failed):
            notes.note_limbo(self._files, self._options, notes.COPYING)  # as Apache's integrity check left them
        self._checkpoints.make_now()
        if not self._directories.stale:
            usable = self._directories.usable
            self._directories.doubt(frozenset().union(*(doubted(each.logs, each.index, each.table) for each in usable)))

    def _spill_if_full(self) -> None:
        if self._cache.full:
            self._checkpoints.spill(OVERFULL * self._options.write_cache_bytes_max)
