"""
A start's directories: which may fail while the bookie starts, and what is no reason for that.  Whole starts are in
`tests/bookie/directory/test_dead.py`.
"""

import errno
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.directory import notes
from quire.bookie.directory.directories import DeadDirectory, Directories
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.lifecycle import restoring
from quire.bookie.storage.opening import DirectoriesAtStart
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import KEY, Bookie, Disk, Inode, body_of, options_of, run_of

# SPDX-License-Identifier: Apache-2.0

ONE, TWO, THREE = (f"/disk/ledgers{number}" for number in range(3))


def at_start(disk: Disk | None = None, failed: dict[str, str] | None = None, **changes: Any) -> DirectoriesAtStart:
    disk = disk or Disk()
    directories = Directories(disk, disk.open_rows, 1 << 20, lambda: None)
    return DirectoriesAtStart(disk, options_of(**changes), directories, failed or {})


def failing(*dead: str, number: int = errno.EIO) -> tuple[list[str], Callable[[str], str]]:
    """(directories asked, a step that fails in some of them)."""
    asked: list[str] = []

    def step(path: str) -> str:
        asked.append(path)
        if path in dead:
            raise OSError(number, "injected", path)
        return path[-1]

    return asked, step


def test_no_step_is_done_in_a_directory_that_has_failed() -> None:
    """No later step tries a directory that failed; a stand-in with the reason is opened for it."""
    opening = at_start(ledgers=3)
    asked, step = failing(TWO)
    assert opening.each(step) == {ONE: "0", THREE: "2"}
    assert opening.each(step) == {ONE: "0", THREE: "2"}
    assert asked == [ONE, TWO, THREE, ONE, THREE]
    assert opening.usable == [ONE, THREE]
    assert list(opening.failed) == [TWO]
    assert "injected" in opening.failed[TWO]
    disk = Disk()
    directories = Directories(disk, disk.open_rows, 1 << 20, lambda: None)
    DirectoriesAtStart(disk, options_of(ledgers=3), directories, opening.failed).open({ONE: None, THREE: None})
    assert [(directory.configured, isinstance(directory, DeadDirectory)) for directory in directories.all] == [
        (ONE, False),
        (TWO, True),
        (THREE, False),
    ]
    assert directories.all[1].failed == opening.failed[TWO]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENOSPC])
def test_what_is_no_dead_disk_ends_the_start(number: int) -> None:
    """No permission, a missing path and a full disk end the start instead of failing the directory."""
    opening = at_start(ledgers=3)
    _, step = failing(TWO, number=number)
    with pytest.raises(OSError, match="injected"):
        opening.each(step)
    assert opening.failed == {}


def test_the_last_one_and_a_journals_end_the_start() -> None:
    """The only directory left, and one that shares its disk with a journal, end the start."""
    opening = at_start(ledgers=2)
    _, step = failing(ONE, TWO)
    with pytest.raises(OSError, match="injected"):
        opening.each(step)
    assert list(opening.failed) == [ONE]
    shared = at_start(ledgers=2, journal_directories=(ONE,))
    _, step = failing(ONE)
    with pytest.raises(OSError, match="injected"):
        shared.each(step)


def test_directories_are_locked_once_each() -> None:
    """A journal and ledgers may share one."""
    disk = Disk()
    opened = disk.open_files
    at_start(disk, ledgers=2, journal_directories=(ONE,)).make()
    assert disk.open_files == opened + 2
    with pytest.raises(StorageError, match="another bookie runs on this directory"):
        at_start(disk, ledgers=2).make()


def test_a_step_of_moving_in_that_fails_where_every_disk_is_well_ends_the_start() -> None:
    """It is not tried for ever."""
    tried: list[object] = []

    def step(moving: object) -> None:
        tried.append(moving)
        assert len(tried) < 5
        raise OSError(errno.EIO, "injected")

    opening = at_start(ledgers=2)
    with pytest.raises(OSError, match="injected"):
        opening.moving(step)
    assert opening.failed == {}


