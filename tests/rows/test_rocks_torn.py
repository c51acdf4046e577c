"""
A power loss while RocksDB writes its manifest: whatever sectors of the last write it leaves, the store opens with all
its rows while the files of the state before are there, and never without one of its rows.

An append of the manifest is made here by real flushes and compactions; the files before and after it are kept, so that
the store can be put together as a power loss leaves it: before RocksDB removes what the append made superfluous.
"""

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import pytest
from rocksdict import Options, Rdict

from quire.rows import rocks_check
from quire.rows.files import StorageError
from quire.rows.rocks import RocksRows
from quire.rows.rocks_check import BLOCK_BYTES, SECTOR_BYTES, Torn, check, first_bad, records
from tests.bookie.fakes.disk import Disk
from tests.rows.test_rocks_check import log_of
from tests.rows.test_rocks_manifest import (
    LAST_WRITE,
    LOG,
    NEXT_FILE,
    OLDEST_LOG,
    SECOND_LOG,
    SNAPSHOT,
    fields,
    table,
)

# SPDX-License-Identifier: Apache-2.0

LONG = b"-" * 520  # the first and last key of a table are in the manifest: each append goes over a sector's border


class Append(NamedTuple):
    """A store at one append to its manifest."""

    what: str
    files: Path  # all that were there before it, and those that were made for it
    begin: int  # of the append
    after: bytes  # the manifest
    rows: dict[bytes, bytes]
    sequence: int  # of the last write

    def put(self, torn: bytes, place: Path, without: str = "") -> str:
        """The store as the power loss left it."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.files, place, ignore=lambda _path, _names: [without])
        manifest_of(place).write_bytes(torn)
        return str(place)

    def torn(self) -> Iterator[bytes]:
        """Every choice of sectors that were not written; cut off at each border, and within a sector."""
        borders = range(self.begin - self.begin % SECTOR_BYTES + SECTOR_BYTES, len(self.after), SECTOR_BYTES)
        edges = [self.begin, *borders, len(self.after)]
        assert borders
        for written in product((True, False), repeat=len(edges) - 1):
            if not all(written):
                parts = zip(written, pairwise(edges), strict=True)
                yield self.after[: self.begin] + b"".join(
                    self.after[low:high] if is_written else bytes(high - low) for is_written, (low, high) in parts
                )
        for end in (self.begin + 20, *borders):
            yield self.after[:end]

    def needed(self) -> list[str]:
        """Tables and logs of writes without which RocksDB can't open what was before, or has not all rows."""
        names = []
        for path in [*self.files.glob("*.sst"), *self.files.glob("*.log")]:
            place = self.files.with_name("needed")
            self.put(self.after[: self.begin], place, without=path.name)
            if alone(place) != self.rows:
                names.append(path.name)
        return names


def manifest_of(store: Path) -> Path:
    return store / (store / "CURRENT").read_text().strip()


def copy(source: Path, target: Path) -> Path:
    """A store's files; RocksDB may just be removing what it has no use for."""
    target.mkdir()
    for path in source.iterdir():
        with suppress(FileNotFoundError):
            shutil.copyfile(path, target / path.name)
    return target


def options() -> Options:
    found = Options(raw_mode=True)
    found.set_disable_auto_compactions(True)
    return found


def alone(place: Path) -> dict[bytes, bytes] | None:
    """The rows as RocksDB alone finds them; None when it does not open the store."""
    try:
        rows = Rdict(str(place), options())
    except Exception:  # rocksdict raises it bare
        return None
    try:
        return dict(rows.items())
    finally:
        rows.close()


def opened(place: str) -> tuple[dict[bytes, bytes], int]:
    """The rows of a bookie's start, and the number of the last write, which `quire.rows` is compared with."""
    rows = RocksRows(place)
    try:
        return dict(rows.scan(b"", b"\xff")), rows.sequence
    finally:
        rows.close()


