"""Entry logs: read back by an independent parser, and logs that Apache BookKeeper wrote read by ours."""

import errno
import io
import json
import struct
import tarfile
from pathlib import Path

import pytest

from quire.bookie.logs import entry_logs
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER_BYTES, log_id, read_map
from quire.bookie.logs.walk import LogWalk
from quire.protocol.digest import Digest, DigestType, last_add_confirmed
from quire.rows.files import Files
from tests.bookie.fakes.disk import Disk, reader, records

VECTORS = Path(__file__).parents[2] / "vectors"
DIRECTORY = "/disk/ledgers/current"
FRAME_MAX = 5 << 20


def parse(data: bytes) -> tuple[int, int, list[tuple[int, int, int]]]:
    """The format as Apache BookKeeper has it: (map offset, map count, [(ledger, entry, location)]), maps left out."""
    assert data[:4] == b"BKLO"
    version, map_at, map_count = struct.unpack(">iqi", data[4:20])
    assert version == 1
    assert not any(data[20:1024])
    at, found = 1024, []
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        ledger, entry = struct.unpack_from(">qq", data, at + 4)
        if ledger != -1:
            found.append((ledger, entry, at + 4))
        at += 4 + size
    assert at == len(data)
    return map_at, map_count, found


def test_a_log_is_as_specified() -> None:
    """Header, records at 1024 and on, the first location 1028, `lastId` in hex; without rotation no map."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    assert logs.append(7, records(7, 0, 3)) == (0, 1024)
    assert logs.append(9, records(9, 5, 1))[0] == 0
    logs.sync()
    data = bytes(disk.crashed(None).inodes[f"{DIRECTORY}/0.log"].data)
    map_at, map_count, found = parse(data)
    assert (map_at, map_count) == (0, 0)
    assert [(ledger, entry) for ledger, entry, _location in found] == [(7, 0), (7, 1), (7, 2), (9, 5)]
    assert found[0][2] == 1028
    assert bytes(disk.inodes[f"{DIRECTORY}/lastId"].data) == b"0\n"
    assert read_map(reader(data)) is None


def test_a_rotated_log_ends_with_its_ledgers_map() -> None:
    """The map counts size + 4 of each record, in batches of 10,000 ledgers; the next log has the next id."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 2 << 20)
    wanted: dict[int, int] = {}
    for ledger in range(12_000):
        piece = records(ledger, 0, 1 + ledger % 2)
        logs.append(ledger, piece)
        wanted[ledger] = len(piece)
    logs.rotate()
    assert logs.append(3, records(3, 9, 1)) == (1, 1024)
    logs.sync()
    data = bytes(disk.inodes[f"{DIRECTORY}/0.log"].data)
    map_at, map_count, found = parse(data)
    assert map_count == 12_000
    assert len(found) == 18_000
    assert read_map(reader(data)) == wanted
    size, ledger, entry, rows = struct.unpack_from(">iqqi", data, map_at)
    assert (ledger, entry, rows, size) == (-1, -2, 10_000, 20 + 160_000)
    walk = LogWalk(reader(data), len(data), "0.log", FRAME_MAX)
    assert [head[:2] for head in walk.heads()] == [(ledger, entry) for ledger, entry, _at in found]
    assert bytes(disk.inodes[f"{DIRECTORY}/lastId"].data) == b"1\n"
    for doubt in (map_at + 4, map_at + 20, 8, 16):
        broken = bytearray(data)
        broken[doubt] ^= 0x40
        assert read_map(reader(bytes(broken))) is None
    assert read_map(reader(data[:-1])) is None