@pytest.mark.parametrize("seed", range(30))
def test_what_a_directory_has_is_not_replayed_into_it(seed: int) -> None:
    """
    Another directory is lost and comes back empty, so a start replays all that the journals still have.  The ledgers of
    the others are what they are after any other start, whatever was in the journal before their marks.
    """
    rng = random.Random(seed)
    shape = {"journals": rng.randint(1, 2), "ledgers": 3}
    bookie = Bookie(**shape)
    storage = bookie.storage
    for step in range(60):
        ledger = rng.randrange(9)
        state = storage.ledger(ledger)
        what = rng.randrange(9)
        if what < 3:
            storage.add(
                run_of(
                    ledger, rng.randrange(20), rng.randint(1, 4), v3=rng.random() < 0.5, recovery=rng.random() < 0.5
                ),
                step,
            )
        elif what == 3:
            storage.fence(ledger, KEY, step)
        elif what == 4:
            storage.set_limbo(ledger, rng.random() < 0.5)
        elif what == 5:
            storage.write_lac(ledger, KEY, struct.pack(">qq", ledger, step) + bytes(20), step)
        elif what == 6:
            Deferred.fromCoroutine(storage.mark_limbo({ledger: LedgerRow(KEY, fenced=rng.random() < 0.5, limbo=True)}))
        elif what == 7 and state is not None:
            (storage.delete_ledger if rng.random() < 0.5 else storage.drop_copy)(ledger)
        if rng.random() < 0.5:
            bookie.commit()
        if rng.random() < 0.2:
            storage.flush()
    bookie.commit()
    plain, torn = bookie.disk.killed(), bookie.disk.killed()
    lost = rng.randrange(3)
    torn.inodes = {path: inode for path, inode in torn.inodes.items() if f"/ledgers{lost}/" not in path}
    torn.rows = {path: rows for path, rows in torn.rows.items() if f"/ledgers{lost}/" not in path}
    notes.note_restoring(torn, f"/disk/ledgers{lost}")
    one, other = Bookie(plain, **shape), Bookie(torn, **shape)
    for ledger in range(9):
        if ledger % 3 != lost:
            here, there = one.storage.ledger(ledger), other.storage.ledger(ledger)
            assert (here and here.row) == (there and there.row), f"ledger {ledger}"
            assert one.now(one.storage.held(ledger)) == other.now(other.storage.held(ledger))


def test_what_is_written_behind_a_lost_journal_is_no_old_news() -> None:
    """
    A crash left the directories with different marks, and the journal went: it goes on in front of one of them, and
    nothing of it is passed over.
    """
    bookie = Bookie(ledgers=2)
    mark = "/disk/ledgers0/current/quire.mark"
    marks = []
    for turn in range(2):
        bookie.storage.add(run_of(0, turn), "a")
        bookie.storage.add(run_of(1, turn), "b")
        bookie.commit()
        bookie.now(bookie.storage.flush())
        marks.append(bytes(bookie.disk.inodes[mark].data))
    disk = bookie.disk.killed()
    disk.inodes[mark] = Inode(marks[0])
    for path in [path for path in disk.inodes if path.startswith("/disk/journal0/")]:
        del disk.inodes[path]
    restoring.begin(disk, bookie.options, ["/disk/journal0"])
    again = Bookie(disk, ledgers=2)
    for ledger in (0, 1):
        assert again.storage.add(run_of(ledger, 2), "c") is Status.EOK
    again.commit()
    last = Bookie(again.disk.killed(), ledgers=2)
    assert [last.read(ledger, 2) for ledger in (0, 1)] == [body_of(0, 2), body_of(1, 2)]


