"""Files on their way: they have their name when they are whole, and holes where nothing was written."""

import pytest

from quire.messages.rocketmq import part
from quire.messages.rocketmq.part import PART, Part
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0


class Full(Files):
    """No write is taken."""

    def pwritev(self, handle, buffers, offset):
        raise OSError(28, "No space left on device")


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    """Writes are gathered; what lies between them is a hole; an older part goes."""
    path = tmp_path / "a" / "f"
    path.parent.mkdir()
    path.with_name(f"f{PART}").write_bytes(b"older" * 100_000)
    made = Part(Files(), str(path))
    made.write(0, b"one")
    made.write(3, b"two")
    made.write(8 << 20, b"x")
    made.sync(16 << 20)
    assert not path.exists()
    made.rename()
    assert path.read_bytes() == b"onetwo" + bytes((8 << 20) - 6) + b"x" + bytes((8 << 20) - 1)
    assert path.stat().st_blocks * 512 < 1 << 20
    assert not path.with_name(f"f{PART}").exists()


def test_long_files_are_written_as_they_come(tmp_path, monkeypatch):
    """No more than a limit is gathered."""
    monkeypatch.setattr(part, "WRITE_BYTES", 10)
    made = Part(Files(), str(tmp_path / "f"))
    for at in range(0, 100, 5):
        made.write(at, b"12345")
    assert (tmp_path / f"f{PART}").stat().st_size >= 80
    made.close()
    made.close()


def test_a_write_that_fails_names_the_file(tmp_path):
    """The text of the error has the path, for a write knows a number only."""
    made = Part(Full(), str(tmp_path / "f"))
    made.write(0, b"x")
    with pytest.raises(OSError, match=f"f{PART}"):
        made.sync(10)
    made.close()
