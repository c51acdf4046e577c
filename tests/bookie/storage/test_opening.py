"""
A start's directories: which may be left out, and what is no reason for that.  Whole starts are in
`test_dead_directory`.
"""

import errno
from collections.abc import Callable

import pytest

from quire.bookie.directory.dead import DeadDirectory
from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.files import StorageError
from quire.bookie.storage.opening import Opening
from tests.bookie.fakes.disk import Disk, options_of

# SPDX-License-Identifier: Apache-2.0

ONE, TWO, THREE = (f"/disk/ledgers{number}" for number in range(3))


def failing(*dead: str, number: int = errno.EIO) -> tuple[list[str], Callable[[str], str]]:
    """(directories asked, a step that fails in some of them)."""
    asked: list[str] = []

    def step(path: str) -> str:
        asked.append(path)
        if path in dead:
            raise OSError(number, "injected", path)
        return path[-1]

    return asked, step


def test_a_dead_directory_is_left_out_from_then_on() -> None:
    """No later step tries a directory that failed; a stand-in with the reason is opened for it."""
    opening = Opening(Disk(), options_of(ledgers=3), {})
    asked, step = failing(TWO)
    assert opening.each(step) == {ONE: "0", THREE: "2"}
    assert opening.each(step) == {ONE: "0", THREE: "2"}
    assert asked == [ONE, TWO, THREE, ONE, THREE]
    assert opening.living == [ONE, THREE]
    assert list(opening.dead) == [TWO]
    assert "injected" in opening.dead[TWO]
    opened: list[LedgerDirectory] = []
    disk = Disk()
    Opening(disk, options_of(ledgers=3), opening.dead).open(
        disk.open_rows, {ONE: None, THREE: None}, lambda: None, opened
    )
    assert [(directory.configured, isinstance(directory, DeadDirectory)) for directory in opened] == [
        (ONE, False),
        (TWO, True),
        (THREE, False),
    ]
    assert opened[1].failed == opening.dead[TWO]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ENOSPC])
def test_what_is_no_dead_disk_ends_the_start(number: int) -> None:
    """No permission, a missing path and a full disk end the start instead of leaving the directory out."""
    opening = Opening(Disk(), options_of(ledgers=3), {})
    _, step = failing(TWO, number=number)
    with pytest.raises(OSError, match="injected"):
        opening.each(step)
    assert opening.dead == {}


def test_the_last_one_and_a_journals_are_not_left_out() -> None:
    """The only directory left, and one that shares its disk with a journal, end the start."""
    opening = Opening(Disk(), options_of(ledgers=2), {})
    _, step = failing(ONE, TWO)
    with pytest.raises(OSError, match="injected"):
        opening.each(step)
    assert list(opening.dead) == [ONE]
    shared = Opening(Disk(), options_of(ledgers=2, journal_directories=(ONE,)), {})
    _, step = failing(ONE)
    with pytest.raises(OSError, match="injected"):
        shared.each(step)


def test_directories_are_locked_once_each() -> None:
    """A journal and ledgers may share one."""
    disk = Disk()
    locks: list[int] = []
    Opening(disk, options_of(ledgers=2, journal_directories=(ONE,)), {}).make(locks)
    assert len(locks) == 2
    with pytest.raises(StorageError, match="another bookie runs on this directory"):
        Opening(disk, options_of(ledgers=2), {}).make([])


def test_a_step_of_moving_in_that_fails_where_every_disk_is_well_ends_the_start() -> None:
    """It is not tried for ever."""
    tried: list[object] = []

    def step(moving: object) -> None:
        tried.append(moving)
        assert len(tried) < 5
        raise OSError(errno.EIO, "injected")

    opening = Opening(Disk(), options_of(ledgers=2), {})
    with pytest.raises(OSError, match="injected"):
        opening.moving(step)
    assert opening.dead == {}
