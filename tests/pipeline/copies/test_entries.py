"""Entries in Parquet files and back."""

from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c
from pyarrow import parquet

from quire.pipeline.copies.entries import SCHEMA, EntryFile, EntryWriter
from quire.pipeline.copies.manifest import CopyDamaged
from quire.pipeline.copies.places import Place
from quire.protocol.digest import Digest, DigestType

# SPDX-License-Identifier: Apache-2.0

PAYLOADS = [b"", b"a", b"bb" * 1000, b"", b"ccc"] * 20


def written(to: Path, kind: DigestType = DigestType.CRC32C, groups: int = 4) -> tuple[Path, list[bytes]]:
    digest = Digest(kind, b"secret")
    bodies = [digest.entry(7, 10 + at, at - 2, at * 1000, payload) for at, payload in enumerate(PAYLOADS)]
    coming = Place(str(to)).begin("7/x")
    writer = EntryWriter(coming, 7, digest.overhead)
    each = len(bodies) // groups
    for start in range(0, len(bodies), each):
        writer.add(10 + start, bodies[start : start + each])
    writer.end()
    coming.end()
    coming.name()
    assert (writer.bytes, writer.sum) == (sum(map(len, PAYLOADS)), crc32c(b"".join(PAYLOADS)))
    assert (to / "7/x").stat().st_size == coming.size
    assert crc32c((to / "7/x").read_bytes()) == coming.sum
    return to / "7/x", bodies


@pytest.mark.parametrize("kind", list(DigestType))
def test_every_bit_comes_back(tmp_path: Path, kind: DigestType) -> None:
    """With each digest; empty payloads too."""
    path, bodies = written(tmp_path, kind)
    with path.open("rb") as file:
        found = list(EntryFile("x", file, 10).groups())
    assert [first for first, _bodies in found] == [10, 35, 60, 85]
    assert [body for _first, some in found for body in some] == bodies


def test_from_any_entry(tmp_path: Path) -> None:
    """As many as are wanted, at least one, of one row group; entries that are not there are an error."""
    path, bodies = written(tmp_path)
    with path.open("rb") as file:
        opened = EntryFile("x", file, 10)
        for first in range(10, 110):
            assert opened.bodies(first, 3, 1 << 20)[0] == bodies[first - 10]
        assert opened.bodies(10, 1000, 1 << 20) == bodies[:25]
        assert opened.bodies(12, 1000, 1) == bodies[2:3]
        assert opened.bodies(33, 3, 1 << 20) == bodies[23:25]
        for first in (9, 110):
            with pytest.raises(CopyDamaged, match=f"no entry {first}"):
                opened.bodies(first, 1, 1)


def test_others_can_read_it(tmp_path: Path) -> None:
    """Plain columns; statistics of the numbers only, and no dictionary of payloads."""
    path, _bodies = written(tmp_path)
    table = parquet.read_table(path)
    assert table.schema.names == SCHEMA.names
    assert table.column("payload").to_pylist() == PAYLOADS
    assert table.column("entry_id").to_pylist() == list(range(10, 110))
    group = parquet.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert columns["payload"].statistics is None
    assert "PLAIN_DICTIONARY" not in columns["payload"].encodings
    assert columns["entry_id"].statistics.min == 10


def test_what_is_no_such_file(tmp_path: Path) -> None:
    """Is named."""
    path, _bodies = written(tmp_path)
    for data in (path.read_bytes()[:-1], b"", b"PAR1" * 10):
        path.write_bytes(data)
        with path.open("rb") as file, pytest.raises(CopyDamaged, match="x can't be read"):
            EntryFile("x", file, 10)
    for table in (pa.table({"entry_id": [1]}), pa.table(SCHEMA.empty_table())):
        parquet.write_table(table, path)
        with path.open("rb") as file, pytest.raises(CopyDamaged, match="x is no file of entries"):
            EntryFile("x", file, 10)


def test_whatever_bit_of_it_is_wrong(tmp_path: Path) -> None:
    """It is a damaged copy, or each entry is what it was, or fails its digest; nothing ends the process."""
    path, bodies = written(tmp_path)
    data = path.read_bytes()
    digest = Digest(DigestType.CRC32C, b"secret")
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with suppress(CopyDamaged):
            for first, found in EntryFile("x", BytesIO(changed), 10).groups():
                for entry, body in enumerate(found[: digest.intact(7, first, found)], first):
                    assert body == bodies[entry - 10]


def test_a_group_has_no_more_rows_than_can_be(tmp_path: Path) -> None:
    """PyArrow takes memory for as many as the foot says: of a changed byte there 20 GiB."""
    path, _bodies = written(tmp_path, groups=1)
    data = path.read_bytes()
    foot = int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at in range(len(data) - 8 - foot, len(data) - 8):
        changed = bytearray(data)
        changed[-8:-4] = (foot + 3).to_bytes(4, "little")
        changed[at : at + 2] = b"\xfe\xff\xff\xff\x7f"  # a number of 34 bits in place of 100
        rows = 0
        with suppress(pa.ArrowException, OSError):
            rows = parquet.ParquetFile(BytesIO(changed)).metadata.row_group(0).num_rows
        if rows > 1 << 32:
            with pytest.raises(CopyDamaged, match="x is no file of entries"):
                EntryFile("x", BytesIO(changed), 10)
            refused += 1
    assert refused


def test_a_file_without_entries_has_none() -> None:
    """Of ours by its form: no entry can be had of it."""
    file = BytesIO()
    parquet.ParquetWriter(file, SCHEMA).close()
    file.seek(0)
    found = EntryFile("here", file, 0)
    assert list(found.groups()) == []
    with pytest.raises(CopyDamaged, match="has no entry 0"):
        found.bodies(0, 1, 100)
