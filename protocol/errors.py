"""
One tree of errors and one number space for everything that can go wrong.

Knows: every BookKeeper client code, every wire status of V2 and V3, and which status means which code to a client
(wire.md 4.1 to 4.3).  A code is declared once, on its class.
Does not know: who raised it, or why.

Two families.  `LedgerError` is what a program meets: an operation on a ledger failed.  `WireError` is what a connection
meets: the peer sent bytes that are not the protocol, so the connection ends (wire.md 1.1, 10.2).
"""

from enum import IntEnum
from typing import ClassVar, TypeVar

# SPDX-License-Identifier: Apache-2.0


class Status(IntEnum):
    """A bookie's answer.  The value is the V2 return code; `v3` is the protobuf number (wire.md 2.5, 3.1)."""

    EOK = 0
    ENOLEDGER = 1
    ENOENTRY = 2
    EBADREQ = 100
    EIO = 101
    EUA = 102
    EBADVERSION = 103
    EFENCED = 104
    EREADONLY = 105
    ETOOMANYREQUESTS = 106
    EUNKNOWNLEDGERSTATE = 107

    @property
    def v3(self) -> int:
        return STATUS_V3[self]


STATUS_V3: dict[Status, int] = {
    Status.EOK: 0,
    Status.ENOLEDGER: 402,
    Status.ENOENTRY: 403,
    Status.EBADREQ: 404,
    Status.EIO: 501,
    Status.EUA: 502,
    Status.EBADVERSION: 503,
    Status.EFENCED: 504,
    Status.EREADONLY: 505,
    Status.ETOOMANYREQUESTS: 506,
    Status.EUNKNOWNLEDGERSTATE: 507,
}
STATUS_OF_V3: dict[int, Status] = {number: status for status, number in STATUS_V3.items()}


class WireError(Exception):
    """The peer sent something that is not the protocol; its connection must be closed."""


class OversizedFrame(WireError):
    """A frame's length field is above the limit (wire.md 1.1)."""


class MalformedFrame(WireError):
    """A frame is too short, empty, or does not decode (wire.md 1.1, 1.2)."""


class UnknownOperation(WireError):
    """An operation number that no bookie serves (wire.md 2.2)."""


class LedgerError(Exception):
    """Base of everything that can go wrong with a ledger.  `code` is BookKeeper's own number."""

    code: ClassVar[int] = -999


E = TypeVar("E", bound=LedgerError)
BY_CODE: dict[int, type[LedgerError]] = {}


def coded(cls: type[E]) -> type[E]:
    """Registers a class under its code."""
    assert cls.code not in BY_CODE, f"code {cls.code} is declared twice"
    BY_CODE[cls.code] = cls
    return cls


@coded
class Read(LedgerError):
    """A read failed: no replica answered with the entry, or the entry is past the last add confirmed."""

    code = -1


@coded
class Quorum(LedgerError):
    """A quorum could not be formed (kept for its number; nothing raises it)."""

    code = -2


@coded
class NoBookieAvailable(LedgerError):
    """No bookie could be used (kept for its number; nothing raises it)."""

    code = -3


@coded
class DigestNotInitialized(LedgerError):
    """The digest of a ledger could not be set up."""

    code = -4


@coded
class DigestMatch(LedgerError):
    """An entry's digest or ids do not match: its bytes were changed somewhere."""

    code = -5


@coded
class NotEnoughBookies(LedgerError):
    """Fewer bookies can be used than the ledger needs."""

    code = -6


class NoSuchLedger(LedgerError):
    """The ledger does not exist: bookies (-7) or the metadata store (-25) say so."""

    code = -7


@coded
class NoSuchLedgerExists(NoSuchLedger):
    """No bookie knows the ledger."""

    code = -7


@coded
class NoSuchLedgerExistsOnMetadataServer(NoSuchLedger):
    """The metadata store has no such ledger."""

    code = -25


@coded
class BookieHandleNotAvailable(LedgerError):
    """A bookie could not be reached, or its connection was lost."""

    code = -8


@coded
class ZK(LedgerError):
    """The metadata store answered with an error."""

    code = -9


@coded
class LedgerRecovery(LedgerError):
    """A ledger could not be recovered; trying again is always allowed."""

    code = -10


