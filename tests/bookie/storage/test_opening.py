"""
A start's directories: which may fail while the bookie starts, and what is no reason for that.  Whole starts are in
`tests/bookie/directory/test_dead.py`.
"""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from quire.bookie.directory.dead import DeadDirectory
from quire.bookie.directory.directories import Directories
from quire.bookie.files import StorageError
from quire.bookie.storage.opening import DirectoriesAtStart
from tests.bookie.fakes.disk import Disk, options_of

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
