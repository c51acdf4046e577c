"""Groups put together in one piece of memory."""

import os
from pathlib import Path

from quire.bookie.journal.format import (
    ALIGNMENT,
    FIRST_BYTES,
    FOOT_BYTES,
    GROUP,
    Position,
    Staging,
    group_header,
    whole,
)
from quire.rows.files import Files

SALT = 77


def staged(staging: Staging, blocks: list[bytes], sequence: int = 1, start: int = 0) -> memoryview:
    return staging.group(blocks, GROUP.size + sum(map(len, blocks)), Position(sequence, start), SALT)


def test_a_group_is_its_header_its_blocks_and_zeros_to_the_sector() -> None:
    """What it holds does not depend on how the blocks are cut, nor on the group before it."""
    staging = Staging()
    staged(staging, [b"\xff" * 5000])
    found = bytes(staged(staging, [b"ab", b"", b"cde" * 200], 2, 5120))
    length = GROUP.size + 602
    assert len(found) == 2 * ALIGNMENT
    joined = b"ab" + b"cde" * 200
    assert found[:length] == group_header(length, Position(2, 5120), SALT, [joined]) + joined
    assert found[length:] == bytes(len(found) - length)


def test_a_group_larger_than_the_memory_gets_more_of_it() -> None:
    """An empty one fits as well."""
    staging = Staging()
    large = os.urandom(2 * FIRST_BYTES)
    assert staged(staging, [large, b"end"])[GROUP.size : GROUP.size + len(large) + 3] == large + b"end"
    assert len(staged(staging, [])) == ALIGNMENT


def test_a_group_goes_to_a_file_directly(tmp_path: Path) -> None:
    """Past the page cache, where the file system of this machine can do that; it is whole when it is read."""
    files = Files()
    handle = files.open(str(tmp_path / "segment"), create=True)
    files.set_direct(handle)
    group = staged(Staging(), [b"block" * 1000])
    assert files.write_aligned(handle, group, 0) == len(group)
    files.set_direct(handle, False)
    files.write(handle, [bytes(FOOT_BYTES)], len(group))
    assert whole(files.read(handle, files.size(handle), 0), 0, 0, SALT, 1) == GROUP.size + 5000
    files.close(handle)
