"""
One tree of errors and one number space for everything that can go wrong.

Knows: every BookKeeper client code, every wire status of V2 and V3, and which status means which code to a client
(wire.md 4.1 to 4.3).  A code is declared once, on its class.
Does not know: who raised it, or why.

Two families.  `LedgerError` is what a program meets: an operation on a ledger failed.  `WireError` is what a connection
meets: the peer sent bytes that are not the protocol, so the connection ends (wire.md 1.1, 10.2).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

# SPDX-License-Identifier: Apache-2.0


class Status(IntEnum):
    """A bookie's answer.  The value is the V2 return code; `v3` is the protobuf number (wire.md 2.5, 3.1)."""

    v3: int

    def __new__(cls, v2: int, v3: int) -> "Status":
        made = int.__new__(cls, v2)
        made._value_, made.v3 = v2, v3
        return made

    EOK = 0, 0
    ENOLEDGER = 1, 402
    ENOENTRY = 2, 403
    EBADREQ = 100, 404
    EIO = 101, 501
    EUA = 102, 502
    EBADVERSION = 103, 503
    EFENCED = 104, 504
    EREADONLY = 105, 505
    ETOOMANYREQUESTS = 106, 506
    EUNKNOWNLEDGERSTATE = 107, 507


STATUS_OF_V3: dict[int, Status] = {status.v3: status for status in Status}


class WireError(Exception):
    """The peer sent something that is not the protocol; its connection must be closed."""


class OversizedFrame(WireError):
    """A frame's length field is above the limit (wire.md 1.1)."""


class MalformedFrame(WireError):
    """A frame is too short, empty, or does not decode (wire.md 1.1, 1.2)."""


class UnknownOperation(WireError):
    """An operation number that no bookie serves (wire.md 2.2)."""


BY_CODE: "dict[int, type[LedgerError]]" = {}


class LedgerError(Exception):
    """Base of everything that can go wrong with a ledger.  `code` is BookKeeper's own number."""

    code: ClassVar[int] = -999

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        """Registers a class under its code; one without a code of its own has that of its base."""
        if code is not None:
            assert code not in BY_CODE, f"code {code} is declared twice"
            BY_CODE[code] = cls
            cls.code = code


class Read(LedgerError, code=-1):
    """A read failed: no replica answered with the entry, or the entry is past the last add confirmed."""


class Quorum(LedgerError, code=-2):
    """A quorum could not be formed (kept for its number; nothing raises it)."""


class NoBookieAvailable(LedgerError, code=-3):
    """No bookie could be used (kept for its number; nothing raises it)."""


class DigestNotInitialized(LedgerError, code=-4):
    """The digest of a ledger could not be set up."""


class DigestMatch(LedgerError, code=-5):
    """An entry's digest or ids do not match: its bytes were changed somewhere."""


class NotEnoughBookies(LedgerError, code=-6):
    """Fewer bookies can be used than the ledger needs."""


class NoSuchLedger(LedgerError):
    """The ledger does not exist: bookies (-7) or the metadata store (-25) say so."""

    code = -7


class NoSuchLedgerExists(NoSuchLedger, code=-7):
    """No bookie knows the ledger."""


class NoSuchLedgerExistsOnMetadataServer(NoSuchLedger, code=-25):
    """The metadata store has no such ledger."""


class BookieHandleNotAvailable(LedgerError, code=-8):
    """A bookie could not be reached, or its connection was lost."""


class ZK(LedgerError, code=-9):
    """The metadata store answered with an error."""


class LedgerRecovery(LedgerError, code=-10):
    """A ledger could not be recovered; trying again is always allowed."""


class LedgerClosed(LedgerError, code=-11):
    """The ledger, or this handle of it, is closed."""


class Write(LedgerError, code=-12):
    """An append failed on a bookie for a reason without a code of its own."""


class NoSuchEntry(LedgerError, code=-13):
    """The entry does not exist."""


class IncorrectParameter(LedgerError, code=-14):
    """An argument is outside what the operation allows."""


class Interrupted(LedgerError, code=-15):
    """The operation was interrupted."""


class ProtocolVersion(LedgerError, code=-16):
    """The bookie does not speak this version of the protocol."""


class MetadataVersion(LedgerError, code=-17):
    """Ledger metadata was changed by another client meanwhile."""


class MetaStore(LedgerError, code=-18):
    """The metadata store could not be used."""


class MetaStoreRefused(MetaStore):
    """The metadata store does not let this process in, or not do what it asked for; trying again changes nothing."""


class LedgerMisplaced(MetaStore):
    """A ledger's node is where none may be, so no list is whole.  `ledgers`: what there is of the list without it."""

    def __init__(self, text: str, ledgers: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.ledgers = ledgers


class MetadataTooLarge(MetaStore):
    """More was to be written than the metadata store takes at once; trying again changes nothing."""


class ClientClosed(LedgerError, code=-19):
    """The client was closed."""


class LedgerExist(LedgerError, code=-20):
    """A ledger with this id exists already."""


class AddEntryQuorumTimeout(LedgerError, code=-21):
    """An entry did not reach its ack quorum in time."""


class DuplicateEntryId(LedgerError, code=-22):
    """An entry with this id was written already."""


class Timeout(LedgerError, code=-23):
    """No answer in time."""


class Security(LedgerError, code=-24):
    """TLS or authentication failed."""


class IllegalOp(LedgerError, code=-100):
    """The operation does not exist for this kind of handle or connection."""


class LedgerFenced(LedgerError, code=-101):
    """Another client opened the ledger for recovery; this writer has lost it."""


class UnauthorizedAccess(LedgerError, code=-102):
    """The password, key or identity was refused."""


class UnclosedFragment(LedgerError, code=-103):
    """The fragment is still being written."""


class WriteOnReadOnlyBookie(LedgerError, code=-104):
    """The bookie is read-only."""


class TooManyRequests(LedgerError, code=-105):
    """The bookie is overloaded."""


class LedgerIdOverflow(LedgerError, code=-106):
    """The store has no ledger ids left of the kind it supports."""


class MetadataSerialization(LedgerError, code=-107):
    """Ledger metadata could not be encoded or decoded."""


class DataUnknown(LedgerError, code=-108):
    """The bookie may have lost data of this ledger, so it can't say whether the entry exists."""


class Replication(LedgerError, code=-200):
    """Copying entries to another bookie failed."""


class UnexpectedCondition(LedgerError, code=-999):
    """Something that should not happen happened."""


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
