"""
What a bookie is put together with, as types: a storage, and what runs beside its requests.

Knows: what is asked of both while a bookie starts, runs and stops.  Does not know: who provides them (`parts`, or the
fakes of a test).
"""

from array import array
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from quire.bookie.admin.index_paths import Reindexing
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.server.contract import LedgerStorage
from quire.bookie.server.copies import CopyStorage
from quire.bookie.storage.journals import StorageEvents
from quire.bookie.upkeep.garbage import Reclaiming
from quire.bookie.upkeep.store_guard import GuardedStorage

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
    """What runs beside requests; it stops before the storage closes."""

    @property
    def space(self) -> Reclaiming: ...

    @property
    def rebuild(self) -> Reindexing: ...

    def stop(self) -> Coroutine[Any, Any, None]:
        """Ends what a round of garbage collection may wait for."""
        ...
