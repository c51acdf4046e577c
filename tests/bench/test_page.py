"""The page of figures: made between its marks from what was measured, with reasons that are written by hand."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.charts import bars, ratios
from bench.ratios import Comparison

# SPDX-License-Identifier: Apache-2.0

SVG = "{http://www.w3.org/2000/svg}"

TEXT = f"# Speed\n\n{page.BEGIN}old\n{page.END}\n## Why rows are missed\n\n* **append 1 KiB**: because of this.\n"


def row(name: str, ratio: float, goal: float = 2.0) -> dict[str, Any]:
    """One with a single comparison of three pairs."""
    ours, theirs = [100.0 * ratio] * 3, [100.0] * 3
    runs = {
        side: [{"entries_per_second": value, "cpu_us_per_entry": 3.0, "p99_ms": 2.0} for value in values]
        for side, values in (("quire", ours), ("java", theirs))
    }
    wanted = Comparison(f"{name}: entries_per_second / java", ours, theirs, goal)
    return {"name": name, "runs": runs, "wanted": [wanted.as_json()]}


def made(*rows: dict[str, Any], machine: dict[str, object] | None = None) -> dict[str, Any]:
    return {"machine": machine or {"cores": "2 of x", "seconds": 9}, "rows": list(rows)}


def test_a_later_file_replaces_rows_and_the_order_is_the_bench_s() -> None:
    """Whatever order they were measured in."""
    found = page.merged(
        [
            made(row("read at random", 1.0), row("append 1 KiB", 1.0)),
            made(row("append 1 KiB", 3.0), machine={"cores": 4}),
        ]
    )
    assert [each["name"] for each in found["rows"]] == ["append 1 KiB", "read at random"]
    assert found["rows"][0]["wanted"][0]["median"] == 3.0
    assert found["machine"] == {"cores": 4}


def test_a_missed_row_has_its_reason() -> None:
    """One that is met has none, even if a line is left over; one without a line says so."""
    found = page.page(TEXT, made(row("append 100 B", 1.0), row("append 1 KiB", 1.0)), "performance")
    assert "| **missed**: because of this. |" in found
    assert "| **missed**: not explained yet |" in found
    met = page.page(TEXT, made(row("append 1 KiB", 3.0)), "performance")
    assert "| ≥ 2 | met |" in met
    assert "missed**" not in met


def test_rows_beside_dledger_have_a_section_of_their_own() -> None:
    """After all others, with their bounds, reasons and sides; without such rows there is none."""
    beside = row("dledger 1 KiB", 0.5, goal=1.0)
    runs = {"log": beside["runs"]["quire"], "java dledger": beside["runs"]["java"]}
    text = TEXT + "* **dledger 1 KiB**: its own reason.\n"
    found = page.page(text, made(row("append 1 KiB", 3.0), beside | {"runs": runs}), "performance")
    others, section = found.split(page.END)[0].split("## Beside DLedger")
    assert "| **missed**: its own reason. |" in section
    assert "| dledger 1 KiB | java dledger | 3 |" in section
    assert "dledger" not in others
    assert "append 1 KiB" not in section
    assert "Beside DLedger" not in page.page(text, made(row("append 1 KiB", 3.0)), "performance")


def test_only_what_is_between_the_marks_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made twice it is the same; the figures and charts are beside the page."""
    file, figures = tmp_path / "performance.md", tmp_path / "new.json"
    file.write_text(TEXT)
    figures.write_text(json.dumps(made(row("append 100 B", 1.0))))
    monkeypatch.setattr("sys.argv", ["page", "--page", str(file), str(figures)])
    page.main()
    first = file.read_text()
    monkeypatch.setattr("sys.argv", ["page", "--page", str(file)])
    page.main()
    assert file.read_text() == first
    assert first.startswith("# Speed\n\n")
    assert first.endswith(TEXT.partition(page.END)[2])
    assert "old" not in first
    assert "seconds" not in first
    folder = tmp_path / "performance"
    assert {each.name for each in folder.iterdir()} == {"figures.json", *page.charts([])}
    for chart in folder.glob("*.svg"):
        assert f"](performance/{chart.name})" in first
        ET.parse(chart)


def test_bars_are_as_long_as_their_values() -> None:
    """On a linear scale the longest has all the room; names are escaped."""
    drawn = ET.fromstring(bars("a < b", [("x & y", [("quire", 50.0), ("java", 100.0)])]))
    widths = [float(each.attrib["width"]) for each in drawn.iter(f"{SVG}rect") if each.attrib["height"] == "12.0"]
    assert widths[1] == pytest.approx(2 * widths[0])


def test_a_ratio_that_is_missed_has_its_own_colour() -> None:
    """Its dot is to the left of the stroke when more was wanted."""
    drawn = ET.fromstring(ratios("r", [("a", 1.5, 1.4, 1.6, 2.0, False), ("b", 3.0, 2.9, 3.1, 2.0, True)]))
    missed, met = drawn.iter(f"{SVG}circle")
    assert missed.attrib["fill"] != met.attrib["fill"]
    assert float(missed.attrib["cx"]) < float(met.attrib["cx"])


def test_the_page_here_is_made_of_the_figures_here() -> None:
    """Whoever changes one makes the other again."""
    document = json.loads(page.PAGE.with_suffix("").joinpath("figures.json").read_text())
    text = page.PAGE.read_text()
    assert page.page(text, document, "performance") == text
