"""The rows of the bench: what is wanted of each, what is left out, and that sides end when no row needs them."""

import argparse
from typing import Any

import pytest

from bench import __main__ as bench
from bench.machine import sync_ms
from bench.rows import CHECKOUT_ROWS, JAVA, ROWS, Row, at_least, at_most, beside_dledger, within
from bench.sides import Run

# SPDX-License-Identifier: Apache-2.0

OPTIONS = argparse.Namespace(only=None, no_java=True, against=None, dir=None, quick=False, pairs=3, store="sqlite")


def test_every_row_can_be_judged() -> None:
    """Names are unique, each bound is beside a side of the row, and each figure has a unit."""
    for rows in (ROWS, CHECKOUT_ROWS):
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert row.wanted
            assert all(wanted.limit or wanted.beside in row.sides[1:] for wanted in row.wanted)
            assert all(wanted.unit for wanted in row.wanted)


def test_a_bound_is_of_another_side_or_of_the_own_run() -> None:
    """A tail's own appends, or a number, stand where another side's figure would."""
    ours: list[Run] = [{"p50_ms": 3.0, "append_p50_ms": 2.5}, {"p50_ms": 5.0, "append_p50_ms": 3.0}]
    beside = at_most("p50_ms", 0.5).comparison("a", ours, [{"p50_ms": 6.0}, {"p50_ms": 6.0}])
    assert (beside.ratios, beside.passed, beside.unit) == ([0.5, 5 / 6], False, "ms")
    own = within("p50_ms", "its append p50 + 1 ms", lambda run: run["append_p50_ms"] + 1).comparison("a", ours, [])
    assert own.theirs == [3.5, 4.0]
    assert own.name == "a: p50_ms / its append p50 + 1 ms"


def test_a_short_run_has_a_tenth_of_the_work() -> None:
    """But no less than one call's batch; sizes and rates stay."""
    row = Row("a", "append", {"size": 100, "entries": 300, "batch": 50, "rate": 5000}, ("quire",), ())
    assert row.scaled(quick=True) == {"size": 100, "entries": 50, "batch": 50, "rate": 5000}
    assert row.scaled(quick=False) == row.words


class Counted:
    """A side that notes what it is asked, in the order of all."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def __enter__(self) -> "Counted":
        self.log.append(f"{self.name} starts")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append(f"{self.name} ends")

    def run(self, verb: str, **_words: int | str) -> Run:
        self.log.append(f"{self.name} {verb}")
        return {"p50_ms": 1.0, "entries_per_second": 100.0}


def measured(rows: list[Row], monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[bench.Bench, list[str]]:
    log: list[str] = []
    monkeypatch.setattr(bench, "ROWS", rows)
    found = bench.Bench(argparse.Namespace(**(vars(OPTIONS) | {"only": ["row"]} | options)))
    monkeypatch.setattr(found, "made", lambda name, _bookies: Counted(name, log))
    found.all()
    return found, log


def test_sides_run_by_turns_and_end_after_their_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """All start before the first run; one round goes before those that count."""
    rows = [
        Row("row 1", "append", {}, ("quire", "bare"), (at_least("entries_per_second", 1.0, "bare"),)),
        Row("row 2", "read", {}, ("quire",), (within("p50_ms", "2 ms", lambda _: 2.0),)),
    ]
    found, log = measured(rows, monkeypatch, pairs=2)
    assert log[:8] == [
        "quire starts",
        "bare starts",
        "quire append",
        "bare append",
        "quire append",
        "bare append",
        "bare append",
        "quire append",
    ]
    assert log[8:] == ["bare ends", "quire read", "quire read", "quire read", "quire ends"]
    assert [row.passed for row in found.rows] == [True, True]
    assert [len(each["runs"]["quire"]) for each in found.found] == [2, 2]


def test_without_java_its_sides_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the row are measured; a row that is Java's own is not."""
    rows = [
        Row("row 1", "append", {}, ("quire", JAVA), (at_least("entries_per_second", 1.0),)),
        Row("row 2", "append", {}, ("java on quire", JAVA), (at_least("entries_per_second", 0.6),)),
    ]
    found, log = measured(rows, monkeypatch)
    assert {line.split()[0] for line in log} == {"quire"}
    assert found.rows == []
    assert found.left_out == [f"{row.name}, beside Apache BookKeeper: --no-java" for row in rows]


def test_without_java_a_log_is_measured_without_dledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its module, which is told to leave it out; the reason names it."""
    asked: list[tuple[str, ...]] = []

    def module(name: str, *words: str) -> Any:
        asked.append((name, *words))
        return {"runs": {"log": [{"entries_per_second": 3.0}]}}

    monkeypatch.setattr(bench, "measured", module)
    found, _log = measured([beside_dledger("row", 1.5, size=100, sync="no")], monkeypatch)
    assert asked == [("dledger", "--pairs=3", "--size=100", "--sync=no", "--alone")]
    assert found.rows == []
    assert found.left_out == ["dledger row, beside DLedger: --no-java"]


def test_a_module_measures_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the row's words and pairs; a miss is in the table."""
    asked: list[tuple[str, ...]] = []

    def module(name: str, *words: str) -> Any:
        asked.append((name, *words))
        return {"runs": {"busy": [{"p50_ms": 3.0}], "alone": [{"p50_ms": 2.0}]}}

    monkeypatch.setattr(bench, "measured", module)
    wanted = (at_most("p50_ms", 1.2, "alone"),)
    rows = [Row("row", "interference", {"seconds": 4}, ("busy", "alone"), wanted, own_pairs=9, module=True)]
    found, _log = measured(rows, monkeypatch, pairs=None)
    assert asked == [("interference", "--pairs=9", "--seconds=4")]
    assert "MISS" in found.table()


def test_a_p99_is_measured_nine_times() -> None:
    """A row says otherwise for itself alone."""
    rate, p99 = at_least("entries_per_second", 1.0), at_most("p99_ms", 1.0)
    rows = [
        Row("row", "append", {}, ("quire", JAVA), (rate,)),
        Row("row", "append", {}, ("quire", JAVA), (rate, p99)),
        Row("row", "append", {}, ("quire", JAVA), (p99,), own_pairs=3),
    ]
    assert [row.pairs for row in rows] == [5, 9, 3]


def test_only_rows_with_the_words_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of several."""
    rows = [Row(f"row {number}", "append", {}, ("quire",), ()) for number in range(3)]
    found, _log = measured(rows, monkeypatch, only=["1", "w 2"])
    assert [each["name"] for each in found.found] == ["row 1", "row 2"]


def test_the_disk_is_asked_how_long_a_sync_takes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """p50 is not above p99, and nothing stays on the disk."""
    monkeypatch.setattr("bench.machine.SYNCS", 20)
    p50, p99 = sync_ms(str(tmp_path))
    assert 0 < p50 <= p99
    assert list(tmp_path.iterdir()) == []
