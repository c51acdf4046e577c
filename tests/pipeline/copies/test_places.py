"""Directories that copies lie in: files are there whole or not at all."""

import os
from pathlib import Path

import pytest
from crc32c import crc32c

from quire.pipeline.copies.places import Place

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
    assert [found.name for found in place.files("7")] == [".coming-x.tmp"]
    coming.name()
    assert place.read("7/x") == b"onetwo"
    assert [found.name for found in place.files("7")] == ["x"]
    with place.open("7/x") as file:
        assert file.read() == b"onetwo"
    place.remove("7/x")
    place.remove("7/x")
    assert (place.files("7"), place.files("8"), place.folders()) == ([], [], ["7"])


def test_it_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it gets its name, its folder after."""
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(number: int) -> None:
        path = os.readlink(f"/proc/self/fd/{number}")
        synced.append((os.path.basename(path), (tmp_path / "x").exists()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    Place(str(tmp_path)).put("x", b"1", lambda _step: None)
    assert synced == [(".coming-x.tmp", False), (tmp_path.name, True)]


def test_uris() -> None:
    """Of files below one, also with a query behind it."""
    assert Place("/a b").uri_of("7/m") == "file:///a%20b/7/m"
    assert Place("s3://bucket/x?region=eu-west-1").uri_of("7/m") == "s3://bucket/x/7/m?region=eu-west-1"
    with pytest.raises(ValueError, match="no filesystem that PyArrow opens"):
        Place("carrier-pigeon://x")
