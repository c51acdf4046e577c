"""
Where each file of a bookie is.  Every configured directory keeps its data in `current/`; the index
directory of a ledger directory is the ledger directory itself unless another one is configured.

    <journal directory>/current/
        VERSION                     cookie, the same in every directory (`lifecycle/cookie`)
        quire.place                 which directory of the bookie this is (`lifecycle/cookie`)
        quire.lock                  locked while a bookie or a command uses the directory
        <position>.qj, spare-<n>.qj segments of the journal (`journal/format`)
        quire.extent                which segment is the newest (`journal/extent`)
        <id>.txn                    Apache's journal, before it is taken over (`apache/journal`)
    <ledger directory>/current/
        VERSION, quire.place, quire.lock
        <id>.log, lastId            entry logs (`logs/format`)
        quire.mark                  where the next replay begins (`journal/mark`)
        quire.lost                  ledger directories that failed (`directory/notes`)
        quire.doubted               ledgers that Apache's index may lack entries of (`directory/notes`)
        quire.limbo                 some ledgers are in limbo (`directory/notes`)
        quire.restoring             the directory is being restored (`directory/notes`)
        DIRTY                       a bookie runs here (`directory/notes`)
        quire.store                 how far the metadata store had come (`upkeep/store_notes`)
        BOOKIE_STATUS               whether an operator made it read-only (`lifecycle/kept_status`)
        quire.export                state of Apache's journals at an export (`apache/takeover`)
        lastMark                    Apache's mark, or the guard against it (`apache/journal`)
    <index directory>/current/
        VERSION, quire.place
        runs/ or runs.2/            our index, RocksDB (`index/run`)
        quire.index                 which of the two it is (`index/sequences`)
        ledgers/                    ledger table, RocksDB (`index/ledger_table`)
        quire.rows                  numbers of the last writes in both (`index/sequences`)
        locations/                  Apache's index, RocksDB (`apache/index`)
        <byte>/<byte>/<ledger>.idx  Apache's index, a file for each ledger (`apache/idx_files`)
        quire.apache                which index of Apache's is in use (`apache/takeover`)

Knows: names, and which directories belong together.  Does not know: what is in the files, or
whether they exist.  Names of numbered files are in the modules that define their formats.
"""

import os
from collections.abc import Collection
from typing import NamedTuple

from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0

COOKIE = "VERSION"
ROLE = "quire.place"
LOCK = "quire.lock"
EXTENT = "quire.extent"
MARK = "quire.mark"
LOST = "quire.lost"
DOUBTED = "quire.doubted"
LIMBO = "quire.limbo"
RESTORING = "quire.restoring"
DIRTY = "DIRTY"
STORE = "quire.store"
STATUS = "BOOKIE_STATUS"
EXPORT = "quire.export"
RUNS, SECOND_RUNS = "runs", "runs.2"
SLOT = "quire.index"
LEDGERS = "ledgers"
SEQUENCES = "quire.rows"
LOCATIONS = "locations"
APACHE_KIND = "quire.apache"
OPEN_LOGS_MAX = 64  # entry logs of a ledger directory that are kept open for reading, where there are descriptors


class Pair(NamedTuple):
    """A ledger directory and its index directory, as they are configured."""

    ledger_directory: str
    index_directory: str

    @property
    def logs(self) -> str:
        """The directory of the entry logs."""
        return current(self.ledger_directory)

    @property
    def rows(self) -> str:
        """The directory of the index and the ledger table."""
        return current(self.index_directory)


def current(directory: str, *names: str) -> str:
    """The path of the data of a configured directory, or of a file in it."""
    return os.path.join(directory, "current", *names)


def pairs(options: BookieOptions) -> list[Pair]:
    """Each ledger directory with its index directory, in the configured order."""
    indexes = options.index_directories or options.ledger_directories
    return [Pair(*both) for both in zip(options.ledger_directories, indexes, strict=True)]


def directories(options: BookieOptions) -> list[str]:
    """All configured directories, each once."""
    return list(dict.fromkeys((*options.journal_directories, *options.ledger_directories, *options.index_directories)))


def with_indexes(options: BookieOptions, ledger_directories: Collection[str]) -> set[str]:
    """Adds to ledger directories their index directories."""
    return {path for pair in pairs(options) if pair.ledger_directory in ledger_directories for path in pair}


def share_of(ledger: int, count: int) -> int:
    """The number of a ledger's directory, of `count`.  What runs for each add or read has `ledger % count` instead."""
    return ledger % count
