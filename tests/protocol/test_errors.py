"""Codes and statuses: one number space (wire.md 4)."""

import pytest

from quire.protocol import errors
from quire.protocol.errors import Status

# SPDX-License-Identifier: Apache-2.0

# name, V2, V3, code of a write, code of a read
TABLE = [
    ("EOK", 0, 0, 0, 0),
    ("ENOLEDGER", 1, 402, -7, -7),
    ("ENOENTRY", 2, 403, -13, -13),
    ("EBADREQ", 100, 404, -12, -1),
    ("EIO", 101, 501, -12, -1),
    ("EUA", 102, 502, -102, -102),
    ("EBADVERSION", 103, 503, -16, -16),
    ("EFENCED", 104, 504, -101, -101),
    ("EREADONLY", 105, 505, -104, -104),
    ("ETOOMANYREQUESTS", 106, 506, -105, -105),
    ("EUNKNOWNLEDGERSTATE", 107, 507, -108, -108),
]

CODES = {
    -1: "Read", -2: "Quorum", -3: "NoBookieAvailable", -4: "DigestNotInitialized", -5: "DigestMatch",
    -6: "NotEnoughBookies",
    -7: "NoSuchLedgerExists", -8: "BookieHandleNotAvailable", -9: "ZK", -10: "LedgerRecovery", -11: "LedgerClosed",
    -12: "Write",
    -13: "NoSuchEntry", -14: "IncorrectParameter", -15: "Interrupted", -16: "ProtocolVersion", -17: "MetadataVersion",
    -18: "MetaStore",
    -19: "ClientClosed", -20: "LedgerExist", -21: "AddEntryQuorumTimeout", -22: "DuplicateEntryId", -23: "Timeout",
    -24: "Security",
    -25: "NoSuchLedgerExistsOnMetadataServer", -100: "IllegalOp", -101: "LedgerFenced", -102: "UnauthorizedAccess",
    -103: "UnclosedFragment",
    -104: "WriteOnReadOnlyBookie", -105: "TooManyRequests", -106: "LedgerIdOverflow", -107: "MetadataSerialization",
    -108: "DataUnknown",
    -200: "Replication", -999: "UnexpectedCondition",
}  # fmt: skip


LOGS = range(-359, -299)  # those of logs, message stores and Pulsar's topics are beside


@pytest.mark.parametrize(("name", "v2", "v3", "writing", "reading"), TABLE)
def test_a_status_has_its_numbers_and_codes(name: str, v2: int, v3: int, writing: int, reading: int) -> None:
    """Each status has its V2 and V3 numbers and its client codes for reads and writes."""
    status = Status[name]
    assert int(status) == v2
    assert status.v3 == v3
    assert errors.STATUS_OF_V3[v3] is status
    assert errors.code_of(status, writing=True) == writing
    assert errors.code_of(status, writing=False) == reading


def test_the_table_has_every_status() -> None:
    """No status is missing, and V3 numbers are distinct."""
    assert {row[0] for row in TABLE} == {status.name for status in Status}
    assert len(errors.STATUS_OF_V3) == len(Status)


def test_every_code_has_its_class() -> None:
    """Codes map to the exceptions that BookKeeper names."""
    assert {code: cls.__name__ for code, cls in errors.BY_CODE.items() if code not in LOGS} == CODES


def test_a_code_becomes_its_exception() -> None:
    """The exception has the class of its code, the code and the text."""
    problem = errors.error_of(-101, "ledger 5 is lost")
    assert isinstance(problem, errors.LedgerFenced)
    assert problem.code == -101
    assert "ledger 5" in str(problem)


def test_an_unknown_code_is_named_not_hidden() -> None:
    """A newer peer's number must not crash the client."""
    problem = errors.error_of(-77, "reading")
    assert isinstance(problem, errors.UnexpectedCondition)
    assert "-77" in str(problem)


def test_a_code_is_shown_with_its_name_where_it_has_one() -> None:
    """An unknown code is printed as a number."""
    assert errors.name_of(-23) == "Timeout, code -23"
    assert errors.name_of(-4711) == "code -4711"


def test_both_kinds_of_missing_ledger_are_caught_as_one() -> None:
    """Both are subclasses of `NoSuchLedger`."""
    assert issubclass(errors.NoSuchLedgerExists, errors.NoSuchLedger)
    assert issubclass(errors.NoSuchLedgerExistsOnMetadataServer, errors.NoSuchLedger)
    assert errors.NoSuchLedgerExistsOnMetadataServer.code == -25


def test_the_two_families_do_not_mix() -> None:
    """A handler for ledger errors must not swallow a broken connection."""
    assert not issubclass(errors.WireError, errors.LedgerError)
    for cls in (errors.OversizedFrame, errors.MalformedFrame, errors.UnknownOperation):
        assert issubclass(cls, errors.WireError)
