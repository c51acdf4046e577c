"""
What is fuzzed: each decoder of bytes that come from a peer, from the metadata store or from a file.

A target is given any bytes.  It lets nothing through but what its decoder says that it raises, and asks what decodes to
be the same again when it is encoded.  Where a checksum guards the rest, the target sets it right: what is behind it is
to be safe, too.
"""

import struct
from errno import EINVAL
from io import BytesIO
from unittest.mock import patch

from crc32c import crc32c

from quire.bookie.admin.gate import Gate, Keys
from quire.bookie.admin.gc_paths import flags
from quire.bookie.admin.http import Answer, Asked, Head, given, head_of
from quire.bookie.apache import idx_files
from quire.bookie.apache import journal as apache_journal
from quire.bookie.directory import records
from quire.bookie.directory.records import EntryDamaged
from quire.bookie.files import StorageError
from quire.bookie.index import ledger_table
from quire.bookie.index.rocks_check import first_bad
from quire.bookie.index.run import Run, Tally, encode_run
from quire.bookie.index.sequences import Sequences
from quire.bookie.journal import format as journal
from quire.bookie.journal import mark
from quire.bookie.layout import SEQUENCES
from quire.bookie.lifecycle.cookie import Cookie, IdentityError
from quire.bookie.logs import format as logs
from quire.bookie.logs.walk import LogWalk
from quire.bookie.offline import journal_rows, log_rows, salvage
from quire.bookie.upkeep.store_notes import Seen, note_of
from quire.client.handles import copies
from quire.client.placement.place_sources import parse_places
from quire.conf import properties
from quire.log.core import frame, manifest, publishing
from quire.log.core.batch import Batch
from quire.log.core.machine import snapshot_ledger
from quire.log.core.machine.lease import Lease
from quire.log.core.pieces import Cutter
from quire.log.core.streams import cursor_entries as acks
from quire.log.core.streams.cursor_value import CursorValue, decode_pointer
from quire.log.owner import claims
from quire.log.owner.appending.encoder import decompress
from quire.log.store import paths
from quire.metadata import address
from quire.metadata.formats import ledger_codec, repair_text, service_info
from quire.metadata.formats.json_text import parse_json
from quire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.metadata.zk.layout import parse_layout
from quire.pipeline.copies.entries import EntryFile
from quire.pipeline.copies.manifest import CopyDamaged
from quire.pipeline.copies.manifest import Manifest as CopyManifest
from quire.pipeline.core.selection import Selection
from quire.protocol import availability, v2, v3, varint
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import DigestMatch, MetadataSerialization, MetaStore, WireError
from quire.protocol.log_errors import LogDamaged, UnknownFormat
from quire.protocol.wire import Requests
from quire.replication.autorecovery.audits.resume import decode_left
from quire.replication.autorecovery.notes import Note
from quire.replication.scrub import point
from quire.security import digest_md5, jaas, rights
from quire.security.exchange import NotAuthenticated
from tests.bookie.fakes.disk import Disk
from tests.fuzz.registry import FRAME_BYTES_MAX, cut, fed, refused_as, target

# SPDX-License-Identifier: Apache-2.0

SEGMENT_START, SALT = 512, 7
SHAPE, COMPRESSED = struct.Struct(">HI"), struct.Struct(">BI")
OPEN_PATH = "/healthz"
GATE = Gate([{("GET", OPEN_PATH): lambda _: Answer(200, b"")}], Keys(frozenset({OPEN_PATH})))
PLACES_MAX = 32  # of an index file that are looked at
LEDGER = LedgerMetadata(1, 1, 1, LedgerState.OPEN, -1, 0, (Fragment(0, ("a:1",)),), DigestType.CRC32C, b"")
SUM = Digest(DigestType.CRC32C, b"")
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
    with refused_as(WireError), patch.object(availability, "RUNS_MAX", RUNS_MAX):
        runs = availability.decode(data)
        assert availability.decode(availability.encode(runs)) == runs


@target("protocol.varint.decode")
def number(data: bytes) -> None:
    with refused_as(ValueError):
        value, end = varint.decode(data)
        assert 0 < end <= len(data)
        if value < 1 << 64:
            assert varint.decode(varint.encode(value))[0] == value


@target("protocol.digest.Digest.open")
def entry_body(data: bytes) -> None:
    for kind in DigestType:
        digest = Digest(kind, b"secret")
        with refused_as(DigestMatch):
            digest.open(1, -1, data)
    head, payload = data[:32].ljust(32, b"\0"), data[32:]
    digest = Digest(DigestType.CRC32C, b"")
    with refused_as(DigestMatch):
        assert digest.open(1, -1, head + digest.of(head, payload) + payload) == payload


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


