"""
Charts of the last hours as pictures (SVG), drawn by pygal.

Knows: which curves a chart has, how they differ without their colours, what a reader hears instead of the picture.
Does not know: where numbers come from (`history`).

Safety: a chart has at most `CURVES_MAX` curves.  Names in it are written as text by the library; it names no other
host and has no script.
"""

import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from quire.console.history import Curve, History, Quantity, latest, together

# SPDX-License-Identifier: Apache-2.0

CURVES_MAX = 6
WIDTH, HEIGHT = 720, 260
LABELS_MAX = 6  # times below a chart
# On white and, by the rules below, on black; each curve has dashes of its own besides.
LIGHT = ("#0b5cad", "#b34700", "#1c7c3a", "#7a2e9e", "#5c5c00", "#a3003f")
DARK = ("#7ab8ff", "#ffb066", "#7fd99a", "#d59bf0", "#d6d65c", "#ff8fb3")
DASHES = ("", "8, 3", "2, 3", "8, 3, 2, 3", "12, 4", "4, 4")
SIGNS = (
    "\u2500\u2500",
    "\u2012 \u2012",
    "\u00b7\u00b7\u00b7",
    "\u2012\u00b7",
    "\u2014 \u2014",
    "\u2022\u2022",
)  # of these dashes, before a name
RULES = """
.line.reactive { stroke-width: 2.5 !important; stroke-opacity: 1 !important; }
.axis .guide.line { stroke: #c3c8cf !important; stroke-dasharray: none !important; }
@media (prefers-color-scheme: dark) {
  text, .title, .axis text, .axis text.major, .legends .legend text { fill: #e6e6e6 !important; }
  .axis .line { stroke: #8a8a8a !important; }
  .axis .guide.line { stroke: #3c444e !important; }
"""
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)  # the library's own, with the options of the chart
OTHERS = "all others"


def curves(history: History, quantity: Quantity, bookies: Collection[str]) -> list[Curve]:
    """Chooses the curves of a chart: each bookie, of very many the busiest ones, and the others together."""
    every = history.curves(quantity.key, bookies)
    if len(every) <= CURVES_MAX:
        return every
    every.sort(key=lambda curve: -sum(value for value in curve.values if not math.isnan(value)))
    return [*every[: CURVES_MAX - 1], together(quantity, every[CURVES_MAX - 1 :], OTHERS)]


def picture(quantity: Quantity, times: Sequence[float], drawn: Sequence[Curve]) -> str:
    """Draws curves over times, s since 1970."""
    import pygal  # type: ignore[import-untyped]  # it has no annotations
    from pygal.style import Style  # type: ignore[import-untyped]  # likewise

    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="#303030",
        foreground_strong="#101010",
        foreground_subtle="#606060",
        colors=LIGHT,
        font_family="system-ui, sans-serif",
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=13,
        no_data_font_size=16,
    )
    dark = "".join(
        f"  .color-{number} {{ stroke: {colour} !important; fill: {colour} !important; }}\n"
        for number, colour in enumerate(DARK)
    )
    chart = pygal.Line(
        style=style,
        css=("file://style.css", "file://graph.css", f"inline:{RULES}{dark}}}"),
        js=(),
        width=WIDTH,
        height=HEIGHT,
        show_dots=False,
        allow_interruptions=True,
        legend_at_bottom=True,
        legend_at_bottom_columns=len(drawn) if len(drawn) in (1, 3) else 1 + (len(drawn) + 1) % 2,
        truncate_legend=40,
        truncate_label=-1,
        max_scale=6,
        show_minor_x_labels=False,
        no_data_text="nothing was measured yet",
        include_x_axis=True,
        value_formatter=number_text,
        margin=4,
    )
    every = max(1, math.ceil(len(times) / LABELS_MAX))
    chart.x_labels = [
        "" if place % every else datetime.fromtimestamp(each, UTC).strftime("%H:%M") for place, each in enumerate(times)
    ]
    chart.x_labels_major_every = every
    for place, curve in enumerate(drawn):
        values = [None if math.isnan(value) else value for value in curve.values]
        dashes = {"width": 2, "dasharray": DASHES[place]} if DASHES[place] else {"width": 2}
        chart.add(f"{SIGNS[place]} {curve.name}", values, stroke_style=dashes)
    return SCRIPT.sub("", chart.render(is_unicode=True))


def number_text(value: float | None) -> str:
    """Makes a number short: 1.2 k, 3.4 M."""
    if value is None:
        return ""
    for unit in ("", " k", " M"):
        if abs(value) < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} G"


def told(quantity: Quantity, drawn: Sequence[Curve]) -> str:
    """Says in words what a chart shows last."""
    parts = []
    for curve in drawn:
        last = latest({"": curve.values[-1]}, "") if curve.values else None
        parts.append(f"{curve.name}: {'unknown' if last is None else f'{number_text(last)} {quantity.unit}'}")
    return f"{quantity.title}, last: {'; '.join(parts) or 'nothing was measured yet'}"
