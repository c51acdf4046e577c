"""Directories that copies lie in: files are there whole or not at all."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c
from pyarrow import ArrowException, fs

from quire.pipeline.copies import places
from quire.pipeline.copies.places import COMING, Place

# SPDX-License-Identifier: Apache-2.0


def test_a_file_has_its_name_at_the_end(tmp_path: Path) -> None:
    """Size and sum are of what was written."""
    place = Place(str(tmp_path / "with a space"))
    coming = place.begin("7/x")
    coming.write(b"one")
    coming.write(memoryview(b"two"))
    assert (coming.tell(), coming.size, coming.sum) == (6, 6, crc32c(b"onetwo"))
    coming.end()
    assert place.read("7/x") is None
    (found,) = place.files("7")
    assert found.name.startswith(COMING)
    coming.name()
    assert place.read("7/x") == b"onetwo"
    assert [found.name for found in place.files("7")] == ["x"]
    with place.open("7/x") as file:
        assert file.read() == b"onetwo"
    for _ in range(2):
        place.move("7/x", "7/y")
    assert (place.read("7/x"), place.read("7/y")) == (None, b"onetwo")
    place.remove("7/y")
    place.remove("7/y")
    assert (place.files("7"), place.files("8"), place.folders()) == ([], [], ["7"])


def test_it_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it gets its name, its folder and those above after."""
    synced: list[tuple[Path, bool]] = []
    real = os.fsync

    def fsync(number: int) -> None:
        path = os.readlink(f"/proc/self/fd/{number}")
        synced.append((Path(path), (tmp_path / "x").exists()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    Place(str(tmp_path)).put("x", b"1", lambda _step: None)
    (file, named_before), folder = synced
    assert (file.parent, file.name.startswith(COMING), named_before) == (tmp_path, True, False)
    assert folder == (tmp_path, True)
    synced.clear()
    Place(str(tmp_path / "a" / "b")).put("7/x", b"1", lambda _step: None)
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "7"} <= {path for path, _ in synced}


def test_two_that_write_a_manifest(tmp_path: Path) -> None:
    """Neither writes into what the other named: at each moment there is one of the two, whole."""
    place = Place(str(tmp_path))
    one, two = place.begin("7/m"), place.begin("7/m")
    one.write(b"first, and longer")
    one.end()
    one.name()
    assert place.read("7/m") == b"first, and longer"
    two.write(b"second")
    assert place.read("7/m") == b"first, and longer"
    two.end()
    two.name()
    assert place.read("7/m") == b"second"


class Objects:
    """A store without folders that shows a file from its first byte on and renames none, as Azure's may be."""

    type_name = "abfs"

    def __init__(self) -> None:
        self._files = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_output_stream(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return self._files.open_output_stream(path)

    def move(self, _path: str, _to: str) -> None:
        raise ArrowException("Move() is not implemented for accounts without folders")


def test_a_place_that_renames_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged manifest is moved aside there, too: each run failed until somebody had removed it."""
    opened = SimpleNamespace(from_uri=lambda _uri: (Objects(), str(tmp_path)))
    monkeypatch.setattr(places, "filesystems", lambda: SimpleNamespace(FileSystem=opened, FileSelector=fs.FileSelector))
    place = Place("abfs://container@account/x")
    place.begin("7/m")
    assert place.read("7/m") == b""
    for _ in range(2):
        place.move("7/m", "7/damaged")
    place.put("7/m", b"whole", lambda _step: None)
    assert {found.name for found in place.files("7")} == {"damaged", "m"}
    assert (place.read("7/damaged"), place.read("7/m")) == (b"", b"whole")


def test_keys_do_not_belong_in_a_uri() -> None:
    """It is in marks and errors: one with a key in it is refused, and the error does not repeat it."""
    for uri in ("s3://user:hunter2@bucket/x", "abfss://c@a.dfs.core.windows.net/x?client_secret=hunter2"):
        with pytest.raises(ValueError, match="key or password in it") as caught:
            Place(uri)
        assert "hunter2" not in str(caught.value)


def test_uris() -> None:
    """Of files below one, also with a query behind it."""
    assert Place("/a b").uri_of("7/m") == "file:///a%20b/7/m"
    assert Place("s3://bucket/x?region=eu-west-1").uri_of("7/m") == "s3://bucket/x/7/m?region=eu-west-1"
    with pytest.raises(ValueError, match="no filesystem that PyArrow opens"):
        Place("carrier-pigeon://x")
