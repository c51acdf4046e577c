"""
Charts of the page of figures, as SVG.

Knows: bars in groups; ratios on a logarithmic scale with what is wanted of each; curves on two of them; lines over
time.
Does not know: what was measured.
"""

import html
import math
from collections.abc import Callable, Sequence

# SPDX-License-Identifier: Apache-2.0

WIDTH, LABELS, VALUES = 940, 370, 90  # pixels: the whole, of them names on the left and figures on the right
BAR, GAP, TOP = 14, 10, 48
COLOURS = ("#2f6f9f", "#b0b7bf", "#d98032", "#8a6fb0")
MORE_COLOURS = ("#3f8f5f", "#c0504d", "#4bacc6", "#b8860b", "#d070a0", "#555555", "#1f3f6f")
ALL_COLOURS = (*COLOURS, *MORE_COLOURS)
PLOT, AXIS = 320, 40  # pixels: the height of curves, and what is below them
MET, MISSED = "#3f8f5f", "#c0504d"
Bar = tuple[str, float]


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{html.escape(words)}</text>'
    )


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="{height:.1f}" fill="{colour}"/>'


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def document(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="white"/>{text(10, 22, title, size=15, weight="bold")}'
        + "".join(parts)
        + "</svg>\n"
    )


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], log: bool = False) -> str:
    """A group of bars for each name; within a group a colour for each side."""
    sides = list(dict.fromkeys(side for _name, row in groups for side, _value in row))
    values = [value for _name, row in groups for _side, value in row if value > 0]
    highest, lowest = max(values, default=1.0), min(values, default=1.0) / 2
    room = WIDTH - LABELS - VALUES

    def length(value: float) -> float:
        if log:
            return room * math.log(max(value, lowest) / lowest) / math.log(highest / lowest)
        return room * value / highest

    parts = []
    for place, side in enumerate(sides):
        x = LABELS + place * room / max(1, len(sides) - 1) * 0.8
        colour = ALL_COLOURS[place % len(ALL_COLOURS)]
        parts += [rect(x, TOP - 17, 10, 10, colour), text(x + 14, TOP - 8, side, size=11)]
    y: float = TOP
    for name, row in groups:
        parts.append(text(LABELS - 8, y + len(row) * BAR / 2 + 4, name, "end"))
        for side, value in row:
            parts.append(rect(LABELS, y, length(value), BAR - 2, ALL_COLOURS[sides.index(side) % len(ALL_COLOURS)]))
            parts.append(text(LABELS + length(value) + 4, y + BAR - 4, number(value), size=10))
            y += BAR
        y += GAP
    return document(title, y + GAP, parts)


def ratios(title: str, rows: Sequence[tuple[str, float, float, float, float, bool]]) -> str:
    """For each (name, ratio, low, high, wanted, met) a dot with its interval, and a stroke where it should be."""
    every = [value for row in rows for value in row[1:5] if value > 0]
    low, high = math.log(min([*every, 0.5])), math.log(max([*every, 2.0]))
    room = WIDTH - LABELS - VALUES

    def at(value: float) -> float:
        return LABELS + room * (math.log(value) - low) / (high - low)

    height = TOP + len(rows) * (BAR + 4)
    parts = [f'<line x1="{at(1):.0f}" y1="{TOP - 8}" x2="{at(1):.0f}" y2="{height}" stroke="#999"/>']
    parts.append(text(at(1), TOP - 12, "1", "middle", 10))
    for place, (name, ratio, least, most, wanted, met) in enumerate(rows):
        y = TOP + place * (BAR + 4)
        colour = MET if met else MISSED
        parts.append(text(LABELS - 8, y + 10, name, "end", 11))
        parts.append(rect(at(least), y + 5, at(most) - at(least), 3, colour))
        parts.append(f'<circle cx="{at(ratio):.1f}" cy="{y + 6.5}" r="4.5" fill="{colour}"/>')
        parts.append(rect(at(wanted) - 1, y - 1, 2, BAR + 1, "#222"))
        parts.append(text(WIDTH - VALUES + 10, y + 10, number(ratio), size=11))
    return document(title, height + GAP, parts)


def curves(
    title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], named: Callable[[float], str] = number
) -> str:
    """A line with its points for each name, both scales logarithmic; a slope of 1 is a growth by as much as x."""
    xs = sorted({x for _name, points in series for x, _y in points})
    ys = [y for _name, points in series for _x, y in points]
    left, right = math.log(xs[0]), math.log(max(xs[-1], xs[0] * 2))
    low, high = math.log(min([*ys, 0.5])), math.log(max([*ys, 2.0]))
    room = WIDTH - LABELS - VALUES

    def at(x: float, y: float) -> tuple[float, float]:
        across = VALUES + room * (math.log(x) - left) / (right - left)
        return across, TOP + PLOT * (high - math.log(y)) / (high - low)

    parts = []
    for decade in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1):
        y = at(xs[0], 10.0**decade)[1]
        parts.append(f'<line x1="{VALUES}" y1="{y:.1f}" x2="{VALUES + room}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(VALUES - 8, y + 4, f"{10.0**decade:g}", "end", 10))
    parts += [text(at(x, 1)[0], TOP + PLOT + 16, named(x), "middle", 10) for x in xs]
    for place, (name, points) in enumerate(series):
        colour = ALL_COLOURS[place % len(ALL_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in (at(*p) for p in points)]
        y = TOP + place * (BAR + 6)
        parts += [rect(VALUES + room + 12, y, 10, 10, colour), text(VALUES + room + 28, y + 9, name, size=11)]
    return document(title, max(TOP + PLOT + AXIS, TOP + len(series) * (BAR + 6) + GAP), parts)


def lines(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], across: str) -> str:
    """A line for each name, both scales from 0 on; `across` says what x is."""
    right = max([x for _name, points in series for x, _y in points] or [1.0]) or 1.0
    high = max([y for _name, points in series for _x, y in points] or [1.0]) or 1.0
    room = WIDTH - LABELS - VALUES
    parts = []
    for part in (0, 0.25, 0.5, 0.75, 1):
        x, y = VALUES + room * part, TOP + PLOT * (1 - part)
        parts.append(f'<line x1="{VALUES}" y1="{y:.1f}" x2="{VALUES + room}" y2="{y:.1f}" stroke="#ddd"/>')
        parts += [text(VALUES - 8, y + 4, f"{high * part:,.4g}", "end", 10)]
        parts += [text(x, TOP + PLOT + 16, f"{right * part:,.0f}", "middle", 10)]
    parts.append(text(VALUES + room / 2, TOP + PLOT + 32, across, "middle", 10))
    for place, (name, points) in enumerate(series):
        colour = ALL_COLOURS[place % len(ALL_COLOURS)]
        path = " ".join(f"{VALUES + room * x / right:.1f},{TOP + PLOT * (1 - y / high):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = TOP + place * (BAR + 6)
        parts += [rect(VALUES + room + 12, y, 10, 10, colour), text(VALUES + room + 28, y + 9, name, size=11)]
    return document(title, TOP + PLOT + AXIS + GAP, parts)
