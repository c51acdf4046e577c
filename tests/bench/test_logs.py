"""The bench of logs: every load runs from end to end on a small cluster, and rows are what they say."""

from bench import codecs
from bench.log_loads import LAST, Loads
from bench.logs import Rows
from tests.log.fakes.cluster import cluster
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

LEFT_OUT = ("tail", "100,000")  # bookies in processes of their own; seconds
ROWS = 27


def test_every_row_is_measured(tmp_path, monkeypatch):
    """Each has a figure of its own and one beside it for each pair, and both are above 0."""
    monkeypatch.setattr(codecs, "ROUNDS", 1)
    monkeypatch.setattr(codecs, "KEPT_BUSY_S", 0.0001)

    async def story():
        async with cluster(tmp_path) as world:
            rows = Rows(Loads(reactor, world.uri), 2, 0.0001, lambda name: not any(word in name for word in LEFT_OUT))
            await rows.all()
            return rows.rows

    found = run(story, 200)
    assert len({row.name for row in found}) == len(found) == ROWS
    for row in found:
        assert row.name.startswith("log ")
        assert len(row.ours) == len(row.theirs) == 2
        assert min(*row.ours, *row.theirs) >= 0
        assert row.median >= 0


def test_rows_that_are_not_wanted_do_nothing():
    """No log is made, no bookie is asked."""
    rows = Rows(Loads(reactor, "memory://nowhere"), 2, 1.0, lambda _name: False)
    run(rows.all)
    assert rows.rows == []


def test_a_follower_measures_each_delivery(tmp_path, capsys):
    """It says that it follows with the first value, and ends with the last one."""

    async def story():
        async with cluster(tmp_path) as world:
            opened = await world.logs()
            await opened.create("a")
            owner = await opened.own("a")
            for value in (b"first", b"first", b"1", b"2", LAST):
                await owner.append(value)
            return await Loads(reactor, world.uri).follow("log", "a")

    assert len(run(story)) == 2
    assert capsys.readouterr().out == "follows\n"
