"""
Verification of every file of a stopped bookie: what a start and every read would check, all at once.

Journals group by group, ledger tables row by row, indexes run by run, and each entry that they name in its log against
size, ids and CRC32C (entries that only Apache's index names have no sum of ours: size and ids).  Marks, cookies, the
heads and ledgers maps of entry logs.  And from the logs to the index: each record of a ledger that the table knows must
be of an entry that an index names, unless the next replay brings it, or the ledger's limbo or drop explains it.

Knows: what must fit to what.  Does not know: how to mend it; the texts name the command that does.
Safety: nothing is changed, and no problem ends it before everything was looked at.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from quire.bookie.apache.idx_files import Pages, idx_ledgers
from quire.bookie.apache.index import ApacheIndex, Locations, record_at
from quire.bookie.apache.left_index import has_idx, has_locations
from quire.bookie.apache.takeover import Moving
from quire.bookie.directory.records import damaged, damages
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.rocks import open_read_only
from quire.bookie.index.run import BEHIND_ALL, Run, run_bytes
from quire.bookie.index.run_index import RunIndex
from quire.bookie.index.sequences import Sequences, index_path
from quire.bookie.journal.format import (
    BODIES,
    DELETED,
    FRAMES,
    LIMBO,
    UNJOURNALED,
    blocks,
    split_bodies,
    split_frames,
)
from quire.bookie.layout import COOKIE, LEDGERS, LOCATIONS, MARK, SECOND_RUNS, Pair
from quire.bookie.logs.format import HEADER, HEADER_BYTES, IDS, MAGIC, SIZE, log_id, log_name, read_map
from quire.bookie.logs.walk import RECORD_BYTES_MAX, LogWalk, unnamed
from quire.bookie.offline.stopped import Stopped
from quire.protocol.digest import entry_id
from quire.rows.contract import OpenRows, Rows
from quire.rows.files import Files, StorageError
from quire.rows.rocks_check import ROCKSDB_FILE, Torn, lost_writes

# SPDX-License-Identifier: Apache-2.0

PROBLEMS_MAX = 1000
APACHE_ENTRIES = 256
OPEN_LOGS_MAX = 32


@dataclass
class Report:
    """The files that were looked at, and a line for each problem, with file and offset where there are any."""

    journal_groups: int = 0
    entry_logs: int = 0
    ledgers: int = 0
    entries: int = 0
    entry_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    problems_left_out: int = 0
    notes: list[str] = field(default_factory=list)  # nothing is wrong, but worth knowing

    def bad(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_left_out += 1


class LogFiles:
    """The entry logs of one directory, for reading only."""

    def __init__(self, files: Files, directory: str) -> None:
        self.directory = directory
        self.ids = sorted(found for name in files.names(directory) if (found := log_id(name)) is not None)
        self._files = files
        self._open: dict[int, int] = {}

    def path(self, log: int) -> str:
        return os.path.join(self.directory, log_name(log))

    def read(self, log: int, offset: int, count: int) -> bytes:
        handle = self._open.get(log)
        if handle is None:
            if len(self._open) >= OPEN_LOGS_MAX:
                self.close()
            handle = self._open[log] = self._files.open(self.path(log))
        return self._files.read(handle, count, offset)

    def size(self, log: int) -> int:
        self.read(log, 0, 0)
        return self._files.size(self._open[log])

    def close(self) -> None:
        for handle in self._open.values():
            self._files.close(handle)
        self._open = {}


class Replayed:
    """
    The replay of the next start: entries by ledger, as ranges in the order of the journals; `explained`: ledgers of
    which entries may be missing, for they are deleted, dropped or in limbo.
    """

    def __init__(self) -> None:
        self.explained: set[int] = set()
        self.arriving = False  # an Apache bookie left these directories, and they were not taken over yet
        self._ranges: dict[int, list[list[int]]] = {}

    def add(self, ledger: int, first: int, count: int) -> None:
        ranges = self._ranges.setdefault(ledger, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] += count
        else:
            ranges.append([first, first + count - 1])

    def until(self, ledger: int, entry: int) -> int:
        """The last of the consecutive entries from this one on that one range has; less than it for none."""
        return next((last for first, last in self._ranges.get(ledger, ()) if first <= entry <= last), entry - 1)


class Unnamed(NamedTuple):
    """Entries of one ledger in one log that no index names."""

    log: int
    offset: int  # of the first record
    newest: int  # offset of the last record
    first: int
    last: int
    entries: int


def verify(stopped: Stopped, open_rows: OpenRows = open_read_only) -> Report:
    report = Report()
    _cookies(stopped, report)
    replayed = Replayed()
    _journals(stopped, replayed, report)
    for pair in stopped.pairs:
        _directory(stopped.files, pair, open_rows, replayed, report)
    return report


def _cookies(stopped: Stopped, report: Report) -> None:
    directories = dict.fromkeys(
        (*stopped.journals, *(directory for pair in stopped.pairs for directory in (pair.logs, pair.rows)))
    )
    cookies = {directory: stopped.files.read_file(os.path.join(directory, COOKIE)) for directory in directories}
    for directory, cookie in cookies.items():
        if cookie is None:
            report.bad(f"{os.path.join(directory, COOKIE)} is missing")
        elif cookie != next(found for found in cookies.values() if found is not None):
            report.bad(f"{os.path.join(directory, COOKIE)} differs from the one in {next(iter(cookies))}")


def _journals(stopped: Stopped, replayed: Replayed, report: Report) -> None:
    try:
        moving = Moving(stopped.files, stopped.options.journal_directories, stopped.pairs)
        replayed.arriving = moving.arriving
        for lost in (*moving.lost_journals(), *lost_writes(moving.stores, stopped.files)):
            report.bad(f"{lost}; the next start puts its ledgers in limbo, to be compared with other bookies")
        moving.check()
        left = 0
        for block in moving.blocks():
            left += len(block.bodies)
            if block.kind >= 0:
                replayed.add(block.ledger, block.kind, len(block.bodies))
        if left:
            report.notes.append(f"{left} entries and keys are in Apache's journal only; the next start takes them over")
        report.notes += [f"cut off, and never acknowledged: {cut}" for cut in moving.cuts]
        replays = list(stopped.replays())
    except StorageError as failure:
        report.bad(str(failure))
        return
    for directory, begin_replay in replays:
        try:
            replay = begin_replay()
            for data, offset, length in replay.groups():
                report.journal_groups += 1
                for kind, count, ledger, begin, end in blocks(data, offset, length):
                    if kind in (FRAMES, BODIES):
                        bodies = (split_frames if kind == FRAMES else split_bodies)(data, begin, end, count)
                        if bodies:
                            replayed.add(ledger, entry_id(bodies[0]), count)
                    elif kind in (DELETED, LIMBO, UNJOURNALED):
                        replayed.explained.add(ledger)
            if replay.torn is not None:
                report.notes.append(f"torn, and never acknowledged: {replay.torn}")
        except (StorageError, ValueError) as failure:
            report.bad(f"journal {directory}: {failure}")


def _directory(files: Files, pair: Pair, open_rows: OpenRows, replayed: Replayed, report: Report) -> None:
    stores: list[Rows] = []
    torn: set[str] = set()  # of these the start alone is wanted

    def opened(path: str) -> Rows | None:
        if not files.exists(os.path.join(path, ROCKSDB_FILE)):
            return None
        try:
            stores.append(open_rows(path))
        except (StorageError, OSError) as failure:
            report.bad(str(failure))
            if isinstance(failure, Torn):
                torn.add(path)
            return None
        return stores[-1]

    logs = LogFiles(files, pair.logs)
    try:
        try:
            place = index_path(files, pair.rows)
        except StorageError as failure:
            report.bad(str(failure))
            place = os.path.join(pair.rows, SECOND_RUNS)
        paths = place, os.path.join(pair.rows, LEDGERS)
        runs, ledgers = map(opened, paths)
        for path, rows in zip(paths, (runs, ledgers), strict=True):
            if rows is None and path not in torn and logs.ids and files.exists(os.path.join(pair.logs, MARK)):
                report.bad(f"{path} is gone or can't be read: run `quire bookie rebuild-index --conf FILE`")
        if runs is not None and ledgers is not None:
            try:
                Sequences(files, pair.rows, paths).check(runs.sequence, ledgers.sequence, *paths)
            except StorageError as failure:
                report.bad(str(failure))
        _logs(logs, report)
        table = LedgerTable(ledgers) if ledgers is not None else None
        known = _table(table, paths[1], replayed.explained, report) if table is not None else set()
        if runs is not None:
            _runs(runs, logs, known, report)
        apache: ApacheIndex | None = None
        if has_locations(files, pair.rows):
            rows = opened(os.path.join(pair.rows, LOCATIONS))
            apache = Locations(rows, logs.read) if rows is not None else None
        elif has_idx(files, pair.rows):
            apache = pages = Pages(files, pair.rows, logs.read, lambda ledger: None)
            for ledger in idx_ledgers(files, pair.rows):
                known.add(ledger)
                try:
                    pages.header(ledger)
                except (StorageError, OSError) as failure:
                    report.bad(str(failure))
        own = RunIndex(runs) if runs is not None else None
        if apache is not None:
            for ledger in sorted(known):
                _apache(apache, own, logs, ledger, report)
        if own is not None or apache is not None:
            _unnamed(logs, own, apache, known, replayed, report)
    except (StorageError, OSError) as failure:
        report.bad(str(failure))
    finally:
        logs.close()
        for store in stores:
            store.close()


def _logs(logs: LogFiles, report: Report) -> None:
    for log in logs.ids:
        report.entry_logs += 1
        head = logs.read(log, 0, HEADER.size)
        if not head:
            report.notes.append(f"{logs.path(log)} is empty, as one that is made ahead of its first entry")
        elif len(head) < HEADER.size or HEADER.unpack(head)[0] != MAGIC or HEADER.unpack(head)[1] not in (0, 1):
            report.bad(f"{logs.path(log)} at offset 0: no header of an entry log")
        elif HEADER.unpack(head)[2] and read_map(partial(logs.read, log)) is None:
            report.bad(
                f"{logs.path(log)} at offset {HEADER.unpack(head)[2]}: its ledgers map is damaged; the log is "
                "scanned instead"
            )


def _table(table: LedgerTable, path: str, explained: set[int], report: Report) -> set[int]:
    """The ledgers; those of which entries may be missing go to `explained`."""
    known = set()
    limbo = 0
    for ledger in table.ids():
        known.add(ledger)
        try:
            row = table.get(ledger)
            limbo += row is not None and row.limbo
            if row is not None and (row.limbo or row.dropped):
                explained.add(ledger)
        except StorageError as failure:
            report.bad(f"{path}: {failure}")
    report.ledgers += len(known)
    if limbo:
        report.notes.append(f"{path}: {limbo} ledgers are in limbo: what they lack may have been here")
    return known


def _runs(rows: Rows, logs: LogFiles, known: set[int], report: Report) -> None:
    before: Run | None = None
    strays = set()
    for key, value in rows.scan(b"", BEHIND_ALL):
        try:
            run = Run(int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big"), value)
        except StorageError as failure:
            report.bad(str(failure))
            continue
        if before is not None and run.ledger == before.ledger and run.first <= before.last:
            report.bad(
                f"index rows of ledger {run.ledger} overlap: entries {before.first} to {before.last} and from "
                f"{run.first}"
            )
        before = run
        if run.ledger not in known:
            strays.add(run.ledger)
        for problem in _run(run, logs, report):
            report.bad(problem)
    if strays:
        report.notes.append(
            f"the index has rows of {len(strays)} ledgers that the ledger table does not know; they were deleted a "
            "moment before the stop"
        )


def _run(run: Run, logs: LogFiles, report: Report) -> Iterator[str]:
    """Yields what is wrong with the entries of one run."""
    try:
        data = logs.read(run.log, run.offset, run_bytes(run))
    except OSError as failure:
        yield (
            f"{logs.path(run.log)}: {failure.strerror or failure}; entries {run.first} to {run.last} of ledger "
            f"{run.ledger} are in it"
        )
        return
    report.entries += run.count
    report.entry_bytes += sum(run.sizes())
    for entry, offset in damages(run, data):
        yield str(damaged(logs.directory, run, entry, offset))


def _apache(apache: ApacheIndex, own: RunIndex | None, logs: LogFiles, ledger: int, report: Report) -> None:
    """The entries of a ledger that only Apache's index names."""
    try:
        at = apache.following(ledger, 0)
        while at is not None:
            run = own.find(ledger, at) if own is not None else None
            if run is not None:
                at = apache.following(ledger, run.last + 1)
                continue
            places = apache.locations(ledger, at, APACHE_ENTRIES)
            for entry, place in enumerate(places, at):
                if own is not None and own.find(ledger, entry) is not None:
                    continue
                log, start = record_at(place, ledger, entry)
                head = logs.read(log, start, SIZE.size + IDS.size)
                size = SIZE.unpack_from(head)[0] if len(head) == SIZE.size + IDS.size else 0
                whole = size >= IDS.size and len(logs.read(log, start + SIZE.size + size - 1, 1)) == 1
                if not whole or IDS.unpack_from(head, SIZE.size) != (ledger, entry):
                    report.bad(
                        f"{logs.path(log)} at offset {start}: no whole record of entry {entry} of ledger {ledger}, "
                        "which Apache's index says is there"
                    )
                report.entries += 1
                report.entry_bytes += size
            at = apache.following(ledger, at + max(1, len(places)))
    except (StorageError, OSError) as failure:
        report.bad(f"ledger {ledger} in Apache's index: {failure}")


