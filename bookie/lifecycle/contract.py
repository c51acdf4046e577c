"""
The storage of a bookie and the upkeep beside its requests, and how they are opened; a test may start a bookie with
others.
"""

from collections.abc import Callable
from functools import partial

from quire.bookie.files import Files
from quire.bookie.index.rocks import RocksRows
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import LimboMarker, Upkeep
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor

# SPDX-License-Identifier: Apache-2.0


class BookieFailed(Exception):
    """The bookie can't go on, or could not start.  The text says what to do where anything can be done."""


OpenStorage = Callable[[BookieOptions, Reactor, Files], Storage]
StartUpkeep = Callable[[Storage, Reactor, LimboMarker], Upkeep]


def open_storage(
    options: BookieOptions,
    reactor: Reactor,
    files: Files,
    *,
    tables_open_max: int | None = None,
    logs_open_max: int | None = None,
) -> Storage:
    """Opens the real storage.  `tables_open_max`: files of each RocksDB, `logs_open_max`: logs of a directory."""
    if tables_open_max is None or logs_open_max is None:
        return Storage(options, reactor, files)
    return Storage(
        options,
        reactor,
        files,
        open_rows=partial(RocksRows, files_max=tables_open_max),
        logs_open_max=logs_open_max,
    )


def start_upkeep(storage: Storage, reactor: Reactor, limbo: LimboMarker) -> Upkeep:
    """Starts the upkeep of the real storage, which has started."""
    return Upkeep(storage, reactor, limbo)
