"""
`docs/performance.md` from measured figures: its tables, its charts, and the figures themselves beside them.

    python -m bench --json > new.json
    python -m bench.page new.json …      rows of these files replace those of the same name, and the page is made again
    python -m bench.page                 only the page again

What stands between the two marks of the page is made here; all else is written by hand, the reasons too: a line
`* **row**: reason` of its section "Why rows are missed".

Knows: the page.  Does not know: how rows are measured.
"""

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.charts import bars, ratios
from bench.rows import DLEDGER, ROWS

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: made by python -m bench.page -->\n", "<!-- end of figures -->\n"
REASON = re.compile(r"^\* \*\*(.+?)\*\*: (.+)$", re.MULTILINE)
FIGURES = {  # of the table of all sides, and how each is headed
    "entries_per_second": "/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "client_cpu_us_per_entry": "client us",
    "bookies_cpu_us_per_entry": "bookies us",
    "bookies_syncs": "syncs",
    "bookies_written_mb": "MB written",
}
NAMES = {
    "entries_per_second": "entries/s",
    "cpu_us_per_entry": "CPU/entry",
    "client_cpu_us_per_entry": "client CPU/entry",
}
Document = dict[str, Any]


def merged(documents: Iterable[Document]) -> Document:
    """One document: of rows that several have the last one, in the order of the bench; the last machine."""
    rows: dict[str, Document] = {}
    machine: Document = {}
    for document in documents:
        rows |= {row["name"]: row for row in document["rows"]}
        machine = document["machine"] or machine
    order = {row.name: place for place, row in enumerate(ROWS)}
    return {"machine": machine, "rows": sorted(rows.values(), key=lambda row: order.get(row["name"], len(order)))}


def median(runs: Sequence[Document], key: str) -> float | None:
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def named(figure: str) -> str:
    return NAMES.get(figure, figure.removesuffix("_ms").replace("_", " "))


def split(wanted: Document) -> tuple[str, str]:
    """(figure, beside) of a comparison's name "row: figure / beside"."""
    figure, _, beside = wanted["name"].rpartition(": ")[2].partition(" / ")
    return figure, beside


def wanted_table(rows: Sequence[Document], reasons: dict[str, str]) -> list[str]:
    """Makes the table of what is wanted of each row, what was measured, and why it was missed."""
    lines = ["| row | figure | quire | beside | ratio (95 %) | wanted | |", "|---|---|--:|--:|--:|--:|---|"]
    for row in rows:
        for wanted in row["wanted"]:
            figure, beside = split(wanted)
            ours, theirs = (shown(statistics.median(wanted[side])) for side in ("ours", "theirs"))
            interval = f"{wanted['median']:.2f} ({wanted['low']:.2f} to {wanted['high']:.2f})"
            bound = f"{'≤' if wanted['at_most'] else '≥'} {wanted['goal']:g}"
            verdict = "met" if wanted["passed"] else f"**missed**: {reasons.get(row['name'], 'not explained yet')}"
            lines.append(
                f"| {row['name']} | {named(figure)} | {ours} | {theirs}, {beside} | {interval} | {bound} | {verdict} |"
            )
    return lines


def sides_table(rows: Sequence[Document]) -> list[str]:
    """Medians of every side."""
    lines = [f"| row | side | runs | {' | '.join(FIGURES.values())} |", "|---|---|--:|" + "--:|" * len(FIGURES)]
    for row in rows:
        for side, runs in row["runs"].items():
            cells = " | ".join(shown(median(runs, key)) for key in FIGURES)
            if cells.strip(" |"):
                lines.append(f"| {row['name']} | {side} | {len(runs)} | {cells} |")
    return lines


def charts(rows: Sequence[Document]) -> dict[str, str]:
    """By file name."""

    def groups(key: str, words: Sequence[str]) -> list[tuple[str, list[tuple[str, float]]]]:
        chosen = [row for row in rows if any(word in row["name"] for word in words)]
        found = []
        for row in chosen:
            values = [(side, median(runs, key)) for side, runs in row["runs"].items()]
            found.append((row["name"], [(side, value) for side, value in values if value is not None]))
        return [each for each in found if each[1]]

    compared = []
    for row in rows:
        for wanted in row["wanted"]:
            figure, beside = split(wanted)
            if wanted["median"] > 0:
                figures = wanted["median"], wanted["low"] or wanted["median"], wanted["high"], wanted["goal"]
                compared.append((f"{row['name']}: {named(figure)} / {beside}"[:60], *figures, wanted["passed"]))
    appends = ("append 100 B", "append 1 KiB", "append 64 KiB")
    return {
        "ratios.svg": ratios("Ours / beside: median and interval, and what is wanted (stroke)", compared),
        "rates.svg": bars(
            "Entries a second", groups("entries_per_second", (*appends, "in order", "ledgers")), log=True
        ),
        "cpu.svg": bars("CPU of client and bookies, us per entry", groups("cpu_us_per_entry", appends), log=True),
        "p50.svg": bars(
            "p50, ms", groups("p50_ms", ("open loop", "outstanding", "random", "tail", "recover")), log=True
        ),
        "p99.svg": bars("p99, ms", groups("p99_ms", ("open loop", "outstanding", "tail", *appends)), log=True),
    }


def parted(rows: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Rows beside BookKeeper, and those beside DLedger."""
    found: tuple[list[Document], list[Document]] = [], []
    for row in rows:
        found[DLEDGER in row["runs"]].append(row)
    return found


def page(text: str, document: Document, folder: str) -> str:
    """The page with what is between its marks made again."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    reasons = dict(REASON.findall(text))
    rows, beside_dledger = parted(document["rows"])
    machine = [f"| {name} | {value} |" for name, value in document["machine"].items() if name != "seconds"]
    parts = [
        ["## The machine", "", "| | |", "|---|---|", *machine],
        ["## What is wanted, and what was measured", "", *wanted_table(rows, reasons)],
        ["## Charts", "", *(f"![{name}]({folder}/{name})" for name in charts(rows))],
        ["## All sides", "", *sides_table(rows)],
    ]
    if beside_dledger:
        parts.append(["## Beside DLedger", "", *wanted_table(beside_dledger, reasons)])
        parts.append(sides_table(beside_dledger))
    return before + BEGIN + "\n" + "\n\n".join("\n".join(part) for part in parts) + "\n\n" + END + after


def made_again(page: Path, kept: str, key: str, document: Document, charts: Mapping[str, str]) -> None:
    """Writes charts, and all figures to the file `kept`, a line for each of `document[key]`, beside a page."""
    folder = page.with_suffix("")
    lines = ",\n".join(json.dumps(each) for each in document[key])
    text = f'{{"machine": {json.dumps(document["machine"])}, "{key}": [\n{lines}\n]}}\n'
    for name, drawn in {kept: text, **charts}.items():
        (folder / name).write_text(drawn, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FIGURES", help="what `python -m bench --json` printed")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--anew", action="store_true", help="without the rows that the page had")
    options = parser.parse_args()
    folder = options.page.with_suffix("")
    folder.mkdir(exist_ok=True)
    kept = folder / "figures.json"
    before = [kept] if kept.exists() and not options.anew else []
    document = merged(json.loads(file.read_text(encoding="utf-8")) for file in (*before, *options.files))
    made_again(options.page, kept.name, "rows", document, charts(parted(document["rows"])[0]))
    text = options.page.read_text(encoding="utf-8")
    options.page.write_text(page(text, document, folder.name), encoding="utf-8")


if __name__ == "__main__":
    main()
