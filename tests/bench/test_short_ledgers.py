"""The bench of short ledgers: it runs from end to end, and says what its steps took."""

import json

import pytest

from bench import short_ledgers
from bench.short_ledgers import Steps
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


def test_every_ledger_is_made_closed_and_deleted(tmp_path, monkeypatch, capsys):
    """Nothing is left of them, and every figure is above 0."""
    monkeypatch.setattr(short_ledgers, "WARM_UP", 2)
    with RealCluster(tmp_path, 3) as cluster:
        assert short_ledgers.main([f"--metadata={cluster.uri}", "--count=5"]) == 0
        figures = json.loads(capsys.readouterr().out)
        with short_ledgers.connect(cluster.uri) as client:
            assert list(client.ledgers()) == []
    steps = ("create", "append", "close", "delete")
    assert {f"{step}_p50_ms" for step in steps} | {"made_per_second", "deleted_per_second"} <= set(figures)
    assert all(value > 0 for name, value in figures.items() if "cpu" not in name)


def test_a_rate_is_that_of_its_steps_one_after_another():
    """Two rounds of 0.2 and 0.3 s are two in a second; the p50 is of one step."""
    steps = Steps()
    steps.seconds = {"a": [0.2, 0.2], "b": [0.3, 0.3], "c": [9.0]}
    assert steps.rate("a", "b") == pytest.approx(2.0)
    assert steps.timed("d", lambda: 7) == 7
    assert steps.figures()["b_p50_ms"] == 300.0
