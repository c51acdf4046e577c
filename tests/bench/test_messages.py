"""The bench of message stores: every load runs from end to end on a small cluster, and rows are what they say."""

from bench import codecs, message_loads
from bench.message_loads import write_store
from bench.messages import Rows
from tests.log.fakes.cluster import cluster
from tests.messages.rocketmq.made import plan_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

ROWS = 13


def test_every_row_is_measured(tmp_path, monkeypatch):
    """Each has a figure of its own and one beside it for each pair, and both are above 0."""
    monkeypatch.setattr(message_loads, "FILE_BYTES", 1 << 16)
    monkeypatch.setattr(codecs, "ROUNDS", 1)
    monkeypatch.setattr(codecs, "KEPT_BUSY_S", 0.0001)

    async def story():
        async with cluster(tmp_path) as world:
            rows = Rows(reactor, world.uri, tmp_path, 2, 0.0005, lambda _name: True)
            await rows.all()
            return rows.rows

    found = run(story, 100)
    assert len({row.name for row in found}) == len(found) == ROWS
    for row in found:
        assert row.name.startswith("messages ")
        assert len(row.ours) == len(row.theirs) == 2
        assert min(*row.ours, *row.theirs) > 0


def test_the_store_that_is_measured(tmp_path, monkeypatch):
    """It is one: full files with fillers, and a last one."""
    monkeypatch.setattr(message_loads, "FILE_BYTES", 1 << 16)
    files = write_store(tmp_path, 200_000)
    plan = plan_of(tmp_path)
    assert len(files) == len(plan.files) == 4
    assert 190_000 < plan.end < 210_000
    assert (plan.shifts, plan.doubles, plan.torn) == ((), (), None)


def test_rows_that_are_not_wanted_do_nothing(tmp_path):
    """No store is written."""
    rows = Rows(reactor, "memory://nowhere", tmp_path, 2, 1.0, lambda _name: False)
    run(rows.all)
    assert rows.rows == []
    assert not list(tmp_path.iterdir())
