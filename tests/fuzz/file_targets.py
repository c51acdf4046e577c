"""
What is fuzzed of files: each decoder of bytes that another program, another version or a damaged disk may have left.
The rules are those of `targets`.
"""

import json
import struct
from errno import EINVAL
from io import BytesIO
from unittest.mock import patch

from crc32c import crc32c

from quire.bookie.apache import idx_files
from quire.bookie.apache import journal as apache_journal
from quire.bookie.directory import records
from quire.bookie.directory.records import EntryDamaged
from quire.bookie.index import ledger_table
from quire.bookie.index.run import RUN_ENTRIES_MAX, Run, Tally, encode_run
from quire.bookie.index.sequences import Sequences
from quire.bookie.journal import extent, mark
from quire.bookie.journal import format as journal
from quire.bookie.journal.replay import Replay
from quire.bookie.layout import EXTENT, SEQUENCES
from quire.bookie.lifecycle.cookie import Cookie, IdentityError
from quire.bookie.lifecycle.kept_status import KeptStatus
from quire.bookie.logs import format as logs
from quire.bookie.logs.walk import LogWalk
from quire.bookie.offline import listing, salvage
from quire.bookie.upkeep.store_notes import Seen
from quire.conf import properties
from quire.conf.bookie import BookieOptions
from quire.metadata import address
from quire.metadata.formats.json_text import parse_json
from quire.pipeline.copies.entries import EntryFile
from quire.pipeline.copies.manifest import CopyDamaged, sum_of
from quire.pipeline.copies.manifest import Manifest as CopyManifest
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import DigestMatch
from quire.rows import rocks_check
from quire.rows.files import StorageError
from quire.rows.rocks_check import State
from quire.security import jaas, rights
from tests.bookie.fakes.disk import Disk
from tests.fuzz.registry import FRAME_BYTES_MAX, lengths, refused_as, target

# SPDX-License-Identifier: Apache-2.0

SEGMENT_START, SALT = 512, 7
GROUPS_MAX, ROOM = 20, 4096
PLACES_MAX = 32  # of an index file that are looked at
SUM = Digest(DigestType.CRC32C, b"")
NEEDED = [
    properties.Property(name, value, "here")
    for name, value in (("metadataServiceUri", "zk://a/b"), ("journalDirectories", "/j"), ("ledgerDirectories", "/l"))
]


@target("bookie.lifecycle.cookie.Cookie.decode")
def cookie(data: bytes) -> None:
    found = None
    with refused_as(IdentityError):
        found = Cookie.decode(data, "here")
    if found is not None:
        with refused_as(ValueError):  # a newer layout is read, and written as ours
            assert Cookie.decode(found.encode(), "here") == found


@target("bookie.lifecycle.kept_status.KeptStatus.of")
def kept_status(data: bytes) -> None:
    with refused_as(ValueError):
        found = KeptStatus.of(data)
        assert KeptStatus.of(found.line()) == found


@target("bookie.journal.mark.decode_mark", "bookie.journal.extent")
def journal_mark(data: bytes) -> None:
    """A mark, and the note of the newest segment."""
    for whole in (data, data + struct.pack(">I", crc32c(data))):
        with refused_as(StorageError):
            found = mark.decode_mark("here", whole)
            assert mark.encode_mark(found) == whole
        disk = Disk()
        disk.replace(f"here/{EXTENT}", whole)
        with refused_as(StorageError):
            start = extent.read_extent(disk, "here")
            assert start is not None
            extent.write_extent(disk, "here", start)
            assert disk.read_file(f"here/{EXTENT}") == whole


def shown(data: bytes, path: str) -> None:
    """A journal as an operator sees it."""
    disk = Disk()
    disk.replace(path, data)
    with refused_as(StorageError):
        assert list(listing.journal(disk, path, bodies_wanted=True))


@target("bookie.journal.format.whole", "bookie.journal.format.blocks", "bookie.journal.format.split_frames",
        "bookie.journal.format.split_bodies", "bookie.journal.format.salt_of",
        "bookie.journal.format.later_group", "bookie.offline.listing.journal")  # fmt: skip
