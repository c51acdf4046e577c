"""
What is fuzzed: each decoder of bytes that come from a peer, from the metadata store or from a log's ledger; those of
files are in `file_targets`.

A target is given any bytes.  It lets nothing through but what its decoder says that it raises, and asks what decodes to
be the same again when it is encoded.  Where a checksum guards the rest, the target sets it right: what is behind it is
to be safe, too.
"""

import hashlib
import io
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from quire.bookie.admin.bookie_paths import flags
from quire.bookie.admin.gate import Gate, Keys
from quire.bookie.admin.http import Answer, Asked, Head, given, head_of
from quire.bookie.upkeep.store_notes import bytes_of, note_of, position_of
from quire.client.handles import copies
from quire.client.placement.topology import parse_places
from quire.log.core import frame, manifest, places, publishing
from quire.log.core.batch import HEADERS, KEYS, VALUES, Batch, unpack_headers
from quire.log.core.machine import lease, snapshots
from quire.log.core.machine.lease import Lease
from quire.log.core.pieces import Cutter
from quire.log.core.streams import cursors as acks
from quire.log.core.streams.cursors import CursorValue, decode_pointer
from quire.log.owner import claims
from quire.log.owner.appending.encoder import decompress
from quire.log.store import paths
from quire.metadata.backup import BadDump, checked, nodes_in
from quire.metadata.formats import ledger_codec, repair_text, service_info
from quire.metadata.formats.json_text import parse_json
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.ledgers.layout import parse_layout
from quire.metadata.store import Versioned
from quire.pipeline.core.selection import Selection
from quire.protocol import availability, v2, v3, varint
from quire.protocol.digest import Digest, DigestType, EqualBodies
from quire.protocol.errors import DigestMatch, MetadataSerialization, MetaStore, WireError
from quire.protocol.log_errors import LogDamaged, UnknownFormat
from quire.protocol.wire import Requests
from quire.replication.autorecovery.notes import Note
from quire.replication.autorecovery.walk import decode_left
from quire.replication.scrub import run as scrub_run
from quire.security import digest_md5
from quire.security.exchange import NotAuthenticated
from tests.fuzz.registry import FRAME_BYTES_MAX, cut, fed, lengths, refused_as, target

# SPDX-License-Identifier: Apache-2.0

SHAPE, COMPRESSED = struct.Struct(">HI"), struct.Struct(">BI")
OPEN_PATH = "/healthz"
GATE = Gate([{("GET", OPEN_PATH): lambda _: Answer(200, b"")}], Keys(frozenset({OPEN_PATH})))
LEDGER = LedgerMetadata(1, 1, 1, LedgerState.OPEN, -1, 0, (Fragment(0, ("a:1",)),), DigestType.CRC32C, b"")
RUNS_MAX = 10_000  # of a list, so that what is looked for is not the time that its own bound of millions allows


# -- from peers -------------------------------------------------------------------------------------------------------


@target("protocol.frames", "protocol.schema", "protocol.v3.adds", "protocol.wire.Generation.decode",
        "protocol.v2.decode_requests", "protocol.v3.requests.decode_requests",
        "protocol.v3.requests.decode_request")  # fmt: skip
def requests(data: bytes) -> None:
    fed(Requests(FRAME_BYTES_MAX), data)


@target("protocol.v2.decode_replies")
def replies_v2(data: bytes) -> None:
    fed(v2.Replies(FRAME_BYTES_MAX), data)


@target("protocol.v3.replies.decode_replies", "protocol.v3.replies.decode_reply")
def replies_v3(data: bytes) -> None:
    fed(v3.Replies(FRAME_BYTES_MAX), data)


@target("protocol.availability.decode")
def availability_list(data: bytes) -> None:
    with patch.object(availability, "RUNS_MAX", RUNS_MAX):
        runs = None
        with refused_as(WireError):
            runs = availability.decode(data)
        if runs:
            assert 0 <= runs[0][0] <= runs[-1][0] <= (1 << 63) - runs[-1][1]
            assert availability.decode(availability.encode(runs)) == runs


@target("protocol.varint.decode")
def number(data: bytes) -> None:
    with refused_as(ValueError):
        value, end = varint.decode(data)
        assert 0 < end <= len(data)
        if value < 1 << 64:
            assert varint.decode(varint.encode(value))[0] == value


@target("protocol.digest.Digest.open", "protocol.digest.Digest.open_run", "protocol.digest.Digest.open_lac",
        "protocol.digest.Digest.intact", "protocol.digest.EqualBodies")  # fmt: skip