def test_rotation_by_size_and_oversize_pieces() -> None:
    """A piece that would pass the limit begins a new log; one larger than the limit has a log for itself."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 100_000)
    places = [logs.append(1, records(1, entry, 1, 60_000)) for entry in range(3)]
    assert places == [(0, 1024), (1, 1024), (2, 1024)]
    assert logs.append(1, records(1, 3, 1, 300_000)) == (3, 1024)
    assert logs.append(1, records(1, 4, 1)) == (4, 1024)
    logs.sync()
    assert logs.ids() == [0, 1, 2, 3, 4]
    assert logs.read(1, 1028, 16) == struct.pack(">qq", 1, 1)
    logs.close()
    assert disk.open_files == 0


def test_a_log_of_many_ledgers_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its map is bounded; each map has the ledgers of its own log only."""
    monkeypatch.setattr(entry_logs, "LEDGERS_MAX", 3)
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    places = [logs.append(ledger, records(ledger, 0, 1))[0] for ledger in (9, 4, 4, 7, 5, 6)]
    assert places == [0, 0, 0, 0, 1, 1]
    logs.rotate()
    logs.sync()
    size = len(records(4, 0, 1))
    found = [read_map(reader(bytes(disk.inodes[f"{DIRECTORY}/{log}.log"].data))) for log in (0, 1)]
    assert found == [{4: 2 * size, 7: size, 9: size}, {5: size, 6: size}]


def test_what_was_appended_can_be_read_before_it_is_synced() -> None:
    """After `write_out`; a log that is gone says so."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    log, offset = logs.append(1, records(1, 0, 2))
    logs.write_out()
    assert logs.read(log, offset, len(records(1, 0, 2))) == records(1, 0, 2)
    with pytest.raises(FileNotFoundError):
        logs.read(99, 0, 1)


def test_old_logs_are_never_appended_to() -> None:
    """
    After a restart, clean or not, a new log begins, above every id that was ever used; it is made only with the first
    append.
    """
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    logs.append(1, records(1, 0, 1))
    logs.sync()
    after = disk.crashed(None)
    again = EntryLogs(after, DIRECTORY, 1 << 20)
    assert again.current == -1
    assert again.ids() == [0]
    assert again.append(1, records(1, 1, 1)) == (1, 1024)
    again.sync()
    del after.inodes[f"{DIRECTORY}/1.log"]
    third = EntryLogs(after, DIRECTORY, 1 << 20)
    assert third.append(1, records(1, 2, 1)) == (2, 1024), "lastId remembers"


def test_a_failed_flush_leaves_a_log_that_is_not_used_again() -> None:
    """After `abandon` the next append begins a new log."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    logs.append(1, records(1, 0, 1))
    logs.sync()

    def before(call: str, path: str) -> None:
        if call == "write":
            raise OSError(errno.ENOSPC, "injected")

    disk.before = before
    logs.append(1, records(1, 1, 1))
    with pytest.raises(OSError, match="injected"):
        logs.write_out()
    disk.before = lambda call, path: None
    logs.abandon()
    assert logs.append(1, records(1, 1, 1)) == (1, 1024)
    logs.sync()
    assert parse(bytes(disk.inodes[f"{DIRECTORY}/0.log"].data))[2] == [(1, 0, 1028)]


def test_a_log_whose_end_is_written_has_ended() -> None:
    """
    Though what was preallocated behind it can't be given back just now: a record behind the end would lie where the
    header promises the map.
    """
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    logs.append(7, records(7, 0, 3))

    def each(call: str, path: str) -> None:
        if call == "trim":
            raise OSError(errno.ENOMEM, "no memory", path)

    disk.each = each
    logs.rotate()
    assert logs.append(7, records(7, 3, 1)) == (1, 1024)
    logs.sync()
    assert parse(bytes(disk.crashed(None).inodes[f"{DIRECTORY}/0.log"].data))[1] == 1


def test_many_readers_few_open_files(tmp_path: Path) -> None:
    """However many logs are read, only some stay open."""
    files = Files()
    logs = EntryLogs(files, str(tmp_path), 1 << 20)
    for number in range(80):
        logs.append(number, records(number, 0, 1))
        logs.rotate()
    logs.sync()
    for _ in range(2):
        for number in range(80):
            assert logs.read(number, 1028, 8) == struct.pack(">q", number)
    logs.close()
    assert len(files.names(str(tmp_path))) == 81


def apache_files(archive: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO((VECTORS / archive).read_bytes()), mode="r:xz") as tar:
        return {member.name: stream.read() for member in tar if (stream := tar.extractfile(member)) is not None}