class Lives:
    """A store, and what it appends to its manifest."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "open"
        self.rows: dict[bytes, bytes] = {}
        self.appends: list[Append] = []
        self._step = 0
        self._db = Rdict(str(self.path), options())

    def write(self) -> None:
        """Some are put, some removed."""
        self._step += 1
        low, high = b"%03d" % (self._step + 1), b"%03d" % (self._step + 2)
        rows = {b"%03d" % (self._step * number) + LONG: b"%d" % self._step for number in range(1, 5)}
        for key, value in rows.items():
            self._db[key] = value
        self._db.delete_range(low, high)
        self._db.flush_wal(True)
        self.rows = {key: value for key, value in {**self.rows, **rows}.items() if not low <= key < high}

    def write_apart(self) -> None:
        """What no table has a key near of, so that a compaction of them leaves it in the log of writes."""
        self.rows[b"900"] = self._db[b"900"] = b"apart"
        self._db.flush_wal(True)

    def append(self, what: str) -> None:
        """A flush, or a compaction."""
        files = copy(self.path, self.home / f"files{len(self.appends)}")
        before = manifest_of(files).read_bytes()
        if what == "flush":
            self._db.flush()
        else:
            self._db.compact_range(b"000", b"800")
        for path in self.path.iterdir():
            if path.suffix in (".sst", ".log") and not (files / path.name).exists():
                shutil.copyfile(path, files / path.name)
        after = manifest_of(self.path).read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
        sequence = self._db.latest_sequence_number()
        self.appends.append(Append(what, files, len(before), after, dict(self.rows), sequence))

    def kill(self) -> None:
        """And start again."""
        killed = copy(self.path, self.home / "killed")
        self._db.close()
        shutil.rmtree(self.path)
        killed.rename(self.path)
        self._db = Rdict(str(self.path), options())

    def close(self) -> None:
        self._db.close()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    # In memory where the machine has such a file system: what RocksDB syncs would take most of the time.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as home:
        lives = Lives(Path(home))
        lives.write()
        lives.append("flush")  # the first of all
        lives.write()
        lives.append("flush")
        lives.append("compaction")  # while nothing is in a log of writes
        lives.write()
        lives.kill()
        lives.append("compaction")  # the first one after a start, with an empty log of writes
        lives.write()
        lives.append("flush")
        lives.write_apart()
        lives.append("compaction")  # while something is in a log of writes
        lives.kill()
        lives.write()
        lives.append("flush")
        try:
            yield lives
        finally:
            lives.close()


def test_a_torn_append_is_taken_back(lives: Lives, tmp_path: Path) -> None:
    """All rows are there, and what RocksDB goes on from is the state before; it alone would refuse some."""
    refused = 0
    for append in lives.appends:
        for torn in append.torn():
            place = append.put(torn, lives.home / "copy")
            if first_bad(torn) is not None:
                refused += 1
                with pytest.raises(Torn, match=r"MANIFEST-\d+ at offset \d+: .* nothing is lost, and the next start"):
                    check(place)
                with pytest.raises(Torn):
                    RocksRows(place, read_only=True)
                assert manifest_of(Path(place)).read_bytes() == torn  # whoever only looks changes nothing
            assert opened(place) == (append.rows, append.sequence), append.what
            check(place)
            assert opened(place) == (append.rows, append.sequence)
    assert refused > len(lives.appends)


def test_a_torn_append_with_a_file_of_the_state_before_gone_is_refused(lives: Lives) -> None:
    """As when it was durable and rotted afterwards.  With the file, and what to do; nothing is changed."""
    tried = set()
    for append in lives.appends:
        for name in append.needed():
            tried.add((append.what, name.rpartition(".")[2]))
            for torn in append.torn():
                place = append.put(torn, lives.home / "copy", without=name)
                with pytest.raises(
                    StorageError,
                    match=r"MANIFEST-\d+ at offset \d+: damaged.*(gone|what an open writes).*put it back",
                ):
                    RocksRows(place)
                assert manifest_of(Path(place)).read_bytes() == torn
    assert tried == {("flush", "log"), ("flush", "sst"), ("compaction", "sst"), ("compaction", "log")}


def test_a_torn_append_that_rocksdb_reads_on_behind_is_taken_back(lives: Lives) -> None:
    """
    RocksDB passes over the zeros, to the next block: what was written there, in the same append, says which logs of
    writes it may leave out.
    """
    append = lives.appends[1]
    before = [record for record, _end in records(append.after[: append.begin])]
    flush, oldest_log = [record for record, _end in records(append.after)][len(before) :]
    comparator = before[2]
    filled = log_of(*before)
    room = BLOCK_BYTES - 7 - len(flush)
    while len(filled) + 7 + len(comparator) < room - 7 - 30:
        before.append(comparator)  # once more, which changes nothing
        filled = log_of(*before)
    name = room - len(filled) - 7 - 3
    before.append(b"\x81\x40" + bytes([name]) + b"-" * name)  # an id
    filled, whole = log_of(*before), log_of(*before, flush, oldest_log)
    assert len(whole) == BLOCK_BYTES + 7 + len(oldest_log)
    torn = filled + bytes(BLOCK_BYTES - len(filled)) + whole[BLOCK_BYTES:]
    place = append.put(torn, lives.home / "copy")
    assert alone(Path(place)) != append.rows
    place = append.put(torn, lives.home / "copy")
    assert opened(place) == (append.rows, append.sequence)
    flipped = bytearray(whole)
    flipped[len(filled) + 100] ^= 1
    place = append.put(bytes(flipped), lives.home / "copy")
    with pytest.raises(
        StorageError, match=f"offset {len(filled)}: damaged: a record begins here, and its checksum is wrong"
    ):
        RocksRows(place)


def test_what_is_not_known_is_not_taken_back(lives: Lives) -> None:
    """A field of a later RocksDB in a record before the torn one: it may name files that are not looked for."""
    append = lives.appends[-1]
    before = [record for record, _end in records(append.after[: append.begin])]
    flush = [record for record, _end in records(append.after)][len(before)]
    known = log_of(*before, flush)
    torn = log_of(*before, b"\x92\x40\x00", flush)  # 8210, which RocksDB passes over
    for whole, names in ((known, "nothing is lost"), (torn, r"damaged.*a field 8210, which is not known here")):
        begin = len(whole) - 7 - len(flush)
        cut = begin - begin % SECTOR_BYTES + SECTOR_BYTES
        place = append.put(whole[:cut] + bytes(len(whole) - cut), lives.home / "copy")
        with pytest.raises(StorageError, match=names):
            check(place)


OPEN = fields(LOG, 9, SECOND_LOG, 0, NEXT_FILE, 21, LAST_WRITE, 45)  # what an open appends to `SNAPSHOT`
BEGUN = fields(SECOND_LOG, 0, NEXT_FILE, 21, LAST_WRITE, 0)
FIRST = fields(LOG, 0, LAST_WRITE, 0)  # the snapshot of a new store


@pytest.mark.parametrize(
    ("edits", "logs", "lacks"),
    [
        ([SNAPSHOT, OPEN], {20: None}, None),
        ([SNAPSHOT, OPEN], {20: 46}, None),
        ([SNAPSHOT, OPEN], {20: 47}, "begins with write 47, and those from 46 on are gone"),
        ([SNAPSHOT, OPEN], {22: 46}, "log of writes from 000009.log"),  # begun after the manifest
        ([SNAPSHOT, OPEN], {8: 1}, "log of writes from 000009.log"),
        # the log of writes was begun while others were full, so it had those from 46 on
        ([SNAPSHOT, fields(LOG, 9, NEXT_FILE, 21, LAST_WRITE, 50) + table(18, 45)], {20: None}, "from 000009.log"),
        ([SNAPSHOT, OPEN, fields(OLDEST_LOG, 21, NEXT_FILE, 22)], {20: 46}, "what an open writes"),
        ([SNAPSHOT, BEGUN], {20: 46}, "log of writes from 000008.log"),
        ([SNAPSHOT, BEGUN], {8: 46}, None),  # after a full disk
        ([SNAPSHOT, BEGUN], {8: 46, 20: 49}, None),
        ([SNAPSHOT, BEGUN], {8: 46, 22: None}, None),
        ([SNAPSHOT, BEGUN], {8: 46, 20: None}, "what an open writes"),  # another between may be gone
        ([SNAPSHOT, BEGUN], {8: 46, 20: 50}, "begins with write 50, and those from 49 on are gone"),
        ([FIRST], {4: 1}, "what an open writes"),
        ([FIRST, BEGUN], {4: 1}, None),
        ([FIRST, BEGUN], {4: 1, 22: None}, None),
        ([FIRST, BEGUN], {4: None}, "what an open writes"),  # nothing that a flush or a compaction could have had
        ([FIRST, BEGUN], {4: 2}, "begins with write 2, and those from 1 on are gone"),
        ([FIRST, BEGUN], {22: None}, "log of writes from 000000.log"),
    ],
)
def test_which_log_of_writes_a_state_needs(edits: list[bytes], logs: dict[int, int | None], lacks: str | None) -> None:
    """It is the one that was begun when all before it was put into tables.  `logs`: the first write of three."""
    disk = Disk()
    disk.replace("/i/CURRENT", b"MANIFEST-000021\n")
    disk.replace("/i/MANIFEST-000021", log_of(*edits) + bytes(7))
    for number in (9, 18):
        disk.replace(f"/i/{number:06}.sst", b"")
    for number, first in logs.items():
        disk.replace(f"/i/{number:06}.log", b"" if first is None else log_of(struct.pack("<QI", first, 3)))
    if lacks is None:
        check("/i", disk)
    else:
        with pytest.raises(StorageError, match=f"damaged.*{lacks}"):
            check("/i", disk)


def test_a_snapshot_is_no_state_to_go_back_to(lives: Lives) -> None:
    """What an open appends was durable before CURRENT named the manifest: a part of it that is zeros has rotted."""
    append = lives.appends[-1]
    whole = [(record, end) for record, end in records(append.after[: append.begin])]
    begun = next(number for number, (record, _end) in enumerate(whole) if b"\x09\x00\x03" in record)
    snapshot_end = whole[begun - 1][1]
    place = append.put(append.after[:snapshot_end] + bytes(40), lives.home / "copy")
    with pytest.raises(
        StorageError, match=f"at offset {snapshot_end}: damaged.*end in the midst of what an open writes"
    ):
        RocksRows(place)


def test_a_gap_between_logs_of_writes_is_found(lives: Lives) -> None:
    """Logs are numbered with gaps, writes are not."""
    append = lives.appends[0]
    place = append.put(append.after[: append.begin + 20], lives.home / "copy")
    older, newer = sorted(Path(place).glob("*.log"))
    *_others, (last, end) = records(older.read_bytes())
    first, count = struct.unpack_from("<QI", last)
    following = first + count
    newer.write_bytes(log_of(struct.pack("<QI", following, 1)))
    check(place)
    newer.write_bytes(log_of(struct.pack("<QI", following + 1, 1)))
    with pytest.raises(
        StorageError, match=rf"{newer} begins with write {following + 1}, and those from {following} on"
    ):
        check(place)
    newer.write_bytes(log_of(bytes(11)))
    with pytest.raises(StorageError, match=rf"{newer} holds a record of 11 bytes"):
        check(place)
    os.truncate(older, end - 1)  # what was not synced, and RocksDB ends there
    check(place)


def test_it_is_told(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut off, and from where on."""
    told: list[str] = []
    monkeypatch.setattr(rocks_check.log, "warn", lambda text, **values: told.append(text.format(**values)))
    append = lives.appends[0]
    torn = next(torn for torn in append.torn() if first_bad(torn) is not None)
    place = append.put(torn, lives.home / "copy")
    opened(place)
    (text,) = told
    assert f"at offset {append.begin}: a power loss tore" in text
    assert f"these {len(torn) - append.begin} bytes" in text