def entry_body(data: bytes) -> None:
    """As one body; then as bodies of one size, of which some are made good: each way to open them gives the same."""
    for kind in DigestType:
        digest = Digest(kind, b"secret")
        with refused_as(DigestMatch):
            digest.open(1, -1, data)
        with refused_as(DigestMatch):
            assert digest.lac_body(1, digest.open_lac(1, data)) == data
        size, rest = 32 + digest.size + data[0] % 16 if data else 0, data[2:]
        bodies = [rest[at : at + size] for at in range(0, len(rest) - size + 1, size)] if size else []
        for entry, body in enumerate(bodies):
            if data[1] >> entry % 8 & 1:
                head, payload = struct.pack(">qq", 1, entry) + body[16:32], body[32 + digest.size :]
                bodies[entry] = head + digest.of(head, payload) + payload
        opened = []
        with refused_as(DigestMatch):
            for entry, body in enumerate(bodies):
                opened.append(digest.open(1, entry, body))
        assert digest.open_run(1, 0, bodies) == opened
        assert digest.intact(1, 0, bodies) == len(opened)
        if bodies:
            frame_ = b"".join(struct.pack(">I", size) + body for body in bodies)
            equal = EqualBodies(frame_, 0, len(frame_), size)
            assert list(equal) == bodies
            assert digest.open_run(1, 0, equal) == opened


@target("security.digest_md5.directives")
def token(data: bytes) -> None:
    with refused_as(NotAuthenticated):
        bookie = digest_md5.BookiesSide(digest_md5.Users({"a": "b"}, ["a"]), lambda: "nonce")
        bookie.step(b"")
        bookie.step(data)
    with refused_as(NotAuthenticated):
        client = digest_md5.ClientsSide("a", digest_md5.digest_of("a", "b"))
        client.step(b"")
        client.step(data)
        client.step(data)


@target("bookie.admin.http.head_of")
def http_head(data: bytes) -> None:
    head = head_of(data)
    if isinstance(head, Head):
        refused = GATE.refusal(head)
        assert refused is not None or head.path == OPEN_PATH


@target("metadata.formats.json_text.parse_json", "bookie.admin.bookie_paths.flags", "bookie.admin.http.given")
def http_body(data: bytes) -> None:
    with refused_as(ValueError):
        written_again(parse_json(data), 40)
    flags(data, ("a", "b"), False)
    given(Asked("PUT", "/", data))


def written_again(value: object, frames: int) -> None:
    """By who has so many more frames of Python behind him, and it is read as the same."""
    if frames:
        written_again(value, frames - 1)
    else:
        text = json.dumps(value, ensure_ascii=False)
        assert json.dumps(parse_json(text.encode()), ensure_ascii=False) == text


# -- from the metadata store ------------------------------------------------------------------------------------------


@target("metadata.formats.ledger_codec.decode", "metadata.formats.ledger_codec.decode_stored")
def ledger_metadata(data: bytes) -> None:
    found = None
    with refused_as(MetadataSerialization):
        found = ledger_codec.decode(data)
    if found is not None:
        kept = found if found.format_version == 3 else replace(found, ctoken=0)  # which older formats have no place for
        assert ledger_codec.decode(ledger_codec.encode(found)) == kept


@target("metadata.formats.repair_text.decode_shortage", "metadata.formats.repair_text.decode_owner",
        "metadata.formats.repair_text.decode_check_time")  # fmt: skip
def repair_queue(data: bytes) -> None:
    missing, since_ms = repair_text.decode_shortage(1, data)
    if missing:
        again = repair_text.decode_shortage(1, repair_text.encode_shortage(missing, since_ms))
        assert again == (tuple(dict.fromkeys(missing)), since_ms)
    repair_text.decode_owner(data)
    time = repair_text.decode_check_time(data)
    assert time is None or repair_text.decode_check_time(repair_text.encode_check_time(time)) == time


@target("metadata.formats.service_info.decode", "metadata.formats.service_info.decode_or_unknown")
def registration(data: bytes) -> None:
    service_info.decode_or_unknown("a:1", data)
    found = None
    with refused_as(MetadataSerialization):
        found = service_info.decode("a:1", data)
    if found is not None and (encoded := service_info.encode(found)):  # without bytes the name is the address
        assert service_info.decode("a:1", encoded) == found


