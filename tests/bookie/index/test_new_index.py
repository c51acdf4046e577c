"""An index in the making: what is flushed meanwhile counts more than what is filled in."""

import errno
from collections.abc import Sequence

import pytest

from quire.bookie.index.run import encode_run
from quire.bookie.index.run_index import IndexRow, NewIndex, RunIndex
from quire.rows.contract import Row
from quire.rows.files import StorageError
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


def row(ledger: int, first: int, count: int, log: int) -> IndexRow:
    return ledger, first, count, encode_run(log, 1024, [10] * count, [7] * count)


def pause() -> None:
    pass


def logs(index: RunIndex, ledger: int, count: int) -> list[int | None]:
    """The log that each of the first entries is in."""
    runs = [index.find(ledger, entry) for entry in range(count)]
    return [None if run is None else run.log for run in runs]


def made() -> tuple[RunIndex, NewIndex]:
    """An index that serves, and a new one beside it."""
    old = RunIndex(DictRows())
    old.beside = NewIndex(DictRows())
    return old, old.beside


def test_what_is_flushed_meanwhile_goes_to_both_and_stays() -> None:
    """What is filled in later takes only the gaps."""
    old, new = made()
    old.put_all([row(1, 2, 3, 9)], pause)
    old.commit()
    assert new.fill([row(1, 0, 8, 4)], pause) == 1
    assert logs(new, 1, 9) == [4, 4, 9, 9, 9, 4, 4, 4, None]
    assert logs(old, 1, 9) == [None, None, 9, 9, 9, None, None, None, None]


def test_what_was_filled_in_first_stays() -> None:
    """A run that adds nothing is not counted."""
    _old, new = made()
    assert new.fill([row(1, 0, 4, 8), row(2, 0, 2, 8)], pause) == 2
    assert new.fill([row(1, 2, 4, 7), row(2, 0, 2, 7)], pause) == 1
    assert logs(new, 1, 6) == [8, 8, 8, 8, 7, 7]
    assert logs(new, 2, 2) == [8, 8]


def test_what_lies_in_the_yielding_log_makes_way() -> None:
    """Of two copies a compaction may have put the older one in the later log."""
    _old, new = made()
    new.fill([row(1, 0, 4, 8)], pause)
    new.put_all([row(1, 4, 1, 9)], pause)
    assert new.fill([row(1, 1, 5, 3)], pause, yielding=8) == 1
    assert logs(new, 1, 6) == [8, 3, 3, 3, 9, 3]


def test_a_ledger_that_was_deleted_meanwhile_does_not_come_back() -> None:
    """Neither from a log nor from the old index; one that is written after it does."""
    old, new = made()
    new.fill([row(1, 0, 4, 8), row(2, 0, 4, 8)], pause)
    old.delete_all([1], pause)
    assert new.fill([row(1, 4, 4, 8)], pause) == 0
    assert logs(new, 1, 8) == [None] * 8
    assert logs(new, 2, 4) == [8] * 4
    old.put_all([row(1, 6, 1, 9)], pause)
    assert logs(new, 1, 8) == [None] * 6 + [9, None]


class FullRows(DictRows):
    """Takes no write."""

    def write(self, puts: Sequence[Row], deletes: Sequence[bytes] = ()) -> None:
        raise OSError(errno.ENOSPC, "injected")


def test_one_that_missed_something_fails_no_flush_and_never_counts() -> None:
    """The flush goes on in the index that serves; the new one refuses to be filled and synced."""
    old = RunIndex(DictRows())
    new = old.beside = NewIndex(FullRows())
    old.put_all([row(1, 0, 2, 9)], pause)
    old.commit()
    old.delete_all([5], pause)
    assert logs(old, 1, 2) == [9, 9]
    assert new.failure is not None
    for use in (new.sync, lambda: new.fill([], pause)):
        with pytest.raises(StorageError, match=r"a new index could not be written: .*injected"):
            use()
