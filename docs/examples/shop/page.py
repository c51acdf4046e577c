"""
What a person sees of the result: a chart (PNG, and SVG in the page), and a page with it that a small HTTP server makes
of the table at each request.

    /                the page            /sales.json      the table            /chart.png      the chart

Knows: the table `sales` in SQLite, Matplotlib, HTML.
Does not know: Spark or logs.
"""

import html
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import events
from matplotlib.dates import DateFormatter, HourLocator
from matplotlib.figure import Figure

from quire.log import Record

# SPDX-License-Identifier: Apache-2.0

QUARTER = timedelta(minutes=15)
COLUMNS = ("begin", "category", "orders", "items", "cents")
CATEGORIES = {"coffee": "#6f4630", "chocolate": "#d39a4a", "equipment": "#5b7c99", "tea": "#7a9e4d"}
REASONS = {
    "wrong type": "#b3424a",
    "not JSON": "#5a4e7c",
    "unknown product": "#e08e45",
    "missing field": "#3f8f8b",
    "out of range": "#c77fb0",
    "too late": "#8a8a8a",
    "from the future": "#c9b037",
    "not UTF-8": "#4f7cac",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1080px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin: 0 } p { margin: .3em 0 1.2em; color: #555 } svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0 2em; width: 100% } caption { text-align: left; font-weight: 600 }
th, td { padding: .3em .8em .3em 0; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
td:first-child { white-space: nowrap }
.n { text-align: right; font-variant-numeric: tabular-nums } code { font-size: .85em; overflow-wrap: anywhere }
i { display: inline-block; width: .8em; height: .8em; margin-right: .5em }
"""


class Reject(NamedTuple):
    """A row that was set apart: when it came, why it does not count, and its bytes."""

    arrived: datetime
    reason: str
    value: bytes

    @classmethod
    def of(cls, record: Record) -> "Reject":
        """Makes it of a record of the log of rejects."""
        arrived = datetime.fromtimestamp((record.time_ms or record.stamp_ms) / 1000, UTC)
        return cls(arrived, dict(record.headers)["reason"].decode(), record.value)


def table(database: Path) -> list[dict[str, Any]]:
    """Reads the table."""
    with closing(sqlite3.connect(database)) as opened:
        rows = opened.execute(f"SELECT {', '.join(COLUMNS)} FROM sales ORDER BY begin, category").fetchall()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def chart(sales: Sequence[dict[str, Any]], rejects: Sequence[Reject], kind: str) -> bytes:
    """Draws what was sold and what was set apart, by quarter of an hour; `kind` is png or svg."""
    sold: defaultdict[str, Counter[datetime]] = defaultdict(Counter)
    for row in sales:
        sold[row["category"]][datetime.fromisoformat(row["begin"])] += row["cents"] / 100
    apart: defaultdict[str, Counter[datetime]] = defaultdict(Counter)
    for reject in rejects:
        arrived = reject.arrived.replace(tzinfo=None)
        apart[reject.reason][arrived.replace(minute=arrived.minute // 15 * 15, second=0, microsecond=0)] += 1

    figure = Figure(figsize=(12, 7.5), dpi=110, layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[2.2, 1])
    bars(upper, sold, CATEGORIES, "€{:,.0f}")
    bars(lower, apart, REASONS, "{:,}")
    total, orders = sum(row["cents"] for row in sales) / 100, sum(row["orders"] for row in sales)
    upper.set_title(f"€{total:,.0f} sold in {orders:,} orders", loc="left", fontsize=14, fontweight="bold")
    upper.set_ylabel("sold, € per 15 minutes")
    upper.yaxis.set_major_formatter("{x:,.0f}")
    lower.set_title(f"{len(rejects):,} rows set apart", loc="left", fontsize=14, fontweight="bold")
    lower.set_ylabel("rows per 15 minutes")
    lower.set_xlabel(f"time of day (UTC), {events.DAY:%A %d %B %Y}")
    day = events.DAY.replace(tzinfo=None)
    lower.set_xlim(day, day + timedelta(days=1))
    lower.xaxis.set_major_locator(HourLocator(byhour=range(0, 24, 3)))
    lower.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    for incident in events.INCIDENTS:
        for axes in (upper, lower):
            axes.axvspan(
                day + timedelta(minutes=incident.begin), day + timedelta(minutes=incident.end), color="#eee", zorder=0
            )
        middle = day + timedelta(minutes=(incident.begin + incident.end) / 2)
        upper.annotate(
            incident.text, (middle, 0.98), xycoords=("data", "axes fraction"), ha="center", va="top", fontsize=9
        )
    written = BytesIO()
    figure.savefig(written, format=kind)
    return written.getvalue()


def bars(axes: Any, series: dict[str, Counter[datetime]], colours: dict[str, str], form: str) -> None:
    """Stacks a bar of each name on those below it; the names with their totals are the legend."""
    begins = sorted({begin for each in series.values() for begin in each})
    base = [0.0] * len(begins)
    for name in sorted(series, key=lambda name: -sum(series[name].values())):
        heights = [series[name][begin] for begin in begins]
        drawn = [each for each in zip(begins, heights, base, strict=True) if each[1]]
        where, tall, below = zip(*drawn, strict=True)
        label = f"{name}  {form.format(sum(heights))}"
        axes.bar(where, tall, QUARTER * 0.92, below, align="edge", color=colours[name], label=label)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    axes.margins(y=0.14)  # room for words
    axes.grid(axis="y", color="#ddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)


def page(sales: Sequence[dict[str, Any]], rejects: Sequence[Reject]) -> str:
    """Makes the page: the chart, sums by category, and rejects by reason, each with an example."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in sales:
        sums[row["category"]].update({name: row[name] for name in COLUMNS[2:]})
    sold = "".join(
        f'<tr><td><i style="background:{CATEGORIES[name]}"></i>{html.escape(name)}<td class=n>{each["orders"]:,}'
        f"<td class=n>{each['items']:,}<td class=n>€{each['cents'] / 100:,.2f}"
        for name, each in sorted(sums.items(), key=lambda item: -item[1]["cents"])
    )
    examples = {reject.reason: reject.value.decode(errors="replace") for reject in rejects}
    apart = "".join(
        f'<tr><td><i style="background:{REASONS[reason]}"></i>{html.escape(reason)}<td class=n>{count:,}'
        f"<td><code>{html.escape(examples[reason])}</code>"
        for reason, count in Counter(reject.reason for reject in rejects).most_common()
    )
    drawn = chart(sales, rejects, "svg").decode()
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>The shop's day</title><style>{STYLE}</style>"
        f"<h1>The shop's day</h1><p>{events.DAY:%A %d %B %Y}, by quarter of an hour. "
        f'The table as <a href="sales.json">JSON</a>, the chart as <a href="chart.png">PNG</a>.</p>'
        f"{drawn[drawn.index('<svg') :]}"
        "<table><caption>Sold</caption><tr><th>category<th class=n>orders<th class=n>items<th class=n>sum"
        f"{sold}</table>"
        f"<table><caption>Set apart</caption><tr><th>reason<th class=n>rows<th>the last of them{apart}</table></html>\n"
    )


def server(database: Path, rejects: Sequence[Reject], port: int = 0) -> HTTPServer:
    """A server on this machine, on a free port; each request reads the table as it is then."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            sales = table(database)
            if self.path == "/":
                self.answer("text/html; charset=utf-8", page(sales, rejects).encode())
            elif self.path == "/sales.json":
                self.answer("application/json", json.dumps(sales).encode())
            elif self.path == "/chart.png":
                self.answer("image/png", chart(sales, rejects, "png"))
            else:
                self.send_error(404)

        def answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return HTTPServer(("127.0.0.1", port), Answers)