@target("log.core.manifest.Manifest.decode", "log.core.manifest.Chunk.decode", "log.core.manifest.Adopted.decode",
        "log.core.manifest.decode_name", "log.core.streams.cursors.CursorValue.decode",
        "log.core.publishing.Txn.decode", "log.core.publishing.Intent.decode", "log.core.values.from_json",
        "log.core.machine.snapshots.Head.decode", "log.core.machine.snapshots.End.decode",
        "log.core.machine.lease.Lease.decode", "log.core.places.ClusterRecord.decode",
        "log.core.places.PlaceRecord.decode", "log.core.manifest.decode_moved")  # fmt: skip
def log_records(data: bytes) -> None:
    kinds = manifest.Manifest, manifest.Chunk, manifest.Adopted, CursorValue, publishing.Txn, publishing.Intent
    for kind in (*kinds, snapshots.Head, snapshots.End, Lease, places.ClusterRecord, places.PlaceRecord):
        found = None
        with refused_as(LogDamaged, UnknownFormat):
            found = kind.decode(data)
        if found is not None:
            assert kind.decode(found.encode()) == found
        if isinstance(found, Lease):
            lease.over_at(0.0, found.ms)
        elif isinstance(found, manifest.Manifest):
            ends = [found.begin.index, *(each.end for each in (*found.chunks, *found.segments))]
            assert all(-(1 << 64) < end < 1 << 65 for end in ends)
            assert ends[1:] == sorted(ends[1:])
    with refused_as(LogDamaged, UnknownFormat):
        manifest.decode_name(data)
    with refused_as(LogDamaged, UnknownFormat):
        manifest.decode_moved(data)


@target("log.core.frame.unpack_header", "log.core.frame.part_header", "log.core.frame.decode_table",
        "log.core.frame.Assembler.feed", "log.core.frame.Assembler.feed_part")  # fmt: skip
def log_entries(data: bytes) -> None:
    """As one entry; then as entries, each behind its length, whose places in the log are set right."""

    def as_it_is(_compression: int, stored: bytes, size: int) -> bytes:
        return stored[:size]

    for read in (frame.unpack_header, frame.part_header):
        with refused_as(LogDamaged, UnknownFormat):
            read(data)
    rows = None
    with refused_as(LogDamaged):
        rows = frame.decode_table(data)
    assert rows is None or frame.decode_table(frame.encode_table(rows)) == rows
    assembler, parts = frame.Assembler(as_it_is), frame.Assembler(as_it_is)
    slices: list[bytes] = []
    with refused_as(LogDamaged, UnknownFormat):
        for entry in lengths(data):
            place = struct.pack(">QQ", assembler.progress.ordinal, assembler.progress.offset)
            placed = entry[:8] + place + entry[24:] if len(entry) >= 24 else entry
            is_part = len(placed) > 5 and placed[5] == frame.Kind.PART
            made = assembler.feed(placed)
            if is_part:
                slices.append(parts.feed_part(placed))
                assert sum(map(len, slices)) <= frame.part_header(placed).size <= frame.BODY_BYTES_MAX
            else:
                parts.feed(placed)
            assert parts.progress == assembler.progress
            if made is not None:
                header = frame.unpack_header(placed)
                stored = b"".join(slices) if is_part else placed[frame.HEADER_BYTES :]
                body = stored[: header.body_bytes]
                assert Batch(body, 0, 0, 0, header.records, header.bytes).values == made.values
                slices.clear()


@target("log.core.streams.cursors.unpack_entry", "log.core.streams.cursors.unpack_runs",
        "log.core.streams.cursors.decode_acks", "log.core.streams.cursors.decode_pointer")  # fmt: skip
def cursor_entries(data: bytes) -> None:
    found = None
    with refused_as(LogDamaged, UnknownFormat):
        found = acks.unpack_entry(data)
    if found is not None:
        again = acks.pack_change(found.mark, b"".join(acks.bodies(found.mark, found.runs, 1 << 30)))
        assert acks.unpack_entry(again).runs == found.runs
    with refused_as(LogDamaged):
        acks.decode_acks(data.decode("utf-8", "replace"))
    with refused_as(LogDamaged):
        decode_pointer(data)


