r"""
Ledger metadata as bytes, in the three formats that Apache BookKeeper reads (metadata-rules.md 4.1 to 4.4).

    "BookieMetadataFormatVersion" TAB version LF body

    version  body
    1        lines: write quorum, ensemble size, length; "first TAB bookie TAB ..." per fragment; then nothing (OPEN),
             "-102 TAB CLOSED" (IN_RECOVERY) or "last TAB CLOSED", this last line without LF
    2        protobuf text format, without the creation token
    3        varint length, protobuf binary; what follows is ignored

Knows: the bytes.  Does not know: where they are kept.  A ledger keeps the format it was read in; new ones are written
in 3.

Safety: what can't be read as a whole, with every invariant intact, is refused with `MetadataSerialization`; no field is
guessed.
"""

import re
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from quire.metadata.formats.java_text import quote
from quire.metadata.formats.schema import LedgerMetadataFormat, text
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.protocol import varint
from quire.protocol.digest import DigestType
from quire.protocol.errors import MetadataSerialization

# SPDX-License-Identifier: Apache-2.0

HEADER = b"BookieMetadataFormatVersion\t"
VERSION_LINE = re.compile(rb"BookieMetadataFormatVersion\t([0-9]{1,10})\n")
NUMBER = re.compile(r"-?[0-9]{1,19}")
V1_IN_RECOVERY = -102
V1_END = "CLOSED"
DIGEST_NAMES = {
    DigestType.CRC32: "CRC32",
    DigestType.MAC: "HMAC",
    DigestType.CRC32C: "CRC32C",
    DigestType.DUMMY: "DUMMY",
}


def encode(metadata: LedgerMetadata) -> bytes:
    """The bytes in the metadata's own format; `MetadataSerialization` when format 1 can't hold it."""
    header = HEADER + b"%d\n" % metadata.format_version
    if metadata.format_version == 1:
        return header + _encode_v1(metadata)
    if metadata.format_version == 2:
        return header + _encode_v2(metadata)
    body = _message(metadata).SerializeToString()
    return header + varint.encode(len(body)) + bytes(body)


def decode(data: bytes) -> LedgerMetadata:
    """The metadata; `MetadataSerialization` says what is wrong with the bytes."""
    found = VERSION_LINE.match(data)
    if found is None:
        raise MetadataSerialization(f"these {len(data)} bytes do not begin as ledger metadata: {data[:40]!r}")
    version = int(found.group(1))
    body = data[found.end() :]
    try:
        if version == 1:
            return _decode_v1(body)
        if version == 2:
            message = LedgerMetadataFormat()
            text_format.Parse(body.decode("utf-8"), message)
            return _from_message(message, 2)
        if version == 3:
            return _from_message(_parse_v3(body), 3)
    except text_format.ParseError as error:  # its text has the whole line, a password's as well
        place = f"line {error.GetLine()}, column {error.GetColumn()}"
        raise MetadataSerialization(f"ledger metadata of format {version} can't be read from {place} on") from None
    except (ValueError, DecodeError) as error:  # UnicodeDecodeError is a ValueError
        raise MetadataSerialization(f"ledger metadata of format {version} can't be read: {error}") from error
    raise MetadataSerialization(f"ledger metadata of format {version}: only 1, 2 and 3 are known")


def decode_stored(ledger: int, data: bytes, version: int) -> Versioned[LedgerMetadata]:
    """
    Decodes the stored metadata of a ledger and pairs it with its version; `MetadataSerialization` names the ledger and
    the next step.
    """
    try:
        return Versioned(decode(data), version)
    except MetadataSerialization as error:
        raise MetadataSerialization(
            f"ledger {ledger}: its metadata can't be read ({error}), so it may name any bookie: put it back from a "
            f"backup of the store, or remove the ledger with its entries: `quire ledger delete {ledger}`"
        ) from error


# -- format 3 ------------------------------------------------------------------------------------------------------


def _message(metadata: LedgerMetadata) -> Message:
    message = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=metadata.last_entry,
        state=int(metadata.state),
        ackQuorumSize=metadata.ack_quorum,
        cToken=metadata.ctoken,
    )
    for fragment in metadata.fragments:
        message.segment.add(firstEntryId=fragment.first, ensembleMember=fragment.bookies)
    if metadata.digest is not None and metadata.password is not None:
        message.digestType = metadata.digest.value
        message.password = metadata.password
    if metadata.ctime_ms is not None:
        message.ctime = metadata.ctime_ms
    for key, value in metadata.custom.items():
        message.customMetadata.add(key=key, value=value)
    made: Message = message
    return made