@target("metadata.formats.json_text.parse_json", "bookie.admin.gc_paths.flags", "bookie.admin.http.given")
def http_body(data: bytes) -> None:
    with refused_as(ValueError):
        parse_json(data)
    flags(data, ("a", "b"), False)
    given(Asked("PUT", "/", data))


# -- from the metadata store ------------------------------------------------------------------------------------------


@target("metadata.formats.ledger_codec.decode", "metadata.formats.ledger_codec.decode_stored")
def ledger_metadata(data: bytes) -> None:
    with refused_as(MetadataSerialization):
        found = ledger_codec.decode(data)
        assert ledger_codec.decode(ledger_codec.encode(found)) == found


@target("metadata.formats.repair_text.decode_shortage", "metadata.formats.repair_text.decode_owner",
        "metadata.formats.repair_text.decode_check_time")  # fmt: skip
def repair_queue(data: bytes) -> None:
    repair_text.decode_shortage(1, data, 0)
    repair_text.decode_owner(data)
    repair_text.decode_check_time(data)


@target("metadata.formats.service_info.decode", "metadata.formats.service_info.decode_or_unknown")
def registration(data: bytes) -> None:
    service_info.decode_or_unknown("a:1", data)
    with refused_as(MetadataSerialization):
        found = service_info.decode("a:1", data)
        encoded = service_info.encode(found)
        assert not encoded or service_info.decode("a:1", encoded) == found  # without bytes the name is the address


@target("log.core.manifest.Manifest.decode", "log.core.manifest.Chunk.decode", "log.core.manifest.Adopted.decode",
        "log.core.manifest.decode_name", "log.core.streams.cursor_value.CursorValue.decode",
        "log.core.publishing.Txn.decode", "log.core.publishing.Intent.decode", "log.core.values.from_json",
        "log.core.machine.snapshot_ledger.Head.decode", "log.core.machine.snapshot_ledger.End.decode",
        "log.core.machine.lease.Lease.decode")  # fmt: skip
def log_records(data: bytes) -> None:
    kinds = manifest.Manifest, manifest.Chunk, manifest.Adopted, CursorValue, publishing.Txn, publishing.Intent
    for kind in (*kinds, snapshot_ledger.Head, snapshot_ledger.End, Lease):
        with refused_as(LogDamaged, UnknownFormat):
            found = kind.decode(data)
            assert kind.decode(found.encode()) == found
    with refused_as(LogDamaged, UnknownFormat):
        manifest.decode_name(data)


@target("log.core.frame.unpack_header", "log.core.frame.part_header", "log.core.frame.decode_table",
        "log.core.frame.Assembler.feed")  # fmt: skip
def log_entries(data: bytes) -> None:
    def as_it_is(_compression: int, stored: bytes, size: int) -> bytes:
        return stored[:size]

    for read in (frame.unpack_header, frame.part_header, frame.decode_table):
        with refused_as(LogDamaged, UnknownFormat):
            read(data)
    assembler = frame.Assembler(as_it_is)
    with refused_as(LogDamaged, UnknownFormat):
        for piece in cut(data):
            assembler.feed(piece)


@target("log.core.streams.cursor_entries.unpack_entry", "log.core.streams.cursor_entries.unpack_runs",
        "log.core.streams.cursor_entries.decode_acks", "log.core.streams.cursor_value.decode_pointer")  # fmt: skip
def cursor_entries(data: bytes) -> None:
    with refused_as(LogDamaged, UnknownFormat):
        found = acks.unpack_entry(data)
        again = acks.pack_change(found.mark, b"".join(acks.bodies(found.mark, found.runs, 1 << 30)))
        assert acks.unpack_entry(again).runs == found.runs
    with refused_as(LogDamaged):
        acks.decode_acks(data.decode("utf-8", "replace"))
    with refused_as(LogDamaged):
        decode_pointer(data)


