"""
The index rebuilt from the entry logs, for a stopped bookie whose own was lost or damaged; also from logs that Apache
wrote.

Every record of every log becomes part of a run, in the order of logs and offsets: of copies of one entry the later
counts, as in Apache's rebuild.  Records of ledgers that the ledger table does not know are passed over: those ledgers
were deleted.  Without a table all ledgers are taken, also those that only the journal names, each fenced and without a
key (the next caller gives it).  What is new is built beside the old, synced, and takes its place by renames; the old
index is kept as `runs.old`, an old table as `ledgers.old`.

Knows: how to read records that no index vouches for.  Does not know: deletions that only the metadata store knows
(garbage collection finds them).
Safety: what the logs do not show any more (a damaged record, a fence of a ledger without entries) may not be denied:
the directories are noted as if they had failed, so the next start puts in limbo, and fences, what the metadata
names, until it was compared with other bookies.  The ledgers of a log that can't be read to its end are put in limbo at
once.
The sums are those of what the logs hold now: damage done to an entry before a rebuild is found by its own digest only.
"""

import os
from contextlib import ExitStack
from dataclasses import dataclass, field

from quire.bookie.apache.left_index import has_idx, has_locations, kind_of
from quire.bookie.directory import notes
from quire.bookie.index.ledger_table import LedgerRow, LedgerTable
from quire.bookie.index.rocks import open_rows as open_rocks
from quire.bookie.index.run import LogRuns
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import Sequences, forget
from quire.bookie.layout import APACHE_KIND, LEDGERS, RUNS, SECOND_RUNS, SLOT, Pair, share_of
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import log_name, read_map
from quire.bookie.logs.walk import LogWalk
from quire.bookie.offline.stopped import Stopped
from quire.rows.contract import OpenRows
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE

# SPDX-License-Identifier: Apache-2.0

NEW, OLD = ".new", ".old"
ROWS_AT_ONCE = 1000


@dataclass
class Rebuilt:
    """The outcome for one ledger directory."""

    directory: str
    logs: int = 0
    entries: int = 0  # records taken, copies of one entry each counted
    ledgers: int = 0
    passed_over: int = 0  # records of ledgers that are not known
    new_table: bool = False
    problems: list[str] = field(default_factory=list)
    limbo: int = 0


def rebuild(stopped: Stopped, open_rows: OpenRows = open_rocks, *, new_table: bool = False) -> list[Rebuilt]:
    """
    Rebuilds the index of every ledger directory; with `new_table` also the ledger table, which is made anyway where it
    is missing. Raises `StorageError` when the table lost rows, and for damage in the journals when it is rebuilt;
    `OSError`.
    """
    directories = stopped.options.ledger_directories
    # before the first is changed; the next start puts their ledgers in limbo
    notes.note_failed(stopped.files, directories, directories)
    found = []
    for number, pair in enumerate(stopped.pairs):
        new = new_table or not stopped.files.exists(os.path.join(pair.rows, LEDGERS, ROCKSDB_FILE))
        journaled = (
            {ledger for ledger in stopped.journaled() if share_of(ledger, len(stopped.pairs)) == number}
            if new
            else set()
        )
        found.append(_rebuild_one(stopped, pair, open_rows, journaled if new else None))
    return found


