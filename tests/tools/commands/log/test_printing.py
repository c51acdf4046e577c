"""Records as text and as JSON."""

import json

import pytest

from quire.log import Record
from quire.tools.commands.log.shared import RecordPrinter, time_text
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

FIRST = Record(7, 70, 1_700_000_000_001, b"value", b"key", 5, (("h", b"\xff"),))
SECOND = Record(8, 75, 1_700_000_000_002, b"line\n", None, None, ())


def test_values_and_columns(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A value that has a line end gets no second one; a record without key shows a dash."""
    RecordPrinter(True, False).records([FIRST, SECOND])
    assert capfdbinary.readouterr().out == b"value\nline\n"
    RecordPrinter(False, False).records([FIRST, SECOND])
    assert capfdbinary.readouterr().out == (
        b"7\t2023-11-14T22:13:20.001Z\tkey\tvalue\n8\t2023-11-14T22:13:20.002Z\t-\tline\n"
    )


def test_documents(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """All that a record has, one document a line; bytes that are no text are hexadecimal digits."""
    RecordPrinter(False, True).records([FIRST, SECOND])
    first, second = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert (first["index"], first["at"], first["key"], first["value"], first["time_ms"]) == (7, 70, "key", "value", 5)
    assert first["headers"] == [["h", "hex:ff"]]
    assert (second["key"], second["value"], second["headers"]) == (None, "line\n", [])


def test_one_form_at_a_time() -> None:
    """Values alone, or documents."""
    with pytest.raises(Usage):
        RecordPrinter(True, True)


def test_times_are_in_utc() -> None:
    """With milliseconds."""
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
