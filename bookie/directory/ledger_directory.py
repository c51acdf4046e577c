"""
One ledger directory: its entry logs, its run index, its ledger table.

Knows: how runs become records and index rows, and how rows lead back to bodies (`records` checks them).
Does not know: the write cache, the journal, when to flush.

`flush` and `sync` are one thread's at a time; reads may come from any thread.
Safety: an index row is written only after the record that it names is durable, for rows may survive a power loss before
they are synced; a body that differs from its sum is never given out.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from crc32c import crc32c

from quire.bookie.apache.left_index import open_index
from quire.bookie.directory.records import (
    BATCH_ENTRY,
    BATCH_START,
    EntryDamaged,
    body_of,
    read_bodies,
    read_body,
    records_of,
)
from quire.bookie.index import sequences
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.run import RUN_ENTRIES_MAX, encode_run
from quire.bookie.index.run_index import NewIndex, RunIndex
from quire.bookie.index.sequences import Sequences
from quire.bookie.layout import LEDGERS, OPEN_LOGS_MAX, current
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import SIZE
from quire.protocol.digest import LAC_END, last_add_confirmed
from quire.rows.contract import OpenRows
from quire.rows.files import FULL, Files, NotBegun, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

END_BYTES = 1 << 20  # that must be free for the end of a log: its map has 16 bytes for each ledger


class SyncFailed(StorageError):
    """A sync failed: it stays unknown what of it was written, so it is never tried again."""


def _give_back(store: RunIndex | LedgerTable) -> None:
    """Closes it after an error, which is the one to raise."""
    with suppress(OSError):
        store.close()


class LedgerDirectory:
    """`ledger_path` has the entry logs, `index_path` (often the same) index and table; both are configured."""

    def __init__(
        self,
        files: Files,
        open_rows: OpenRows,
        ledger_path: str,
        index_path: str,
        log_bytes_max: int,
        pause: Callable[[], None],
        marked: bool = False,
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        """`marked`: a checkpoint of ours was here, so nothing missing is made.  `StorageError`, `OSError`."""
        self.path = current(ledger_path)
        self.index_path = current(index_path)
        self.configured = ledger_path
        self.failed: str | None = None  # why: nothing is written to it any more, and what it lacks is unknown
        self._files = files
        self._open_rows = open_rows
        self.logs = EntryLogs(files, self.path, log_bytes_max, logs_open_max)
        runs, ledgers = sequences.index_path(files, self.index_path), os.path.join(self.index_path, LEDGERS)
        for path in (runs, ledgers) if marked else ():
            if not files.exists(os.path.join(path, ROCKSDB_FILE)):
                raise StorageError(
                    f"{path} is gone, yet {self.path} has a mark: entries, keys and fences would seem never to have "
                    "been here; put it back, or run `quire bookie rebuild-index --conf FILE`"
                )
        self.runs_path = runs
        self._pause = pause
        self._sequences = Sequences(files, self.index_path, (runs, ledgers))
        with ExitStack() as opened:  # what is open is closed again when the rest can't be had
            self.table = LedgerTable(open_rows(ledgers))
            opened.callback(_give_back, self.table)
            self.index = open_index(files, open_rows, self.index_path, self.logs, self.table)
            opened.callback(_give_back, self.index)
            self._sequences.check(self.index.sequence, self.table.sequence, runs, ledgers)
            # RocksDB syncs what is in its directory, not the directory's own name
            files.sync_directory(self.index_path)
            files.remove_tree(sequences.other_path(files, self.index_path))  # a copy, or never finished
            opened.pop_all()

    def flush(self, runs: Iterable[tuple[int, int, Sequence[bytes]]]) -> int:
        """
        Writes runs, (ledger, first entry, bodies) by ledger and entry, to entry log and index; returns bytes written.
        The index is not durable before `sync`.  Raises `SyncFailed`, `OSError`.
        """
        logs, index, pause = self.logs, self.index, self._pause
        written = 0
        index.begin()
        rows: list[tuple[int, int, int, bytes]] = []  # ledger, first, count, value: about 5 bytes an entry
        for ledger, first, bodies in runs:
            records, sizes = records_of(bodies)
            log, offset = logs.append(ledger, records)
            written += len(records)
            rows.append((ledger, first, len(sizes), encode_run(log, offset, sizes, list(map(crc32c, bodies)))))
            pause()
        logs.write_out()  # a full disk shows here, where it may be tried again
        self._sync(self.logs)
        index.put_all(rows, pause)
        index.commit()
        return written

    def store_rows(self, rows: Mapping[int, LedgerRow | None]) -> None:
        self.table.write(rows)

    def sync(self) -> None:
        """Entry logs, then index, then table.  `SyncFailed`; `OSError`: full or not begun, it may be tried again."""
        reached = self.index.sequence, self.table.sequence  # before the syncs: whatever comes meanwhile is not covered
        self._sync(self.logs)
        self._sync(self.index)
        self._sync(self.table)
        self._sequences.write(*reached)
        self.logs.settle()

    @property
    def is_stuck(self) -> bool:
        """True if a store has refused a write; the next `sync` opens it again, and it may answer nothing until then."""
        return self.index.is_stuck or self.table.is_stuck

    def _sync(self, part: EntryLogs | RunIndex | LedgerTable) -> None:
        with self._synced(full=part is not self.logs):
            part.sync()

    @contextmanager
    def _synced(self, full: bool) -> Iterator[None]:
        """Makes `SyncFailed` of an error, but where nothing was begun, or the disk is `full` and that may be raised."""
        try:
            yield
        except OSError as error:
            if isinstance(error, NotBegun) or (error.errno in FULL and full):
                raise
            raise SyncFailed(f"ledger directory {self.path}: {error}") from error

    def end_log(self) -> None:
        """Ends the log being written, without its map on a full disk; between checkpoints.  `SyncFailed`, `OSError`."""
        try:
            self.check_room(END_BYTES)  # a file system may tell only at the sync
            self.logs.rotate()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.logs.abandon()
            self.logs.settle()  # what it has was synced with the checkpoint before
            return
        self.sync()

    # Another index

    def begin_index(self) -> tuple[NewIndex, list[int]]:
        """Begins an index beside this one; and the logs of now, none of which grows.  `SyncFailed`, `OSError`."""
        self.logs.rotate()
        self.sync()
        path = sequences.other_path(self._files, self.index_path)
        self._files.remove_tree(path)
        made = self.index.beside = NewIndex(self._open_rows(path))
        return made, self.logs.ids()

    def change_index(self, made: NewIndex) -> None:
        """
        The new one replaces the other, which goes with the last reader that it has, and its files at the next
        start.  Between two checkpoints.  Raises `SyncFailed` when it is not known which of them the next start finds;
        `StorageError`, `OSError`: it is the old one.
        """
        self.sync()
        made.sync()
        with self._synced(full=False):
            self._sequences.forget()
            sequences.change(self._files, self.index_path)
            self.runs_path = sequences.index_path(self._files, self.index_path)
            with suppress(NotBegun):  # the next checkpoint writes them
                self._sequences.write(made.sequence, self.table.sequence)
        self.index = self.index.on(made.rows)

    def give_up_index(self, made: NewIndex) -> None:
        """Removes the new index.  `OSError` afterwards: a full disk is one reason more that its files must go."""
        self.index.beside = None
        with ExitStack() as last:
            last.callback(lambda: self._files.remove_tree(sequences.other_path(self._files, self.index_path)))
            made.close()

    def check_room(self, wanted: int) -> None:
        """Raises `OSError` with ENOSPC when fewer bytes are free than `wanted`."""
        for path in dict.fromkeys((self.path, self.index_path)):
            free = self._files.usage(path).free
            if free < wanted:
                raise OSError(errno.ENOSPC, f"{free} bytes are free, {wanted} are wanted", path)

    def finish_whole(self, log: int, handle: int, at: int, ledgers: dict[int, int]) -> None:
        """As `EntryLogs.finish_whole`.  `SyncFailed`: maybe not durable; any other `OSError`: the log is gone."""
        with self._synced(full=True):
            self.logs.finish_whole(log, handle, at, ledgers)

    def abandon(self) -> None:
        """A flush failed half-way; the next one writes everything again."""
        self.logs.abandon()
        self.index.abandon()

    def read(self, ledger: int, entry: int) -> bytes | None:
        """One body; None when it isn't indexed.  Raises `EntryDamaged`, `OSError`."""
        run = self.index.find(ledger, entry)
        if run is None:
            return None
        try:
            return read_body(self.logs.read, self.path, run, entry)
        except FileNotFoundError:
            run = self.index.find(ledger, entry)  # perhaps its log was compacted away between the two steps
            return None if run is None else read_body(self.logs.read, self.path, run, entry)

    def read_in_memory(self, ledger: int, entry: int, bytes_max: int) -> bytes | None:
        """One body of at most `bytes_max`, if no disk or thread need be waited for; None also where `read` raises."""
        try:
            run = self.index.find(ledger, entry)
            if run is None:
                return None
            offset, size, _check = run.at(entry)
            record = self.logs.read_in_memory(run.log, offset, size + SIZE.size) if size <= bytes_max else None
            return None if record is None else body_of(record, self.path, run, entry)
        except (StorageError, OSError):
            return None

    def read_run(self, ledger: int, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """
        Consecutive bodies from `first` on: at least one if `first` is indexed, then as many as `count_max` (<= 0: no
        limit) and `bytes_max` allow (wire.md 2.4).  Ends before the first that is missing or damaged; raises
        `EntryDamaged` if that is `first`.
        """
        bodies: list[bytes] = []
        room = bytes_max - BATCH_START
        entry = first
        while count_max <= 0 or len(bodies) < count_max:
            run = self.index.find(ledger, entry)
            if run is None:
                break
            last = run.last if count_max <= 0 else min(run.last, first + count_max - 1)
            try:
                some = read_bodies(self.logs.read, self.path, run, entry, last, room, bool(bodies))
            except FileNotFoundError:
                again = self.index.find(ledger, entry)
                if again is None or again.log == run.log:
                    raise
                continue
            except EntryDamaged:
                if bodies:
                    break
                raise
            bodies += some
            entry += len(some)
            room -= sum(map(len, some)) + BATCH_ENTRY * len(some)
            if entry <= run.last:
                break
        return bodies

    def window(self, ledger: int, first: int, bytes_max: int) -> list[bytes]:
        """Reads what a sequential reader will want next: the rest of the run of `first`."""
        run = self.index.find(ledger, first)
        if run is None:
            return []
        return self.read_run(ledger, first, min(run.last - first + 1, RUN_ENTRIES_MAX), bytes_max)

    def survey(self, ledger: int) -> tuple[int, int]:
        """(highest indexed entry, the LAC in it); -1 for what there isn't.  Raises `EntryDamaged`, `OSError`."""
        last = self.index.last(ledger)
        if last < 0:
            return -1, -1
        body = self.read(ledger, last)
        if body is None or len(body) < LAC_END:
            return last, -1
        return last, last_add_confirmed(body)

    def ranges(self, ledger: int) -> Iterator[tuple[int, int]]:
        """(first, count) of what is indexed, ascending; of an index that Apache left some of it perhaps twice."""
        return self.index.ranges(ledger)

    def close(self) -> None:
        """Raises `OSError` after all is closed; not for one that has failed, for nothing is lost by that any more."""
        with ExitStack() as last:
            if self.failed is not None:
                last.enter_context(suppress(OSError))
            last.callback(self.table.close)
            last.callback(self.index.close)
            if self.index.beside is not None:
                last.callback(self.index.beside.close)
            self.logs.close()
