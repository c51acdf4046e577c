"""The errors of named logs: in the one tree, with the numbers that the manual gives."""

import re
from pathlib import Path

from quire.protocol import errors, log_errors
from quire.protocol.log_errors import LogError, LogTerminated, LogTrimmed, NotOwner

# SPDX-License-Identifier: Apache-2.0

PAGE = Path(__file__).parent.parent.parent / "docs" / "logs.md"


def test_codes_and_names():
    """Each is a LogError and a LedgerError, and no code is missing between -300 and -321."""
    kinds = {code: kind for code, kind in errors.BY_CODE.items() if kind.__module__ == log_errors.__name__}
    assert sorted(kinds, reverse=True) == list(range(-300, -322, -1))
    assert all(issubclass(kind, LogError) for kind in kinds.values())
    assert issubclass(LogError, errors.LedgerError)


def test_the_manual_has_the_same_numbers():
    """Those that it names so far."""
    text = PAGE.read_text()
    found = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (-\d+(?:, -\d+)*) \|", text, re.MULTILINE)
    pairs = [
        (name.strip("`"), int(code))
        for names, codes in found
        for name, code in zip(names.split(", "), codes.split(", "), strict=True)
    ]
    assert len(pairs) >= 10
    for name, code in pairs:
        assert getattr(log_errors, name).code == code


def test_what_an_error_carries():
    """A default where nothing is known."""
    assert (LogTerminated("x").end, LogTrimmed("x").begin, NotOwner("x").address) == (-1, 0, "")
