"""
The writes of a storage: adds, fences, explicit LACs, limbo, deletions.

Knows: the order of checks; that an entry is put in the cache before it is queued for the journal.
Does not know: how a journal syncs, when there is room again (`journals`).

All of it belongs to the reactor thread.  Tokens are opaque; they come back by `StorageEvents.durable`.

Safety:
* a fence is durable before its token comes back, also when another request set it a moment ago;
* a ledger that was deleted is not created again by a writer that does not know of the deletion.
"""

from collections.abc import Mapping
from hmac import compare_digest

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.bookie.directory.ledger_directory import LedgerDirectory
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal.format import (
    BLOCK,
    BODIES,
    DELETED,
    EXPLICIT_LAC,
    FENCE,
    FRAMES,
    KEY,
    LIMBO,
    UNJOURNALED,
    join_bodies,
)
from quire.bookie.journal.writer import Journal
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.contents import COPY_ONLY, FRAME_EXTRA, UNSET_KEY, Contents
from quire.bookie.storage.journals import Journals, Pressure
from quire.bookie.storage.ledgers import StoredLedger
from quire.bookie.storage.parts import StorageParts
from quire.bookie.storage.write_cache import ENTRY_OVERHEAD
from quire.protocol.digest import LAC_END, LAC_HEADER, explicit_lac
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun
from quire.rows.files import StorageError

# SPDX-License-Identifier: Apache-2.0

pack_block = BLOCK.pack


