"""How ledgers and entries look, as text and as JSON."""

import json

import pytest

from quire.client.api import Entry
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.protocol.digest import DigestType
from quire.tools.terminal.ledger_text import Printer, as_document, as_entry, check_lines, summary, value_text
from quire.tools.terminal.options import Usage

# SPDX-License-Identifier: Apache-2.0

OPEN = LedgerMetadata(
    3,
    2,
    2,
    LedgerState.OPEN,
    -1,
    0,
    (Fragment(0, ("a:1", "b:1", "c:1")), Fragment(5, ("a:1", "d:1", "c:1"))),
    DigestType.CRC32C,
    b"secret",
    {"owner": b"me\xff"},
    0,
)
ENTRIES = [Entry(7, 0, b"text\n"), Entry(7, 1, b"\xff")]


def test_a_document_never_has_the_password() -> None:
    """It says that there is one; bytes that are no text in custom metadata are escaped."""
    document = as_document(7, OPEN)
    assert "secret" not in json.dumps(document)
    assert document["password"] == "set"
    assert document["custom"] == {"owner": "me\\xff"}
    assert document["created"] == "1970-01-01T00:00:00.000+00:00"


def test_an_open_ledger_has_no_end() -> None:
    """Its last entry and its size are unknown, in the document and in the list; so is the end of its last fragment."""
    document, row = as_document(7, OPEN), summary(7, OPEN)
    assert document["last_entry"] is document["bytes"] is row["entries"] is row["bytes"] is None
    assert [(part["first"], part["last"]) for part in document["fragments"]] == [(0, 4), (5, None)]
    assert (row["copies"], row["fragments"]) == (2, 2)


def test_an_entry_that_is_no_text_is_shown_as_digits() -> None:
    """JSON has no bytes."""
    assert [as_entry(entry) for entry in ENTRIES] == [
        {"ledger": 7, "entry": 0, "data": "text\n"},
        {"ledger": 7, "entry": 1, "hex": "ff"},
    ]


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ((True, False, False), b"text\n\xff"),
        ((False, True, False), b"746578740a\nff\n"),
        ((False,) * 3, b"text\n\xff\n"),
    ],
)
def test_payloads_in_each_form(
    capfdbinary: pytest.CaptureFixture[bytes], form: tuple[bool, ...], printed: bytes
) -> None:
    """Raw as they are, as digits, or a line each."""
    Printer(*form).entries(ENTRIES)
    assert capfdbinary.readouterr().out == printed


def test_one_form_at_a_time() -> None:
    """`--raw`, `--hex` and `--json` exclude each other."""
    with pytest.raises(Usage, match="exclude each other"):
        Printer(True, False, True)


def test_missing_copies_are_listed_by_fragment() -> None:
    """A line for each fragment, and below it one for each bookie and range."""
    part = {"fragment": 5, "bookie": "d:1", "first": 6, "last": 9, "why": "no such entry", "code": -13}
    found = {"ledger": 7, "state": "OPEN", "entries": 1000, "good": 1999, "copies": 2000, "missing": [part, part]}
    assert check_lines(found) == [
        "ledger 7 (OPEN): 1,000 entries, 1,999 of 2,000 copies are good",
        "  fragment from entry 5:",
        "    d:1 misses 6 to 9: no such entry",
        "    d:1 misses 6 to 9: no such entry",
    ]


def test_what_is_not_there_is_a_dash() -> None:
    """As in every list that commands print."""
    assert (value_text(None), value_text({}), value_text({"a": 1, "b": 2}), value_text(0)) == (
        "-",
        "-",
        "a=1, b=2",
        "0",
    )