@pytest.mark.parametrize("kind", ["rocksdb", "sorted"])
def test_logs_of_apache_bookkeeper_are_read(kind: str) -> None:
    """Every entry of a live 4.17.3's log is found, its digest verifies, and its payloads are the captured lines."""
    found = apache_files(f"{kind}_bookie0_stopped.tar.xz")
    (name,) = [name for name in found if name.endswith("0.log")]
    assert log_id(Path(name).name) == 0
    entries: dict[int, dict[int, bytes]] = {}
    for ledger, entry, _at, body in LogWalk(reader(found[name]), len(found[name]), name, FRAME_MAX).records():
        entries.setdefault(ledger, {})[entry] = body
    lines = (VECTORS / "lines.txt").read_bytes().decode("iso8859-1").splitlines()
    rows = [json.loads(line) for line in (VECTORS / f"{kind}_disks.jsonl").read_text().splitlines()]
    stopped = [row for row in rows if row["moment"] == "stopped"]
    assert stopped
    for row in stopped:
        mine = entries[row["ledger"]]
        assert sorted(mine) == list(range(row["entries"]))
        digest = Digest(DigestType[row["digest"]], b"secret")
        payloads = [digest.open(row["ledger"], entry, mine[entry]) for entry in sorted(mine)]
        if row["command"] == "lines":
            assert payloads == [line.encode("iso8859-1") for line in lines]
        else:
            assert payloads == [bytes((31 + 7 * at) % 256 for at in range(row["size"]))] * row["entries"]
        assert all(last_add_confirmed(mine[entry]) < entry for entry in mine)
    assert read_map(reader(found[name])) is None
    (last,) = [name for name in found if name.endswith("lastId")]
    assert int(found[last], 16) == 0


MIB = 1 << 20


def fill(logs: EntryLogs, megabytes: int, ledger: int = 1) -> None:
    for number in range(megabytes):
        logs.append(ledger, records(ledger, number, 1, size=MIB))


def test_a_log_that_grows_has_room_ahead_and_gives_it_back() -> None:
    """Not for the first megabyte; in steps, never beyond the largest size; what is left goes when the log is sealed."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 40 * MIB)
    logs.append(1, records(1, 0, 3))
    logs.write_out()
    assert disk.reserved == {}
    fill(logs, 3)
    assert disk.reserved == {f"{DIRECTORY}/0.log": 17 * MIB}
    fill(logs, 16)
    assert disk.reserved == {f"{DIRECTORY}/0.log": 33 * MIB}
    fill(logs, 18)
    assert disk.reserved == {f"{DIRECTORY}/0.log": 40 * MIB}
    logs.rotate()
    assert disk.reserved == {}
    logs.sync()
    fill(logs, 2)
    assert list(disk.reserved) == [f"{DIRECTORY}/1.log"]
    logs.close()
    assert disk.reserved == {}
    assert disk.open_files == 0


def test_room_that_a_killed_process_left_is_given_back_at_a_start() -> None:
    """Opening entry logs releases what an earlier process preallocated."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 40 * MIB)
    fill(logs, 2)
    assert disk.reserved
    EntryLogs(disk, DIRECTORY, 40 * MIB)
    assert disk.reserved == {}


def test_what_is_written_goes_to_the_disk_before_the_sync() -> None:
    """
    A flush of many MiB, or a log that compaction makes, is not left to one sync at the end, which the journal's would
    have to wait for.
    """
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 40 * MIB)
    fill(logs, 8)
    logs.write_out()
    assert {path for path, _offset, _count in disk.begun} == {f"{DIRECTORY}/0.log"}
    at = HEADER_BYTES
    for _path, offset, count in disk.begun:
        assert offset == at
        assert count <= 2 * MIB
        at += count
    assert at == len(disk.inodes[f"{DIRECTORY}/0.log"].data)
    log, handle = logs.begin_whole()
    logs.write_whole(handle, [b"ab", b"cde"], HEADER_BYTES)
    assert disk.begun[-1] == (f"{DIRECTORY}/1.log.compacting", HEADER_BYTES, 5)
    logs.drop_whole(log, handle)


