"""
Orders to empty a bookie that is up: a record for each bookie that takes no new entries until the order is withdrawn.

Knows: where an order is, and that it outlives the process that gave it, and each life of its bookie.
Does not know: who follows it (a bookie of quire's watches its own), how a bookie is emptied.
"""

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote, unquote

from quire.metadata.records import NoRecord, RecordExists, Records
from quire.metadata.store import ANY, Watch, WrongCluster

# SPDX-License-Identifier: Apache-2.0

FOLDER = "bookies/drained"


def path_of(bookie: str) -> str:
    """Returns the path of a bookie's record."""
    return f"{FOLDER}/{quote(bookie, safe='')}"


class DrainOrders:
    """The drain orders of a cluster."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def give(self, bookie: str) -> None:
        """Does nothing when the order stands."""
        await self._records.folder(FOLDER)
        with suppress(RecordExists):
            await self._records.create(path_of(bookie), b"")

    async def withdraw(self, bookie: str) -> bool:
        """Withdraws an order; True if there was one."""
        try:
            await self._records.delete(path_of(bookie), ANY)
        except NoRecord:
            return False
        return True

    async def stands(self, bookie: str) -> bool:
        """True if the bookie is to be emptied; records of a former cluster order nothing."""
        try:
            await self._records.read(path_of(bookie))
        except (NoRecord, WrongCluster):
            return False
        return True

    async def bookies(self) -> set[str]:
        """Lists the bookies that are to be emptied."""
        found: list[str] = []
        with suppress(NoRecord, WrongCluster):
            while page := await self._records.children(FOLDER, found[-1] if found else ""):
                found += page
        return {unquote(name) for name in found}

    def watch(self, bookie: str, fn: Callable[[bool], None]) -> Watch:
        """Calls `fn` with whether the order stands, at once and when that changes."""
        return self._records.watch(path_of(bookie), lambda found: fn(found is not None))
