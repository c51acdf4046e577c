"""
A bookie's file descriptors, divided at the start of its process between files and connections, so that neither takes
what the other needs.

Knows: how many each part of a bookie may have open.  Does not know: who counts them; each part keeps its own bound.
Safety: a part that meets the limit all the same tries again (`NotBegun`); no disk is taken for failed by that.
"""

import resource
from contextlib import suppress
from typing import NamedTuple

from quire.bookie.admin.http import CONNECTIONS_MAX as HTTP_MAX
from quire.bookie.files import StorageError
from quire.bookie.index.rocks import FILES_MAX
from quire.bookie.layout import OPEN_LOGS_MAX
from quire.conf.bookie import BookieOptions

# SPDX-License-Identifier: Apache-2.0

# standard streams, the reactor, ports, metadata, connections of our own to other bookies, connections that just end
RESERVE = 48
PER_JOURNAL = 4  # its lock, the segment that is written, one in the making, the directory
# its lock, logs that are written, synced or compacted, small files that are replaced, what each RocksDB has open
# besides tables
PER_LEDGER_DIRECTORY = 20
STORES = 2  # RocksDBs of a ledger directory
STORE_MIN, LOGS_MIN = 20, 8  # tables open in one RocksDB, which takes no less; logs open for reading
CONNECTIONS_MIN = 32
UNLIMITED = 1 << 20  # files, where the process may have any number of them


class Descriptors(NamedTuple):
    """How many each part may have open."""

    limit: int
    connections: int  # of clients
    store: int  # tables of each RocksDB
    logs: int  # entry logs open for reading, of each ledger directory


def raised() -> int:
    """The limit of the process, its soft one made equal to the hard one where the system lets it be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def divided(limit: int, options: BookieOptions) -> Descriptors:
    """
    Half of what is left for it goes to files, the rest to connections.  `StorageError` when that is too little for a
    bookie with these directories.
    """
    directories = len(options.ledger_directories)
    fixed = RESERVE + HTTP_MAX + PER_JOURNAL * len(options.journal_directories) + PER_LEDGER_DIRECTORY * directories
    files_min, files_max = STORES * STORE_MIN + LOGS_MIN, STORES * FILES_MAX + OPEN_LOGS_MAX
    least = fixed + files_min * directories + CONNECTIONS_MIN
    if limit < least:
        raise StorageError(
            f"this process may have {limit} files open, and a bookie with these directories needs {least}, better "
            f"{fixed + files_max * directories} and as "
            "many as it has connections: raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)"
        )
    files = max(files_min, min(files_max, (limit - fixed) // 2 // directories))
    logs = max(LOGS_MIN, files * OPEN_LOGS_MAX // files_max)
    store = (files - logs) // STORES
    left = limit - fixed - (STORES * store + logs) * directories
    return Descriptors(limit, min(options.connections_max, left), store, logs)
