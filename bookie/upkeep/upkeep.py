"""
The work beside the requests of one storage, for hours if need be: passes over the entry logs, and index rebuilds.

Knows: that the two share a pace and stop together, before the storage closes.  Does not know: when they run.
"""

from twisted.internet.defer import Deferred

from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import IndexRebuild, LimboMarker
from quire.bookie.upkeep.space import Pace, Space
from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0


class Upkeep:
    """Takes a storage that has started."""

    def __init__(self, storage: Storage, clock: Clock, limbo: LimboMarker) -> None:
        options = storage.options
        pace = Pace(clock, options.compaction_entries_per_second, options.compaction_bytes_per_second)
        self.space = Space(storage, clock, pace)
        self.rebuild = IndexRebuild(storage, clock, pace, self.space, limbo)

    async def stop(self) -> None:
        """Ends passes and rebuilds at their next step; they do not start again.  Whatever waits for them goes on."""
        # each may wait for the other to end
        ends = [Deferred.fromCoroutine(self.rebuild.stop()), Deferred.fromCoroutine(self.space.stop())]
        for end in ends:
            await end
