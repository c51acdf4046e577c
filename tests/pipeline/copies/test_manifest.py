"""What is written down of a copy, and what is refused."""

import json
from typing import Any

import pytest

from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata
from quire.pipeline.copies.manifest import CopyDamaged, File, Manifest, sum_of

# SPDX-License-Identifier: Apache-2.0

METADATA = LedgerMetadata.new(3, 3, 2, ["a:1", "b:1", "c:1"], password=b"x", ctime_ms=5).closed(9, 100)
FILES = (File("part-0-a.parquet", 0, 6, 70, 99, 1, 2), File("part-7-b.parquet", 7, 9, 30, 55, 3, 4))


def manifest(**members: Any) -> Manifest:
    return Manifest(
        **{
            **{
                "cluster": "c",
                "ledger": 7,
                "run": "r",
                "at_ms": 8,
                "metadata": ledger_codec.encode(METADATA),
                "files": FILES,
            },
            **members,
        }
    )


def test_there_and_back() -> None:
    """Every member, the metadata to the byte."""
    made = manifest()
    assert Manifest.decode(made.encode()) == made
    assert made.closed == METADATA
    assert json.loads(made.encode())["entries"] == 10


def test_files_take_the_places_of_bookies() -> None:
    """Each entry is in one; a ledger without entries has none."""
    made = manifest().by_files
    assert [made.ensemble_at(entry) for entry in (0, 6, 7, 9)] == [
        *[("part-0-a.parquet",)] * 2,
        *[("part-7-b.parquet",)] * 2,
    ]
    assert (made.last_entry, made.length, made.password) == (9, 100, b"x")
    empty = manifest(files=(), metadata=ledger_codec.encode(LedgerMetadata.new(1, 1, 1, ["a:1"]).closed(-1, 0)))
    assert empty.by_files.fragments[0].bookies == ("none",)


@pytest.mark.parametrize("files", [(), FILES[:1], FILES[1:], (FILES[1], FILES[0]), (*FILES, FILES[1])])
def test_each_entry_is_in_one_file(files: tuple[File, ...]) -> None:
    """Else there is no such manifest."""
    with pytest.raises(CopyDamaged):
        manifest(files=files)


def test_every_bit_counts() -> None:
    """A manifest with one that flipped is refused, or says the same."""
    made = manifest()
    data = made.encode()
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        try:
            assert Manifest.decode(bytes(flipped)) == made
        except CopyDamaged:
            continue
    with pytest.raises(CopyDamaged):
        Manifest.decode(data[:-1])


def test_another_format_is_named() -> None:
    """And that this version can't read it."""
    members = json.loads(manifest().encode())
    del members["sum"]
    members["format"] = 2
    with pytest.raises(CopyDamaged, match="format 2: this version reads format 1"):
        Manifest.decode(json.dumps({**members, "sum": sum_of(members)}).encode())


def test_of_an_open_ledger_there_is_none() -> None:
    """Nor of what is no metadata."""
    for metadata in (ledger_codec.encode(LedgerMetadata.new(1, 1, 1, ["a:1"])), b"nonsense"):
        with pytest.raises(CopyDamaged):
            manifest(metadata=metadata)


def test_whose_it_is() -> None:
    """The very ledger, on whichever bookies; not another with its number."""
    made = manifest()
    assert made.is_of("c", METADATA.replace_bookies(0, ["d:1", "e:1", "f:1"]))
    assert not made.is_of("other", METADATA)
    again = LedgerMetadata.new(3, 3, 2, ["a:1", "b:1", "c:1"], password=b"x", ctime_ms=6).closed(9, 100)
    assert not made.is_of("c", again)


@pytest.mark.parametrize(
    "change",
    [{"name": name} for name in ("", "../../etc/x", "..", ".hidden", "a/b", "a b", "a" * 256)]
    + [{"payload_sum": "3"}, {"size": 1.5}, {"bytes": None}, {"file_sum": -1}, {"name": 5}, {"more": 1}],
    ids=str,
)
def test_a_file_of_another_shape_is_damage(change: dict[str, Any]) -> None:
    """Though the sum over the manifest is right."""
    members = json.loads(manifest().encode())
    del members["sum"]
    members["files"][0] |= change
    with pytest.raises(CopyDamaged, match="can't be read"):
        Manifest.decode(json.dumps({**members, "sum": sum_of(members)}).encode())


@pytest.mark.parametrize("change", [{"cluster": None}, {"run": 5}, {"ledger": ["x"]}, {"ledger": -1}, {"at": 1.5}])
def test_a_copy_of_something_else_is_damage(change: dict[str, Any]) -> None:
    """The same."""
    members = json.loads(manifest().encode())
    del members["sum"]
    members |= change
    with pytest.raises(CopyDamaged, match="can't be read"):
        Manifest.decode(json.dumps({**members, "sum": sum_of(members)}).encode())
