"""The text of /metrics: what is collected, and the numbers of the process."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from quire.metrics.text import Metrics, numbers

# SPDX-License-Identifier: Apache-2.0


@dataclass(slots=True)
class Counters:
    adds: int = 3
    seconds: float = 0.5
    _hidden: int = 9
    name: str = "x"


class Collected:
    def __init__(self) -> None:
        self.value = 0

    def collect(self) -> Iterator[Metric]:
        self.value += 1
        yield GaugeMetricFamily("scrapes", "so far", value=self.value)


def test_counters_are_the_public_numbers() -> None:
    """Of a slots object, in order."""
    assert list(numbers(Counters())) == [("adds", 3), ("seconds", 0.5)]


def test_each_text_is_of_its_moment() -> None:
    """Collectors are asked each time, and the process is there."""
    metrics = Metrics(collected := Collected())
    before = collected.value
    text = metrics.text().decode()
    assert "process_resident_memory_bytes" in text
    assert f"scrapes {collected.value}.0" in text
    assert f"scrapes {collected.value + 1}.0" in metrics.text().decode()
    assert collected.value > before
