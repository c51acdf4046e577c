"""
What each directory is to its bookie: the journals and the ledger and index directories are numbered in the order of the
configuration.

`quire.place` in the `current/` of every directory, text, a line for each use: `journal 0`, `ledgers 1`, `index 1`.  An
Apache bookie's directories have none.

Knows: this file.  Does not know: cookies, which are the same in all directories, so that they don't show that two of
them were exchanged.
"""

import re
from collections.abc import Collection, Iterable

from quire.bookie.files import Files, error_at
from quire.bookie.layout import ROLE, current, directories
from quire.bookie.lifecycle.ids import IdentityError
from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0


WRITTEN = re.compile(r"((journal|ledgers|index) \d+\n)+")


def role_path(directory: str) -> str:
    return current(directory, ROLE)


def role_of(options: BookieOptions, directory: str) -> str:
    """The text of the file: what a directory is to its bookie."""
    uses = (
        ("journal", options.journal_directories),
        ("ledgers", options.ledger_directories),
        ("index", options.index_directories),
    )
    return "".join(f"{use} {number}\n" for use, paths in uses for number, path in enumerate(paths) if path == directory)


def check_roles(files: Files, options: BookieOptions, without: Collection[str] = ()) -> list[str]:
    """The directories without this file; `IdentityError` where it is damaged, or directories were exchanged."""
    bare = []
    for directory in directories(options):
        if directory in without:
            continue
        try:
            data = files.read_file(role_path(directory))
        except OSError as failure:
            raise IdentityError(error_at(role_path(directory), directory, failure)) from failure
        if data is None:
            bare.append(directory)
            continue
        role, wanted = data.decode("utf-8", "replace"), role_of(options, directory)
        if WRITTEN.fullmatch(role) is None:
            raise IdentityError(
                f"{role_path(directory)} is damaged ({len(data)} bytes; it does not say which of the bookie's "
                f"directories this is, as `{wanted.splitlines()[0]}`).  If no disks were exchanged, `rm "
                f"{role_path(directory)}`: the start writes it again"
            )
        if role != wanted:
            right = next((other for other in directories(options) if role_of(options, other) == role), None)
            step = "Name" if right is None else f"Mount the disk at {right}, as before, or name"
            raise IdentityError(
                f"{directory} was {named(role)} of this bookie and is configured as {named(wanted)}: directories were "
                f"exchanged.  {step} the directories in the configuration in their old order"
            )
    return bare


def named(role: str) -> str:
    """A role as people read it."""
    return " and ".join(role.split("\n")).removesuffix(" and ") or "nothing"


def note_roles(files: Files, options: BookieOptions, bare: Iterable[str]) -> None:
    """Writes the file in the directories without it."""
    for directory in bare:
        try:
            files.replace(role_path(directory), role_of(options, directory).encode())
        except OSError as failure:
            raise IdentityError(error_at(role_path(directory), directory, failure)) from failure
