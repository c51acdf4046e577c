"""
The storage and the upkeep of a real bookie; a test may start one with others.

They are loaded when a bookie opens them: what only asks about a bookie does without RocksDB.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from quire.bookie.files import Files
from quire.bookie.lifecycle.contract import OpenableStorage, Upkeep
from quire.bookie.upkeep.rebuild import LimboMarker
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0

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
    `tables_open_max`: files that each RocksDB may have open; `logs_open_max`: entry logs open for reading, of each
    ledger directory.  Both or none.
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
    """That of the real storage, which has started."""
    from quire.bookie.storage.storage import Storage
    from quire.bookie.upkeep.upkeep import Upkeep

    return Upkeep(cast(Storage, storage), reactor, limbo)
