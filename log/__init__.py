"""
Named logs: endless sequences of records, made of ledgers.

`connect` is the blocking face, for scripts, notebooks and Spark; `quire.log.aio` has the asyncio face, `quire.log.api`
the Twisted one below both.  Errors are `LedgerError`s, those of logs `LogError`s.

    from quire.log import connect

    with connect("sqlite:///var/lib/quire/metadata.db") as logs:
        logs.create("orders")
        with logs.own("orders") as owner:
            owner.append(b"one", key=b"k")
        with logs.read("orders") as reader:
            for record in reader:
                ...
"""

from quire.conf.log import LogOptions
from quire.log.api import (
    Answer,
    Appended,
    Backlog,
    Candidate,
    Compacted,
    CursorInfo,
    Finding,
    Found,
    Hold,
    LogBatch,
    LogInfo,
    Machine,
    Orphan,
    Part,
    PartitionBatch,
    PartitionRecord,
    Piece,
    Place,
    Placed,
    Position,
    Prepared,
    ReadRates,
    Receipt,
    Record,
    Role,
    Seek,
    Segment,
    Snapshot,
    Spread,
    TidyReport,
    Txn,
    Versioned,
)
from quire.log.blocking import Logs, connect
from quire.log.core.partitions import partition_for
from quire.log.handles.blocking import Cursor, LogReader, Owner, PartWriter, Replica, Sink
from quire.log.handles.partitions.blocking import PartitionedCursor, PartitionedOwner, PartitionedReader
from quire.metadata.records import RecordChanged
from quire.protocol.log_errors import (
    AppendUnknown,
    ApplyFailed,
    BacklogQuota,
    BatchGap,
    LogDamaged,
    LogError,
    LogExists,
    LogFenced,
    LogFull,
    LogIsMirror,
    LogMoved,
    LogTerminated,
    LogTrimmed,
    MirrorDiverged,
    NoSuchCursor,
    NoSuchLog,
    NotOwner,
    PublishRefused,
    SegmentLost,
    SnapshotDamaged,
    StaleRead,
    UnknownFormat,
)

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "Answer",
    "AppendUnknown",
    "Appended",
    "ApplyFailed",
    "Backlog",
    "BacklogQuota",
    "BatchGap",
    "Candidate",
    "Compacted",
    "Cursor",
    "CursorInfo",
    "Finding",
    "Found",
    "Hold",
    "LogBatch",
    "LogDamaged",
    "LogError",
    "LogExists",
    "LogFenced",
    "LogFull",
    "LogInfo",
    "LogIsMirror",
    "LogMoved",
    "LogOptions",
    "LogReader",
    "LogTerminated",
    "LogTrimmed",
    "Logs",
    "Machine",
    "MirrorDiverged",
    "NoSuchCursor",
    "NoSuchLog",
    "NotOwner",
    "Orphan",
    "Owner",
    "Part",
    "PartWriter",
    "PartitionBatch",
    "PartitionRecord",
    "PartitionedCursor",
    "PartitionedOwner",
    "PartitionedReader",
    "Piece",
    "Place",
    "Placed",
    "Position",
    "Prepared",
    "PublishRefused",
    "ReadRates",
    "Receipt",
    "Record",
    "RecordChanged",
    "Replica",
    "Role",
    "Seek",
    "Segment",
    "SegmentLost",
    "Sink",
    "Snapshot",
    "SnapshotDamaged",
    "Spread",
    "StaleRead",
    "TidyReport",
    "Txn",
    "UnknownFormat",
    "Versioned",
    "connect",
    "partition_for",
]
