"""
Apache's journals: every version, padding, torn ends, damage; made here, beside those that live bookies left
(test_moving.py).
"""

import pathlib
import struct
from collections.abc import Callable

import pytest

from quire.bookie.apache.journal import (
    ALLOCATED_BYTES,
    EXPLICIT_LAC,
    FENCE,
    KEY,
    ApacheJournal,
    ApacheMark,
    Block,
    JournalFile,
    journal_ids,
    mark_name,
)
from quire.rows.files import Files, StorageError

FILES = Files()
SEVEN = bytes(range(20))


def entry(ledger: int, number: int, size: int = 40) -> bytes:
    return struct.pack(">qq", ledger, number) + bytes((ledger * 31 + number) % 256 for _ in range(size))


def special(ledger: int, kind: int, data: bytes | None = None) -> bytes:
    return struct.pack(">qq", ledger, kind) + (b"" if data is None else struct.pack(">i", len(data)) + data)


def record(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(version: int) -> bytes:
    return b"" if version == 1 else struct.pack(">4si", b"BKLG", version).ljust(512 if version >= 5 else 8, b"\0")


def padding(position: int) -> bytes:
    """What ends a group that ends at `position` (storage-order.md 9.1)."""
    rest = position % 512
    if not rest:
        return b""
    gap = 512 - rest
    count = gap - 8 if gap >= 8 else 512 + gap - 8
    return struct.pack(">ii", -256, count) + bytes(count)


def written(version: int, groups: list[list[bytes]], tail: bytes = b"") -> bytes:
    """A file with these groups, `tail`, and what is allocated behind them."""
    data = grouped(version, groups) + tail
    return data.ljust(-(-len(data) // ALLOCATED_BYTES) * ALLOCATED_BYTES, b"\0")


def grouped(version: int, groups: list[list[bytes]]) -> bytes:
    data = header(version)
    for group in groups:
        data += b"".join(map(record, group))
        if version >= 5:
            data += padding(len(data))
    return data


def read(folder: pathlib.Path, mark: ApacheMark | None = None, **files: bytes) -> tuple[list[Block], ApacheJournal]:
    for name, data in files.items():
        (folder / f"{name[1:]}.txn").write_bytes(data)
    journal = ApacheJournal(FILES, str(folder), mark)
    return list(journal.blocks()), journal


def entries(found: list[Block]) -> list[tuple[int, int]]:
    return [(block.ledger, block.kind + at) for block in found if block.kind >= 0 for at in range(len(block.bodies))]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_every_version_is_read(version: int, tmp_path: pathlib.Path) -> None:
    """
    Consecutive entries of a ledger come together; keys, fences and LACs in between, in order; unknown kinds are passed
    over.
    """
    groups = [
        [special(7, KEY, SEVEN), entry(7, 0), entry(7, 1), entry(8, 5)],
        [
            entry(7, 2),
            entry(7, 4),
            special(7, -0x4000),
            special(7, FENCE),
            special(7, EXPLICIT_LAC, entry(7, 3, 8)),
            entry(7, 5),
        ],
    ]
    found, journal = read(tmp_path, _a1=written(version, groups))
    kinds = [(7, KEY, 1), (7, 0, 2), (8, 5, 1), (7, 2, 1), (7, 4, 1), (7, FENCE, 0), (7, EXPLICIT_LAC, 1), (7, 5, 1)]
    assert [(block.ledger, block.kind, len(block.bodies)) for block in found] == kinds
    assert sorted(entries(found)) == [(7, 0), (7, 1), (7, 2), (7, 4), (7, 5), (8, 5)]
    assert [block.bodies for block in found if block.kind == KEY] == [[SEVEN]]
    assert next(block.bodies for block in found if block.ledger == 8) == [entry(8, 5)]
    assert journal.end.file == 0xA1
    assert not journal.cuts


@pytest.mark.parametrize("gap", [0, 1, 7, 8, 9, 511])
def test_each_padding(gap: int, tmp_path: pathlib.Path) -> None:
    """Groups that end exactly at a block, or so near its end that the padding takes one more."""
    size = (512 - gap - 4 - 16) % 512
    found, _journal = read(tmp_path, _1=written(6, [[entry(1, 0, size or 512)], [entry(1, 1)], [entry(1, 2)]]))
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]


def test_several_files_in_the_order_of_their_numbers_from_the_mark_on(tmp_path: pathlib.Path) -> None:
    """Not of their names; older files are not read, and the mark's file only from its offset."""
    first = written(6, [[entry(1, 0)], [entry(1, 1)]])
    data = {"_9": written(6, [[entry(9, 9)]]), "_a": first, "_10": written(6, [[entry(1, 2)]])}
    found, journal = read(tmp_path, ApacheMark(0xA, 1024), **data)
    assert entries(found) == [(1, 1), (1, 2)]
    assert journal.end.file == 0x10
    assert journal_ids(FILES, str(tmp_path)) == [9, 10, 16]
    with pytest.raises(StorageError, match=r"b\.txn is missing"):
        ApacheJournal(FILES, str(tmp_path), ApacheMark(0xB, 512))
    assert (mark_name(0, 1), mark_name(1, 2)) == ("lastMark", "lastMark.1")


@pytest.mark.parametrize("cut", range(1, 140, 23))
def test_a_torn_group_is_cut_off(cut: int, tmp_path: pathlib.Path) -> None:
    """Also where preallocated zeros make its last record seem whole: without its padding it was never acknowledged."""
    torn = b"".join(map(record, [entry(1, 1), entry(1, 2), special(1, FENCE)]))[:-cut]
    found, journal = read(tmp_path, _1=written(6, [[entry(1, 0)]], torn))
    assert entries(found) == [(1, 0)]
    assert not any(block.kind == FENCE for block in found)
    assert all("1.txn at offset 1024" in cut for cut in journal.cuts)


def test_older_versions_have_no_padding_so_whole_records_count(tmp_path: pathlib.Path) -> None:
    """As Apache does it; a record that is cut off ends the file."""
    torn = record(entry(1, 2))[:-5]
    found, _journal = read(tmp_path, _1=grouped(4, [[entry(1, 0), entry(1, 1)]]) + torn)
    assert entries(found) == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (struct.pack(">i", -7), "offset 1024: a record of -7 bytes"),
        (struct.pack(">i", 15), "offset 1024: a record of 15 bytes"),
        (struct.pack(">ii", -256, -1), "offset 1024: padding of -1"),
        (record(entry(-5, 0)), "ledger -5"),
        (record(special(1, KEY, SEVEN)[:-1]) + padding(1024 + 43), "offset 1024: a key or LAC record"),
    ],
)
def test_damage_names_file_and_offset(harm: bytes, said: str, tmp_path: pathlib.Path) -> None:
    """Nothing behind it is given out."""
    (tmp_path / "1.txn").write_bytes(written(6, [[entry(1, 0)]], harm))
    journal = ApacheJournal(FILES, str(tmp_path), None)
    found: list[Block] = []
    with pytest.raises(StorageError, match=said):
        found.extend(journal.blocks())
    assert entries(found) in ([], [(1, 0)])


