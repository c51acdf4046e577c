"""A page with a chart."""

from html.parser import HTMLParser

from quire.pipeline.jobs.chart import page

# SPDX-License-Identifier: Apache-2.0


class Bars(HTMLParser):
    """The heights of the bars, and all texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.heights: list[float] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "rect":
            self.heights.append(float(dict(attrs)["height"] or 0))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_bars() -> None:
    """As high as their values, with what they stand for; names are text and nothing else."""
    found = Bars(page("a <log>", [("one & two", 10), ("<b>", 5)], "rows", [("bytes", "7 <MB>")]))
    assert found.heights == [300, 150]
    assert {"a <log>", "one & two: 10 rows", "<b>: 5 rows", "7 <MB>"} <= set(found.texts)


def test_nothing_and_much() -> None:
    """No bar, and more of them than there is room for names."""
    assert Bars(page("none", [], "rows")).heights == []
    many = Bars(page("many", [(str(number), number) for number in range(1000)], "rows"))
    assert len(many.heights) == 1000
    assert len([text for text in many.texts if text.isdecimal()]) <= 24
