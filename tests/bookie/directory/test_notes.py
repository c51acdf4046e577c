"""The note of directories that have failed."""

import pytest

from quire.bookie.directory import notes
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import Disk, options_of

# SPDX-License-Identifier: Apache-2.0

ONE, TWO, THREE = (f"/disk/ledgers{number}" for number in range(3))


def test_any_note_counts_and_only_configured_directories() -> None:
    """
    Those that live have it; one of them may have gone since, and an older note may name what is not configured any
    more.
    """
    disk = Disk()
    notes.note_failed(disk, [ONE, TWO], [THREE, "/disk/\udcff"])
    assert notes.noted_failed(disk.crashed(None), [ONE, TWO, THREE]) == [THREE]
    assert notes.named_failed(disk.crashed(None), TWO) == {THREE, "/disk/\udcff"}
    assert notes.named_failed(disk, THREE) == set()
    notes.forget_failed(disk, [ONE])
    assert notes.noted_failed(disk, [ONE, TWO, THREE]) == [THREE]
    notes.forget_failed(disk, [ONE, TWO, THREE])
    assert notes.noted_failed(disk, [ONE, TWO, THREE]) == []


def test_ledgers_in_doubt_are_noted_until_they_are_in_limbo() -> None:
    """In each directory; a damaged note is reported, for an id that is missing would be denied."""
    disk = Disk()
    assert notes.noted_doubted(disk, ONE) == set()
    notes.note_doubted(disk, [ONE, TWO], {7, 1 << 62})
    assert notes.noted_doubted(disk.crashed(None), TWO) == {7, 1 << 62}
    path = f"{ONE}/current/quire.doubted"
    for bit in range(8 * disk.size(disk.open(path))):
        disk.flip(path, bit // 8, 1 << bit % 8)
        with pytest.raises(StorageError, match=r"quire\.doubted at offset .*damaged"):
            notes.noted_doubted(disk, ONE)
        disk.flip(path, bit // 8, 1 << bit % 8)
    notes.forget_doubted(disk, [ONE])
    assert (notes.noted_doubted(disk, ONE), notes.noted_doubted(disk, TWO)) == (set(), {7, 1 << 62})


def test_a_damaged_note_is_reported_whichever_bit_it_is() -> None:
    """A name that is read wrongly would be no name, and its ledgers would deny what they missed."""
    disk = Disk()
    notes.note_failed(disk, [ONE], [TWO, THREE])
    path = f"{ONE}/current/quire.lost"
    for bit in range(8 * disk.size(disk.open(path))):
        disk.flip(path, bit // 8, 1 << bit % 8)
        with pytest.raises(StorageError, match=r"quire\.lost at offset .*damaged"):
            notes.named_failed(disk, ONE)
        disk.flip(path, bit // 8, 1 << bit % 8)
    assert notes.named_failed(disk, ONE) == {TWO, THREE}


def test_limbo_is_noted_in_every_directory_until_it_ends() -> None:
    """A directory whose note says "copying" outweighs others, for it may have missed nothing."""
    disk, options = Disk(), options_of(ledgers=2)
    assert notes.noted_limbo(disk, options) is None
    notes.note_limbo(disk, options, notes.WAITING)
    assert notes.noted_limbo(disk, options) == notes.WAITING
    notes.note_limbo(
        disk, options.model_copy(update={"ledger_directories": options.ledger_directories[:1]}), notes.COPYING
    )
    assert notes.noted_limbo(disk, options) == notes.COPYING
    notes.note_limbo(disk, options, None)
    assert notes.noted_limbo(disk, options) is None


def test_a_run_without_syncs_is_unclean_only_after_the_machine_started_again() -> None:
    """Nor is one that synced, nor one that ended cleanly."""
    disk, options = Disk(), options_of(ledgers=2, journal_sync_data=False)
    notes.note_running(disk, options, b"boot 1")
    assert not notes.unclean(disk, options, b"boot 1")
    assert notes.unclean(disk, options, b"boot 2")
    assert not notes.unclean(disk, options, b"boot 2", stale=options.ledger_directories)
    notes.note_running(disk, options, None)
    assert not notes.unclean(disk, options, b"boot 2")
    notes.note_running(disk, options_of(ledgers=2), b"boot 1")
    assert not notes.unclean(disk, options, b"boot 2")