def test_an_unknown_version_is_refused(tmp_path: pathlib.Path) -> None:
    """With the file's name."""
    (tmp_path / "7.txn").write_bytes(header(6).replace(struct.pack(">i", 6), struct.pack(">i", 7)))
    with pytest.raises(StorageError, match=r"7\.txn has version 7"):
        JournalFile(FILES, str(tmp_path), 7)


@pytest.mark.parametrize("bit", [0, 3, 6, 9, 15, 18, 21, 24])
def test_a_damaged_length_never_swallows_groups_in_silence(bit: int, tmp_path: pathlib.Path) -> None:
    """
    Larger, smaller or zero: with groups behind it the start stops (but for a length that happens to end just where
    another record begins).
    """
    data = bytearray(written(6, [[entry(1, 10 * group + number) for number in range(10)] for group in range(40)]))
    at = data.index(record(entry(1, 100)))
    data[at : at + 4] = struct.pack(">I", struct.unpack_from(">I", data, at)[0] ^ 1 << bit)
    (tmp_path / "1.txn").write_bytes(data)
    found: list[Block] = []
    with pytest.raises(StorageError, match=r"1\.txn at offset"):
        found.extend(ApacheJournal(FILES, str(tmp_path), None).blocks())
    (tmp_path / "1.txn").write_bytes(data[:at] + bytes(4) + data[at + 4 :])
    with pytest.raises(StorageError, match="a later one is whole"):
        list(ApacheJournal(FILES, str(tmp_path), None).blocks())


