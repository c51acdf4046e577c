"""A stopped bookie's directories: alone with them, and what its journals hold that is nowhere else."""

import pathlib
import shutil

import pytest

from quire.bookie.directory import notes
from quire.bookie.journal.mark import read_mark
from quire.bookie.offline.stopped import Stopped
from quire.bookie.offline.verify import verify
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.apache_files import Here, ledgers_of, options_for
from tests.bookie.fakes.disk import Bookie, left_behind, options_of, run_of
from tests.bookie.offline.test_rebuild import lived


def unflushed(root: pathlib.Path) -> list[str]:
    stopped = Stopped(Files(), options_for(root))
    try:
        return list(stopped.unflushed())
    finally:
        stopped.close()


def test_its_locks_keep_others_out_until_it_is_closed(tmp_path: pathlib.Path) -> None:
    """A bookie of ours, and another look."""
    lived(tmp_path)
    stopped = Stopped(Files(), options_for(tmp_path))
    with pytest.raises(StorageError, match="is locked"):
        Here(tmp_path)
    with pytest.raises(StorageError, match="in use"):
        Stopped(Files(), options_for(tmp_path))
    stopped.close()
    Here(tmp_path).close()


def test_a_directory_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    """Nothing is made by looking, and no lock stays."""
    lived(tmp_path)
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(StorageError, match="ledgers/current: No such file"):
        Stopped(Files(), options_for(tmp_path))
    assert not (tmp_path / "ledgers").exists()


def test_what_is_in_the_journal_only_is_counted(tmp_path: pathlib.Path) -> None:
    """Nothing after a clean stop; a kill leaves what came since the last checkpoint."""
    lived(tmp_path)
    assert unflushed(tmp_path) == []
    here = Here(tmp_path)
    here.storage.fence(9, ledgers_of("rocksdb", "stopped")[0][0].master_key, "f")
    here.commit()
    for name in ("journal", "ledgers", "index"):
        shutil.copytree(tmp_path / name, tmp_path / "killed" / name)
    here.close()
    (line,) = unflushed(tmp_path / "killed")
    assert "0 entries and 2 other records" in line


def test_a_directory_that_was_given_up_has_no_say_in_where_a_replay_begins() -> None:
    """Its mark is old, and names a segment that is gone; a start does not ask it either."""
    bookie = left_behind()
    stopped = Stopped(bookie.disk.killed(), bookie.options)
    assert stopped.marks() == read_mark(bookie.disk, "/disk/ledgers0/current")
    assert list(stopped.unflushed()) == []
    assert stopped.journaled() == set()


def test_marks_of_more_journals_than_are_configured_are_refused() -> None:
    """As a start refuses them: what the others hold would be passed over."""
    bookie = Bookie(journals=2)
    bookie.storage.add(run_of(1, 0), "a")
    bookie.close()
    with pytest.raises(StorageError, match="the mark names 2 journals, but 1 are configured"):
        Stopped(bookie.disk.killed(), options_of(journals=1)).marks()


def test_an_empty_journal_is_refused_as_a_start_refuses_it() -> None:
    """A bookie ran there and did not end cleanly, and no checkpoint was made; not where the journal is restored."""
    bookie = Bookie()
    notes.note_running(bookie.disk, bookie.options, b"boot")
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    disk = bookie.disk.killed()
    for path in [path for path in disk.inodes if path.startswith("/disk/journal0/current")]:
        del disk.inodes[path]
    stopped = Stopped(disk.killed(), bookie.options)
    (line,) = stopped.unflushed()
    assert "journal /disk/journal0/current is empty" in line
    assert line in verify(stopped).problems
    with pytest.raises(StorageError, match="is empty"):
        stopped.journaled()
    with pytest.raises(StorageError, match="is empty"):
        Bookie(disk.killed())
    notes.note_restoring(disk, "/disk/journal0")
    assert Stopped(disk, bookie.options).journaled() == set()