def test_a_flush_that_failed_gives_its_room_back() -> None:
    """Abandoning a log that is being written releases what was preallocated for it."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 40 * MIB)
    fill(logs, 2)
    logs.abandon()
    assert disk.reserved == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, None])
def test_without_room_ahead_it_goes_on(number: int | None) -> None:
    """A disk that is nearly full is asked no more for this log, a file system that can't preallocate never again."""
    disk = Disk()
    asked = []

    def before(call: str, path: str) -> None:
        if call == "preallocate":
            asked.append(path)
            if number is not None:
                raise OSError(number, "injected", path)

    disk.before, disk.preallocates = before, False
    logs = EntryLogs(disk, DIRECTORY, 6 * MIB)
    fill(logs, 8)
    logs.sync()
    assert asked == [f"{DIRECTORY}/0.log", f"{DIRECTORY}/1.log"][: 1 if number is None else 2]
    assert len(disk.inodes[f"{DIRECTORY}/1.log"].data) > 2 * MIB


def test_a_disk_that_fails_at_preallocation_fails() -> None:
    """An I/O error of the preallocation is raised."""
    disk = Disk()

    def before(call: str, path: str) -> None:
        if call == "preallocate":
            raise OSError(errno.EIO, "injected", path)

    disk.before = before
    logs = EntryLogs(disk, DIRECTORY, 40 * MIB)
    with pytest.raises(OSError, match="injected"):
        fill(logs, 2)


def test_what_is_in_memory_is_read_of_an_open_log_while_nobody_holds_it() -> None:
    """Neither a file is opened for it, nor a thread waited for that opens one."""
    disk = Disk()
    disk.in_memory = True
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    logs.append(1, records(1, 0, 1))
    logs.sync()
    assert logs.read_in_memory(0, 1028, 8) is None, "not open"
    assert logs.read(0, 1028, 8) == struct.pack(">q", 1)
    assert logs.read_in_memory(0, 1028, 8) == struct.pack(">q", 1)
    opened: list[bytes | None] = []

    def opening(call: str, path: str) -> None:
        if call == "open":
            opened.append(logs.read_in_memory(0, 1028, 8))

    disk.each = opening
    with pytest.raises(FileNotFoundError):
        logs.read(5, 0, 8)
    assert opened == [None]
    assert logs.read_in_memory(0, 1028, 8) == struct.pack(">q", 1)
    logs.remove(0)
    assert logs.read_in_memory(0, 1028, 8) is None


def test_a_log_that_is_read_in_memory_stays_open(tmp_path: Path) -> None:
    """It is not the one that was not used for the longest time."""
    files = Files()
    logs = EntryLogs(files, str(tmp_path), 1 << 20, open_max=2)
    for number in range(3):
        logs.append(number, records(number, 0, 1))
        logs.rotate()
    logs.sync()
    logs.read(0, 1028, 8)
    logs.read(1, 1028, 8)
    first = logs.read_in_memory(0, 1028, 8)
    logs.read(2, 1028, 8)
    assert logs.read_in_memory(0, 1028, 8) == first
    assert logs.read_in_memory(1, 1028, 8) is None
    logs.close()


@pytest.mark.parametrize("call", ["rename", "sync directory"])
def test_a_whole_log_that_finds_no_room_for_its_name(call: str) -> None:
    """It is gone; or, if the name may be there, that is no matter of room."""
    disk = Disk()
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    log, handle = logs.begin_whole()
    logs.write_whole(handle, [b"ab"], HEADER_BYTES)

    def before(asked: str, _path: str) -> None:
        if asked == call:
            raise OSError(errno.ENOSPC, "No space left on device")

    disk.before = before
    with pytest.raises(OSError, match="No space") as raised:
        logs.finish_whole(log, handle, HEADER_BYTES + 2, {})
    assert (raised.value.errno == errno.ENOSPC) is (call == "rename")
    assert (log in logs.ids()) is (call != "rename")
