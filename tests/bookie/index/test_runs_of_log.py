"""The runs that the records of one entry log make."""

from quire.bookie.index.run import RUN_ENTRIES_MAX, LogRuns, Run
from quire.bookie.logs.format import HEADER_BYTES
from quire.bookie.logs.walk import LogWalk
from tests.bookie.fakes.disk import reader, records

# SPDX-License-Identifier: Apache-2.0

LOG = 9


def runs_in(data: bytes, wanted: frozenset[int] = frozenset({1, 2})) -> tuple[LogRuns, list[Run]]:
    data = bytes(HEADER_BYTES) + data
    found = LogRuns(LogWalk(reader(data), len(data), "9.log", 1 << 20), LOG, wanted.__contains__)
    return found, [Run(ledger, first, value) for ledger, first, _count, value in found.rows()]


def test_neighbours_are_one_run() -> None:
    """Until another ledger, a gap between entries or bytes between records ends it."""
    data = records(1, 0, 3) + records(2, 0, 2) + records(1, 3, 1) + records(1, 5, 2) + bytes(7) + records(1, 7, 1)
    found, runs = runs_in(data)
    assert [(run.ledger, run.first, run.count) for run in runs] == [
        (1, 0, 3),
        (2, 0, 2),
        (1, 3, 1),
        (1, 5, 2),
        (1, 7, 1),
    ]
    assert {run.log for run in runs} == {LOG}
    assert runs[1].offset == HEADER_BYTES + len(records(1, 0, 3))
    assert found.found == {1: len(records(1, 0, 7)), 2: len(records(2, 0, 2))}
    assert (found.passed_over, found.damaged) == (0, [])


def test_a_run_has_no_more_entries_than_a_row() -> None:
    """What follows is the next run."""
    _found, runs = runs_in(records(1, 0, RUN_ENTRIES_MAX + 2))
    assert [run.count for run in runs] == [RUN_ENTRIES_MAX, 2]


def test_records_of_other_ledgers_are_counted_only() -> None:
    """They are not wanted, and separate what is."""
    found, runs = runs_in(records(3, 0, 4) + records(1, 0, 1) + records(3, 4, 1) + records(1, 1, 1))
    assert [(run.first, run.count) for run in runs] == [(0, 1), (1, 1)]
    assert found.passed_over == 5
    assert set(found.found) == {1, 3}
