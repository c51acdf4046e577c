"""The bench beside RocketMQ: our side runs from end to end; theirs has a test in tests/interop/rocketmq."""

import json
from argparse import Namespace

from bench.rocketmq import main, our_failovers, our_puts

# SPDX-License-Identifier: Apache-2.0


def words(**more):
    return Namespace(**({"store": "sqlite", "sync": "yes", "session": 2000, "directory": None} | more))


def test_a_failover_has_a_time(tmp_path):
    """Each round kills the master that the round before made."""
    with our_failovers(words(directory=str(tmp_path))) as failover:
        assert [0 < failover()["failover_s"] < 60 for _ in range(2)] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_puts_have_a_rate(tmp_path):
    """Of a master's process, with what one message took."""
    with our_puts(words(directory=str(tmp_path), sync="no", size=10, entries=200, calls=4)) as load:
        found = load()
    assert found["entries_per_second"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_alone_it_prints_the_runs_of_our_side(tmp_path, monkeypatch, capsys):
    """As many as were asked for, after one that is not counted."""
    flags = ["--alone", "--pairs=2", "--size=10", "--entries=50", "--calls=2", "--store=sqlite"]
    monkeypatch.setattr("sys.argv", ["rocketmq", *flags, f"--directory={tmp_path}"])
    main()
    found = json.loads(capsys.readouterr().out)["runs"]
    assert set(found) == {"messages"}
    assert len(found["messages"]) == 2