def _rebuild_one(stopped: Stopped, pair: Pair, open_rows: OpenRows, journaled: set[int] | None) -> Rebuilt:
    """`journaled`: the table is rebuilt with these ledgers too, so that a replay knows them; None: it is kept."""
    files = stopped.files
    done = Rebuilt(pair.logs, new_table=journaled is not None)
    table_path, index_path = os.path.join(pair.rows, LEDGERS), os.path.join(pair.rows, RUNS)
    for path in (table_path, index_path):
        files.remove_tree(path + NEW)
    with ExitStack() as opened:
        logs = EntryLogs(files, pair.logs, 1 << 30)
        opened.callback(logs.close)
        table = LedgerTable(open_rows(table_path + NEW if done.new_table else table_path))
        opened.callback(table.close)
        if not done.new_table:
            _check_table(files, pair.rows, table, table_path)
        index = RunIndex(open_rows(index_path + NEW))
        opened.callback(index.close)
        known: set[int] | None = None if done.new_table else set(table.ids())
        seen: set[int] = set()
        doubtful: set[int] = set()
        for log in logs.ids():
            done.logs += 1
            path = os.path.join(pair.logs, log_name(log))
            doubtful |= _take_log(logs, log, index, done, known, seen, stopped.options.frame_bytes_max, path)
        index.sync()
        if journaled is not None:
            _store(table, {ledger: LedgerRow(b"", fenced=True) for ledger in seen | journaled})
        found = ((ledger, row) for ledger in seen if (row := table.get(ledger)) is not None)
        _store(table, {ledger: row._replace(dropped=False) for ledger, row in found if row.dropped})  # they came back
        limbo = {}
        for ledger in doubtful if -1 not in doubtful else set(table.ids()):
            row = table.get(ledger)
            if row is not None:
                limbo[ledger] = row._replace(limbo=True)
        if limbo:
            notes.note_limbo(files, stopped.options, notes.COPYING)  # the next start copies what they lack
        _store(table, limbo)
        table.sync()
        reached = index.sequence, table.sequence
        done.ledgers, done.limbo = len(seen), len(limbo)
    _put_in_place(files, pair.rows, done.new_table)
    Sequences(files, pair.rows).write(*reached)
    return done


def _put_in_place(files: Files, rows: str, new_table: bool) -> None:
    """The index goes first and comes last: a bookie whose rebuild was interrupted does not start."""
    index, second, table = os.path.join(rows, RUNS), os.path.join(rows, SECOND_RUNS), os.path.join(rows, LEDGERS)
    if files.exists(os.path.join(rows, SLOT)):
        files.remove_tree(index)
        files.rename_aside(second, index + OLD)
    else:
        files.remove_tree(second)
        files.rename_aside(index, index + OLD)
    files.sync_directory(rows)
    forget(files, rows)
    files.unlink(os.path.join(rows, SLOT))
    if new_table:
        files.rename_aside(table, table + OLD)
        files.rename(table + NEW, table)
        files.sync_directory(rows)
    files.rename(index + NEW, index)
    if not kind_of(has_locations(files, rows), has_idx(files, rows)):
        files.unlink(os.path.join(rows, APACHE_KIND))  # Apache's index is gone, and ours has what it had
    files.sync_directory(rows)


def _check_table(files: Files, rows: str, table: LedgerTable, path: str) -> None:
    """A table that lost rows would make entries of their ledgers seem deleted.  Raises `StorageError`."""
    try:
        sequences = Sequences(files, rows)
    except StorageError:
        return  # it is what the rebuild mends: the numbers are unknown by now
    sequences.check(None, table.sequence, os.path.join(rows, RUNS), path)


def _store(table: LedgerTable, rows: dict[int, LedgerRow]) -> None:
    items = list(rows.items())
    for start in range(0, len(items), ROWS_AT_ONCE):
        table.write(dict(items[start : start + ROWS_AT_ONCE]))


def _take_log(
    logs: EntryLogs,
    log: int,
    index: RunIndex,
    done: Rebuilt,
    known: set[int] | None,
    seen: set[int],
    body_bytes_max: int,
    path: str,
) -> set[int]:
    """Puts the records of one log into the index; the ledgers of which it may have held more: -1 means all."""
    walk = LogWalk(lambda offset, count: logs.read(log, offset, count), logs.size(log), path, body_bytes_max)
    runs = LogRuns(walk, log, lambda ledger: known is None or ledger in known)
    index.begin()
    for ledger, first, count, value in runs.rows():
        index.put(ledger, first, count, value)
        seen.add(ledger)
        done.entries += count
    index.commit()
    done.passed_over += runs.passed_over
    mapped = read_map(lambda offset, count: logs.read(log, offset, count))
    if mapped is not None:
        short = {of for of, wanted in mapped.items() if runs.found.get(of, 0) < wanted}
        if short:
            done.problems.append(
                walk.problem or f"{path}: it holds less of {len(short)} ledgers than its ledgers map says"
            )
        return short
    if walk.problem is not None:
        done.problems.append(walk.problem)
        return {-1}
    return set()
