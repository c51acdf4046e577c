"""The directory of rows: whose it is, and that nothing of others is touched."""

import os
import stat

import pytest

from quire.messages.derived.directory import MARKER, ROWS, RowsDirectory
from quire.protocol.message_errors import MessageError, RowsForeign

# SPDX-License-Identifier: Apache-2.0

LOG, OTHER = "6f1c" * 8, "aaaa" * 8


def test_rows_are_there_again(tmp_path):
    """Made for the user alone, with RocksDB; another opener finds them, `again` begins anew."""
    steps = []
    directory = RowsDirectory(str(tmp_path / "derived"), LOG, reached=steps.append)
    rows = directory.open()
    rows.write([(b"d", b"1")])
    directory.close()
    directory.close()
    assert stat.S_IMODE(os.stat(tmp_path / "derived").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "derived" / LOG).st_mode) == 0o700
    assert directory.open().get(b"d") == b"1"
    assert steps == []
    assert directory.again().get(b"d") is None
    assert steps == ["rebuild.deleted"]
    directory.close()


def test_one_process_uses_a_directory(tmp_path):
    """The second one is told, with the directory's name, until the first has done."""
    first, second = (RowsDirectory(str(tmp_path), LOG) for _ in range(2))
    first.open()
    with pytest.raises(MessageError, match=f"another process uses the rows in {tmp_path}/{LOG}.*derived_dir"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    """One without our marker, and one of another log's rows."""
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / "letters").write_text("dear")
    with pytest.raises(RowsForeign, match=f"{tmp_path}/{LOG} is no directory of rows.*{MARKER}.*letters"):
        RowsDirectory(str(tmp_path), LOG).open()
    assert os.listdir(tmp_path / LOG) == ["letters"]
    directory = RowsDirectory(str(tmp_path), OTHER)
    directory.open()
    directory.close()
    (tmp_path / OTHER).rename(tmp_path / "moved")
    (tmp_path / LOG / "letters").unlink()
    (tmp_path / LOG).rmdir()
    (tmp_path / "moved").rename(tmp_path / LOG)
    with pytest.raises(RowsForeign, match=f"{OTHER}.*not that these are rows of the log {LOG}.*remove {tmp_path}"):
        RowsDirectory(str(tmp_path), LOG).open()
    assert (tmp_path / LOG / ROWS / "CURRENT").exists()


@pytest.mark.parametrize("harm", ["no manifest", "flipped"])
def test_damaged_rows_are_made_again(tmp_path, harm):
    """They are all in the log."""
    directory = RowsDirectory(str(tmp_path), LOG)
    directory.open().write([(b"d", b"1")])
    directory.close()
    place = tmp_path / LOG / ROWS
    if harm == "no manifest":
        (place / "CURRENT").write_text("nothing\n")
    else:
        (manifest,) = place.glob("MANIFEST-*")
        data = bytearray(manifest.read_bytes())
        data[9] ^= 4
        manifest.write_bytes(data)
    assert directory.open().get(b"d") is None
    directory.close()


def test_a_directory_that_can_not_be_made_is_named(tmp_path):
    """A file stands where it would be."""
    (tmp_path / "derived").write_text("")
    with pytest.raises(MessageError, match=f"can't be used: {tmp_path}/derived"):
        RowsDirectory(str(tmp_path / "derived"), LOG).open()
