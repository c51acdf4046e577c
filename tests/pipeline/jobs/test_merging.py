"""Small segments of a log merged by tasks, without Spark: each run in a task of its own, beside the driver's turn."""

from functools import partial

import pytest

from quire.pipeline.clients import Cluster
from quire.pipeline.jobs.merging import MergeTask, merge, merged
from quire.protocol.log_errors import LogError
from tests.pipeline.written import log, values_of

# SPDX-License-Identifier: Apache-2.0

VALUES = [b"%d" % number for number in range(40)]


def here(work, items):
    """Each item's work, in this process."""
    return [work(item) for item in items]


def test_each_run_in_a_task(ours: Cluster) -> None:
    """What is planned is merged, once; a task that comes again, or late, leaves the log as it is."""
    name, tasks = log(ours, VALUES, 2), []

    def noted(work, items):
        tasks.extend(items)
        return here(work, items)

    dry = merge(ours, name, noted, to_bytes=32, run_min=3, dry_run=True)
    assert (len(dry.planned) > 1, dry.merged, tasks) == (True, [], [])
    done = merge(ours, name, noted, to_bytes=32, run_min=3)
    assert [each.run for each in done.merged] == done.planned == dry.planned == [each.run for each in tasks]
    assert values_of(ours, name) == VALUES
    assert "merge again" in merged(tasks[0])
    assert values_of(ours, name) == VALUES
    assert merge(ours, name, here, to_bytes=32, run_min=3).planned == []


def test_another_one_merges(ours: Cluster) -> None:
    """The job says so, and nothing is changed; afterwards it may, also behind one whose tasks failed."""
    name = log(ours, VALUES, 2)

    def failing(_work, _items):
        merge(ours, name, here, run_min=2)

    with pytest.raises(LogError, match="is being merged by another process"):
        merge(ours, name, failing, run_min=2)
    assert len(merge(ours, name, here, run_min=2).merged) == 1
    assert values_of(ours, name) == VALUES
    task = MergeTask(ours.uri, name, merge(ours, name, here, run_min=2, dry_run=True).planned, -1)
    assert task.run == []
    assert ours.wait(partial(ours.logs.merge, name)).planned == []
