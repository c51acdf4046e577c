"""Percentiles, CPU seconds and the counters of bookies."""

import os
import random
import time

import pytest

from quire.tools.load import Latencies, look, process_cpu, scrape

# SPDX-License-Identifier: Apache-2.0

TEXT = """# HELP quire_journal_syncs_total journal syncs since the start
# TYPE quire_journal_syncs_total counter
quire_journal_syncs_total 12.0
quire_disk_bytes{dir="a b"} 5e9
quire_disk_bytes{dir="c"} 1e9
process_cpu_seconds_total 0.5

broken line
"""


def test_percentiles_of_entries_not_of_batches() -> None:
    """A batch counts as many times as it held entries."""
    latencies = Latencies()
    latencies.add(0.010, 10)
    latencies.add(0.001, 990)
    assert latencies.percentiles([0.5, 0.98, 0.99, 0.999]) == [0.001, 0.001, 0.010, 0.010]


def test_percentiles_against_a_slow_twin() -> None:
    """Every entry written out, sorted, and counted off."""
    dice = random.Random(3)
    for _ in range(100):
        latencies, all_of_them = Latencies(), []
        for _ in range(dice.randrange(1, 40)):
            seconds, entries = dice.random(), dice.randrange(1, 9)
            latencies.add(seconds, entries)
            all_of_them += [seconds] * entries
        all_of_them.sort()
        shares = [0.0, 0.5, 0.99, 0.999, 1.0]
        expected = [all_of_them[min(len(all_of_them) - 1, int(len(all_of_them) * share))] for share in shares]
        assert latencies.percentiles(shares) == expected


def test_nothing_measured() -> None:
    """Is zero, and draws no histogram."""
    assert Latencies().percentiles([0.5]) == [0.0]
    assert Latencies().histogram() == []


def test_a_histogram_has_every_entry_once() -> None:
    """In rising rows; the tallest bar has the full width."""
    dice = random.Random(4)
    latencies = Latencies()
    for _ in range(1000):
        latencies.add(dice.lognormvariate(-6, 1), 3)
    rows = latencies.histogram()
    counts = [int(row.split("ms")[1].split()[0].replace(",", "")) for row in rows]
    bounds = [float(row.split()[1]) for row in rows]
    assert sum(counts) == 3000
    assert bounds == sorted(bounds)
    assert max(row.count("#") for row in rows) == 48
    assert len(rows) <= 20


def test_a_histogram_of_one_value() -> None:
    """Is one bar."""
    latencies = Latencies()
    latencies.add(0.002, 5)
    assert len(latencies.histogram()) == 1


def test_prometheus_text_is_summed_over_labels() -> None:
    """Comments, empty and broken lines are passed over."""
    assert scrape(lambda: TEXT) == {
        "quire_journal_syncs_total": 12,
        "quire_disk_bytes": 6e9,
        "process_cpu_seconds_total": 0.5,
    }


def test_a_bookie_without_metrics_counts_nothing() -> None:
    """A Java bookie, or one that has just died, does not end a benchmark."""

    def refuse() -> str:
        raise ConnectionRefusedError

    assert scrape(refuse) == {}


def test_cpu_of_processes() -> None:
    """This process has used some; its own look and the kernel's agree."""
    sum(range(3_000_000))
    before = time.process_time()
    counters = look([], [os.getpid()])
    after = time.process_time()
    assert counters.bookie_cpu_s is not None
    tick = 2 / os.sysconf("SC_CLK_TCK")
    assert 0 < before - tick <= counters.bookie_cpu_s <= after + tick
    assert before <= counters.client_cpu_s <= after
    assert look([], []).bookie_cpu_s is None, "unknown is not zero"


def test_a_process_that_is_gone() -> None:
    """An error of the operating system, which names it."""
    with pytest.raises(OSError, match="/proc/"):
        process_cpu(2**22 + 1)
