"""
The figures of `docs/scale.md` from a run: its tables between two marks, and its charts.

    python -m tests.scale --json new.json         all scenarios, or some
    python -m tests.scale.page new.json …         outcomes of these files replace those of the same name
    python -m tests.scale.page                    only the page again

Knows: which figure is in which table.  Does not know: how it came about.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.charts import bars, lines

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- scale: made by python -m tests.scale.page -->\n", "<!-- end of scale -->\n"
POINTS_MAX = 150  # of a curve that is kept
LOST = ("a bookie lost", "a bookie lost, a store of 200 ms", "a rack lost", "a batch of disks lost", "losses in a row")
KINDS = ("disk reads", "copier", "host out", "rack out", "region out")
Document = dict[str, Any]

# A table: its heading, the scenarios, and the figures as (what it is called, name, unit, digits).
Figure = tuple[str, str, float, int]
CPU: Figure = ("CPU of the run, s", "CPU s", 1, 0)
TABLES: Sequence[tuple[str, Sequence[str], Sequence[Figure]]] = (
    (
        "Bookies lost",
        LOST,
        (
            ("first ledger marked after, s", "s to the first mark", 1, 0),
            ("the queue grew until, s", "s to the last mark", 1, 0),
            ("all copies there after, s", "s to full copies", 1, 0),
            ("the bytes alone need, s", "s that the bytes need", 1, 0),
            ("copied, TB", "TB copied", 1, 2),
            ("ledger hours with two copies", "ledger hours with 2 copies", 1, 0),
            ("ledger hours with one copy", "ledger hours with 1 copy", 1, 1),
            ("ledgers gone", "ledgers gone", 1, 0),
            ("store calls of AutoRecovery, thousands", "store calls of AutoRecovery", 1e-3, 0),
            ("answered to it, MB", "MB answered to AutoRecovery", 1, 0),
            ("store calls/s, most", "store calls/s, most", 1, 0),
            ("a call waited for others at most, ms", "s that a call waited, most", 1e3, 0),
        ),
    ),
    (
        "Bookies that leave and come back",
        ("a rolling restart", "a region cut off"),
        (
            ("virtual time, s", "virtual s", 1, 0),
            ("lists that a client was called with", "lists that a client was called with", 1, 0),
            ("store calls of 10 clients", "store calls of client", 1, 0),
            ("answered to them, MB", "MB answered to client", 1, 1),
            ("store calls of 40 AutoRecoveries, thousands", "store calls of AutoRecovery", 1e-3, 0),
            ("store calls of bookies", "store calls of bookie", 1, 0),
            ("store calls/s, most", "store calls/s, most", 1, 0),
            ("a call waited for others at most, ms", "s that a call waited, most", 1e3, 0),
        ),
    ),
    (
        "Drains",
        ("drain of 3, one by one", "drain of 100, together"),
        (
            ("empty after, s", "s to empty", 1, 0),
            ("copied, TB", "TB copied", 1, 2),
            ("store calls for each bookie, thousands", "store calls, each bookie", 1e-3, 0),
            ("store calls/s, most", "store calls/s, most", 1, 0),
        ),
    ),
    (
        "Bookies that join",
        ("scale out",),
        (
            ("all of them up after, s", "virtual s", 1, 0),
            ("store calls of one of them, thousands", "store calls of a bookie's first start", 1e-3, 0),
            ("MB answered to all that start", "MB answered to operator", 1, 0),
            ("lists that a client was called with", "lists that a client was called with", 1, 0),
            ("store calls of 10 clients", "store calls of client", 1, 0),
            ("store calls of 40 AutoRecoveries, thousands", "store calls of AutoRecovery", 1e-3, 0),
            ("store calls/s, most", "store calls/s, most", 1, 0),
        ),
    ),
    (
        "After a scale-out",
        ("scale out, placed by number", "scale out, placed by free disk"),
        (
            ("writes of a new bookie / of one before, at first", "writes of a new bookie / of one before", 1, 2),
            ("turnovers until new ones have half of the level", "turnovers to 50 %", 1, 2),
            ("until they have 90 % of it", "turnovers to 90 %", 1, 2),
            ("after two: fullest bookie / mean", "fill, most / mean", 1, 3),
            ("emptiest bookie / mean", "fill, least / mean", 1, 3),
            ("deviation / mean", "fill, deviation / mean", 1, 3),
        ),
    ),
    (
        "Fill",
        ("fill", "scale out, evened out"),
        (
            ("fullest bookie / mean", "fill, most / mean", 1, 3),
            ("emptiest bookie / mean", "fill, least / mean", 1, 3),
            ("deviation / mean", "fill, deviation / mean", 1, 3),
            ("deviation of blind draws / mean", "fill, deviation / mean of blind draws", 1, 3),
            ("evening out moves, TB", "TB that evening out moves", 1, 2),
            ("it has to move at least, TB", "TB that it has to", 1, 2),
            ("after that: fullest / mean", "fill after that, most / mean", 1, 3),
            ("after that: emptiest / mean", "fill after that, least / mean", 1, 3),
        ),
    ),
)


def merged(documents: Iterable[Document]) -> Document:
    """The outcomes of all, of one name the last; the last shape."""
    found: Document = {"shape": {}, "outcomes": []}
    by_name: dict[str, Document] = {}
    for document in documents:
        found["shape"] = document["shape"]
        by_name |= {each["name"]: each for each in document["outcomes"]}
    found["outcomes"] = list(by_name.values())
    return found


def thinned(points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    step = max(1, -(-len(points) // POINTS_MAX))
    return [(x, y) for x, y in points[::step]]


def table(document: Document, names: Sequence[str], figures: Sequence[Figure]) -> list[str]:
    found = {each["name"]: each["figures"] for each in document["outcomes"]}
    there = [name for name in names if name in found]
    rows = [f"| | {' | '.join(there)} |", f"|---|{'--:|' * len(there)}"]
    for said, name, unit, digits in (*figures, CPU):
        values = [found[each].get(name) for each in there]
        if all(value is None for value in values):
            continue
        shown = ["" if value is None else f"{value * unit:,.{digits}f}" for value in values]
        rows.append(f"| {said} | {' | '.join(shown)} |")
    return rows if there else []


def charts(document: Document) -> dict[str, str]:
    """By file name."""
    found = {each["name"]: each for each in document["outcomes"]}
    made: dict[str, str] = {}
    for name in LOST:
        if name in found:
            curves = found[name]["curves"]
            words = {"1 away": "one copy away", "2 away": "two copies away", "marked": "in the repair queue"}
            series = [(said, thinned(curves[key])) for key, said in words.items()]
            file = name.replace(",", "").replace(" ", "-")
            made[f"{file}.svg"] = lines(f"{name[0].upper()}{name[1:]}: ledgers", series, "s since then")
    loads = [(name, thinned(found[name]["curves"]["store calls/s"])) for name in LOST if name in found]
    if loads:
        made["store.svg"] = lines("Calls of the metadata store a second", loads, "s since the event")
    groups = [
        (name, [(kind, found[name]["figures"].get(f"TB over {kind}", 0.0)) for kind in KINDS])
        for name in LOST
        if name in found
    ]
    levels = [
        (placed, thinned(found[f"scale out, {placed}"]["curves"]["level of new ones, %"]))
        for placed in ("placed by number", "placed by free disk")
        if f"scale out, {placed}" in found
    ]
    if levels:
        made["scale-out.svg"] = lines("Level of new bookies, % of the others'", levels, "turnovers of all ledgers")
    if groups:
        made["links.svg"] = bars("TB that a repair moves, by kind of link", groups)
    return made


def section(text: str, document: Document, folder: str) -> str:
    """The page with what is between its marks made again."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    parts = []
    for heading, names, figures in TABLES:
        rows = table(document, names, figures)
        if rows:
            parts.append("\n".join([f"### {heading}", "", *rows]))
    parts += [f"![{name}]({folder}/{name})" for name in charts(document)]
    return before + BEGIN + "\n" + "\n\n".join(parts) + "\n\n" + END + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FIGURES", help="what `--json` wrote")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    folder = options.page.with_suffix("")
    folder.mkdir(exist_ok=True)
    kept = folder / "figures.json"
    files = [*([kept] if kept.exists() else []), *options.files]
    document = merged(json.loads(file.read_text(encoding="utf-8")) for file in files)
    for each in document["outcomes"]:
        each["curves"] = {name: thinned(points) for name, points in each["curves"].items()}
    rows = ",\n".join(json.dumps(each) for each in document["outcomes"])
    kept.write_text(f'{{"shape": {json.dumps(document["shape"])}, "outcomes": [\n{rows}\n]}}\n', encoding="utf-8")
    for name, drawn in charts(document).items():
        (folder / name).write_text(drawn, encoding="utf-8")
    text = options.page.read_text(encoding="utf-8")
    options.page.write_text(section(text, document, folder.name), encoding="utf-8")


if __name__ == "__main__":
    main()
