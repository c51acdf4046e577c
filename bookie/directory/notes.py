"""
Ledger directories that failed while others went on: written down where the others are, before the journal forgets what was meant for them.

File `quire.lost` in the `current/` of every living ledger directory: the paths of the directories that were given up, a line each, and a last line with
the CRC32C of those before it in hex.  At the next
start the ledgers of such a directory are put in limbo, whether the directory is back as it was or an empty one took its place (`restoring`).

Knows: that file.  Does not know: why a directory is given up.
"""

from collections.abc import Iterable, Sequence

from crc32c import crc32c

from quire.bookie.files import Files, StorageError
from quire.bookie.layout import LOST, current

# SPDX-License-Identifier: Apache-2.0


def note(files: Files, living: Iterable[str], lost: Sequence[str]) -> None:
    """`living`, `lost`: paths as they are configured.  Durable on return; `OSError`."""
    text = "".join(f"{path}\n" for path in lost).encode("utf-8", "surrogateescape")
    text += b"%08x\n" % crc32c(text)
    for directory in living:
        files.replace(_path(directory), text)


def noted(files: Files, directories: Sequence[str]) -> list[str]:
    """Those of the configured ledger directories that were given up.  `StorageError` that names a damaged file, `OSError`."""
    found = set().union(*(named(files, directory) for directory in directories))
    return [directory for directory in directories if directory in found]


def named(files: Files, directory: str) -> set[str]:
    """Those that the note in one directory names."""
    text = files.read_file(_path(directory))
    if text is None:
        return set()
    lines, check = text[:-9], text[-9:]
    if check != b"%08x\n" % crc32c(lines):
        raise StorageError(f"{_path(directory)} at offset {len(lines)}: damaged (its checksum is wrong)")
    return set(lines.decode("utf-8", "surrogateescape").splitlines())


def forget(files: Files, directories: Iterable[str]) -> None:
    """Their ledgers are in limbo now, durably."""
    for directory in directories:
        files.unlink(_path(directory))


def _path(directory: str) -> str:
    return current(directory, LOST)