@pytest.mark.parametrize(
    ("synced", "boot", "stale", "damage"),
    [
        (True, b"earlier", False, True),
        (False, b"earlier", False, False),
        (False, b"now", False, True),
        (True, b"earlier", True, True),
    ],
    ids=["synced", "not synced", "not synced, but killed only", "synced beside a directory that had failed"],
)
def test_how_the_last_run_wrote_its_journal_says_what_is_damage(
    synced: bool, boot: bytes, stale: bool, damage: bool
) -> None:
    """
    Not how this one will: damage in what cannot have been lost is not cut off by a start that does not sync, and what a
    power loss left of a run that did not sync does not keep the bookie from a start that does.  The note in a directory
    that had failed is of another run.
    """
    bookie = Bookie(ledgers=2, journal_sync_data=synced)
    if stale:
        notes.note_running(bookie.disk, bookie.options.model_copy(update={"journal_sync_data": False}), boot)
        here, failed = bookie.options.ledger_directories
        notes.note_failed(bookie.disk, [here], [failed])
        notes.note_running(bookie.disk, bookie.options.model_copy(update={"ledger_directories": [here]}), boot)
    else:
        notes.note_running(bookie.disk, bookie.options, boot)
    for entry in range(4):
        bookie.storage.add(run_of(1, entry), entry)
        bookie.commit()
    disk = bookie.disk.killed()
    disk.boot = b"now"
    segment = disk.find(".qj")[0]
    disk.flip(segment, bytes(disk.inodes[segment].data).find(body_of(1, 2)))
    if damage:
        with pytest.raises(StorageError, match="journal damage"):
            Bookie(disk, ledgers=2, journal_sync_data=not synced)
    else:
        again = Bookie(disk, ledgers=2)
        assert [again.read(1, entry) for entry in (1, 2, 3)] == [body_of(1, 1), Status.ENOENTRY, Status.ENOENTRY]
        assert notes.unclean(disk, again.options, b"now")


@pytest.mark.parametrize("synced", [False, True])
def test_how_the_last_run_wrote_its_journal_is_known_after_a_rebuild_of_the_index(synced: bool) -> None:
    """It notes all directories as if they had failed, and their notes are of the last run."""
    bookie = Bookie(journal_sync_data=synced)
    notes.note_running(bookie.disk, bookie.options, b"earlier")
    for entry in range(4):
        bookie.storage.add(run_of(1, entry), entry)
        bookie.commit()
    disk = bookie.disk.killed()
    disk.boot = b"now"
    notes.note_failed(disk, bookie.options.ledger_directories, bookie.options.ledger_directories)
    segment = disk.find(".qj")[0]
    disk.flip(segment, bytes(disk.inodes[segment].data).find(body_of(1, 2)))
    if synced:
        with pytest.raises(StorageError, match="journal damage"):
            Bookie(disk, journal_sync_data=False)
    else:
        again = Bookie(disk)
        assert (again.read(1, 1), again.storage.stale) == (body_of(1, 1), ["/disk/ledgers0"])


@pytest.mark.parametrize("marked", [False, True])
def test_a_journal_is_added_to_a_bookie_that_was_killed(marked: bool) -> None:
    """
    Ledgers change their journals by it.  What they had in the old ones comes before what they get in the new ones,
    whichever journal is replayed first later.
    """
    first = Bookie(journals=2)
    if marked:
        first.storage.add(run_of(100, 0), "a")
        first.commit()
        first.now(first.storage.flush())
    assert first.storage.add(run_of(3, 0, v3=True), "b") is Status.EOK
    assert first.storage.add(run_of(5, 0, v3=True), "c") is Status.EOK
    first.commit()
    second = Bookie(first.disk.killed(), journals=3)
    assert second.storage.add(run_of(3, 1, v3=True), "d") is Status.EOK
    second.storage.delete_ledger(5)
    second.commit()
    assert (first.tokens[-2:], second.tokens) == (["b", "c"], ["d"])
    third = Bookie(second.disk.killed(), journals=3)
    assert [third.read(3, entry) for entry in range(2)] == [body_of(3, entry) for entry in range(2)]
    assert third.storage.ledger(5) is None
    third.close()


def test_a_directory_is_for_one_bookie() -> None:
    """A second storage on the same directory is refused with the lock file's name."""
    bookie = Bookie()
    with pytest.raises(StorageError, match=r"quire\.lock is locked"):
        Bookie(bookie.disk)
