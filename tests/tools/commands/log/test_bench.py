"""`quire log bench`: its report, against real bookies."""

import pytest

from tests.tools.command import ok, refused
from tests.tools.commands.test_bench import check

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("options", [[], ["--key", "--batch", 7]], ids=["plain", "keys"])
def test_append(uri: str, options: list[object]) -> None:
    """Every key of the yardstick; the log and its ledgers are gone after."""
    before = len(ok("ledger", "list", "--json", metadata=uri).rows)
    logs = ok("log", "list", "--json", metadata=uri).rows
    found = ok(
        *["log", "bench", "append", "--record-size", 100, "--records", 8000, "--json", *options], metadata=uri
    ).document
    check(found)
    assert (found["size"], found["entries"], found["window"]) == (100, 8000, 10_000)
    assert found["batch"] == (7 if options else 50)
    assert found["key"] is bool(options)
    assert found["syncs"] >= 3
    assert ok("log", "list", "--json", metadata=uri).rows == logs
    assert len(ok("ledger", "list", "--json", metadata=uri).rows) == before


def test_a_log_that_is_named_stays(uri: str) -> None:
    """It has the records then, with their keys, and may be read; one without records can't be measured."""
    ok("log", "create", "measured", metadata=uri)
    assert "is empty" in refused(2, "log", "bench", "read", "--log", "measured", metadata=uri)
    options = ["--record-size", 50, "--records", 1000, "--batch", 100, "--key", "--json"]
    ok("log", "bench", "append", "--log", "measured", *options, metadata=uri)
    rows = ok("log", "read", "measured", "--json", metadata=uri).rows
    assert [row["key"] for row in rows] == [f"{number % 100:08}" for number in range(1100)]
    assert {row["value"] for row in rows} == {"x" * 50}
    found = ok("log", "bench", "read", "--log", "measured", "--records", 1050, "--json", metadata=uri).document
    check(found)
    assert (found["size"], found["entries"]) == (50, 1050)
    assert ok("log", "show", "measured", "--json", metadata=uri).document["end"] == 1100


def test_read(uri: str) -> None:
    """A log of its own is written, read and deleted; people get a histogram."""
    check(ok("log", "bench", "read", "--record-size", 10, "--records", 2000, "--json", metadata=uri).document)
    text = ok("log", "bench", "read", "--record-size", 10, "--records", 2000, metadata=uri).out
    assert text.startswith("read: 2,000 entries of 10 bytes")
    assert "#" in text