def _parse_v3(body: bytes) -> Message:
    size, at = varint.decode(body)
    if at + size > len(body):
        raise ValueError(f"it says {size} bytes and has {len(body) - at}")
    message: Message = LedgerMetadataFormat()
    message.ParseFromString(body[at : at + size])
    return message


def _from_message(found: Any, version: int) -> LedgerMetadata:
    if not found.IsInitialized():
        raise ValueError(f"fields are missing: {', '.join(found.FindInitializationErrors())}")
    state = LedgerState(found.state)
    closed = state is LedgerState.CLOSED
    if closed and not found.HasField("lastEntryId"):
        raise ValueError("it is closed and has no last entry")
    # The reference, too, takes a ledger without a password for one without a digest.
    protected = found.HasField("password")
    return LedgerMetadata(
        ensemble_size=found.ensembleSize,
        write_quorum=found.quorumSize,
        ack_quorum=found.ackQuorumSize if found.HasField("ackQuorumSize") else found.quorumSize,
        state=state,
        last_entry=found.lastEntryId if closed else -1,
        length=found.length if closed else 0,
        fragments=tuple(
            Fragment(segment.firstEntryId, tuple(map(text, segment.ensembleMember))) for segment in found.segment
        ),
        digest=DigestType(found.digestType) if protected else None,
        password=found.password if protected else None,
        custom={text(entry.key): entry.value for entry in found.customMetadata},
        ctime_ms=found.ctime if found.HasField("ctime") else None,
        ctoken=found.cToken,
        format_version=version,
    )


# -- format 2 ------------------------------------------------------------------------------------------------------


def _encode_v2(metadata: LedgerMetadata) -> bytes:
    lines = [
        f"quorumSize: {metadata.write_quorum}",
        f"ensembleSize: {metadata.ensemble_size}",
        f"length: {metadata.length}",
        f"lastEntryId: {metadata.last_entry}",
        f"state: {metadata.state.name}",
    ]
    for fragment in metadata.fragments:
        members = [f"  ensembleMember: {quote(bookie)}" for bookie in fragment.bookies]
        lines += ["segment {", *members, f"  firstEntryId: {fragment.first}", "}"]
    if metadata.digest is not None and metadata.password is not None:
        lines += [f"digestType: {DIGEST_NAMES[metadata.digest]}", f"password: {quote(metadata.password)}"]
    lines.append(f"ackQuorumSize: {metadata.ack_quorum}")
    if metadata.ctime_ms is not None:
        lines.append(f"ctime: {metadata.ctime_ms}")
    for key, value in metadata.custom.items():
        lines += ["customMetadata {", f"  key: {quote(key)}", f"  value: {quote(value)}", "}"]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


# -- format 1 ------------------------------------------------------------------------------------------------------


def _encode_v1(metadata: LedgerMetadata) -> bytes:
    if metadata.custom or metadata.digest is not None or metadata.ack_quorum != metadata.write_quorum:
        raise MetadataSerialization(
            "format 1 has no place for custom metadata, a password, or an ack quorum below the write quorum"
        )
    lines = [f"{metadata.write_quorum}\n{metadata.ensemble_size}\n{metadata.length}\n"]
    lines += ["\t".join((str(fragment.first), *fragment.bookies)) + "\n" for fragment in metadata.fragments]
    if metadata.state is LedgerState.IN_RECOVERY:
        lines.append(f"{V1_IN_RECOVERY}\t{V1_END}")
    elif metadata.state is LedgerState.CLOSED:
        lines.append(f"{metadata.last_entry}\t{V1_END}")
    return "".join(lines).encode("ascii")


def _number(digits: str) -> int:
    if not NUMBER.fullmatch(digits):
        raise ValueError(f"{digits[:40]!r} is no number")
    return int(digits)


def _decode_v1(body: bytes) -> LedgerMetadata:
    lines = body.decode("ascii").split("\n")
    if len(lines) < 4:
        raise ValueError(f"it has {len(lines)} lines, too few")
    write_quorum, ensemble_size, length = (_number(line) for line in lines[:3])
    fragments: list[Fragment] = []
    state, last_entry = LedgerState.OPEN, -1
    for line in lines[3:]:
        first, *members = line.split("\t")
        if members == [V1_END]:
            last_entry = _number(first)
            state = LedgerState.CLOSED
            if last_entry == V1_IN_RECOVERY:
                state, last_entry = LedgerState.IN_RECOVERY, -1
            break
        if line:
            fragments.append(Fragment(_number(first), tuple(members)))
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        state=state,
        last_entry=last_entry,
        length=length if state is LedgerState.CLOSED else 0,
        fragments=tuple(fragments),
        digest=None,
        password=None,
        format_version=1,
    )
