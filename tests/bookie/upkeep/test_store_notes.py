"""What is kept about the metadata store's progress: a bookie's file, and the note in the store."""

from dataclasses import replace
from pathlib import Path

import pytest

from quire.bookie.layout import STORE
from quire.bookie.upkeep.store_notes import Seen, bytes_of, note_of, read_seen, write_seen
from quire.metadata.position import Position
from quire.metadata.store import Progress
from quire.protocol.errors import MetaStore
from quire.rows.files import Files, StorageError

# SPDX-License-Identifier: Apache-2.0


def test_the_latest_file_of_the_cluster_counts(tmp_path: Path) -> None:
    """The latest of several directories counts; another cluster's does not; damage is an error that names the file."""
    seen = Seen("ours", 5, Position([6]), (7,), 1, 2, 3, Progress(4, Position([5])))
    assert Seen.decode(seen.encode(), "x") == seen
    names = []
    other, theirs = Seen("ours", 9, Position([9])), Seen("theirs", 99, Position([99]), accepted=5)
    for name, value in (("a", other), ("b", seen), ("c", theirs), ("d", None)):
        (tmp_path / name / "current").mkdir(parents=True)
        names.append(str(tmp_path / name))
        if value is not None:
            (tmp_path / name / "current" / STORE).write_bytes(value.encode())
    assert read_seen(Files(), names, "ours") == seen
    assert read_seen(Files(), names, "another's") is None
    data = bytearray(seen.encode())
    for offset in range(len(data)):
        data[offset] ^= 4
        (tmp_path / "b" / "current" / STORE).write_bytes(data)
        with pytest.raises(StorageError, match=r"quire\.store at offset"):
            read_seen(Files(), names, "ours")
        data[offset] ^= 4


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """In every directory, while the store is behind and while it is not."""
    names = [str(tmp_path / name) for name in ("a", "b")]
    for name in names:
        (Path(name) / "current").mkdir(parents=True)
    behind = Seen("ours", 5, Position([6]), accepted=1, note=3, behind=0, found=Progress(4, Position([5])))
    counters = Position([5, (1 << 62) + 9])
    several = replace(behind, ledgers=counters, chosen=(7, 1 << 62), found=Progress(4, counters), bound=counters)
    for seen in (Seen("ours", 5, Position([6])), behind, several):
        write_seen(Files(), names, seen)
        assert [read_seen(Files(), [name], "ours") for name in names] == [seen, seen]


def test_a_note_that_was_never_written_is_accepted() -> None:
    """It has number 0 and names no bookie; what is written comes back as it was."""
    note = note_of(b"")
    assert (note["number"], note["accepted"], note["bookies"]) == (0, True, {})
    note = {**note, "number": 7, "bookies": {"b1": {"changes": 1, "ledgers": 2, "unknown": None}}}
    assert note_of(bytes_of(note)) == note


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"number": 3',
        b'{"number": 3, "accepted": true}',
        b'{"number": 3, "accepted": 1, "ledgers": 4, "bookies": {}}',
        b'{"number": "3", "accepted": true, "ledgers": 4, "bookies": {}}',
        b'{"number": 3, "accepted": true, "ledgers": -4, "bookies": {}}',
        b'{"number": 3, "accepted": true, "ledgers": 4, "bookies": ["b1"]}',
        b'{"number": 3, "accepted": true, "ledgers": 4, "bookies": {"b1": {"changes": 1, "ledgers": 2}}}',
        b'{"number": 3, "accepted": true, "ledgers": 4, "bookies": {"b": {"changes": 1, "ledgers": 2, "unknown": ""}}}',
    ],
)
def test_a_note_that_cannot_be_read_is_an_error(data: bytes) -> None:
    """It quotes the note, and is never taken for one that was not written."""
    with pytest.raises(MetaStore, match="noted in the metadata store"):
        note_of(data)
