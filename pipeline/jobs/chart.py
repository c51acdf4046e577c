"""
A page with a chart of bars, in one file that any browser shows.

Knows: SVG and HTML.  Does not know: what is drawn.
"""

import html
from collections.abc import Sequence

# SPDX-License-Identifier: Apache-2.0

WIDTH, HEIGHT, LABELS_MAX = 960, 300, 24
COLOUR = "#4e79a7"


def page(title: str, bars: Sequence[tuple[str, float]], unit: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Makes a page with a bar for each (label, value), and a table of facts below."""
    highest = max((value for _label, value in bars), default=0) or 1
    width = WIDTH / max(len(bars), 1)
    every = -(-len(bars) // LABELS_MAX)
    drawn = []
    for place, (label, value) in enumerate(bars):
        height = HEIGHT * value / highest
        x, text = 60 + place * width, html.escape(label)
        drawn.append(
            f'<rect x="{x:.1f}" y="{20 + HEIGHT - height:.1f}" width="{max(width - 1, 0.5):.1f}" height="{height:.1f}" '
            f'fill="{COLOUR}"><title>{text}: {value:,.0f} {html.escape(unit)}</title></rect>'
        )
        if place % every == 0:
            drawn.append(
                f'<text x="{x:.1f}" y="{HEIGHT + 36}" font-size="11" transform="rotate(30 {x:.1f} {HEIGHT + 36})">'
                f"{text}</text>"
            )
    rows = "".join(f"<tr><th align=left>{html.escape(name)}<td>{html.escape(value)}" for name, value in facts)
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        f'<body style="font-family:sans-serif"><h1>{html.escape(title)}</h1>'
        f'<svg width="{WIDTH + 100}" height="{HEIGHT + 130}"><text x="0" y="24" font-size="11">{highest:,.0f} '
        f"{html.escape(unit)}</text>{''.join(drawn)}</svg><table cellpadding=4>{rows}</table>\n"
    )
