"""The note of directories that were given up."""

import pytest

from quire.bookie import given_up
from quire.bookie.files import StorageError
from tests.bookie.disk import Disk

# SPDX-License-Identifier: Apache-2.0

ONE, TWO, THREE = (f"/disk/ledgers{number}" for number in range(3))


def test_any_note_counts_and_only_configured_directories() -> None:
    """Those that live have it; one of them may have gone since, and an older note may name what is not configured any more."""
    disk = Disk()
    given_up.note(disk, [ONE, TWO], [THREE, "/disk/\udcff"])
    assert given_up.noted(disk.crashed(None), [ONE, TWO, THREE]) == [THREE]
    assert given_up.named(disk.crashed(None), TWO) == {THREE, "/disk/\udcff"}
    assert given_up.named(disk, THREE) == set()
    given_up.forget(disk, [ONE])
    assert given_up.noted(disk, [ONE, TWO, THREE]) == [THREE]
    given_up.forget(disk, [ONE, TWO, THREE])
    assert given_up.noted(disk, [ONE, TWO, THREE]) == []


def test_a_damaged_note_is_told_whichever_bit_it_is() -> None:
    """A name that is read wrongly would be no name, and its ledgers would deny what they missed."""
    disk = Disk()
    given_up.note(disk, [ONE], [TWO, THREE])
    path = f"{ONE}/current/quire.lost"
    for bit in range(8 * disk.size(disk.open(path))):
        disk.flip(path, bit // 8, 1 << bit % 8)
        with pytest.raises(StorageError, match=r"quire\.lost at offset .*damaged"):
            given_up.named(disk, ONE)
        disk.flip(path, bit // 8, 1 << bit % 8)
    assert given_up.named(disk, ONE) == {TWO, THREE}