class Writes:
    def __init__(
        self,
        parts: StorageParts,
        contents: Contents,
        journals: Journals,
        checkpoints: Checkpoints,
        pressure: Pressure,
        *,
        journaled: bool,
    ) -> None:
        """`journaled`: entries go to the journal, not into memory alone."""
        self._contents = contents
        self._insert = contents.insert  # bound once, as what follows: an add takes no call that it can do without
        self._ledgers = parts.ledgers
        self._cache = parts.cache
        self._directories = parts.directories
        self._failed_numbers = parts.directories.failed_numbers
        self._journals = journals
        self._all_journals = journals.all
        self._checkpoints = checkpoints
        self._pressure = pressure
        self._counters = parts.counters
        self._journaled = journaled
        self._limbo_ends: dict[int, Deferred[None]] = {}  # by ledger: fires when the end of its limbo is durable

    def add(self, run: AddRun, token: object) -> Status | None:
        """
        EOK: taken, `token` comes back by `durable` after the sync.  None: no room now, nothing was taken, try again
        after `relieved`; what recovers ledgers has a reserve.
        Otherwise refused: EUA for a wrong key, EREADONLY for a ledger in limbo or a full disk, EFENCED, EBADREQ for
        bodies under 24 bytes.
        """
        ledger = run.ledger
        if self._failed_numbers and self._directories.has_failed(ledger):
            return Status.EREADONLY
        state = self._ledgers.states.get(ledger) or self._ledgers.get(ledger)
        if (
            state is not None
            and not compare_digest(state.key, run.master_key)
            and not self._adopt_key(state, run.master_key)
        ):
            return Status.EUA
        if not run.recovery and state is not None:
            if state.limbo:
                return Status.EREADONLY
            if state.fenced:
                return Status.EFENCED
        pressure, journals = self._pressure, self._all_journals
        if (
            self._journals.fault is not None
            or pressure.closing
            or (pressure.read_only is not None and not (pressure.blocked is None and (run.recovery or run.priority)))
        ):
            return Status.EREADONLY
        journal = journals[ledger % len(journals)]
        cache = self._cache
        if (cache.full or journal.full) and not self._may_use_reserve(run, journal):
            self._pressure.refuse(journal)
            return None
        bodies = run.bodies
        count = len(bodies)
        if not count or len(bodies[-1]) < LAC_END:
            return Status.EBADREQ
        if state is None:
            if self._contents.refuses(ledger):
                return Status.ENOLEDGER if run.recovery else Status.EFENCED
            state = self._contents.create(ledger, run.master_key)
        frames = run.frames
        if not self._journaled:
            self._add_unjournaled(state, run, journal, token)
            size = sum(map(len, bodies))
        elif frames is not None:
            size = len(frames)
            state.key_logged = True
            self._insert(state, run.first, bodies, size + FRAME_EXTRA * count)
            journal.append((pack_block(FRAMES, count, ledger, size), frames), size + BLOCK.size, token, entries=count)
        else:
            if not state.key_logged:
                self._log_key(state, journal)
            joined = join_bodies(bodies)
            size = len(joined)
            self._insert(state, run.first, bodies, size + ENTRY_OVERHEAD * count)
            journal.append((pack_block(BODIES, count, ledger, size), joined), size + BLOCK.size, token, entries=count)
        counters = self._counters
        counters.batches += 1
        counters.adds += count
        counters.add_bytes += size
        if run.recovery:
            counters.recovery_adds += count
        if self._cache.full:
            self._pressure.checkpoint_soon()
        return Status.EOK

    def _may_use_reserve(self, run: AddRun, journal: Journal) -> bool:
        """True if a run recovers or repairs a ledger, and the reserve is not used up, too."""
        return bool(run.recovery or run.priority) and not (self._cache.reserve_full or journal.reserve_full)

    def _add_unjournaled(self, state: StoredLedger, run: AddRun, journal: Journal, token: object) -> None:
        """
        Into memory only; the first such add after each checkpoint puts a note into the journal, synced before the token
        comes back: after a start that finds the note, the ledger may have lost entries.
        """
        if not state.key_logged:
            self._log_key(state, journal)
        self._insert(state, run.first, run.bodies, sum(map(len, run.bodies)) + ENTRY_OVERHEAD * len(run.bodies))
        if state.unjournaled == self._ledgers.checkpoint:
            journal.append((), 0, token, entries=len(run.bodies))  # behind the note, if that is still on its way
        else:
            state.unjournaled = self._ledgers.checkpoint
            note = (pack_block(UNJOURNALED, 0, state.id, 0),)
            journal.append(note, BLOCK.size, token, entries=len(run.bodies))

    def _adopt_key(self, state: StoredLedger, key: bytes) -> bool:
        """Takes the first key given to a ledger that has none yet, as after a check or a rebuilt table."""
        if state.key not in (b"", UNSET_KEY):
            return False
        state.key = key
        state.key_logged = False
        self._ledgers.dirty[state.id] = state
        self._log_key(state, self._journals.of(state.id))
        return True

    def _log_key(self, state: StoredLedger, journal: Journal) -> None:
        journal.append((pack_block(KEY, 0, state.id, len(state.key)), state.key), BLOCK.size + len(state.key))
        state.key_logged = True

    def _open_with_key(self, ledger: int, key: bytes) -> StoredLedger | None:
        """The ledger, made if it is unknown, its key in the journal; None when the key is wrong."""
        state = self._ledgers.get(ledger)
        if state is None:
            state = self._contents.create(ledger, key)
        elif not compare_digest(state.key, key) and not self._adopt_key(state, key):
            return None
        if not state.key_logged:
            self._log_key(state, self._journals.of(ledger))
        state.moment = self._ledgers.moment
        return state

    def _is_gone(self, ledger: int) -> bool:
        """True if the ledger was deleted here so recently that it may not be created again."""
        return self._ledgers.get(ledger) is None and self._contents.refuses(ledger)

    def fence(self, ledger: int, master_key: bytes, token: object) -> Status:
        """EOK: plain adds are refused; `token` comes back once that is durable.  Makes the ledger.  EUA: wrong key."""
        if self._journals.fault is not None:
            return Status.EIO
        if self._directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        # Also one that was deleted here: recovery counts "no such ledger" as fenced, and deletions are remembered in
        # memory only, for a limited time.
        state = self._open_with_key(ledger, master_key)
        if state is None:
            return Status.EUA
        journal = self._journals.of(ledger)
        if not state.fenced:
            state.fenced = True
            self._ledgers.dirty[ledger] = state
            self._counters.fences += 1
            journal.append((pack_block(FENCE, 0, ledger, 0),), BLOCK.size, token, state.fence_synced)
            state.wake()
        elif state.fence_durable:
            self._journals.give_back(token)
        else:
            journal.append((), 0, token)  # behind the fence that is on its way
        return Status.EOK

    def write_lac(self, ledger: int, master_key: bytes, body: bytes, token: object) -> Status | None:
        """
        Stores an explicit LAC as it is; EOK: `token` comes back once it is durable.  None: no room now, nothing was
        taken, try again after `relieved`.  EUA: wrong key; EBADREQ: under 16 bytes.
        """
        if self._journals.fault is not None:
            return Status.EIO
        if self._directories.has_failed(ledger):
            return Status.EREADONLY
        if len(body) < LAC_HEADER.size:
            return Status.EBADREQ
        if self._is_gone(ledger):
            return Status.ENOLEDGER
        journal = self._journals.of(ledger)
        if journal.full:
            self._pressure.refuse(journal)
            return None
        state = self._open_with_key(ledger, master_key)
        if state is None:
            return Status.EUA
        journal.append((pack_block(EXPLICIT_LAC, 0, ledger, len(body)), body), BLOCK.size + len(body), token)
        self._contents.keep_explicit_lac(state, body)
        state.wake()
        return Status.EOK

    def hint_lac(self, ledger: int, master_key: bytes, body: bytes) -> Status:
        """
        Keeps an explicit LAC for readers that wait, if it is news, and not durably: the next add carries it too.
        EOK; ENOLEDGER; EUA: wrong key; EBADREQ: under 16 bytes.
        """
        if len(body) < LAC_HEADER.size:
            return Status.EBADREQ
        state = self._ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        if not compare_digest(state.key, master_key):
            return Status.EUA
        if explicit_lac(body) > state.lac:
            self._contents.keep_explicit_lac(state, body)
            state.wake()
        return Status.EOK

    def force(self, ledger: int, token: object) -> Status:
        """
        EOK: `token` comes back after a sync that covers every add of the ledger that was acknowledged before, or is
        refused.  EUNKNOWNLEDGERSTATE: its directory has failed.  EIO: nothing is synced any more.
        """
        if self._journals.fault is not None or (not self._journaled and self._checkpoints.failure is not None):
            return Status.EIO
        if self._directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        if self._journaled:
            self._journals.of(ledger).force(token)
        else:
            self._checkpoints.run().addBoth(self._forced, self._directories.of(ledger), token)
        return Status.EOK

    def _forced(self, failure: Failure | None, directory: LedgerDirectory, token: object) -> None:
        """A checkpoint was made, or failed; `Pressure` logs why."""
        if failure is not None:
            self._journals.refuse(token, failure.value)
        elif directory.failed is not None:  # in it, and the adds were in memory only
            self._journals.refuse(token, StorageError(directory.failed))
        else:
            self._journals.give_back(token)

    def set_limbo(self, ledger: int, limbo: bool, token: object | None = None) -> Status:
        """Turns limbo of a known ledger on or off, durably; ENOLEDGER for an unknown one."""
        state = self._ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        if self._directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        if not state.key_logged:
            self._log_key(state, self._journals.of(ledger))
        state.limbo = limbo
        self._ledgers.dirty[ledger] = state
        block = pack_block(LIMBO, 0, ledger, 1), b"\1" if limbo else b"\0"
        synced = None
        if not limbo:
            over, synced = self._journals.awaited()
            self._limbo_ends[ledger] = over
            over.addCallback(self._limbo_ended, ledger, over)
        self._journals.of(ledger).append(block, BLOCK.size + 1, token, synced)
        return Status.EOK

    def _limbo_ended(self, _: None, ledger: int, over: "Deferred[None]") -> None:
        if self._limbo_ends.get(ledger) is over:
            del self._limbo_ends[ledger]

    async def mark_limbo(self, rows: Mapping[int, LedgerRow]) -> None:
        """Puts ledgers in limbo and fences them, as rows say, made if unknown; durable.  `StorageError`, `OSError`."""
        states = []
        for ledger, row in rows.items():
            state = self._ledgers.get(ledger)
            if state is None:
                state = self._contents.create_from_journal(ledger, row.key)
            elif state.key in (b"", UNSET_KEY):
                state.key = row.key
            state.limbo = state.limbo or row.limbo
            state.fenced = state.fenced or row.fenced
            self._ledgers.dirty[ledger] = state
            states.append(state)
        for ending in [self._limbo_ends[ledger] for ledger in rows if ledger in self._limbo_ends]:
            await ending  # a block that is synced after the checkpoint began would be replayed over it
        if self._journals.fault is not None:
            raise StorageError(self._journals.fault)
        stored = [state for state in states if state.fenced]  # a fence that comes meanwhile waits for the journal
        await self._checkpoints.run()
        for state in stored:
            state.fence_durable = True

    def delete_ledger(self, ledger: int, remembered: bool = True) -> None:
        """Forgets the ledger, if known; its bytes go with their log.  `remembered`: writes are refused for a while."""
        if self._ledgers.get(ledger) is None:
            return
        kept = b"" if remembered else COPY_ONLY
        self._journals.of(ledger).append((pack_block(DELETED, 0, ledger, len(kept)), kept), BLOCK.size + len(kept))
        state = self._contents.drop(ledger, remembered)
        if state is not None:
            state.wake()

    def drop_copy(self, ledger: int) -> None:
        """
        Forgets the entries of a closed ledger that lives on elsewhere; it may be copied here again.  It stays fenced: a
        writer that slept while others closed the ledger and replaced this bookie still counts it as one of its own.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            return
        self._contents.drop(ledger, remembered=False)
        left = self._contents.create(ledger, state.key)
        left.fenced = left.key_logged = True
        blocks = (
            *(pack_block(DELETED, 0, ledger, len(COPY_ONLY)), COPY_ONLY),
            *(pack_block(KEY, 0, ledger, len(state.key)), state.key),
            pack_block(FENCE, 0, ledger, 0),
        )
        # of one group: all or nothing
        self._journals.of(ledger).append(blocks, sum(map(len, blocks)), None, left.fence_synced)
        state.wake()