def test_records_that_lead_nowhere_are_walked_once(tmp_path: pathlib.Path) -> None:
    """As a torn group may look: chains of records from each place where a group could begin, without an end."""
    count = 1 << 15
    chain = b"".join(struct.pack(">iqqi", 28, 1, number, 0) + bytes(8) for number in range(2))
    data = header(6) + b"\x7f" * 512 + chain * (count // 2)
    reads = 0

    class Counted(Files):
        def pread(self, handle: int, wanted: int, offset: int) -> bytes:
            nonlocal reads
            reads += wanted
            return super().pread(handle, wanted, offset)

    (tmp_path / "1.txn").write_bytes(data)
    file = JournalFile(Counted(), str(tmp_path), 1)
    assert list(file.records()) == []
    assert reads < 100 * len(data)


def cut_to(size: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:size]


HARMS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": cut_to(0),
    "cut in its header": cut_to(100),
    "cut behind its header": cut_to(600),
    "cut between groups": cut_to(1024),
    "its header zeroed": lambda data: bytes(512) + data[512:],
    "its magic zeroed": lambda data: bytes(8) + data[8:],
    "all zeros": lambda data: bytes(len(data)),
    "shortened in the midst": lambda data: data[:1030] + data[1100:],
    "another magic": lambda data: b"BKLF" + data[4:],
    "a version without padding": lambda data: data[:7] + b"\4" + data[8:],
    "begun by a record": lambda data: grouped(1, [[entry(1, 3)]]) + data[60:],
}


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("alone", [False, True], ids=["beside another", "alone"])
def test_a_newest_file_that_was_cut_or_lost_its_header_is_refused(
    how: str, alone: bool, tmp_path: pathlib.Path
) -> None:
    """An end found at its first byte would deny all that was in it; the error names it, and what can be done."""
    data = written(6, [[entry(1, 1)], [entry(1, 2)]])
    if not alone:
        (tmp_path / "1.txn").write_bytes(written(6, [[entry(1, 0)]]))
    (tmp_path / "2.txn").write_bytes(HARMS[how](data))
    if alone and how == "begun by a record":
        return  # nothing shows that it is none of version 1
    with pytest.raises(StorageError, match=r"2\.txn: damaged: .* acknowledged last .* decommission"):
        list(ApacheJournal(FILES, str(tmp_path), ApacheMark(2, 512) if alone else None).blocks())
    (tmp_path / "2.txn").write_bytes(data)
    found = list(ApacheJournal(FILES, str(tmp_path), None).blocks())
    assert entries(found) == [(1, number) for number in range(int(alone), 3)]


def test_a_file_that_ends_before_the_mark_is_refused(tmp_path: pathlib.Path) -> None:
    """What was written behind the mark is gone with what was before it; one that holds its header only is a new one."""
    (tmp_path / "1.txn").write_bytes(header(6))
    assert list(ApacheJournal(FILES, str(tmp_path), ApacheMark(1, 512)).blocks()) == []
    with pytest.raises(StorageError, match=r"1\.txn: damaged: it has 512 bytes, and lastMark names offset 1024"):
        list(ApacheJournal(FILES, str(tmp_path), ApacheMark(1, 1024)).blocks())
