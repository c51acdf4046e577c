"""Which ledger directories have failed: who decides it, what is written down, what their rows say."""

import errno
from threading import Event, Thread

import pytest

from quire.bookie.directory import notes
from quire.bookie.directory.directories import DeadDirectory, Directories
from quire.rows.files import NotBegun
from tests.bookie.fakes.disk import Disk

# SPDX-License-Identifier: Apache-2.0

PATHS = ["/disk/ledgers0", "/disk/ledgers1", "/disk/ledgers2"]


def three(disk: Disk | None = None) -> Directories:
    """They hold nothing."""
    disk = disk or Disk()
    directories = Directories(disk, disk.open_rows, 1 << 20, lambda: None)
    for path in PATHS:
        directory = DeadDirectory(path, path, "")
        directory.failed = None
        directories.all.append(directory)
    return directories


def broken(number: int) -> None:
    raise OSError(number, "injected")


def test_the_last_directory_does_not_fail_alone() -> None:
    """Each fails once, and its number is returned once; an error of the last one is its caller's."""
    directories = three()
    one, two, three_ = directories.all
    assert directories.fail(one, "a reason")
    assert not directories.fail(one, "another")
    directories.attempt(two, broken, errno.EIO)
    assert (one.failed, two.failed) == ("a reason", "[Errno 5] injected")
    assert not directories.has_failed(0), "not before it was reported"
    assert (directories.newly_failed(), directories.newly_failed()) == ([0, 1], [])
    assert [directories.has_failed(ledger) for ledger in (3, 4, 5)] == [True, True, False]
    with pytest.raises(OSError, match="injected"):
        directories.attempt(three_, broken, errno.EIO)
    assert directories.usable == [three_]
    assert directories.failed == PATHS[:2]


def test_two_that_fail_at_the_same_moment_are_not_both_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage pool and the look at the disks find one each, of two."""
    directories = three()
    directories.all.pop()
    one, two = directories.all
    looks, done, others = Event(), list[bool](), list[Thread]()
    usable = Directories.usable.fget
    assert usable is not None

    def look(self: Directories) -> object:
        if not others:
            others.append(Thread(target=lambda: done.append(self.fail(two, "the disks' look"))))
            others[0].start()
            looks.wait(0.1)  # the other one has looked, too, or it waits for this one
        else:
            looks.set()
        return usable(self)

    monkeypatch.setattr(Directories, "usable", property(look))
    done.append(directories.fail(one, "the pool"))
    others[0].join()
    assert sorted(done) == [False, True]
    assert usable(directories) == [two]


@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, OSError), (errno.EMFILE, NotBegun)])
def test_what_is_short_fails_no_directory(number: int, raised: type[OSError]) -> None:
    """A full disk and a process without descriptors are waited for."""
    directories = three()
    with pytest.raises(raised):
        directories.attempt(directories.all[0], broken, number)
    assert len(directories.usable) == 3


def test_failed_and_stale_ones_are_written_down_in_the_usable_ones() -> None:
    """The note of the stale ones goes with `caught_up`, that of the failed ones stays."""
    files = Disk()
    directories = three(files)
    for path in PATHS:
        files.make_directories(f"{path}/current")
    directories.stale = [PATHS[1]]
    directories.fail(directories.all[2], "injected")
    directories.note()
    assert [notes.named_failed(files, path) for path in PATHS[:2]] == [set(PATHS[1:])] * 2
    assert notes.named_failed(files, PATHS[2]) == set()
    directories.caught_up()
    assert [notes.named_failed(files, path) for path in PATHS[:2]] == [{PATHS[2]}] * 2


def test_a_row_of_a_failed_directory_says_limbo() -> None:
    """Whatever its table says, also when it can't be read."""
    directories = three()
    directories.fail(directories.all[1], "injected")
    directories.newly_failed()
    row = directories.row(4)
    assert row is not None
    assert row.limbo
