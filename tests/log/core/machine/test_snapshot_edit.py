"""A snapshot is named when it is newer than the newest and the log goes on from it; three are kept."""

from dataclasses import replace

import pytest

from quire.log.core.machine.snapshots import NameSnapshot, newest
from quire.log.core.manifest import DELETING, new_manifest
from quire.log.core.values import Begin, Snapshot
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

EMPTY = new_manifest("orders", "6f1c", "e0", {})


def made(index, ledger):
    return NameSnapshot(Snapshot(index, ledger, 10, 1, 5, "kv/1", 3), 1700)


def named(*indexes):
    manifest = EMPTY
    for index in indexes:
        manifest = made(index, 100 + index).apply(manifest)
    return manifest


def test_three_are_kept():
    """The oldest goes."""
    manifest = named(0, 5, 9, 12, 20)
    assert [each.index for each in manifest.snapshots] == [9, 12, 20]
    assert [(each.ledger, each.why, each.since) for each in manifest.doomed] == [
        (100, "old snapshot", 1700),
        (105, "old snapshot", 1700),
    ]
    assert (newest(manifest), newest(EMPTY)) == (20, 0)


@pytest.mark.parametrize("index", [3, 9])
def test_one_that_is_not_newer_goes_itself(index):
    """Whoever is late dooms his own."""
    manifest = made(index, 7).apply(named(5, 9))
    assert [each.index for each in manifest.snapshots] == [5, 9]
    assert [each.ledger for each in manifest.doomed] == [7]


def test_one_that_the_log_does_not_continue_goes_itself():
    """The log begins above it."""
    manifest = made(3, 7).apply(replace(EMPTY, begin=Begin(0, 4, 40)))
    assert (manifest.snapshots, [each.ledger for each in manifest.doomed]) == ((), [7])


def test_an_edit_that_was_done_is_not_wanted():
    """Nor one whose ledger is being deleted."""
    manifest = named(5)
    assert made(5, 105).apply(manifest) is None
    doomed = made(3, 7).apply(manifest)
    assert made(9, 7).apply(doomed) is None


def test_a_log_that_is_deleted_takes_none():
    """`NoSuchLog`."""
    with pytest.raises(NoSuchLog):
        made(5, 7).apply(replace(EMPTY, state=DELETING))
