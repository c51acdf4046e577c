"""Prometheus texts joined: a family once, its samples together, each with its bookie."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families

from quire.metrics.text import EOF
from quire.tools.host.page import joined, labelled

# SPDX-License-Identifier: Apache-2.0


def text_of(number: int, more: bool = False, generate: Callable[[CollectorRegistry], bytes] = generate_latest) -> str:
    registry = CollectorRegistry()
    Counter("adds", 'with "quotes" and {braces}', registry=registry).inc(number)
    parked = Gauge("parked", "by reason", ["reason"], registry=registry)
    parked.labels('a " } b').set(number)
    parked.labels("c d").set(10 * number)
    if more:
        Gauge("own", "of one", registry=registry).set(1)
    return generate(registry).decode()


def test_the_text_is_what_prometheus_reads() -> None:
    """Every sample of every text is there, told apart by the label alone."""
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(
            joined([(None, text_of(7)), ("m-0", text_of(1, more=True)), ("10.0.0.1:3182", text_of(2))])
        )
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    reasons = ('a " } b', "c d")
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {("own", (("bookie", "m-0"),)): 1}
    for bookie, number in ((None, 7), ("m-0", 1), ("10.0.0.1:3182", 2)):
        label = () if bookie is None else (("bookie", bookie),)
        expected["adds_total", label] = number
        for times, reason in zip((1, 10), reasons, strict=True):
            expected["parked", (*label, ("reason", reason))] = times * number
    assert found == expected


def test_a_family_is_described_once_and_stands_together() -> None:
    """As the format asks."""
    text = joined([("a", text_of(1)), ("b", text_of(2))])
    lines = text.splitlines()
    assert lines.count("# TYPE parked gauge") == 1
    at = [number for number, line in enumerate(lines) if line.startswith("parked{")]
    assert at == list(range(at[0], at[0] + 4))
    assert joined([]) == ""


def test_the_label_comes_first_and_is_escaped() -> None:
    """With other labels, with none, and with empty braces."""
    assert labelled("x 1", "a") == 'x{bookie="a"} 1'
    assert labelled('x{y="1"} 1', "a") == 'x{bookie="a",y="1"} 1'
    assert labelled("x{} 1", "a") == 'x{bookie="a"} 1'
    assert labelled("x 1", "a\\") == 'x{bookie="a\\\\"} 1'


def test_openmetrics_is_joined_and_ended_once() -> None:
    """As its strict reader wants it."""
    texts = [(each, text_of(number, generate=exposition.generate_latest)) for each, number in ((None, 7), ("m-0", 1))]
    found = {
        (sample.name, sample.labels.get("bookie")): sample.value
        for family in parser.text_string_to_metric_families(joined(texts, EOF))
        for sample in family.samples
        if sample.name == "adds_total"
    }
    assert found == {("adds_total", None): 7, ("adds_total", "m-0"): 1}
