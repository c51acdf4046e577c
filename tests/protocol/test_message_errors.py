"""Errors of message stores."""

from quire.protocol.errors import BY_CODE
from quire.protocol.message_errors import ExportRefused, ImportRefused, MessageError, NotReady

# SPDX-License-Identifier: Apache-2.0


def test_codes():
    """Each class has its own number, in one range."""
    assert sorted(code for code in BY_CODE if -350 < code <= -330) == list(range(-342, -329))
    assert NotReady.status == "SERVICE_NOT_AVAILABLE"
    assert MessageError.status == ""


def test_a_refusal_names_file_and_offset():
    """Name of the refusal, file, offset, then what is wrong."""
    assert str(ImportRefused("TornTail", "cut", file="a/b", offset=7)) == "TornTail: a/b, offset 7: cut"
    assert str(ImportRefused("FileSize", "cut", file="a/b")) == "FileSize: a/b: cut"
    found = ExportRefused("NeedsRenumber", "later", offset=9)
    assert str(found) == "NeedsRenumber: offset 9: later"
    assert (found.why, found.file, found.offset, found.code) == ("NeedsRenumber", "", 9, -342)
