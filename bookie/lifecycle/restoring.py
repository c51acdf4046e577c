"""
A bookie that lost disks: what is prepared on the empty ones before its storage opens, and what ends their restore.

Order (storage-order.md 6): the metadata store has their new incarnation (D19), beside the one of those that are left;
the lost directories are noted as being restored; the storage opens on them; every ledger that the metadata
gives this bookie, and that was on them, is put in limbo, durably (`limbo`); only then do all get their cookies, and
only then a port opens.  What is in limbo is copied from other bookies afterwards (`server/copies`,
and `replication/own_copies.py` beside it).

Knows: the first and the last step, and that nobody may be listed under the id before.
Does not know: which ledgers are concerned, how copies are made.
"""

from collections.abc import Collection, Sequence

from twisted.logger import Logger

from quire.bookie.directory import notes
from quire.bookie.journal.mark import read_mark
from quire.bookie.journal.segments import empty_journal
from quire.bookie.layout import current, with_indexes
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.bookie.lifecycle.start_check import stamp
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock, pause
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0

log = Logger()

SESSIONS_AWAITED = 2  # the server may notice late that one is over
LISTED_LOOK_S = 0.5  # between two looks at the list


async def check_unlisted(clock: Clock, store: MetadataStore, options: BookieOptions, bookie: str) -> None:
    """
    Returns when no bookie serves under the id that is to be restored.  One that was killed is listed until its session
    is over, and is waited for; one that was listed and is no more is looked for again a session later, since a bookie
    that lost its session registers again.  Raises `IdentityError` when one is listed for longer, and what the store
    says.
    """
    session = options.session_timeout_ms / 1000
    seconds = session * SESSIONS_AWAITED
    deadline = clock.seconds() + seconds
    waits = gone = False
    while True:
        if (await store.bookies()).find(bookie) is None:
            if not waits or gone:
                return
            gone = True
            await pause(clock, session)
            continue
        if gone or clock.seconds() >= deadline:
            longer = f"and was so for {seconds:.0f} s, longer than the session of one that was killed"
            how_long = "again, after its session was over" if gone else longer
            raise IdentityError(
                f"{bookie} is listed, {how_long}: its directories are in use, on another machine perhaps; nothing was "
                "changed.  Stop it first, or give this one another bookieId"
            )
        if not waits:
            log.info(
                "{bookie} is listed: if it was killed, its session ends by itself, which is waited for up to {seconds} "
                "s; if it serves, on another machine perhaps, stop it, or give this one another bookieId",
                bookie=bookie,
                seconds=round(seconds),
            )
        waits = True
        await pause(clock, LISTED_LOOK_S)


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
    """Gives all directories the cookie once ledgers are in limbo, but those `failed`.  `IdentityError`, `OSError`."""
    stamp(files, options, cookie, with_indexes(options, failed))
    notes.forget_restoring(files, [path for path in directories if path not in failed])