@target("log.core.publishing.IntentName.parse", "log.store.paths.decoded", "pipeline.core.selection.Selection.parse")
def names(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with refused_as(LogDamaged):
        publishing.IntentName.parse(text)
    with refused_as(ValueError):
        Selection.parse(text)
    paths.decoded(text)


@target("metadata.zk.layout.parse_layout", "client.placement.place_sources.parse_places",
        "replication.autorecovery.notes.Note.decode")  # fmt: skip
def cluster_facts(data: bytes) -> None:
    with refused_as(MetaStore):
        parse_layout(data)
    with refused_as(ValueError):
        parse_places(data)
    Note.decode(1, data)


@target("client.handles.copies.mark_of", "bookie.upkeep.store_notes.note_of", "log.owner.claims.token_of",
        "log.owner.claims.decode_candidate", "replication.autorecovery.audits.resume.decode_left",
        "replication.scrub.point.decode_point", "replication.scrub.point.decode_end")  # fmt: skip
def store_marks(data: bytes) -> None:
    copies.is_on_its_way(LEDGER.with_custom(copies.MARK, data))
    with refused_as(MetaStore):
        note = note_of(data)
        assert all(0 <= note[name] < 1 << 63 for name in ("number", "ledgers"))
    claims.token_of(Versioned(data, 1))
    claims.decode_candidate(data)
    decode_left(data)
    point.decode_point(data)
    point.decode_end(data)


# -- from logs' ledgers, which whoever may write to them wrote --------------------------------------------------------


@target("log.core.batch.Batch", "log.core.pieces.Cutter.feed")
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
    with refused_as(LogDamaged, UnknownFormat):
        assert len(decompress(kind, data[COMPRESSED.size :], size)) <= size + 1


# -- from files -------------------------------------------------------------------------------------------------------


@target("bookie.lifecycle.cookie.Cookie.decode")
def cookie(data: bytes) -> None:
    with refused_as(IdentityError):
        found = Cookie.decode(data, "here")
        with refused_as(ValueError):  # a newer layout is read, and written as ours
            assert Cookie.decode(found.encode(), "here") == found


@target("bookie.journal.mark.decode_mark")
def journal_mark(data: bytes) -> None:
    for whole in (data, data + struct.pack(">I", crc32c(data))):
        with refused_as(StorageError):
            found = mark.decode_mark("here", whole)
            assert mark.encode_mark(found) == whole


def shown(data: bytes, path: str) -> None:
    """A journal as an operator sees it."""
    disk = Disk()
    disk.replace(path, data)
    with refused_as(StorageError):
        assert list(journal_rows.journal(disk, path, bodies_wanted=True))


@target("bookie.journal.format.whole", "bookie.journal.format.blocks", "bookie.journal.format.split_frames",
        "bookie.journal.format.split_bodies", "bookie.journal.format.salt_of",
        "bookie.journal.format.later_group", "bookie.offline.journal_rows.journal")  # fmt: skip
def journal_segment(data: bytes) -> None:
    """First the bytes as a segment, then as the blocks of a whole group."""
    segment = data.ljust(journal.padded(len(data)), b"\0") + journal.segment_foot(SEGMENT_START, SALT)
    journal.whole(segment, 0, SEGMENT_START, SALT, None)
    journal.later_group(segment, 0, SEGMENT_START, SALT, 0)
    journal.salt_of(data, 0)
    length = journal.GROUP.size + len(data)
    head = journal.group_header(length, journal.Position(1, SEGMENT_START), SALT, [data])
    group = (head + data).ljust(journal.padded(length), b"\0") + journal.segment_foot(SEGMENT_START, SALT)
    assert journal.whole(group, 0, SEGMENT_START, SALT, 1) == length
    with refused_as(ValueError):
        for _kind, count, _ledger, begin, end in journal.blocks(group, 0, length):
            for split in (journal.split_frames, journal.split_bodies):
                with refused_as(ValueError):
                    assert len(split(group, begin, end, count)) == count
    for whole in (segment, group):
        shown(whole, f"/j/{journal.segment_name(SEGMENT_START)}")


@target("bookie.logs.format.read_map", "bookie.logs.walk.LogWalk", "bookie.offline.log_rows.entry_log")
def entry_log(data: bytes) -> None:
    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + count] if offset >= 0 else b""

    logs.read_map(read)
    disk = Disk()
    disk.replace("/l/0.log", data)
    with refused_as(StorageError):
        assert list(log_rows.entry_log(disk, "/l/0.log"))
    walk = LogWalk(read, len(data), "here", FRAME_BYTES_MAX)
    for _ledger, _entry, offset, body in walk.records():
        assert offset + len(body) <= len(data)


@target("bookie.index.ledger_table.decode")
def ledger_row(data: bytes) -> None:
    with refused_as(StorageError):
        found = ledger_table.decode(1, data)
        assert ledger_table.decode(1, ledger_table.encode(found)) == found


