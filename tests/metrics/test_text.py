"""The text of /metrics: what is collected, and the numbers of the process."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from quire.metrics.text import CONTENT_TYPE, EOF, OPEN_CONTENT_TYPE, Metrics, content_type, numbers

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


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("text/plain;version=0.0.4, */*;q=0.1", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("text/html, Application/OpenMetrics-Text; q=0.5", True),
        ("application/openmetrics-text-not", False),
    ],
)
def test_openmetrics_is_for_who_asks_for_it(accept: str, is_open: bool) -> None:
    """Wherever its name is in the header; with its own content type and end."""
    text = Metrics(Collected()).text(accept).decode()
    assert content_type(accept) == (OPEN_CONTENT_TYPE if is_open else CONTENT_TYPE)
    assert text.endswith(f"{EOF}\n") == is_open
    names = {family.name for family in (parse_open if is_open else parse)(text)}
    assert {"scrapes", "process_resident_memory_bytes"} <= names
