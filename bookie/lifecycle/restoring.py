"""
A bookie that lost disks: what is prepared on the empty ones before its storage opens, and what ends their restore.

Order (storage-order.md 6): the metadata store has their new incarnation (D19), beside the one of those that are left;
the lost directories are noted as being restored; the storage opens on them; every ledger that the metadata
gives this bookie, and that was on them, is put in limbo, durably (`limbo`); only then do all get their cookies, and
only then a port opens.  What is in limbo is copied from other bookies afterwards (`server/copies`,
and `replication/own_copies/refilling.py` beside it).

Knows: the first and the last step.  Does not know: which ledgers are concerned, how copies are made.
"""

from collections.abc import Collection, Sequence

from quire.bookie.directory import notes
from quire.bookie.files import Files
from quire.bookie.journal.mark import read_mark
from quire.bookie.journal.segments import empty_journal
from quire.bookie.layout import current, with_indexes
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.start_check import stamp
from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0


def begin(files: Files, options: BookieOptions, directories: Sequence[str]) -> None:
    """
    Notes the directories as being restored.  A lost journal begins where the marks are that the start will use; a lost
    ledger directory has one, too, where an earlier restore was interrupted.  `OSError`, `StorageError`.
    """
    for directory in directories:
        notes.note_restoring(files, directory)
    stale = notes.noted_failed(files, options.ledger_directories)  # their marks are older, and a start ignores them
    marks = [read_mark(files, current(path)) for path in options.ledger_directories if path not in stale]
    for number, directory in enumerate(options.journal_directories):
        if directory in directories:
            begun = [mark[number] for mark in marks if mark is not None and number < len(mark)]
            empty_journal(files, current(directory), min(begun, default=None))


def end(
    files: Files,
    options: BookieOptions,
    cookie: Cookie,
    directories: Sequence[str],
    failed: Collection[str],
) -> None:
    """
    Their ledgers are in limbo: all directories get the cookie, except those that `failed` meanwhile, which stay noted.
    `IdentityError`, `OSError`.
    """
    stamp(files, options, cookie, with_indexes(options, failed))
    notes.forget_restoring(files, [path for path in directories if path not in failed])
