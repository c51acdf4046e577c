"""
The section "Growth" of `docs/performance.md` from measured curves: its tables, its charts, the figures beside them.

    python -m bench.growth --json > new.json
    python -m bench.growth.page new.json …      curves of these files replace those of the same name
    python -m bench.growth.page                 only the page again

Reasons are written by hand, a line `* **curve: figure**: reason` of the section "Why curves bend", for each figure that
has a knee or misses its law.

Knows: the section.  Does not know: how curves are measured; the rest of the page (`bench.page`).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.charts import curves as drawn
from bench.growth.curves import CURVES, Curve, Law, exponent, knees, segments
from bench.page import PAGE, REASON, made_again, shown

# SPDX-License-Identifier: Apache-2.0

BEGIN, END = "<!-- growth: made by python -m bench.growth.page -->\n", "<!-- end of growth -->\n"
BUSY = 2.0  # load before a curve from which the page says so
BY_NAME = {curve.name: curve for curve in CURVES}
Document = dict[str, Any]
Reasons = Mapping[str, str]


def merged(documents: Sequence[Document]) -> Document:
    """One document: of curves that several have the last one, in the order of the bench; the last machine."""
    curves = {each["name"]: each for document in documents for each in document["curves"]}
    return {"machine": documents[-1]["machine"], "curves": [curves[name] for name in BY_NAME if name in curves]}


def runs_by_point(found: Document) -> dict[float, list[Document]]:
    return {point["x"]: point["runs"] for point in found["points"]}


def power(x: float) -> str:
    """A point, short."""
    for unit, name in ((1 << 20, " Mi"), (1 << 10, " Ki")):
        if x >= 4096 and x % unit == 0:
            return f"{x / unit:,.0f}{name}"
    return f"{x:,g}" if x < 1e6 else f"{x:,.0f}"


def small(value: float) -> str:
    return shown(value) if value == 0 or abs(value) >= 0.01 else f"{value:.2g}"


def alarms(name: str, runs: Mapping[float, Sequence[Document]]) -> list[Law]:
    curve = BY_NAME[name]
    return [law for law in curve.laws if law.verdict(curve.series(runs, law.figure)) == "**alarm**"]


def judged(curve: Curve, figure: str, points: Mapping[float, float], reasons: Reasons) -> tuple[str, str]:
    """(wanted, verdict) of all laws of a figure; the reason after a law that is missed."""
    bounds, verdicts = [], []
    for law in curve.laws:
        if law.figure == figure:
            value = "" if law.value is exponent else f": {small(law.value(points))}"
            verdict = law.verdict(points)
            why = "" if verdict == "met" else f": {reasons.get(f'{curve.name}: {figure}', 'not explained yet')}"
            bounds.append(law.bound)
            verdicts.append(f"{verdict}{value}{why}")
    return "<br>".join(bounds), "<br>".join(verdicts)


def table(found: Sequence[Document], reasons: Reasons) -> list[str]:
    """A line for each figure of each curve."""
    lines = ["| axis | figure | measured | exponent (rounds) | wanted | |", "|---|---|---|--:|---|---|"]
    for each in found:
        curve, runs = BY_NAME[each["name"]], runs_by_point(each)
        for figure, heading in curve.figures.items():
            points = curve.series(runs, figure)
            per_round = sorted(map(exponent, curve.rounds_of(runs, figure)))
            spread = f" ({per_round[0]:.2f} to {per_round[-1]:.2f})" if len(per_round) > 1 else ""
            wanted, verdict = judged(curve, figure, points, reasons)
            lines.append(
                f"| {curve.name} | {heading} | {', '.join(map(small, points.values()))} | "
                f"{exponent(points):.2f}{spread} | {wanted} | {verdict} |"
            )
    return lines


def knees_table(found: Sequence[Document], reasons: Reasons) -> list[str]:
    """A line for each figure that bends: where, and its exponents before and after."""
    lines = ["| axis | figure | bends at | exponents between the points | why |", "|---|---|---|---|---|"]
    for each in found:
        curve, runs = BY_NAME[each["name"]], runs_by_point(each)
        for figure, heading in curve.figures.items():
            at = knees(curve.rounds_of(runs, figure))
            if at:
                exponents = ", ".join(f"{b:.2f}" for b in segments(curve.series(runs, figure)))
                why = reasons.get(f"{curve.name}: {figure}", "not explained yet")
                lines.append(f"| {curve.name} | {heading} | {'; '.join(map(power, at))} | {exponents} | {why} |")
    return lines


def points_table(found: Sequence[Document]) -> list[str]:
    """The points of each curve, and how busy the machine was."""
    lines = ["| axis | points | rounds | load before |", "|---|---|--:|---|"]
    for each in found:
        points = ", ".join(power(point["x"]) for point in each["points"])
        busy = each["load_before"]
        shared = f"{busy}: not all of the machine was ours" if busy > BUSY else f"{busy}"
        rounds = len(each["points"][0]["runs"])
        lines.append(f"| {each['name']}, {BY_NAME[each['name']].axis} | {points} | {rounds} | {shared} |")
    return lines


def charts(found: Sequence[Document]) -> dict[str, str]:
    """By file name: each figure of a curve over its axis, as a multiple of its first point."""
    made = {}
    for each in found:
        curve, runs = BY_NAME[each["name"]], runs_by_point(each)
        series = []
        for figure, heading in curve.figures.items():
            points = curve.series(runs, figure)
            first = next(iter(points.values()), 0)
            if first > 0 and min(points.values()) > 0:
                name = f"{heading}: {small(first)} at first, b = {exponent(points):.2f}"
                series.append((name, [(x, y / first) for x, y in points.items()]))
        title = f"{curve.name[0].upper()}{curve.name[1:]}: multiples of the first point, over {curve.axis}"
        made[f"growth-{curve.name.replace(' ', '-')}.svg"] = drawn(title, series, power)
    return made


def section(text: str, document: Document, folder: str) -> str:
    """The page with what is between its marks made again."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    found, reasons = document["curves"], dict(REASON.findall(text))
    machine = document["machine"]
    parts = [
        [f"Measured on {machine['cores']}, kernel {machine['kernel']}."],
        points_table(found),
        ["### Exponents, and what is wanted", "", *table(found, reasons)],
        ["### Knees", "", *knees_table(found, reasons)],
        [f"![{name}]({folder}/{name})" for name in charts(found)],
    ]
    return before + BEGIN + "\n" + "\n\n".join("\n".join(part) for part in parts) + "\n\n" + END + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FIGURES", help="what `--json` printed")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    folder = options.page.with_suffix("")
    folder.mkdir(exist_ok=True)
    kept = folder / "growth.json"
    files = [*([kept] if kept.exists() else []), *options.files]
    document = merged([json.loads(file.read_text(encoding="utf-8")) for file in files])
    made_again(options.page, kept.name, "curves", document, charts(document["curves"]))
    text = options.page.read_text(encoding="utf-8")
    options.page.write_text(section(text, document, folder.name), encoding="utf-8")


if __name__ == "__main__":
    main()
