"""Families whose names and forms are Apache's, and histograms of seconds, as text."""

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from quire.metrics.families import Part, exact, op_stat, seconds
from quire.metrics.histogram import Histogram

# SPDX-License-Identifier: Apache-2.0


class Given:
    def __init__(self, *families: object) -> None:
        self.families = families

    def collect(self) -> tuple[object, ...]:
        return self.families


def text_of(*families: object) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Given(*families))  # type: ignore[arg-type]
    return generate_latest(registry).decode().splitlines()


def test_a_name_is_as_it_is() -> None:
    """No _total behind it."""
    lines = text_of(exact("bookie_WRITE_BYTES", "bytes", [({}, 7), ({"disk": "b"}, 8)]))
    assert lines[1:] == [
        "# TYPE bookie_WRITE_BYTES untyped",
        "bookie_WRITE_BYTES 7.0",
        'bookie_WRITE_BYTES{disk="b"} 8.0',
    ]


def test_an_op_stat_has_successes_and_failures() -> None:
    """Milliseconds; of failures only the number is known; quantiles of the last minute, count and sum of all time."""
    one, other = Histogram(), Histogram()
    one.observe(0.004, 3)
    other.observe(0.1)
    lines = text_of(op_stat("ADD", "adds", [Part([one, other], 2, {"journal": "0"})], now=0.0))
    assert "# TYPE ADD summary" in lines
    assert 'ADD_count{journal="0",success="true"} 4.0' in lines
    assert 'ADD_count{journal="0",success="false"} 2.0' in lines
    assert 'ADD_sum{journal="0",success="true"} 112.0' in lines
    found = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line.startswith("ADD{")}
    assert 4 <= found['ADD{journal="0",quantile="0.75",success="true"}'] <= 4.5
    assert 100 <= found['ADD{journal="0",quantile="1.0",success="true"}'] <= 112.5
    assert str(found['ADD{journal="0",quantile="0.5",success="false"}']) == "nan"
    later = text_of(op_stat("ADD", "adds", [Part([one], 0)], now=1000.0))
    assert 'ADD_count{success="true"} 3.0' in later


def test_seconds_are_a_histogram() -> None:
    """Cumulative, and the last bucket has all."""
    times = Histogram()
    times.observe(0.0001, 2)
    times.observe(100.0)
    lines = text_of(seconds("add_seconds", "adds", [Part([times])]))
    assert 'add_seconds_bucket{le="6.4e-05"} 0.0' in lines
    assert 'add_seconds_bucket{le="0.000128"} 2.0' in lines
    assert 'add_seconds_bucket{le="+Inf"} 3.0' in lines
    assert "add_seconds_count 3.0" in lines
