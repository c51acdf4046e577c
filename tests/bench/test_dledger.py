"""The bench beside DLedger: our side runs from end to end; theirs has a test in tests/interop/dledger."""

import json
from argparse import Namespace

from bench.dledger import main, our_appends, our_failovers

# SPDX-License-Identifier: Apache-2.0


def words(**more):
    return Namespace(**({"store": "sqlite", "sync": "yes", "session": 2000, "directory": None} | more))


def test_a_failover_has_a_time(tmp_path):
    """Each round kills the owner that the round before made."""
    with our_failovers(words(directory=str(tmp_path))) as failover:
        assert [0 < failover()["failover_s"] < 60 for _ in range(2)] == [True, True]


def test_appends_count_what_bookies_spend(tmp_path):
    """Of three bookies, beside the client; also with journals that are not synced."""
    with our_appends(words(directory=str(tmp_path), sync="no", size=10, entries=200, batch=10, calls=2)) as load:
        found = load()
    assert found["entries_per_second"] > 0
    assert len(found["each_bookie_cpu_us_per_entry"]) == 3
    assert found["cpu_us_per_entry"] > found["bookies_cpu_us_per_entry"] > 0
    assert list(tmp_path.iterdir()) == []


def test_alone_it_prints_the_runs_of_our_side(tmp_path, monkeypatch, capsys):
    """As many as were asked for, after one that is not counted."""
    flags = ["--alone", "--pairs=2", "--size=10", "--entries=100", "--batch=10", "--calls=2", "--store=sqlite"]
    monkeypatch.setattr("sys.argv", ["dledger", *flags, f"--directory={tmp_path}"])
    main()
    found = json.loads(capsys.readouterr().out)["runs"]
    assert set(found) == {"log"}
    assert len(found["log"]) == 2
