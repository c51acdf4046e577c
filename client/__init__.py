"""
The smart client: quorums, append, read, ensemble change, fencing, recovery.

`connect` is the blocking face, for scripts, notebooks and Spark; `quire.client.aio` has the asyncio face,
`quire.client.api` the Twisted core of both.  Every error is a `LedgerError` with BookKeeper's number in
`code`; wrong arguments are `ValueError` and `TypeError`.

    from quire.client import connect

    with connect("sqlite:///var/lib/quire/metadata.db") as bk:
        with bk.create_ledger() as writer:
            writer.append_many([b"one", b"two"])
        with bk.open_ledger(writer.id) as reader:
            for entry in reader:
                ...
"""

from quire.client.blocking import Client, Reader, Writer, connect
from quire.client.handles.reader import Entry
from quire.conf.client import ClientOptions
from quire.protocol.errors import (
    ZK,
    AddEntryQuorumTimeout,
    BookieHandleNotAvailable,
    ClientClosed,
    DataUnknown,
    DigestMatch,
    DigestNotInitialized,
    DuplicateEntryId,
    IllegalOp,
    IncorrectParameter,
    Interrupted,
    LedgerClosed,
    LedgerError,
    LedgerExist,
    LedgerFenced,
    LedgerIdOverflow,
    LedgerRecovery,
    MetadataSerialization,
    MetadataVersion,
    MetaStore,
    NoBookieAvailable,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchLedgerExists,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    ProtocolVersion,
    Quorum,
    Read,
    Replication,
    Security,
    Timeout,
    TooManyRequests,
    UnauthorizedAccess,
    UnclosedFragment,
    UnexpectedCondition,
    Write,
    WriteOnReadOnlyBookie,
)

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "ZK",
    "AddEntryQuorumTimeout",
    "BookieHandleNotAvailable",
    "Client",
    "ClientClosed",
    "ClientOptions",
    "DataUnknown",
    "DigestMatch",
    "DigestNotInitialized",
    "DuplicateEntryId",
    "Entry",
    "IllegalOp",
    "IncorrectParameter",
    "Interrupted",
    "LedgerClosed",
    "LedgerError",
    "LedgerExist",
    "LedgerFenced",
    "LedgerIdOverflow",
    "LedgerRecovery",
    "MetaStore",
    "MetadataSerialization",
    "MetadataVersion",
    "NoBookieAvailable",
    "NoSuchEntry",
    "NoSuchLedger",
    "NoSuchLedgerExists",
    "NoSuchLedgerExistsOnMetadataServer",
    "NotEnoughBookies",
    "ProtocolVersion",
    "Quorum",
    "Read",
    "Reader",
    "Replication",
    "Security",
    "Timeout",
    "TooManyRequests",
    "UnauthorizedAccess",
    "UnclosedFragment",
    "UnexpectedCondition",
    "Write",
    "WriteOnReadOnlyBookie",
    "Writer",
    "connect",
]