def journal_segment(data: bytes) -> None:
    """First the bytes as a segment, then as the blocks of a whole group."""
    segment = data.ljust(journal.padded(len(data)), b"\0") + journal.segment_foot(SEGMENT_START, SALT)
    journal.whole(segment, 0, SEGMENT_START, SALT, None)
    journal.later_group(segment, 0, SEGMENT_START, SALT, 0)
    journal.salt_of(data, 0)
    foot = data[: journal.FOOT.size].ljust(journal.FOOT.size, b"\0")
    salt = journal.salt_of((foot + struct.pack(">I", crc32c(foot))).ljust(journal.FOOT_BYTES, b"\0"), SEGMENT_START)
    assert salt is None or foot == journal.FOOT.pack(journal.FOOT_MAGIC, journal.FOOT_VERSION, SEGMENT_START, salt)
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


@target("bookie.journal.replay.Replay", "bookie.journal.format.begun")
def journal_replayed(data: bytes) -> None:
    """
    Groups of any blocks in a journal in which one piece is damaged: what is replayed are the first of them, and where
    the journal was synced all that came before a whole one.
    """
    at, harm, bodies = int.from_bytes(data[:2], "big"), data[2:4], lengths(data[4:])[:GROUPS_MAX]
    groups, wholes, position = [], [], journal.Position(1, 0)
    for body in bodies:
        length = journal.GROUP.size + len(body)
        head = journal.group_header(length, position, SALT, [body])
        wholes.append((position.start, head + body))
        groups.append((head + body).ljust(journal.padded(length), b"\0"))
        position = journal.Position(position.sequence + 1, position.start + journal.padded(length))
    written = b"".join(groups)
    place = at % (len(written) + 1)
    torn = (written[:place] + harm)[: len(written)].ljust(min(place + len(harm), len(written)), b"\0")
    torn += written[len(torn) :]
    for synced in (True, False):
        disk, name = Disk(), f"/j/{journal.segment_name(0)}"
        disk.replace(name, torn.ljust(journal.padded(len(torn)) + ROOM, b"\0") + journal.segment_foot(0, SALT))
        replay, found = Replay(disk, "/j", None, synced), []
        with refused_as(StorageError):
            for segment, offset, length in replay.groups():
                assert segment[offset : offset + length] == written[offset : offset + length]
                found.append(offset)
            assert replay.position.sequence == len(found) + 1 or not found
            assert not synced or found == [begin for begin, group in wholes if torn[begin:].startswith(group)]
        assert found == [begin for begin, _group in wholes[: len(found)]]


@target("bookie.logs.format.read_map", "bookie.logs.walk.LogWalk", "bookie.offline.listing.entry_log")
def entry_log(data: bytes) -> None:
    """As a log, and as what is behind the header of one."""
    walked(data)
    walked(bytes(logs.HEADER_BYTES) + data)


def walked(data: bytes) -> None:
    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + count] if offset >= 0 else b""

    logs.read_map(read)
    disk = Disk()
    disk.replace("/l/0.log", data)
    with refused_as(StorageError):
        assert list(listing.entry_log(disk, "/l/0.log"))
    walk = LogWalk(read, len(data), "here", FRAME_BYTES_MAX)
    for _ledger, _entry, offset, body in walk.records():
        assert offset + len(body) <= len(data)


@target("bookie.index.ledger_table.decode")
def ledger_row(data: bytes) -> None:
    found = None
    with refused_as(StorageError):
        found = ledger_table.decode(1, data)
    assert found is None or ledger_table.decode(1, ledger_table.encode(found)) == found


