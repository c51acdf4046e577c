"""What commands print: results, lists, progress."""

import io
import json

import pytest

from quire.tools.terminal.output import (
    Events,
    ProgressBar,
    Table,
    as_json,
    document,
    iso_time,
    size_text,
    time_text,
)

# SPDX-License-Identifier: Apache-2.0


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_result_is_one_document_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON on standard output, whatever text there is for people."""
    document(True, {"ledger": 7, "closed": True}, "seven")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"ledger": 7, "closed": True}


def test_a_result_without_text_is_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    """Values are words: yes and no, a dash for nothing, lists parted by commas."""
    document(False, {"id": "a", "up": True, "disk": None, "hosts": ["x", "y"]})
    assert [line.split(None, 1) for line in capsys.readouterr().out.splitlines()] == [
        ["id:", "a"],
        ["up:", "yes"],
        ["disk:", "-"],
        ["hosts:", "x, y"],
    ]


def test_a_list_has_a_heading_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """The heading comes with the first row; an empty list prints nothing."""
    table = Table(False, {"ledger": 8, "state": 0})
    assert capsys.readouterr().out == ""
    table.row({"ledger": 1, "state": "OPEN"})
    table.row({"ledger": 2, "state": None})
    assert capsys.readouterr().out.splitlines() == ["LEDGER    STATE", "1         OPEN", "2         -"]


def test_a_list_is_a_document_a_line_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    """All keys of a row, those without a column too."""
    table = Table(True, {"ledger": 8})
    table.row({"ledger": 1, "more": [1]})
    table.row({"ledger": 2, "more": []})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"ledger": 1, "more": [1]},
        {"ledger": 2, "more": []},
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(b"abc", '"abc"'), (b"\xff\x00", '"hex:ff00"'), ("ü", '"ü"'), ({1: b"x"}, '{"1": "x"}')]
)
def test_bytes_in_json(value: object, text: str) -> None:
    """Text where they are UTF-8, hexadecimal digits elsewhere."""
    assert as_json(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (31_500_000, "31.5 MB"), (2.5e9, "2.5 GB"), (7e15, "7000.0 TB")],
)
def test_sizes_for_people(count: float, text: str) -> None:
    """Powers of a thousand."""
    assert size_text(count) == text


@pytest.mark.parametrize("ms", [1 << 62, -(1 << 62)])
def test_a_time_that_no_calendar_has_is_its_number(ms: int) -> None:
    """As somebody may have written it into the metadata."""
    assert iso_time(ms) == time_text(ms) == f"{ms} ms"


def test_times_for_people() -> None:
    """In UTC, to the second."""
    assert time_text(1_700_000_000_999) == "2023-11-14 22:13:20Z"


def test_progress_elsewhere_is_a_line_every_five_seconds() -> None:
    """With share, rate and time left; and one line at the end."""
    stream, clock = io.StringIO(), Clock()
    with ProgressBar("copy", 1000, stream=stream, seconds=clock) as progress:
        progress.advance(100)
        clock.now += 4
        progress.advance(100)
        assert stream.getvalue() == ""
        clock.now += 1
        progress.advance(50)
        assert stream.getvalue() == "copy: 250 entries of 1,000 entries (25 %), 50 entries/s, 15 s left\n"
        progress.advance(750)
        clock.now += 5
    assert stream.getvalue().splitlines()[-1] == "copy: 1,000 entries in 10.0 s, 100 entries/s"


def test_progress_without_a_known_end() -> None:
    """No share and no time left are invented."""
    stream, clock = io.StringIO(), Clock()
    with ProgressBar("read", None, "bytes", stream, clock) as progress:
        clock.now += 10
        progress.advance(5_000_000)
        progress.note("something happened")
    assert stream.getvalue().splitlines() == [
        "read: 5.0 MB, 500.0 kB/s",
        "something happened",
        "read: 5.0 MB in 10.0 s, 500.0 kB/s",
    ]


def test_progress_that_fails_says_no_last_line() -> None:
    """The error speaks for itself."""
    stream = io.StringIO()

    def fail() -> None:
        with ProgressBar("copy", 10, stream=stream, seconds=Clock()) as progress:
            progress.advance(1)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar() -> None:
    """With the title, the rate and a note above it."""
    stream, clock = Terminal(), Clock()
    with ProgressBar("append", 1000, stream=stream, seconds=clock) as progress:
        clock.now += 1
        progress.advance(500)
        progress.note("kill -9 [bold]123")
        progress.advance(500)
    drawn = stream.getvalue()
    assert "append" in drawn
    assert "kill -9 [bold]123" in drawn, "a note is text, not markup"
    assert "1,000 entries/s" in drawn
    assert "100%" in drawn


def test_events_are_a_document_a_line() -> None:
    """Every five seconds, with the time; and whenever it is the last."""
    stream, clock = io.StringIO(), Clock()
    events = Events("progress", stream, clock)
    asked: list[float] = []

    def value(elapsed: float) -> dict[str, float]:
        asked.append(elapsed)
        return {"done": len(asked)}

    for _ in range(8):
        clock.now += 1
        events.tell(value)
    events.tell(value, last=True)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"event": "progress", "seconds": 5.0, "done": 1},
        {"event": "progress", "seconds": 8.0, "done": 2},
    ]


def test_a_terminal_that_is_too_narrow_gets_folded_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole columns go on in the next line, the heading's too, and a text at a space; elsewhere a line stays whole."""
    row = {"bookie": "10.0.0.5:3181", "state": "writable", "free": "12 GB", "why": "it was asked to be " * 3}
    columns = {"bookie": 20, "state": 10, "free": 10, "why": 0}
    shown = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setenv("COLUMNS", "34")
        Table(False, columns).row(row)
        document(False, {}, ["one two three four five six seven eight"])
        shown.append(stream.getvalue().splitlines())
    assert shown[0] == [
        "BOOKIE                STATE",
        "    FREE        WHY",
        "10.0.0.5:3181         writable",
        "    12 GB       it was asked to be",
        "    it was asked to be it was",
        "    asked to be",
        "one two three four five six seven",
        "    eight",
    ]
    assert len(shown[1]) == 3


def test_an_empty_list_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that what a script reads stays empty."""
    for json_wanted in (False, True):
        Table(json_wanted, {"name": 0}).end("there are no logs")
        assert capsys.readouterr() == ("", "there are no logs\n")
    table = Table(True, {"name": 0})
    table.row({"name": "a"})
    table.end("there are no logs")
    assert capsys.readouterr().err == ""
