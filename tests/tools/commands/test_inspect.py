"""The command that prints a file of a stopped bookie: columns, JSON lines, one ledger, and other kinds of files."""

import json
from pathlib import Path

from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def test_inspect(conf: Path) -> None:
    """Columns, or JSON lines; one ledger; exit status 1 for another kind of file."""
    log = conf.parent / "ledgers/current/1.log"
    found = [json.loads(line) for line in ok("inspect", "entrylog", log, "--json").out.splitlines()]
    assert [row["entry"] for row in found if row["kind"] == "entry"] == list(range(234))
    assert len(ok("inspect", "index", conf.parent / "index/current/locations", "--ledger", 4).out.splitlines()) == 201
    assert "no journal file" in refused(1, "inspect", "journal", log)


def test_only_what_concerns_a_ledger_is_printed(conf: Path) -> None:
    """Its rows, and those that concern none; the columns of a table, or every field as JSON."""
    log = conf.parent / "ledgers/current/1.log"
    rows = ok("inspect", "entrylog", log, "--json").rows
    ledgers = {row["ledger"] for row in rows if row.get("ledger") is not None}
    assert len(ledgers) > 0
    one = max(ledgers)
    some = ok("inspect", "entrylog", log, "--ledger", one, "--json").rows
    assert some == [row for row in rows if row.get("ledger") in (None, one)]
    assert ok("inspect", "entrylog", log, "--ledger", 123456, "--json").rows == [
        row for row in rows if row.get("ledger") is None
    ]
    header = ok("inspect", "entrylog", log).out.splitlines()[0].split()
    assert [name.lower() for name in header] == ["offset", "kind", "ledger", "entry", "bytes", "crc32c"]


def test_a_journal_is_printed(conf: Path) -> None:
    """Apache's records in the order of the file; a segment of quire's is read by the same command."""
    apache = next((conf.parent).rglob("*.txn"), None)
    segment = next((conf.parent).rglob("*.qj"))
    for file in filter(None, (apache, segment)):
        rows = ok("inspect", "journal", file, "--json").rows
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(offsets)
        assert rows or file == segment


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """It is named."""
    assert "gone.log" in refused(2, "inspect", "entrylog", tmp_path / "gone.log")