@target("log.core.publishing.IntentName.parse", "log.store.paths.decoded", "pipeline.core.selection.Selection.parse")
def names(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    name = None
    with refused_as(LogDamaged):
        name = publishing.IntentName.parse(text)
    assert name is None or publishing.IntentName.parse(str(name)) == name
    with refused_as(ValueError):
        Selection.parse(text)
    paths.decoded(text)


@target("metadata.ledgers.layout.parse_layout", "client.placement.topology.parse_places",
        "replication.autorecovery.notes.Note.decode")  # fmt: skip
def cluster_facts(data: bytes) -> None:
    with refused_as(MetaStore):
        parse_layout(data)
    with refused_as(ValueError):
        parse_places(data)
    note = Note.decode(1, data)
    again = Note.decode(1, note.encode())
    assert again == note._replace(reason=again.reason)


@target("metadata.backup.checked", "metadata.backup.nodes_in")
def metadata_dump(data: bytes) -> None:
    """With the sum of its lines, whatever they are."""
    lines, _, _last = data.rpartition(b"\n")
    lines += b"\n" if lines else b""
    end = {"end": max(0, lines.count(b"\n") - 1), "next_ledger": len(data), "sha256": hashlib.sha256(lines).hexdigest()}
    found, file = None, io.BytesIO(lines + json.dumps(end).encode() + b"\n")
    with refused_as(BadDump):
        found = checked(file)
    if found is not None:
        assert len(list(nodes_in(file))) == found.nodes
    with refused_as(BadDump):
        checked(io.BytesIO(data))


@target("client.handles.copies.mark_of", "bookie.upkeep.store_notes.note_of", "log.owner.claims.token_of",
        "log.owner.claims.decode_candidate", "replication.autorecovery.walk.decode_left",
        "replication.scrub.run.decode_point", "replication.scrub.run.decode_end")  # fmt: skip
def store_marks(data: bytes) -> None:
    copies.is_on_its_way(LEDGER.with_custom(copies.MARK, data))
    note = None
    with refused_as(MetaStore):
        note = note_of(data)
    if note is not None:
        assert all(0 <= note[name] < 1 << 63 for name in ("number", "cleared"))
        position_of(note["ledgers"])
        assert note_of(bytes_of(note)) == note
    claims.token_of(Versioned(data, 1))
    claims.decode_candidate(data)
    left = decode_left(data)
    assert decode_left(json.dumps(left).encode()) == left
    at = scrub_run.decode_point(data)
    assert at is None or scrub_run.decode_point(json.dumps(at._asdict()).encode()) == at
    scrub_run.decode_end(data)


# -- from logs' ledgers, which whoever may write to them wrote --------------------------------------------------------


def decoded(read: Callable[..., Any], *given: Any) -> Any:
    """What it reads, as a list; None also where that is damaged."""
    with refused_as(LogDamaged):
        found = read(*given)
        return None if found is None else list(found)
    return None


@target(
    *("log.core.batch.Batch", "log.core.pieces.Cutter.feed"),
    *("log.core.batch.unpack_headers", "log.core.packed.Packed"),
)
def log_batches(data: bytes) -> None:
    """After records and bytes of values: a body, whole and in parts.  Whoever reads it, they get the same values."""
    count, size = SHAPE.unpack(data[: SHAPE.size].ljust(SHAPE.size, b"\0"))
    body = data[SHAPE.size :]
    values = None
    with refused_as(LogDamaged, UnknownFormat):
        batch = Batch(body, 0, 0, 0, count, size)
        for column in ("keys", "times", "headers", "indexes", "producers"):
            with refused_as(LogDamaged):
                found = getattr(batch, column)
                assert not found or column == "producers" or len(found) == count
        for number, column in ((VALUES, "values"), (KEYS, "keys")):
            assert decoded(batch.packed, number) == decoded(getattr, batch, column)
        with refused_as(LogDamaged):
            assert len(batch.packed_times or ()) in (0, count)
        packed = decoded(batch.packed, HEADERS)
        pieces_of = [piece or b"" for piece in packed or ()]  # None as of a key, where a length says so
        assert decoded(getattr, batch, "headers") == (packed and decoded(map, unpack_headers, pieces_of))
        values = batch.values
        assert len(values) == len(batch.offsets) == count
    with refused_as(LogDamaged, UnknownFormat):
        cutter, pieces = Cutter(count, len(body)), [b""] * count
        for part in cut(data[:1] + body):
            for piece in cutter.feed(part):
                pieces[piece.record] += piece.data
        assert cutter.is_done
        assert values is None or pieces == values


@target("log.owner.appending.encoder.decompress")
def compressed(data: bytes) -> None:
    kind, size = COMPRESSED.unpack(data[: COMPRESSED.size].ljust(COMPRESSED.size, b"\0"))
    size %= frame.BODY_BYTES_MAX + 1  # a header with more is refused
    with refused_as(LogDamaged, UnknownFormat):
        assert len(decompress(kind, data[COMPRESSED.size :], size)) <= size + 1
