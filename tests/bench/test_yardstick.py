"""The yardstick measures: three bare bookies, one client, every entry acknowledged."""

import bench.sides
from bench.sides import Bare, Spent, rounds


def test_a_short_run_gives_all_figures() -> None:
    """Throughput, percentiles, and what the bookies spent; the same bookies serve the next run."""
    with Bare(None) as side:
        first = side.run("append", size=100, entries=2000, window=1000, batch=50)
        second = side.run("append", size=1024, entries=20, window=1, batch=1)
        assert first["entries"] == 2000
        assert first["entries_per_second"] > 0
        assert 0 < second["p50_ms"] <= second["p99_ms"] <= second["p999_ms"]
        assert first["bookies_written_mb"] >= 0
        assert second["bookies_syncs"] is None or second["bookies_syncs"] >= 20
        pids = side.pids
    assert all(bookie.poll() is not None for bookie in side.cluster.bookies), f"one of {pids} outlived its cluster"


def test_rounds_turn_the_order_about() -> None:
    """None of the sides always comes first; the figures come back in the order of the sides."""
    order: list[str] = []

    def side(name: str) -> dict[str, object]:
        order.append(name)
        return {"name": name}

    found = list(rounds(3, lambda: side("a"), lambda: side("b")))
    assert "".join(order) == "abbaab"
    assert [[run["name"] for run in runs] for runs in found] == [["a", "b"]] * 3


def test_spent_counts_this_process() -> None:
    """CPU and bytes written, by process; syncs only where the kernel counts them."""
    import os

    with Spent([os.getpid()]) as spent:
        assert sum(range(1000)) == 499500
    (cpu,) = spent.figures(10)["each_bookie_cpu_us_per_entry"]
    assert spent.figures(10)["bookies_cpu_us_per_entry"] == cpu >= 0
    assert bench.sides.resident_mb(os.getpid()) > 1
