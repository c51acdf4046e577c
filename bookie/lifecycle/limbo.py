"""
The ledgers of one bookie that may lack entries here, from the start that finds them until they were copied.

A start finds them where disks were lost or are back, where the index that Apache left does not have what its entry logs
have, and where a bookie that does not sync went down with its machine;
while a bookie serves they come from an index that is rebuilt.  The notes of the ledger directories say for the next
start that there are some, and whether this run ended cleanly.

Knows: when ledgers enter limbo, and what is noted of that.  Does not know: which ledgers a loss concerns (`suspects`),
how a storage keeps limbo, how copies are made.

Safety: the note that there are ledgers in limbo is durable before any of them is marked, and goes only when none is
left.  Nothing is marked by a metadata store that is behind what was seen of it: it may not know all of them.
"""

from collections.abc import Callable, Mapping, Sequence

from twisted.logger import Logger

from quire.bookie.directory import notes
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.lifecycle.ids import BookieFailed
from quire.bookie.lifecycle.suspects import Lost, Suspects
from quire.bookie.server.copies import Copies
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.store_guard import StoreGuard
from quire.conf.bookie import BookieOptions
from quire.rows.files import Files

# SPDX-License-Identifier: Apache-2.0


class Limbo:
    """All of it belongs to the reactor thread."""

    log = Logger()

    def __init__(
        self,
        files: Files,
        options: BookieOptions,
        bookie: str,
        storage: Storage,
        suspects: Suspects,
        guard: StoreGuard,
        copies: Copies,
    ) -> None:
        self._files = files
        self._options = options
        self._bookie = bookie
        self._storage = storage
        self._suspects = suspects
        self._guard = guard
        self._copies = copies
        self.grew: Callable[[], None] = lambda: None  # when ledgers enter limbo that can be copied now
        self._running_noted = False

    @property
    def living(self) -> BookieOptions:
        """The options without the ledger directories that have failed: notes are kept in the others."""
        failed = self._storage.failed_directories
        return self._options.model_copy(
            update={
                "ledger_directories": tuple(path for path in self._options.ledger_directories if path not in failed)
            }
        )

    @property
    def incomplete(self) -> bool:
        """True if some ledgers are in limbo, so that what they lack should be copied, by `Copies`."""
        return notes.noted_limbo(self._files, self.living) is not None

    @property
    def copying(self) -> bool:
        """True if some ledger in limbo was never compared with other bookies."""
        return notes.noted_limbo(self._files, self.living) == notes.COPYING

    # -- at a start and a stop

    def note_replayed(self) -> None:
        """Notes what the journal says of limbo, before a checkpoint takes it out of the journal."""
        if self._storage.replay_found_limbo and not self.incomplete:
            notes.note_limbo(self._files, self.living, notes.COPYING)

    async def find(self, lost: Sequence[str]) -> None:
        """
        Marks what may be lacking after a start; `lost`: directories that are being restored.  `BookieFailed` where the
        metadata store can't say of which ledgers; `LedgerError`, `StorageError`, `OSError`.
        """
        stale, doubted = self._storage.stale, self._storage.doubted
        # first, for then it is not only what is on the lost disks
        if notes.unclean(self._files, self.living, self._files.boot_id(), stale):
            self.log.warn(
                "{bookie} does not sync its journal and the machine went down: its ledgers are marked as incomplete",
                bookie=self._bookie,
            )
            await self._mark(Lost.all_of(self._options))
        elif lost or stale or doubted:
            await self._mark(Lost.of(self._options, [*lost, *stale], doubted))

    async def _mark(self, lost: Lost) -> None:
        """Puts in limbo what the bookie may have lost, durably."""
        self._check_store_knows_all()
        marked = 0
        async for rows in self._suspects(lost):
            here = sum(row.limbo for row in rows.values())
            if here and not marked:
                notes.note_limbo(self._files, self.living, notes.COPYING)
            await self._storage.mark_limbo(rows)
            marked += here
        await self._guard.look()
        self._check_store_knows_all()
        await self._storage.mark_limbo({})  # writes the marks of the directories also where there was nothing to mark
        (self.log.warn if marked else self.log.info)(
            "{bookie}: {count} ledgers may lack entries here; it says of them what it has, and never that there is "
            "no more",
            bookie=self._bookie,
            count=marked,
        )

    def _check_store_knows_all(self) -> None:
        if (reason := self._guard.behind) is not None:
            raise BookieFailed(
                f"{self._bookie} may have lost entries, and can't learn from the metadata store of which ledgers: "
                f"{reason}"
            )

    def note_running(self) -> None:
        """From now on an end of the machine may lose what is not synced.  Reads the ledger tables where it must."""
        if self.incomplete:
            self._copies.limbo()  # read once here, so that asking how many there are is cheap later
        else:
            self._copies.whole()
        notes.note_running(self._files, self.living, self._files.boot_id())
        self._running_noted = True

    def note_stopped(self, living: BookieOptions) -> None:
        """The storage was closed cleanly; `living` as it was before."""
        if self._running_noted:
            notes.note_running(self._files, living, None)

    # -- while the bookie serves

    async def mark_incomplete(self, rows: Mapping[int, LedgerRow]) -> None:
        """Ledgers may lack something here that was here before."""
        # at once: neither may `copied` say in between that none is left, nor may the limbo of one end
        self._copies.add(rows)
        if not self.copying:
            notes.note_limbo(self._files, self.living, notes.COPYING)
        await self._storage.mark_limbo(rows)
        self.log.warn("{bookie}: {count} ledgers may lack entries here now", bookie=self._bookie, count=len(rows))

    def ready_to_copy(self) -> None:
        """Lets ledgers that are in limbo now be compared with other bookies."""
        self._copies.decided()
        self.grew()

    def copied(self) -> None:
        """Notes that every ledger in limbo was looked at once; the rest wait for writer or bookie.  `OSError`."""
        state = notes.WAITING if self._copies.limbo() else None
        if notes.noted_limbo(self._files, self.living) != state:  # it is said every half minute while one waits
            notes.note_limbo(self._files, self.living, state)
