"""What is kept of an operator's word: in Apache's file and form, the latest of several directories."""

from pathlib import Path

import pytest

from quire.bookie.lifecycle.kept_status import KeptStatus, keep, kept, latest
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0


def directories(path: Path, *lines: bytes | None) -> list[str]:
    """Ledger directories with these files; None: one without."""
    made = []
    for number, line in enumerate(lines):
        directory = path / f"l{number}" / "current"
        directory.mkdir(parents=True)
        if line is not None:
            (directory / "BOOKIE_STATUS").write_bytes(line)
        made.append(str(directory.parent))
    return made


@pytest.mark.parametrize(
    ("lines", "read_only"),
    [
        ([None], False),
        ([b"1,READ_ONLY,5,true"], True),
        ([b"1,READ_ONLY,5"], True),
        ([b"1,READ_ONLY,5,false\n"], False),
        ([b"1,READ_ONLY,5,true", b"1,READ_WRITE,6,false"], False),
        ([b"1,READ_ONLY,7,true", b"1,READ_WRITE,6,false", None], True),
        ([b"2,READ_ONLY,7,true", b"1,READ_WRITE,6,false"], False),
        ([b"", b"\xff", b"1,OFF,7,true", b"1,READ_ONLY,x", b"1,READ_ONLY,7,true,1"], False),
    ],
)
def test_what_apaches_files_say(tmp_path: Path, lines: list[bytes | None], read_only: bool) -> None:
    """By an operator, not by a full disk; what can't be understood is passed over."""
    assert kept(Files(), directories(tmp_path, *lines)) is read_only


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Later than what is there, whatever the clock says; a directory that is gone keeps no other from having it."""
    late = 1 << 60
    places = [*directories(tmp_path, b"1,READ_ONLY,%d,true" % late, None), str(tmp_path / "gone")]
    keep(Files(), places, False)
    assert latest(Files(), places) == KeptStatus(late + 1, False, False)
    assert Path(places[1], "current", "BOOKIE_STATUS").read_bytes() == b"1,READ_WRITE,%d,false" % (late + 1)
    keep(Files(), places, True)
    assert kept(Files(), places)
    assert not (tmp_path / "gone").exists()