@target("bookie.apache.idx_files.decode_idx_header", "bookie.apache.idx_files.Pages", "bookie.apache.index.ApacheIndex")
def idx_header(data: bytes) -> None:
    """As a file's head; then as its first locations, in the log of the same bytes."""
    found = None
    with refused_as(StorageError):
        found = idx_files.decode_idx_header("here", data)
    assert found is None or idx_files.decode_idx_header("here", idx_files.encode_idx_header(found)) == found

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
    entries = [entry for entry, count in pages.ranges(1) for entry in range(entry, entry + count)]
    assert entries == [entry for entry in range(len(data) // 8) if any(data[8 * entry : 8 * entry + 8])]
    assert pages.last(1) == (entries[-1] if entries else -1)
    assert pages.following(1, 0) == (entries[0] if entries else None)
    for entry in range(min(PLACES_MAX, len(data) // 8)):
        with refused_as(StorageError, FileNotFoundError):
            run = pages.find(1, entry, 8)
            assert run is None or (run.ledger, run.first) == (1, entry)


@target("bookie.directory.records", "bookie.index.run.Run", "bookie.index.run.Tally.add",
        "rows.rocks_check.first_bad", "bookie.index.sequences.Sequences")  # fmt: skip
def index_files(data: bytes) -> None:
    """As a row, as one of RocksDB's files of records, and as the file beside the two."""
    run = None
    with refused_as(StorageError):
        run = Run(1, 1, data)
    if run is not None:
        again = Run(1, 1, encode_run(run.log, run.offset, run.sizes(), run.sums()))
        assert (list(again.sizes()), list(again.sums())) == (list(run.sizes()), list(run.sums()))
        assert run.part(run.first, run.last)[1] == encode_run(run.log, run.offset, run.sizes(), run.sums())
    with refused_as(StorageError):
        Tally().add([(bytes(16), data)])
    recorded(data)
    bad = rocks_check.first_bad(data)
    assert bad is None or 0 <= bad.offset < len(data)
    for whole in (data, data + struct.pack(">I", crc32c(data))):
        disk = Disk()
        disk.replace(f"/i/{SEQUENCES}", whole)
        with refused_as(StorageError):
            Sequences(disk, "/i")


@target("rows.rocks_check.Edit", "rows.rocks_check.State.apply",
        "rows.rocks_check.records", "rows.rocks_check.check")  # fmt: skip
def manifest(data: bytes) -> None:
    """
    As edits, each behind its length; as a file, and as one of these records with a torn end, beside some tables and a
    log of writes: one that passes has its tables.
    """
    edits = lengths(data)
    state = State()
    for edit in edits:
        with refused_as(ValueError):
            state.apply(edit)
    whole = [edit for edit in edits if edit]
    framed = b"".join(
        rocks_check.HEADER.pack(rocks_check.masked(crc32c(b"\x01" + edit)), len(edit), 1) + edit for edit in whole
    )
    in_one_block = len(framed) <= rocks_check.BLOCK_BYTES
    assert [edit for edit, _end in rocks_check.records(framed)] == whole or not in_one_block
    for torn in (framed + bytes(600), framed + bytes(600) + b"x", data):
        disk = Disk()
        disk.replace("/i/CURRENT", b"MANIFEST-000021\n")
        disk.replace("/i/MANIFEST-000021", torn)
        for number in range(8, 24):
            disk.replace(f"/i/{number:06}.sst", b"")
        disk.replace("/i/000020.log", data)
        passed = False
        with refused_as(StorageError):
            try:
                rocks_check.check("/i", disk)
                passed = True
            except rocks_check.Torn:
                passed = True
        if passed and in_one_block and torn is not data:
            assert all(8 <= number < 24 for _level, number in state.tables)


def recorded(data: bytes) -> None:
    """
    As bodies of entries, each behind its length, of which the records are damaged at one place: whoever reads them,
    they are the same, and none that was hit.
    """
    place, harm = int.from_bytes(data[:2], "big"), data[2:4]
    some = lengths(data[4:])[:RUN_ENTRIES_MAX]
    bodies = [logs.IDS.pack(1, number) + body for number, body in enumerate(some, 1)]
    if not bodies:
        return
    written, sizes = records.records_of(bodies)
    run = Run(1, 1, encode_run(0, 0, sizes, list(map(crc32c, bodies))))
    place %= len(written)
    torn = (written[:place] + harm + written[place + len(harm) :])[: len(written)]

    def read(_log: int, at: int, count: int) -> bytes:
        return torn[at : at + count]

    good = []
    for entry, body in enumerate(bodies, 1):
        offset, size, _sum = run.at(entry)
        is_good = torn[offset : offset + 4 + size] == struct.pack(">I", size) + body
        found = together = None
        with refused_as(EntryDamaged):
            found = records.read_body(read, "here", run, entry)
        with refused_as(EntryDamaged):
            together = records.read_bodies(read, "here", run, entry, run.last, 1 << 20, False)
        assert found == (body if is_good else None)
        good.append(is_good)
        assert (together is not None) == is_good
        assert not together or together == bodies[entry - 1 : entry - 1 + len(together)]
    assert [entry for entry, _offset in records.damages(run, torn)] == [
        entry for entry, is_good in enumerate(good, 1) if not is_good
    ]
    with refused_as(EntryDamaged):
        assert records.read_records(read, "here", run) == written


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


@target(
    "bookie.apache.journal.read_last_mark",
    "bookie.apache.journal.JournalFile.records",
    "bookie.apache.journal.ApacheJournal",
)
def apache_files(data: bytes) -> None:
    """As a journal, and as the mark beside it."""
    disk = Disk()
    for name in (apache_journal.journal_name(1), apache_journal.mark_name(0, 1)):
        handle = disk.open(f"/j/{name}", create=True)
        disk.write(handle, [data], 0)
        disk.close(handle)
    mark = apache_journal.read_last_mark(disk, "/j", apache_journal.mark_name(0, 1))
    for start in {mark, None, apache_journal.ApacheMark(1, len(data) // 2)}:
        with refused_as(StorageError):
            for _block in apache_journal.ApacheJournal(disk, "/j", start).blocks():
                pass
    with refused_as(StorageError):
        file = apache_journal.JournalFile(disk, "/j", 1)
        for _block in apache_journal.blocks(file.records(), file.path):
            pass
    shown(data, f"/j/{apache_journal.journal_name(1)}")


@target("bookie.upkeep.store_notes.Seen.decode")
def store_note(data: bytes) -> None:
    for whole in (data, data + b"%08x\n" % crc32c(data)):
        found = None
        with refused_as(StorageError):
            found = Seen.decode(whole, "here")
        assert found is None or Seen.decode(found.encode(), "here") == found


@target("pipeline.copies.entries.EntryFile")
def copied_entries(data: bytes) -> None:
    with refused_as(CopyDamaged):
        for first, bodies in EntryFile("here", BytesIO(data), 0).groups():
            assert 0 <= SUM.intact(7, first, bodies) <= len(bodies)
    with refused_as(CopyDamaged):
        assert len(EntryFile("here", BytesIO(data), 0).bodies(0, 3, 1 << 20)) <= 3


@target("pipeline.copies.manifest.Manifest.decode")
def copy_manifest(data: bytes) -> None:
    """As it is; then with the sum that it should name."""
    with refused_as(CopyDamaged):
        CopyManifest.decode(data)
    members = None
    with refused_as(ValueError):
        members = parse_json(data)
    if not isinstance(members, dict):
        return
    members.pop("sum", None)
    found = None
    with refused_as(CopyDamaged):
        found = CopyManifest.decode(json.dumps({**members, "sum": sum_of(members)}).encode())
    if found is not None:
        assert CopyManifest.decode(found.encode()) == found
        assert found.by_files.is_closed
        assert all("/" not in file.name and file.name.strip(".") for file in found.files)


@target("conf.properties.parse")
def configuration(data: bytes) -> None:
    with refused_as(properties.ConfigurationError):
        found = properties.parse(data.decode("latin-1"), "here")
        with patch("difflib.get_close_matches", lambda *_, **__: []):  # of each key that is unknown, some ms
            properties.options(BookieOptions, [*NEEDED, *found])


@target("security.jaas.parse")
def passwords(data: bytes) -> None:
    with refused_as(properties.ConfigurationError):
        jaas.parse(data.decode("utf-8", "replace"), "here")


@target("security.rights.parse")
def rights_file(data: bytes) -> None:
    lines = {}
    with refused_as(properties.ConfigurationError):
        lines = rights.parse(data.decode("utf-8", "replace"), "here")
    known = rights.Rights(lines.values())
    for line in lines.values():
        kind, name = line.who
        grant = known.of(name, None) if kind == rights.USER else known.of("", name)
        for ledger in {ledger for span in line.spans for ledger in span} or {0, 1 << 62}:
            assert not grant.lacks(line.verbs, ledger)
        mine = [each for each in lines.values() if each.who == line.who]
        for span in line.spans:
            for ledger in (span[0] - 1, span[1] + 1):
                given = 0
                for each in mine:
                    if not each.spans or any(first <= ledger <= last for first, last in each.spans):
                        given |= each.verbs
                assert ledger < 0 or grant.lacks(line.verbs, ledger) == line.verbs & ~given


@target("metadata.address.parse_zookeeper", "metadata.address.parse_etcd", "metadata.address.parse_sqlite")
def metadata_uri(data: bytes) -> None:
    text, found = data.decode("utf-8", "replace"), None
    with refused_as(ValueError):
        address.parse_sqlite(text)
    with refused_as(ValueError):
        found = address.parse_zookeeper(text)
    assert found is None or address.parse_zookeeper(found.uri) == found
    etcd = None
    with refused_as(ValueError):
        etcd = address.parse_etcd(text)
    assert etcd is None or address.parse_etcd(etcd.uri) == etcd
