"""
The storage of one bookie: what the request service talks to.

Knows: the order of checks, that an entry is put in the cache before it is queued for the journal, where a read looks first, what happens at
start and stop.
Does not know: connections, frames, metadata.

All methods belong to the reactor thread; `start` blocks and is called before any port opens.  Tokens are opaque; they come back by `StorageEvents.durable`, in
order, once per journal group.

Safety:
* a token comes back only after the sync that covers what it stands for; after a journal fault none comes back;
* a fence is durable before its token comes back, also when somebody else set it a moment ago;
* a ledger that was deleted is not made again by a writer who has not heard of it;
* what a directory's mark covers is not replayed into it, however far back a replay goes for other directories;
* "no such entry" is said only by a ledger that is not in limbo; an entry that can't be read or fails its checksum is EIO, never a "no".
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from quire.bookie.apache.takeover import Moving
from quire.bookie.directory import notes
from quire.bookie.directory.directories import Directories
from quire.bookie.files import Files, StorageError
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.index.rocks import RocksRows
from quire.bookie.index.rows import OpenRows
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
    Place,
    blocks,
    join_bodies,
    sequence_at,
)
from quire.bookie.journal.mark import lowest, read_mark
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import Group, Journal, JournalOptions
from quire.bookie.layout import current
from quire.bookie.logs.entry_logs import OPEN_LOGS_MAX
from quire.bookie.storage.checkpoint import Checkpoints
from quire.bookie.storage.contents import COPY_ONLY, FRAME_EXTRA, UNSET_KEY, Contents
from quire.bookie.storage.counters import StorageCounters
from quire.bookie.storage.deleted import DeletedLedgers
from quire.bookie.storage.events import NoListener, StorageEvents
from quire.bookie.storage.ledgers import Ledgers, LedgerState
from quire.bookie.storage.lists import Lists
from quire.bookie.storage.lookup import Lookup
from quire.bookie.storage.opening import Opening
from quire.bookie.storage.read_ahead import CatchUp
from quire.bookie.storage.workers import PoolWorkers, Workers
from quire.bookie.storage.write_cache import ENTRY_OVERHEAD, WriteCache
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor
from quire.protocol.digest import LAC_END, LAC_HEADER
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun

# SPDX-License-Identifier: Apache-2.0

log = Logger()
pack_block = BLOCK.pack
HOUR_S = 3600
OVERFULL = 2  # a start on full disks holds so many times the write cache


class Storage:
    def __init__(
        self,
        options: BookieOptions,
        reactor: Reactor,
        files: Files | None = None,
        *,
        open_rows: OpenRows = RocksRows,
        workers: Workers | None = None,
        logs_open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        self._events: StorageEvents = NoListener()
        self._durable = self._events.durable
        self.read_only: str | None = None  # why plain adds are refused: a ledger directory or a journal can't take more
        self._blocked: str | None = None  # why recovery adds are refused as well: what is taken can't be flushed
        self.fault: str | None = None  # why this storage is dead
        self.counters = StorageCounters()
        self.options = options
        self._reactor = reactor
        self.files = files if files is not None else Files()
        self._open_rows = open_rows
        self._logs_open_max = logs_open_max
        self.workers: Workers = workers if workers is not None else PoolWorkers(reactor)
        self.logs_lock = DeferredLock()  # its holder needs that entry logs stay where they are, or removes some
        self._locks: list[int] = []
        self.directories = Directories(self.files)
        self._journals: list[Journal] = []
        self._cache = WriteCache(options.write_cache_bytes_max)
        self.ledgers = Ledgers(self.directories.row)
        self._deleted = DeletedLedgers()
        self.checkpoints = Checkpoints(
            self.files, self.workers, self._journals, self._cache, self.ledgers, self.directories, self.counters, reactor, self._on_checkpoint
        )
        self._lookup = Lookup(
            self.ledgers,
            self._cache,
            self.directories,
            self.workers,
            self.counters,
            CatchUp(reactor, self.counters),
            ahead_bytes_max=options.read_cache_bytes_max,
            batch_bytes_max=options.batch_read_bytes_max,
        )
        self._lists = Lists(self.ledgers, self._cache, self.directories, self.workers)
        self._contents = Contents(self._cache, self.ledgers, self._deleted, self.checkpoints, self._lookup, self.counters, reactor)
        self._insert = self._contents.insert
        self.read, self.read_run = self._lookup.read, self._lookup.read_run
        self.entries, self.lac = self._lists.entries, self._lookup.lac
        self.disk_usage = self.directories.disk_usage
        self._timer: Any = None
        self._parked = False
        self._ready: list[object] = []  # tokens that wait for nothing
        self._ends: list[Deferred[None]] = []
        self._limbo_ends: dict[int, Deferred[None]] = {}  # by ledger: its limbo ends by a block that is on its way to the journal
        self._closing = False
        self._opened = False
        self._started = 0.0

    def listen(self, events: StorageEvents) -> None:
        """Who hears what is durable, and what becomes of the storage; called once, before `start`."""
        self._events = events
        self._durable = events.durable  # bound once

    # Start

    def start(self, dead: Mapping[str, str] | None = None) -> None:
        """
        Makes and locks the directories, replays the journals, starts their threads.  Raises `StorageError` that names file and offset, `OSError`.
        `dead`: ledger directories that have failed already, and why; others fail when their disk says so, as long as one is usable.
        """
        try:
            self._start(Opening(self.files, self.options, dead or {}))
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                self._release()
            raise
        self._opened = True
        self._started = self._reactor.seconds()
        self._timer = self._reactor.callLater(0 if self._cache.full else self.options.flush_interval_ms / 1000, self._on_timer)

    def _start(self, opening: Opening) -> None:
        opening.make(self._locks)
        moving = opening.moving(Moving.check)
        marks = opening.each(lambda path: read_mark(self.files, current(path)))
        opening.open(self._open_rows, marks, self.workers.pause, self.directories.all, self._logs_open_max)
        # Which failed in an earlier run: of these, those that are back have their ledgers put in limbo after the start.
        named = set().union(*opening.each(lambda path: notes.named_failed(self.files, path)).values())
        self._leave_out(opening.dead)
        self.directories.stale = [path for path in opening.living if path in named]
        if opening.dead and moving.arriving:
            raise StorageError(f"{'; '.join(opening.dead.values())}: what an Apache bookie left is taken over as a whole or not at all")
        moving.begin(self.directories.usable)
        whole = {path: marks[path] for path in opening.living if path not in self.directories.stale}
        begins = lowest([(current(path), mark) for path, mark in whole.items()], len(self.options.journal_directories))
        same = not self.directories.stale and all(mark == begins for mark in whole.values())
        self.checkpoints.marks = begins if same else None  # the first checkpoint mends those that differ
        ahead = False
        for number, path in enumerate(self.options.journal_directories):
            stored = [None if mark is None or number >= len(mark) else mark[number] for mark in map(whole.get, self.options.ledger_directories)]
            self._open_journal(path, None if begins is None else begins[number], stored)
            ahead = ahead or any(place is not None and self._journals[number].place < place for place in stored)
        self._move_in(moving)
        # Ledgers have another journal than before when one was added, and a later replay would come to that of some first.
        added = self.counters.replayed_groups > 0 and not all(journal.segments for journal in self._journals)
        if ahead or added:
            self.checkpoints.make_now()  # or what is written from now on would stand before a mark, or before what it follows, though it is in no directory
        opening.moving(Moving.finish)
        self._leave_out(opening.dead)
        for journal in self._journals:
            journal.start()

    def _leave_out(self, dead: Mapping[str, str]) -> None:
        """Directories that were found dead have failed, opened or not."""
        for path, reason in dead.items():
            if (directory := self.directories.configured(path)) is not None:
                self.directories.fail(directory, reason)
        self.checkpoints.notice_failed()

    @property
    def failed_directories(self) -> list[str]:
        """The configured ledger directories that have failed, now or at the start."""
        return self.directories.failed

    @property
    def stale(self) -> list[str]:
        """The configured ledger directories that failed in an earlier run and are back, until `caught_up`."""
        return self.directories.stale

    def fail_directory(self, path: str, reason: str) -> bool:
        """The disk of a configured ledger directory has failed; False when nothing can go on without it."""
        directory = self.directories.configured(path)
        if directory is None:
            return False
        if self.directories.fail(directory, reason):
            self.checkpoints.notice_failed()
            self.checkpoints.run().addErrback(lambda failure: None)
        return directory.failed is not None

    def caught_up(self) -> None:
        """What the stale directories missed is in limbo now, durably.  Once, right after the start; `OSError`."""
        self.directories.caught_up()

    def _move_in(self, moving: Moving) -> None:
        """What an Apache bookie's journals hold becomes ours, durably, and Apache is kept out."""
        if moving.arriving:
            log.info("storage: taking over what an Apache bookie left")
            for block in moving.blocks():
                self._contents.apply_apache(*block)
                if self._cache.full:
                    self.checkpoints.spill(OVERFULL * self.options.write_cache_bytes_max)
            for cut in moving.cuts:
                log.info("journal: torn tail at {place}; what was not acknowledged is cut off", place=cut)
            if self.limbo_ledgers():
                notes.note_limbo(self.files, self.options, notes.COPYING)  # as Apache's integrity check left them
            self.checkpoints.make_now()

    def _open_journal(self, path: str, mark: Place | None, stored: Sequence[Place | None]) -> None:
        """
        Replays and opens a journal.  `stored`: up to where each ledger directory has what the journal holds of its ledgers; None: it may lack any of it.
        What stands before that is no news to it: since then rows may have come to say what was never in the journal.
        """
        options = self.options
        count = len(stored)
        replay = Replay(self.files, current(path), mark, synced=options.journal_sync_data)
        for data, offset, length in replay.groups():
            self.counters.replayed_groups += 1
            sequence = sequence_at(data, offset)
            old = {number for number, place in enumerate(stored) if place is not None and sequence < place.sequence}
            try:
                for block in blocks(data, offset, length):
                    if block[2] % count not in old:
                        self._contents.apply(data, *block)
            except ValueError as error:
                raise StorageError(f"journal {current(path)}: {error}") from error
            if self._cache.full:
                self.checkpoints.spill(OVERFULL * options.write_cache_bytes_max)
        if replay.torn is not None:
            log.info("journal: torn tail at {place}; what was not acknowledged is cut off", place=replay.torn)
        journal = Journal(
            self.files,
            current(path),
            self._reactor,
            replay,
            JournalOptions(
                segment_bytes=options.journal_segment_bytes,
                group_bytes_max=options.journal_group_bytes_max,
                queue_bytes_max=options.journal_queue_bytes_max,
                backlog_bytes_max=options.journal_backlog_bytes_max,
                group_wait_seconds=options.journal_group_wait_ms_max / 1000,
                sync=options.journal_sync_data,
            ),
            self,
            threaded=self.workers.threaded,
            spawn=self.workers.spawn,
        )
        self._journals.append(journal)

    # Writing

    def add(self, run: AddRun, token: object) -> Status | None:
        """
        EOK: taken, `token` comes back by `durable` after the sync.  None: no room now, nothing was taken, try again after `relieved`; what recovers
        ledgers has a reserve.
        Otherwise refused: EUA for a wrong key, EREADONLY for a ledger in limbo or a full disk, EFENCED, EBADREQ for bodies under 24 bytes.
        """
        ledger = run.ledger
        if self.directories.failed_numbers and self.directories.has_failed(ledger):
            return Status.EREADONLY
        state = self.ledgers.states.get(ledger) or self.ledgers.get(ledger)
        if state is not None and state.key != run.master_key and not self._adopt_key(state, run.master_key):
            return Status.EUA
        if not run.recovery and state is not None:
            if state.limbo:
                return Status.EREADONLY
            if state.fenced:
                return Status.EFENCED
        if self.fault is not None or self._closing or (self.read_only is not None and not (self._blocked is None and (run.recovery or run.priority))):
            return Status.EREADONLY
        journals = self._journals
        journal = journals[ledger % len(journals)]
        cache = self._cache
        if (cache.full or journal.full) and (cache.brimful or journal.brimful or not (run.recovery or run.priority)):
            self._send_away(journal)
            return None
        bodies = run.bodies
        count = len(bodies)
        if not count or len(bodies[-1]) < LAC_END:
            return Status.EBADREQ
        if state is None:
            if self._deleted.refuses(ledger, self._reactor.seconds()):
                return Status.ENOLEDGER if run.recovery else Status.EFENCED
            state = self._contents.create(ledger, run.master_key)
        frames = run.frames
        if not self.options.journal_write_data:
            self._add_unjournaled(state, run, journal, token)
            size = sum(map(len, bodies))
        elif frames is not None:
            size = len(frames)
            state.key_logged = True
            self._insert(state, run.first, bodies, size + FRAME_EXTRA * count)
            journal.append((pack_block(FRAMES, count, ledger, size), frames), size + BLOCK.size, token)
        else:
            if not state.key_logged:
                self._log_key(state, journal)
            joined = join_bodies(bodies)
            size = len(joined)
            self._insert(state, run.first, bodies, size + ENTRY_OVERHEAD * count)
            journal.append((pack_block(BODIES, count, ledger, size), joined), size + BLOCK.size, token)
        counters = self.counters
        counters.batches += 1
        counters.adds += count
        counters.add_bytes += size
        if self._cache.full:
            self._checkpoint_soon()
        return Status.EOK

    def _send_away(self, journal: Journal) -> None:
        """No room: who came is told when there is some again."""
        self._parked = True
        self.counters.parked += 1
        if journal.backlog_full:
            self._checkpoint_soon()

    def _add_unjournaled(self, state: LedgerState, run: AddRun, journal: Journal, token: object) -> None:
        """
        Into memory only; the first such add after each checkpoint puts a note into the journal, synced before the token comes back: a start that
        finds the note takes the ledger for one that may have lost entries.
        """
        if not state.key_logged:
            self._log_key(state, journal)
        self._insert(state, run.first, run.bodies, sum(map(len, run.bodies)) + ENTRY_OVERHEAD * len(run.bodies))
        if state.unjournaled == self.checkpoints.taken:
            journal.append((), 0, token)  # behind the note, if that is still on its way
        else:
            state.unjournaled = self.checkpoints.taken
            journal.append((pack_block(UNJOURNALED, 0, state.id, 0),), BLOCK.size, token)

    def _adopt_key(self, state: LedgerState, key: bytes) -> bool:
        """A ledger made by an integrity check or a rebuilt table has no key yet: the first one given becomes its key."""
        if state.key not in (b"", UNSET_KEY):
            return False
        state.key = key
        state.key_logged = False
        self.ledgers.dirty[state.id] = state
        self._log_key(state, self._journal_of(state.id))
        return True

    def _log_key(self, state: LedgerState, journal: Journal) -> None:
        journal.append((pack_block(KEY, 0, state.id, len(state.key)), state.key), BLOCK.size + len(state.key))
        state.key_logged = True

    def _journal_of(self, ledger: int) -> Journal:
        return self._journals[ledger % len(self._journals)]

    def _open_with_key(self, ledger: int, key: bytes) -> LedgerState | None:
        """The ledger, made if it is unknown, its key in the journal; None when the key is wrong."""
        state = self.ledgers.get(ledger)
        if state is None:
            state = self._contents.create(ledger, key)
        elif state.key != key and not self._adopt_key(state, key):
            return None
        if not state.key_logged:
            self._log_key(state, self._journal_of(ledger))
        return state

    def _is_gone(self, ledger: int) -> bool:
        """Whether the ledger was deleted here so lately that it may not be made again."""
        return self.ledgers.get(ledger) is None and self._deleted.refuses(ledger, self._reactor.seconds())

    def fence(self, ledger: int, master_key: bytes, token: object) -> Status:
        """EOK: no plain add is taken from now on, and `token` comes back once that is durable.  Makes the ledger if it is unknown.  EUA: wrong key."""
        if self.fault is not None:
            return Status.EIO
        if self.directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        # Also one that was deleted here: a "no" counts as fenced for who recovers the ledger, and the memory of a deletion is neither durable nor for ever.
        state = self._open_with_key(ledger, master_key)
        if state is None:
            return Status.EUA
        journal = self._journal_of(ledger)
        if not state.fenced:
            state.fenced = True
            self.ledgers.dirty[ledger] = state
            self.counters.fences += 1
            journal.append((pack_block(FENCE, 0, ledger, 0),), BLOCK.size, token, state.fence_synced)
            state.wake()
        elif state.fence_durable:
            self._give_back(token)
        else:
            journal.append((), 0, token)  # behind the fence that is on its way
        return Status.EOK

    def write_lac(self, ledger: int, master_key: bytes, body: bytes, token: object) -> Status | None:
        """
        Stores an explicit LAC as it is; EOK: `token` comes back once it is durable.  None: no room now, nothing was taken, try again after `relieved`.
        EUA: wrong key; EBADREQ: under 16 bytes.
        """
        if self.fault is not None:
            return Status.EIO
        if self.directories.has_failed(ledger):
            return Status.EREADONLY
        if len(body) < LAC_HEADER.size:
            return Status.EBADREQ
        if self._is_gone(ledger):
            return Status.ENOLEDGER
        journal = self._journal_of(ledger)
        if journal.full:
            self._send_away(journal)
            return None
        state = self._open_with_key(ledger, master_key)
        if state is None:
            return Status.EUA
        journal.append((pack_block(EXPLICIT_LAC, 0, ledger, len(body)), body), BLOCK.size + len(body), token)
        self._contents.keep_explicit_lac(state, body)
        state.wake()
        return Status.EOK

    def force(self, ledger: int, token: object) -> Status:
        """
        EOK: `token` comes back after a sync that covers every add of the ledger that was acknowledged before.  EUNKNOWNLEDGERSTATE: its directory has failed.
         EIO: nothing is synced any more.
        """
        if self.fault is not None or (not self.options.journal_write_data and self.checkpoints.failure is not None):
            return Status.EIO
        if self.directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        if self.options.journal_write_data:
            self._journal_of(ledger).force(token)
        else:
            self.checkpoints.run().addCallbacks(lambda _: self._give_back(token), lambda failure: None)  # `_on_checkpoint` says why none comes
        return Status.EOK

    def set_limbo(self, ledger: int, limbo: bool, token: object | None = None) -> Status:
        """Turns limbo of a known ledger on or off, durably; ENOLEDGER for an unknown one."""
        state = self.ledgers.get(ledger)
        if state is None:
            return Status.ENOLEDGER
        if self.directories.has_failed(ledger):
            return Status.EUNKNOWNLEDGERSTATE
        if not state.key_logged:
            self._log_key(state, self._journal_of(ledger))
        state.limbo = limbo
        self.ledgers.dirty[ledger] = state
        over: Deferred[None] = Deferred()

        def ended() -> None:
            if self._limbo_ends.get(ledger) is over:
                del self._limbo_ends[ledger]
            over.callback(None)

        if not limbo:
            self._limbo_ends[ledger] = over
        block = pack_block(LIMBO, 0, ledger, 1), b"\1" if limbo else b"\0"
        self._journal_of(ledger).append(block, BLOCK.size + 1, token, None if limbo else ended)
        return Status.EOK

    async def mark_limbo(self, rows: Mapping[int, LedgerRow]) -> None:
        """Puts many ledgers in limbo and fences them, as their rows say, made if they are unknown; durable on return.  `StorageError`, `OSError`."""
        states = []
        for ledger, row in rows.items():
            state = self.ledgers.get(ledger)
            if state is None:
                state = self._contents.rowless(ledger, row.key)
            elif state.key in (b"", UNSET_KEY):
                state.key = row.key
            state.limbo = state.limbo or row.limbo
            state.fenced = state.fenced or row.fenced
            self.ledgers.dirty[ledger] = state
            states.append(state)
        for ending in [self._limbo_ends[ledger] for ledger in rows if ledger in self._limbo_ends]:
            await ending  # a block that is synced after the checkpoint began would be replayed over it
        if self.fault is not None:
            raise StorageError(self.fault)
        await self.flush()
        for state in states:
            state.fence_durable = state.fenced

    def limbo_ledgers(self) -> list[int]:
        """The ledgers that are in limbo, ascending; reads every row of the ledger tables."""
        states = self.ledgers.states
        found = {ledger for ledger in self.directories.limbo_ledgers() if ledger not in states}
        return sorted(found | {ledger for ledger, state in states.items() if state.limbo and not self.directories.has_failed(ledger)})

    @property
    def replay_found_limbo(self) -> bool:
        """Right after the start: whether the journal says of a ledger that it may lack something."""
        return any(state.limbo for state in self.ledgers.states.values())

    def held(self, ledger: int) -> "Deferred[bytes]":
        """What is stored of a ledger, as `availability` encodes it, whether or not something is missing.  Fails with `StorageError` or `OSError`."""
        return self._lists.held(ledger)

    def delete_ledger(self, ledger: int, remembered: bool = True) -> None:
        """
        Forgets the ledger and its entries; their bytes go when their entry log goes.  An unknown ledger is fine.
        `remembered`: who writes to it soon is refused; otherwise it is only this copy that goes.
        """
        if self.ledgers.get(ledger) is None:
            return
        kept = b"" if remembered else COPY_ONLY
        self._journal_of(ledger).append((pack_block(DELETED, 0, ledger, len(kept)), kept), BLOCK.size + len(kept))
        state = self._contents.drop(ledger, remembered)
        if state is not None:
            state.wake()

    def drop_copy(self, ledger: int) -> None:
        """
        Forgets the entries of a closed ledger that lives on elsewhere; it may be copied here again.  It is fenced for ever: a writer that slept while others
        closed the ledger and replaced this bookie still takes it for one of its own.
        """
        state = self.ledgers.get(ledger)
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
        self._journal_of(ledger).append(blocks, sum(map(len, blocks)), None, left.fence_synced)  # of one group: all or nothing
        state.wake()

    # What comes back

    def _give_back(self, token: object) -> None:
        self._ready.append(token)
        if len(self._ready) == 1:
            self._reactor.callLater(0, self._give_ready)

    def _give_ready(self) -> None:
        tokens, self._ready = self._ready, []
        if self.fault is None:
            self._durable(tokens)

    def group_durable(self, group: Group) -> None:
        if self.fault is not None:
            return
        for hear in group.when_synced:
            hear()
        self._count_journals()
        if group.tokens:
            self._durable(group.tokens)
        if group.end and self._ends:
            self._ends.pop().callback(None)
        if self._parked:
            self._relieve()

    def _count_journals(self) -> None:
        counters = self.counters
        if len(self._journals) == 1:
            (journal,) = self._journals
            counters.journal_groups, counters.journal_syncs = journal.groups, journal.syncs
            counters.journal_bytes, counters.journal_seals = journal.bytes_written, journal.seals
            return
        counters.journal_groups = sum(journal.groups for journal in self._journals)
        counters.journal_syncs = sum(journal.syncs for journal in self._journals)
        counters.journal_bytes = sum(journal.bytes_written for journal in self._journals)
        counters.journal_seals = sum(journal.seals for journal in self._journals)

    def _relieve(self) -> None:
        """Those who were sent away may try again: there is room, or they will be refused."""
        if self.read_only is None and any(journal.backlog_full for journal in self._journals):
            self._checkpoint_soon()  # and then again
            return
        if self.read_only is not None or (not self._cache.full and all(journal.relaxed for journal in self._journals)):
            self._parked = False
            self._events.relieved()

    def journal_failed(self, reason: str) -> None:
        if self.fault is None:
            self.fault = reason
            log.critical("storage: {reason}; nothing is acknowledged any more", reason=reason)
            endings, self._limbo_ends = self._limbo_ends, {}
            for ending in endings.values():
                ending.callback(None)
            ends, self._ends = self._ends, []
            for end in ends:
                end.errback(StorageError(reason))
            self._events.failed(reason)
            if self._parked:
                self._parked = False
                self._events.relieved()

    # Checkpoints

    def _checkpoint_soon(self) -> None:
        if not self.checkpoints.running and self._blocked is None:
            self.checkpoints.run().addErrback(lambda failure: None)  # `_on_checkpoint` sees and says it

    def _on_timer(self) -> None:
        self._timer = self._reactor.callLater(self.options.flush_interval_ms / 1000, self._on_timer)
        self._count_journals()
        self.ledgers.hour = max(self.ledgers.hour, int((self._reactor.seconds() - self._started) // HOUR_S))
        if not self.checkpoints.running and self.checkpoints.failure is None and self.fault is None:
            self.checkpoints.run().addErrback(lambda failure: None)

    def _on_checkpoint(self) -> None:
        done = self.checkpoints
        counters = self.counters
        counters.checkpoints = counters.flushes = done.done
        counters.flushed_bytes, counters.flushed_entries = done.bytes_written, done.entries
        self._blocked = done.failure or done.blocked
        for journal in self._journals:
            journal.make_room()  # segments may have been given back; `crowding_changed` sees whether that helped
        if self._blocked is not None or not any(journal.crowded for journal in self._journals):
            self._judge_read_only()
        if self._cache.full and self._blocked is None and not self._closing:
            self._checkpoint_soon()
        if self._parked and not self._closing:
            self._relieve()

    def crowding_changed(self) -> None:
        """A journal's disk is full, or is not any more.  What a checkpoint can give back is asked for before anybody is refused."""
        if self._blocked is None and not self._closing and any(journal.crowded and len(journal.segments) > 1 for journal in self._journals):
            self._checkpoint_soon()
        else:
            self._judge_read_only()

    def _judge_read_only(self) -> None:
        """A ledger directory that takes no more, or a journal that can't grow: what is left of that is for fences and recovery."""
        reason = self._blocked or next((journal.crowded for journal in self._journals if journal.crowded is not None), None)
        if reason != self.read_only and not self._closing:
            self.read_only = reason
            if reason is None:
                log.info("storage: writable again")
            else:
                log.error("storage: read-only: {reason}; the journal keeps what was acknowledged", reason=reason)
            self._events.read_only(reason)
            if self._parked:
                self._relieve()

    def flush(self) -> "Deferred[None]":
        """A checkpoint that covers all that came before.  Fails with `StorageError` or `OSError`."""
        return self.checkpoints.run()

    # Reading

    def ledger(self, ledger: int) -> LedgerState | None:
        """The state of a ledger that this bookie knows."""
        return self.ledgers.get(ledger)

    def ledger_ids(self) -> Iterator[int]:
        """The ids of all ledgers, in no order."""
        return self.ledgers.ids(self.directories.ledger_ids())

    def idle_seconds(self, ledger: int) -> int:
        """For so long at least no add of the ledger was taken, counted from the start of the process; 0 for an unknown one."""
        state = self.ledgers.get(ledger)
        return 0 if state is None else max(0, self.ledgers.hour - state.hour - 1) * HOUR_S

    def take_arrived(self) -> set[int]:
        """The ledgers that were new here since the last call."""
        arrived, self._contents.arrived = self._contents.arrived, set()
        return arrived

    def aside(self, job: Callable[..., None], *args: Any) -> Deferred[None]:
        """Does a job of somebody else beside the reactor."""
        return self.workers.run(job, *args)

    def stored_ledgers(self) -> "Deferred[array[int]]":
        """The ids in the ledger tables, ascending; a ledger that came since the last checkpoint may be missing.  Fails with `OSError`."""
        return self.workers.run(self.directories.sorted_ids, self.workers.pause)

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The explicit LAC as it was written last."""
        state = self.ledgers.get(ledger)
        return None if state is None else state.explicit_lac

    # Stop

    def close(self) -> "Deferred[None]":
        """
        A clean stop: the journals end with a mark of it, everything is checkpointed, files are closed.  After a fault: closes only.
        Fails with `StorageError` or `OSError` when the last checkpoint does; nothing acknowledged is lost then, the journal keeps it.
        Refused with `StorageError` while a pass over the entry logs or an index rebuild holds `logs_lock`: those stop first.
        """
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._closing or not self._opened:
            return
        if self.logs_lock.locked:
            raise StorageError("the storage can't be closed: a pass over its entry logs or an index rebuild has not been stopped")
        self._closing = True
        self._lists.stop()
        if self._timer is not None:
            self._timer.cancel()
        try:
            if any(journal.crowded for journal in self._journals) and self.fault is None:
                with suppress(StorageError, OSError):  # then they may not end cleanly, and nothing is lost by that
                    await self.checkpoints.run()
            if self.fault is None:
                self._ends = [Deferred() for _ in self._journals]
                ends = list(self._ends)
                for journal in self._journals:
                    journal.end()
                for end in ends:
                    await end
                if self.checkpoints.failure is None:
                    await self.checkpoints.run()
        finally:
            self._release()

    def _release(self) -> None:
        """Closes all, locks last.  Raises `OSError` afterwards."""
        with ExitStack() as last:
            for lock in self._locks:
                last.callback(self.files.close, lock)
            for directory in self.directories.all:
                last.callback(directory.close)
            self.workers.stop()
            for journal in self._journals:
                journal.join()
        self._locks = []
        self._journals.clear()
        self.directories.all.clear()
