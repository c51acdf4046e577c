"""
The repair queue, its locks and the auditors' votes as Apache BookKeeper writes them (metadata-rules.md 11.2, 12.1).

    shortage    replica: "<bookie id>"\\n for each, then ctime: <ms>\\n if the time was noted
    lock        bookieId: "<host name>"\\n
    vote        bookieId: "<bookie id>"\\n
    check time  protobuf in binary, field 1: int64 ms

Knows: these bytes.  Does not know: where they are kept.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from twisted.logger import Logger

from quire.metadata.formats.java_text import quote
from quire.metadata.formats.schema import (
    AuditorVoteFormat,
    CheckTimeFormat,
    UnderreplicatedLedgerFormat,
    text,
)

# SPDX-License-Identifier: Apache-2.0

UNREADABLE = (ValueError, text_format.ParseError, RecursionError)

log = Logger()


def encode_shortage(missing: Iterable[str], since_ms: int | None) -> bytes:
    """The bytes of a shortage."""
    lines = [f"replica: {quote(bookie)}\n" for bookie in dict.fromkeys(missing)]
    if since_ms is not None:
        lines.append(f"ctime: {since_ms}\n")
    return "".join(lines).encode("ascii")


def decode_shortage(ledger: int, data: bytes) -> tuple[tuple[str, ...], int | None]:
    """
    The bookies that a shortage names, and its time.  One that can't be read names no bookie: the ledger is in the queue
    all the same, and a worker that takes it looks at all of its copies anyway.
    """
    found = UnderreplicatedLedgerFormat()
    try:
        _parse(data, found)
        missing = tuple(map(text, found.replica))
    except UNREADABLE as error:
        log.warn("what the queue says of ledger {ledger} can't be read: {error}", ledger=ledger, error=str(error))
        return (), None
    return missing, found.ctime if found.HasField("ctime") else None


def encode_owner(name: str) -> bytes:
    """The bytes of a lock (of the host that has it) or of a vote (of the bookie that cast it)."""
    return f"bookieId: {quote(name)}\n".encode("ascii")


def decode_owner(data: bytes) -> str:
    """Reads the owner of a lock or vote; empty when that can't be read."""
    found = AuditorVoteFormat()
    try:
        _parse(data, found)
        return text(found.bookieId)
    except UNREADABLE:
        return ""


def encode_check_time(time_ms: int) -> bytes:
    """The bytes of the time of a check."""
    return bytes(CheckTimeFormat(time=time_ms).SerializeToString())


def decode_check_time(data: bytes) -> int | None:
    """The time of a check; None when there is none, or none that can be read."""
    found = CheckTimeFormat()
    try:
        found.ParseFromString(data)
    except DecodeError:
        return None
    return int(found.time) if found.HasField("time") else None


def _parse(data: bytes, message: Any) -> None:
    text_format.Parse(data.decode("utf-8"), message, allow_unknown_field=True)  # of a newer one's
