"""The section of growth: made between its marks, with reasons that are written by hand."""

import json
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.charts import curves as drawn
from bench.growth import page
from bench.growth.curves import CURVES

# SPDX-License-Identifier: Apache-2.0

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = {"cores": "2 of x", "kernel": "6"}
CLIENTS = next(curve for curve in CURVES if curve.name == "open clients")
TEXT = f"# Speed\n\n{page.BEGIN}old\n{page.END}\n## Why curves bend\n\n* **open clients: p99_ms**: because of this.\n"


def curve(load: float = 0.5, p99: tuple[float, ...] = (1.0, 1.0, 10.0, 100.0)) -> dict[str, Any]:
    """Connections with two equal rounds."""
    runs = [
        {"p50_ms": 1.0, "p99_ms": each, "cpu_us_per_add": 9.0, "resident_mb": 60 + x / 1024}
        for x, each in zip(CLIENTS.points, p99, strict=True)
    ]
    points = [{"x": x, "runs": [run, run]} for x, run in zip(CLIENTS.points, runs, strict=True)]
    return {"name": CLIENTS.name, "date": "2026-01-01", "load_before": load, "seconds": 9, "points": points}


def made(*curves: dict[str, Any]) -> dict[str, Any]:
    return {"machine": MACHINE, "curves": list(curves)}


def test_a_later_file_replaces_curves() -> None:
    """In the order of the bench, whatever the order of the files."""
    other = {**curve(), "name": "window"}
    found = page.merged([made(other, curve(load=1.0)), made(curve(load=2.0))])
    assert [(each["name"], each["load_before"]) for each in found["curves"]] == [("open clients", 2.0), ("window", 0.5)]


def test_a_missed_law_and_a_knee_have_their_reason() -> None:
    """One that is met has none; one without a line says so."""
    found = page.section(TEXT, made(curve()), "performance")
    assert "| exponent ≤ 0.05 | **alarm**: because of this. |" in found
    assert "| KiB/connection ≤ 32 | met: 1.00 |" in found
    assert "| add p99, ms | 100 | 0.00, 1.00, 1.00 | because of this. |" in found
    assert "not explained yet" not in found
    assert "not explained yet" in page.section(TEXT.replace("p99_ms", "p50_ms"), made(curve()), "performance")
    met = page.section(TEXT, made(curve(p99=(1.0,) * 4)), "performance").partition(page.END)[0]
    assert "because" not in met


def test_a_busy_machine_is_said() -> None:
    """Beside the curve that it was busy for."""
    assert "3.5: not all of the machine was ours" in page.section(TEXT, made(curve(load=3.5)), "performance")
    assert "not all of the machine" not in page.section(TEXT, made(curve()), "performance")


def test_only_what_is_between_the_marks_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made twice it is the same; the figures and charts are beside the page."""
    file, figures = tmp_path / "performance.md", tmp_path / "new.json"
    file.write_text(TEXT)
    figures.write_text(json.dumps(made(curve())))
    monkeypatch.setattr("sys.argv", ["page", "--page", str(file), str(figures)])
    page.main()
    first = file.read_text()
    monkeypatch.setattr("sys.argv", ["page", "--page", str(file)])
    page.main()
    assert file.read_text() == first
    assert first.startswith("# Speed\n\n")
    assert first.endswith(TEXT.partition(page.END)[2])
    assert "old" not in first
    folder = tmp_path / "performance"
    assert {each.name for each in folder.iterdir()} == {"growth.json", "growth-open-clients.svg"}
    assert "](performance/growth-open-clients.svg)" in first
    ET.parse(folder / "growth-open-clients.svg")


def test_a_power_is_a_straight_line() -> None:
    """Both scales are logarithmic, so that its slope is the exponent; names are escaped."""
    chart = ET.fromstring(drawn("a < b", [("x & y", [(1.0, 1.0), (10.0, 10.0), (1000.0, 1000.0)])]))
    places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in chart.iter(f"{SVG}circle")]
    slopes = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(places)]
    assert slopes[0] < 0
    assert slopes[0] == pytest.approx(slopes[1], rel=0.01)


def test_the_page_here_is_made_of_the_figures_here() -> None:
    """Whoever changes one makes the other again; and every knee and every missed law is explained."""
    document = json.loads(page.PAGE.with_suffix("").joinpath("growth.json").read_text())
    text = page.PAGE.read_text()
    assert page.section(text, document, "performance") == text
    assert "not explained yet" not in text.partition(page.BEGIN)[2].partition(page.END)[0]
