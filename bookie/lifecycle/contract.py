"""
The storage of a bookie and the upkeep beside its requests, as types; and how the real ones are opened.

Knows: what a bookie asks of both while it starts, runs and stops.  The modules of the real ones are loaded when a
bookie opens them, so that a command that only asks about a bookie does without RocksDB.
"""

from array import array
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, cast

from twisted.internet.defer import Deferred

from quire.bookie.admin.bookie_paths import Reindexing
from quire.bookie.files import Files
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.server.contract import LedgerStorage
from quire.bookie.server.copies import CopyStorage
from quire.bookie.storage.journals import StorageEvents
from quire.bookie.upkeep.garbage import Reclaiming
from quire.bookie.upkeep.rebuild import LimboMarker
from quire.bookie.upkeep.store_guard import GuardedStorage
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0


class BookieFailed(Exception):
    """The bookie can't go on, or could not start.  The text says what to do where anything can be done."""


class OpenableStorage(LedgerStorage, CopyStorage, GuardedStorage, Protocol):
    """A storage as the bookie opens and closes it."""

    counters: Any

    def stored_ledgers(self) -> "Deferred[array[int]]": ...

    def next_moment(self) -> int: ...

    def written_since(self, ledger: int, moment: int) -> bool: ...

    def flush(self) -> Deferred[None]: ...

    @property
    def stale(self) -> list[str]:
        """
        Ledger directories that failed in an earlier run; what they missed must be put in limbo before `caught_up`.
        """
        ...

    @property
    def doubted(self) -> frozenset[int]:
        """Ledgers that may lack entries, unless they were deleted; they must be put in limbo before `caught_up`."""
        ...

    def listen(self, events: StorageEvents) -> None:
        """Once, before `start`."""
        ...

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        """
        Blocks: replays the journal.  `dead`: ledger directories that it must do without, and why.  Raises
        `StorageError`.
        """
        ...

    def caught_up(self) -> None: ...

    def mark_limbo(self, rows: Mapping[int, LedgerRow]) -> Coroutine[Any, Any, None]: ...

    @property
    def replay_found_limbo(self) -> bool: ...

    @property
    def failed_directories(self) -> list[str]:
        """The configured ledger directories that have failed."""
        ...

    def fail_directory(self, path: str, reason: str) -> bool:
        """A ledger directory's disk has failed; False when nothing can go on without it."""
        ...

    def close(self) -> Deferred[None]: ...


class Upkeep(Protocol):
    """The work beside requests; it stops before the storage closes."""

    @property
    def space(self) -> Reclaiming: ...

    @property
    def rebuild(self) -> Reindexing: ...

    def stop(self) -> Coroutine[Any, Any, None]:
        """Ends what a round of garbage collection may wait for."""
        ...


OpenStorage = Callable[[BookieOptions, Reactor, Files], OpenableStorage]
StartUpkeep = Callable[[OpenableStorage, Reactor, LimboMarker], Upkeep]


def open_storage(
    options: BookieOptions,
    reactor: Reactor,
    files: Files,
    *,
    tables_open_max: int | None = None,
    logs_open_max: int | None = None,
) -> OpenableStorage:
    """
    Opens the real storage.  `tables_open_max`: files that each RocksDB may have open; `logs_open_max`: entry logs open
    for reading, of each ledger directory.  Both or none.
    """
    from quire.bookie.index.rocks import RocksRows
    from quire.bookie.storage.storage import Storage

    if tables_open_max is None or logs_open_max is None:
        return Storage(options, reactor, files)
    return Storage(
        options,
        reactor,
        files,
        open_rows=partial(RocksRows, files_max=tables_open_max),
        logs_open_max=logs_open_max,
    )


def start_upkeep(storage: OpenableStorage, reactor: Reactor, limbo: LimboMarker) -> Upkeep:
    """Starts the upkeep of the real storage, which has started."""
    from quire.bookie.storage.storage import Storage
    from quire.bookie.upkeep.rebuild import Upkeep

    return Upkeep(cast("Storage", storage), reactor, limbo)