def _unnamed(
    logs: LogFiles,
    own: RunIndex | None,
    apache: ApacheIndex | None,
    known: set[int],
    replayed: Replayed,
    report: Report,
) -> None:
    """From the logs to the index."""
    strangers = set[int]()
    found: dict[int, list[Unnamed]] = {}  # by ledger, ascending by log

    def counts(ledger: int) -> bool:
        if ledger not in known:
            strangers.add(ledger)
            return False
        return ledger not in replayed.explained

    def named(ledger: int, entry: int) -> int:
        last = own.named(ledger, entry) if own is not None else -1
        if last < entry and apache is not None:
            last = entry - 1 + len(apache.locations(ledger, entry, APACHE_ENTRIES))
        return last if last >= entry else replayed.until(ledger, entry)

    for log in logs.ids:
        size = logs.size(log)
        walk = LogWalk(partial(logs.read, log), size, logs.path(log), RECORD_BYTES_MAX)
        for ledger, entry, at in unnamed(walk, size, named, counts):
            of_ledger = found.setdefault(ledger, [])
            if not of_ledger or of_ledger[-1].log != log:
                of_ledger.append(Unnamed(log, at, at, entry, entry, 1))
            else:
                have = of_ledger[-1]
                low, high = min(have.first, entry), max(have.last, entry)
                of_ledger[-1] = Unnamed(log, have.offset, at, low, high, have.entries + 1)
        if walk.problem is not None and not walk.cut and size > HEADER_BYTES:
            report.notes.append(f"{walk.problem}; those were only looked at where an index names them")
    for ledger, of_ledger in found.items():
        newest = of_ledger[-1].log, of_ledger[-1].newest
        left = not replayed.arriving and any(newest < place for place in _oldest(own, apache, ledger))
        for log, at, _newest, low, high, count in of_ledger:
            line = (
                f"{logs.path(log)} at offset {at}: {count} entries of ledger {ledger} ({low} to {high}) are in no index"
            )
            if left:
                report.notes.append(
                    f"{line}; all that is indexed of it was written later, so an earlier ledger of that id left them, "
                    "or a copy that was given up; or else `quire bookie rebuild-index --conf FILE` brings them back"
                )
            else:
                report.bad(f"{line}, though the ledger is known: run `quire bookie rebuild-index --conf FILE`")
    if strangers and replayed.arriving:
        report.notes.append(
            f"{logs.directory}: its logs have entries of {len(strangers)} ledgers that no ledger table knows: deleted, "
            "or lost with their rows; the next start asks the metadata store, and puts those that it has in limbo"
        )


def _oldest(own: RunIndex | None, apache: ApacheIndex | None, ledger: int) -> list[tuple[int, int]]:
    """(log, offset) of what was written first of all that is indexed of a ledger; empty when nothing is."""
    places = [(run.log, run.offset) for run in own.runs(ledger)] if own is not None else []
    if apache is not None:
        for first, count in apache.ranges(ledger):
            places += [(place >> 32, place & 0xFFFFFFFF) for place in apache.locations(ledger, first, count)]
    return [min(places)] if places else []