@coded
class LedgerClosed(LedgerError):
    """The ledger, or this handle of it, is closed."""

    code = -11


@coded
class Write(LedgerError):
    """An append failed on a bookie for a reason without a code of its own."""

    code = -12


@coded
class NoSuchEntry(LedgerError):
    """The entry does not exist."""

    code = -13


@coded
class IncorrectParameter(LedgerError):
    """An argument is outside what the operation allows."""

    code = -14


@coded
class Interrupted(LedgerError):
    """The operation was interrupted."""

    code = -15


@coded
class ProtocolVersion(LedgerError):
    """The bookie does not speak this version of the protocol."""

    code = -16


@coded
class MetadataVersion(LedgerError):
    """Ledger metadata was changed by another client meanwhile."""

    code = -17


@coded
class MetaStore(LedgerError):
    """The metadata store could not be used."""

    code = -18


class MetaStoreRefused(MetaStore):
    """The metadata store does not let this process in, or not do what it asked for; trying again changes nothing."""


class MetadataTooLarge(MetaStore):
    """More was to be written than the metadata store takes at once; trying again changes nothing."""


@coded
class ClientClosed(LedgerError):
    """The client was closed."""

    code = -19


@coded
class LedgerExist(LedgerError):
    """A ledger with this id exists already."""

    code = -20


@coded
class AddEntryQuorumTimeout(LedgerError):
    """An entry did not reach its ack quorum in time."""

    code = -21


@coded
class DuplicateEntryId(LedgerError):
    """An entry with this id was written already."""

    code = -22


@coded
class Timeout(LedgerError):
    """No answer in time."""

    code = -23


@coded
class Security(LedgerError):
    """TLS or authentication failed."""

    code = -24


@coded
class IllegalOp(LedgerError):
    """The operation does not exist for this kind of handle or connection."""

    code = -100


@coded
class LedgerFenced(LedgerError):
    """Another client opened the ledger for recovery; this writer has lost it."""

    code = -101


@coded
class UnauthorizedAccess(LedgerError):
    """The password, key or identity was refused."""

    code = -102


@coded
class UnclosedFragment(LedgerError):
    """The fragment is still being written."""

    code = -103


@coded
class WriteOnReadOnlyBookie(LedgerError):
    """The bookie is read-only."""

    code = -104


@coded
class TooManyRequests(LedgerError):
    """The bookie is overloaded."""

    code = -105


@coded
class LedgerIdOverflow(LedgerError):
    """The store has no ledger ids left of the kind it supports."""

    code = -106


@coded
class MetadataSerialization(LedgerError):
    """Ledger metadata could not be encoded or decoded."""

    code = -107


@coded
class DataUnknown(LedgerError):
    """The bookie may have lost data of this ledger, so it can't say whether the entry exists."""

    code = -108


@coded
class Replication(LedgerError):
    """Copying entries to another bookie failed."""

    code = -200


@coded
class UnexpectedCondition(LedgerError):
    """Something that should not happen happened."""

    code = -999


OK = 0
CODE_OF: dict[Status, int] = {
    Status.EOK: OK,
    Status.ENOLEDGER: NoSuchLedgerExists.code,
    Status.ENOENTRY: NoSuchEntry.code,
    Status.EUA: UnauthorizedAccess.code,
    Status.EBADVERSION: ProtocolVersion.code,
    Status.EFENCED: LedgerFenced.code,
    Status.EREADONLY: WriteOnReadOnlyBookie.code,
    Status.ETOOMANYREQUESTS: TooManyRequests.code,
    Status.EUNKNOWNLEDGERSTATE: DataUnknown.code,
}


def code_of(status: Status, writing: bool) -> int:
    """The client's code for a bookie's answer; EIO and EBADREQ mean Write (-12) or Read (-1) (wire.md 4.1)."""
    return CODE_OF.get(status, Write.code if writing else Read.code)


def name_of(code: int) -> str:
    """ "Timeout, code -23"; for an undeclared number, the number."""
    return f"{BY_CODE[code].__name__}, code {code}" if code in BY_CODE else f"code {code}"


def error_of(code: int, message: str) -> LedgerError:
    """The exception for a code; an unknown number becomes `UnexpectedCondition` that names it."""
    if code in BY_CODE:
        return BY_CODE[code](message)
    return UnexpectedCondition(f"{message} (unknown code {code})")
