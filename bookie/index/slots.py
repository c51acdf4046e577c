"""
In which directory of an index directory our index is: in one of two, so that another can be made beside it and take its
place in one step.

It is `runs`, unless a file `quire.index` is there, which says "runs.2" and nothing else.

Knows: those names.  Does not know: rows, who makes another index.
Safety: the file changes only when the other index is durable.  What is in the other directory is a copy of it, or was
never finished: it may go.
"""

import os

from quire.bookie.files import Files, StorageError
from quire.bookie.layout import RUNS, SECOND_RUNS, SLOT

# SPDX-License-Identifier: Apache-2.0

TEXT = f"{SECOND_RUNS}\n".encode()


def index_path(files: Files, directory: str) -> str:
    """The index's directory in `directory` (`<dir>/current`).  `StorageError` names a damaged file."""
    path = os.path.join(directory, SLOT)
    text = files.read_file(path)
    if text is None:
        return os.path.join(directory, RUNS)
    if text != TEXT:
        raise StorageError(
            f"{path} at offset 0: damaged ({len(text)} bytes, not {TEXT!r}); run `quire bookie rebuild-index "
            "--conf "
            "FILE`"
        )
    return os.path.join(directory, SECOND_RUNS)


def other_path(files: Files, directory: str) -> str:
    """The directory that the index is not in; whatever is there may go.  As `index_path`."""
    return os.path.join(
        directory, RUNS if index_path(files, directory) == os.path.join(directory, SECOND_RUNS) else SECOND_RUNS
    )


def change(files: Files, directory: str) -> None:
    """Puts the index in the other directory.  Durable on return; `OSError`: in either; `NotBegun`: where it was."""
    if index_path(files, directory) == os.path.join(directory, RUNS):
        files.replace(os.path.join(directory, SLOT), TEXT)
    else:
        files.unlink_durably(os.path.join(directory, SLOT))