@target("bookie.apache.idx_files.decode_idx_header", "bookie.apache.idx_files.Pages", "bookie.apache.index.ApacheIndex")
def idx_header(data: bytes) -> None:
    """As a file's head; then as its first locations, in the log of the same bytes."""
    with refused_as(StorageError):
        idx_files.decode_idx_header("here", data)

    def read_log(log: int, offset: int, count: int) -> bytes:
        if log:
            raise FileNotFoundError
        if offset < 0 or count < 0:
            raise OSError(EINVAL, "no such place")
        return data[offset : offset + count]

    disk = Disk()
    handle = disk.open(f"/i/{idx_files.idx_path(1)}", create=True)
    disk.write(handle, [bytes(idx_files.IDX_HEADER_BYTES), data], 0)
    disk.close(handle)
    pages = idx_files.Pages(disk, "/i", read_log, lambda ledger: None)
    for entry in range(min(PLACES_MAX, len(data) // 8)):
        with refused_as(StorageError, FileNotFoundError):
            run = pages.find(1, entry, 8)
            assert run is None or (run.ledger, run.first) == (1, entry)


@target("bookie.directory.records", "bookie.index.run.Run", "bookie.index.run.Tally.add",
        "bookie.index.rocks_check.first_bad", "bookie.index.sequences.Sequences")  # fmt: skip
def index_files(data: bytes) -> None:
    """As a row, as one of RocksDB's files of records, and as the file beside the two."""
    with refused_as(StorageError):
        run = Run(1, 1, data)
        again = Run(1, 1, encode_run(run.log, run.offset, run.sizes(), run.sums()))
        assert (list(again.sizes()), list(again.sums())) == (list(run.sizes()), list(run.sums()))
        assert run.part(run.first, run.last)[1] == encode_run(run.log, run.offset, run.sizes(), run.sums())
    with refused_as(StorageError):
        Tally().add([(bytes(16), data)])
    record = struct.pack(">I", len(data)) + data
    single = Run(1, 1, encode_run(0, 0, [len(data)], [crc32c(data)]))
    with refused_as(EntryDamaged):
        assert records.body_of(record, "here", single, 1) == data
    with refused_as(EntryDamaged):
        assert records.read_bodies(lambda _log, at, count: record[at : at + count], "here", single, 1, 1, 99, False)
    bad = first_bad(data)
    assert bad is None or 0 <= bad.offset < len(data)
    for whole in (data, data + struct.pack(">I", crc32c(data))):
        disk = Disk()
        disk.replace(f"/i/{SEQUENCES}", whole)
        with refused_as(StorageError):
            Sequences(disk, "/i")


@target("bookie.offline.salvage.entries")
def salvaged(data: bytes) -> None:
    """Records and holes of an entry log lie one behind the other."""

    def opened(ledger: int, entry: int, body: bytes) -> bytes | None:
        try:
            return SUM.open(ledger, entry, body)
        except DigestMatch:
            return None

    disk, at = Disk(), 0
    handle = disk.open("/l/0.log", create=True)
    disk.write(handle, [data], 0)
    disk.close(handle)
    for found in salvage.entries(disk, "/l/0.log", 0, len(data), opened):
        assert found.offset >= at
        at = found.offset + found.size + (0 if found.body is None else logs.SIZE.size)
        assert at <= len(data)


@target("bookie.apache.journal.read_last_mark", "bookie.apache.journal.JournalFile.records")
def apache_files(data: bytes) -> None:
    """As a journal, and as the mark beside it."""
    disk = Disk()
    for name in (apache_journal.journal_name(1), apache_journal.mark_name(0, 1)):
        handle = disk.open(f"/j/{name}", create=True)
        disk.write(handle, [data], 0)
        disk.close(handle)
    apache_journal.read_last_mark(disk, "/j", apache_journal.mark_name(0, 1))
    with refused_as(StorageError):
        file = apache_journal.JournalFile(disk, "/j", 1)
        for _block in apache_journal.blocks(file.records(), file.path):
            pass
    shown(data, f"/j/{apache_journal.journal_name(1)}")


@target("bookie.upkeep.store_notes.Seen.decode")
def store_note(data: bytes) -> None:
    for whole in (data, data + b"%08x\n" % crc32c(data)):
        with refused_as(StorageError):
            found = Seen.decode(whole, "here")
            assert Seen.decode(found.encode(), "here") == found


@target("pipeline.copies.entries.EntryFile")
def copied_entries(data: bytes) -> None:
    with refused_as(CopyDamaged):
        for first, bodies in EntryFile("here", BytesIO(data), 0).groups():
            assert 0 <= SUM.intact(7, first, bodies) <= len(bodies)


@target("pipeline.copies.manifest.Manifest.decode")
def copy_manifest(data: bytes) -> None:
    with refused_as(CopyDamaged):
        CopyManifest.decode(data)


@target("conf.properties.parse")
def configuration(data: bytes) -> None:
    with refused_as(properties.ConfigurationError):
        properties.parse(data.decode("latin-1"), "here")


@target("security.jaas.parse")
def passwords(data: bytes) -> None:
    with refused_as(properties.ConfigurationError):
        jaas.parse(data.decode("utf-8", "replace"), "here")


@target("security.rights.parse")
def rights_file(data: bytes) -> None:
    with refused_as(properties.ConfigurationError):
        rights.parse(data.decode("utf-8", "replace"), "here")


@target("metadata.address.parse_zookeeper", "metadata.address.parse_sqlite")
def metadata_uri(data: bytes) -> None:
    for parse in (address.parse_zookeeper, address.parse_sqlite):
        with refused_as(ValueError):
            parse(data.decode("utf-8", "replace"))
