"""
Guards taken away, one at a time (`guards.py`): does the simulator notice?

A mutant is dead once a history breaks a promise, alive after `SEEDS_MAX` seeds of the profile made for its danger, and
then the simulator is not worth its name.  A guard whose text is no longer found is an error: it moved, and its mutant
must move with it.

D2, D4 and D5 have no mutant, since both ways are safe there; D13 has none, for there is nothing to take away
(batch reads over V3 are made of single ones).
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from quire.bookie.journal.format import LIMBO
from tests.simulation.guards import Mutant, mutant
from tests.simulation.log_mutants import LOG_MUTANTS
from tests.simulation.messages_mutants import MESSAGE_MUTANTS
from tests.simulation.mirrors_mutants import MIRROR_MUTANTS
from tests.simulation.plan import PROFILES, draw
from tests.simulation.replaying import replay

SEEDS_MAX = 2000


APPEND, SENDING = "quire.client.core.append.machine:AppendMachine", "quire.client.core.append.sending:Sending"
ENSEMBLE = "quire.client.core.append.ensemble:Ensemble"
RECOVERY, ATTEMPT = "quire.client.core.recovery:RecoveryMachine", "quire.client.handles.recovery:Recovery"
LINK = "quire.client.connections.on_demand_link:OnDemandLink"
UNNAMED = (f"{LINK}._reach", "link.bookie is not None and link.bookie != self.bookie", "False")
QUORUMS, READER = "quire.client.core.quorum:Quorums", "quire.client.handles.reader:Reader"
LEDGER_END, EDITS = (
    "quire.client.handles.end_of_ledger:EndOfLedger",
    "quire.client.handles.writer_metadata:WriterMetadata",
)
CONFIRMING = "quire.client.handles.confirming:Confirming"
OPENING, JOURNAL, CHECKPOINT = (
    "quire.bookie.storage.opening:Opening",
    "quire.bookie.journal.writer:Journal",
    "quire.bookie.storage.checkpoint:Checkpoints",
)
WRITES, START = "quire.bookie.storage.writes:Writes", "quire.bookie.lifecycle.start_check"
EMPTIED, DELETIONS, LOGS, COMPACTION = (
    "quire.bookie.upkeep.deletions",
    "quire.bookie.upkeep.deletions:Deletions",
    "quire.bookie.logs.entry_logs:EntryLogs",
    "quire.bookie.upkeep.compaction",
)
FREEING, NAMING, COPIER, RESTORE = (
    "quire.replication.freeing.ledger",
    "quire.replication.freeing.naming",
    "quire.replication.copier:FragmentCopier",
    "quire.replication.own_copies:Restoration",
)
SURPLUS, GUARD, REGISTRY, REPAIRS = (
    "quire.replication.own_copies",
    "quire.bookie.upkeep.store_guard:StoreGuard",
    "quire.metadata.bookies.registry:BookieRegistry",
    "quire.metadata.repairs:Repairs",
)
NOT_OURS = (
    ("quire.metadata.tree:Tree._delete_own", "found is None or found.owner != session", "found is None"),
    ("quire.metadata.tree:Tree._delete_own", "self.delete(path, session=session)", "self.delete(path)"),
)
UNLOCKED = (
    f"{FREEING}:_free",
    "repair_lock(store.repairs, ledger, run.lock, run.operations) as lock",
    "repair_lock(store.repairs, run.client.random.getrandbits(60)) as lock",
)
UNPROVEN = (
    f"{NAMING}:name",
    "stored, ended = await store.repairs.write_ledger(lock, after, version, last=last)",
    "stored = await store.write_ledger(record.ledger, after, version)",
)


MUTANTS = (
    # Recovery
    mutant("recovery reads do not fence", "R5, S1", "late add",
           (f"{ATTEMPT}._read", "effect.entry, self._digest.master_key, PRIORITY", "effect.entry"),
           (f"{ATTEMPT}._read_run", "effect.bytes_max, key, PRIORITY", "effect.bytes_max")),
    mutant("fencing before the metadata says IN_RECOVERY", "R1", "recovery",
           (f"{ATTEMPT}._marking", "lambda metadata: metadata.state is LedgerState.OPEN", "lambda metadata: False")),
    mutant("recovery starts at the LAC, not in the last fragment", "R4, S3", "new ensemble",
           (f"{RECOVERY}._fenced", "max(coverage.lac, self._first - 1)", "coverage.lac")),
    mutant("one 'no' makes an entry absent", "protocol-rules.md 1.3, S7", "recovery",
           (f"{QUORUMS}.absent", "self.write - self.ack + 1", "1")),
    mutant("a failure counts as a 'no'", "protocol-rules.md 4.3, S8", "recovery",
           ("quire.client.core.recovery_reads:EntryRead.judge", "code in NEGATIVE", "code != OK")),
    mutant("a piece that ends early ends the ledger", "protocol-rules.md 4.3, R5", "recovery",
           ("quire.client.core.recovery_reads:RecoveryReads.brought", "heappush(self._again, (entry, None))",
            "self._entry(entry).judge(0); self.ended = self.ended or self._entries[entry]")),
    mutant("answers are counted by QC, not by coverage", "protocol-rules.md 1.4, S29", "tail",
           (f"{QUORUMS}.covered", "if unheard >= self.ack:",
            "if unheard >= 0 and sum(index in heard for index in range(size)) < self.absent:")),
    mutant("a recovery stores its ensembles early", "protocol-rules.md 4.2, S6", "recovery",
           (f"{ATTEMPT}._replace", "return adds.EnsembleChanged(picked.bookies",
            "await self._record.edit(lambda m: m.state is LedgerState.IN_RECOVERY, lambda m: "
            "m.with_ensemble(effect.first, picked.bookies))\n"
            "        return adds.EnsembleChanged(picked.bookies")),
    mutant("a recovery overwrites CLOSED", "D3, R6", "recovery",
           (f"{ATTEMPT}._storing", "return metadata.state is not LedgerState.CLOSED",
            "return True")),
    mutant("the length is not read from entry LAC", "D7, S28", "recovery",
           (f"{RECOVERY}._finish", "if self.last == self.base >= 0:", "if False:")),
    mutant("recovery adds carry a LAC that moves", "D16", "tail",
           (f"{SENDING}._pump", "self._base if self.recovery else self.lac", "self.lac"),
           # entry by entry, for a piece is written back as one batch, before its LAC could have moved
           ("quire.client.core.recovery_reads:RecoveryReads.__init__", "pieces and not quorums.striped", "False")),
    # Writer
    mutant("the writer closes over IN_RECOVERY", "D1", "store",
           (f"{EDITS}._close_ledger", "if metadata.state is LedgerState.IN_RECOVERY:", "if False:"),
           (f"{EDITS}._close_ledger", "return metadata.state is LedgerState.OPEN", "return not metadata.is_closed")),
    mutant("acknowledged while the ensemble changes", "protocol-rules.md 2.5, S13", "change",
           (f"{APPEND}._acked", "if last > self.head and self.state is m.State.OPEN:", "if True:")),
    mutant("a replaced bookie's acknowledgements still count", "protocol-rules.md 2.5, S12", "change",
           (f"{APPEND}._ensemble_changed", "self._install(replica.index, bookie).standing = Standing.FRESH",
            "fresh = self._install(replica.index, bookie)\n"
            "            fresh.standing, fresh.watermark, fresh.sent = "
             "Standing.FRESH, replica.watermark, replica.sent")),
    mutant("a stale edit of the metadata is written all the same", "protocol-rules.md 2.6", "store",
           ("quire.client.handles.ledger_record:LedgerRecord.edit",
            "if not needs(current.value):", "if current is self.current and not _ and not needs(current.value):")),
    mutant("a close that met another end succeeds", "protocol-rules.md 2.8, S19", "store",
           (f"{EDITS}._close_ledger",
            "if metadata.state is LedgerState.CLOSED and (metadata.last_entry, metadata.length) != (last, length):",
            "if False:")),
    mutant("nothing is sent again to a replacement", "protocol-rules.md 2.5, D12", "change",
           (f"{APPEND}._ensemble_changed", "self._resend(replica)", "pass")),
    mutant("nothing is sent again to a bookie that came back", "D17", "no spare",
           (f"{APPEND}._return", "self._resend(back)", "pass")),
    mutant("a taken id is looked for among the confirmed ones only", "D11, S31", "deferred",
           (f"{SENDING}._append", "entry <= self.head or entry in self._ids",
            "entry <= self.lac or entry in self._ids")),
    mutant("replica indexes are computed in 32 bits", "D10, S32", "large ids",
           (f"{QUORUMS}.write_set", "(entry + step) % size",
            "((entry + step + (1 << 31)) % (1 << 32) - (1 << 31)) % size")),
    mutant("a force does not mind a reconnection", "D15", "deferred",
           (f"{APPEND}._fail", "if self.deferred_sync and not spared:",
            "if self.deferred_sync and not spared and awaited:"),
           (f"{CONFIRMING}.force", "if old not in (None, new)", "if not name")),
    mutant("late answers of a replaced bookie count for its successor", "protocol-rules.md 2.4, S14", "change",
           (f"{APPEND}._fail", "del self._channels[replica.channel]", "pass"),
           (f"{APPEND}._fail", "self.effects.append(m.CloseChannel(replica.channel))", "pass"),
           (f"{ENSEMBLE}.install", "self.channels.pop(old.channel, None)", "pass"),
           (f"{ENSEMBLE}.install", "self.replicas[index] = replica",
            "self.replicas[index] = self.channels[old.channel] = replica")),
    mutant("a new fragment begins behind what was sent", "protocol-rules.md 2.5", "change",
           (f"{APPEND}._change", "m.StoreEnsemble(self.head + 1,", "m.StoreEnsemble(self._window.sent_last + 1,")),
    # Reader
    mutant("entries past the LAC are read", "D8", "tail",
           (f"{READER}._read", "if not unconfirmed and last > self._end.lac:", "if False:")),
    mutant("unconfirmed reads go past the end", "D9", "tail",
           (f"{READER}._read", "if unconfirmed and self.closed:", "if False:")),
    mutant("a hint is taken for the LAC", "D14", "tail",
           (f"{LEDGER_END}.await_news", "failed = answer.code != OK",
            "self.lac = max(self.lac, answer.lac or 0)\n    failed = answer.code != OK")),
    # Bookie
    mutant("a fence is answered before it is durable", "D6, B4, S10", "power",
           (f"{WRITES}.fence", "journal.append((pack_block(FENCE, 0, ledger, 0),), BLOCK.size, token, "
                               "state.fence_synced)",
            "journal.append((pack_block(FENCE, 0, ledger, 0),), BLOCK.size, None, state.fence_synced)\n        "
            "self._journals._durable([token])")),
    mutant("a fence is not written to the journal", "B1", "power",
           (f"{WRITES}.fence", "journal.append((pack_block(FENCE, 0, ledger, 0),), BLOCK.size, token, "
                               "state.fence_synced)",
            "journal.append((), 0, token, state.fence_synced)")),
    mutant("a fenced ledger takes plain adds", "B2, S11", "recovery",
           (f"{WRITES}.add", "if state.fenced:", "if False:")),
    mutant("adds are acknowledged before the sync", "B3", "power",
           (f"{JOURNAL}._commit", "self._sync or seal or group.sync or self._sync_is_due()", "seal")),
    mutant("a checkpoint does not sync what it stored", "storage-order.md 3", "power",
           (f"{CHECKPOINT}._store", "self._directories.attempt(directory, directory.sync)", "pass")),
    mutant("a bookie that lost its disk serves", "metadata-rules.md 6.2", "limbo",
           ("quire.bookie.lifecycle.start_check:check",
            "check_expansion(options, expected, known, bare, full)", "pass")),
    mutant("the last files of a journal may be missing", "storage-order.md 1.4", "lost files",
           ("quire.bookie.journal.replay:Replay._list",
            "if extent is not None and (not self.segments or self.segments[-1].start < extent):", "if False:")),
    mutant("a journal's note is set back after what it names went", "storage-order.md 1.4", "dark start",
           ("quire.bookie.journal.segments:Segments.open", "self._note(self._next or self.current)",
            "self._drop_spares()\n        self._note(self._next or self.current)")),
    mutant("a gap in a journal is its end", "storage-order.md 1.4", "lost files",
           ("quire.bookie.journal.replay:Replay._drop_left_over",
            "if gap and (self._reach is None or segments[gap].start > self._reach.start):",
            "if gap and (self._reach is None or segments[gap].start > self._reach.start):\n"
            "        self.segments = segments[:gap]\n        self.extent = None\n        return\n    if False:")),
    mutant("a bookie in limbo says no", "B4, S9", "limbo",
           ("quire.bookie.storage.lookup:_missing", "Status.EUNKNOWNLEDGERSTATE if state.limbo else Status.ENOENTRY",
            "Status.ENOENTRY")),
    mutant("a bookie in limbo takes plain adds", "S9", "limbo",
           (f"{WRITES}.add", "if not run.recovery and state is not None:",
            "if not run.recovery and state is not None and not state.limbo:")),
    mutant("a bookie that lost its disk is fenced only where it is named", "S9, S10", "surplus",
           ("quire.bookie.lifecycle.suspects:suspects", "(row.fenced or row.limbo)", "row.limbo")),
    mutant("an end of limbo that a directory's mark covers is replayed into it", "storage-order.md 4", "restore",
           (f"{OPENING}._open_journal", "if block[2] % count not in old:",
            f"if block[2] % count not in old or block[0] == {LIMBO}:")),
    mutant("a bookie that lost its disk doubts only where it is named", "S6, S9", "counted on",
           ("quire.bookie.lifecycle.suspects:_row", "limbo=being_recovered or bookie in", "limbo=bookie in")),
    # Garbage collection
    mutant("a ledger on one bookie shows that the store was set back", "storage-order.md 7.1", "garbage",
           (f"{GUARD}._settle", "self._own_doubts & self._doubted", "self._own_doubts")),
    mutant("the store passes over whatever id comes", "storage-order.md 7.1", "garbage",
           (f"{GUARD}._suspect", "for ledger in absent if self._seen.bound.gave(ledger)", "for ledger in absent")),
    mutant("what a listing lacks is deleted without reading it again", "storage-order.md 7.1", "garbage",
           (f"{DELETIONS}._read_again", "if ledger not in absent:", "if False:")),
    mutant("another cluster's metadata is evidence", "storage-order.md 7.1", "garbage",
           (f"{GUARD}._look", "if cluster != self._cluster:", "if False:")),
    mutant("an empty store is believed at once", "storage-order.md 7.1", "emptied",
           (f"{EMPTIED}:denied_twice", "return [], now", "return now.ledgers.tolist(), now")),
    mutant("an empty store is asked twice at the same time", "storage-order.md 7.1", "emptied",
           (f"{EMPTIED}:denied_twice", "if now.began - before.began < APART_S:", "if False:")),
    mutant("compaction does not sync the new log", "storage-order.md 7.2", "garbage",
           (f"{LOGS}.finish_whole", "self._files.sync(handle)", "pass")),
    mutant("the old log goes before the index is synced", "storage-order.md 7.2", "garbage",
           (f"{COMPACTION}:remove_logs", "    directory.sync()\n", "")),
    mutant("an old log goes though what lives in it was not moved", "storage-order.md 7.2", "garbage",
           (f"{COMPACTION}:Compaction._finish", "index.move(moves[start : start + MOVES_AT_ONCE])", "pass"),
           (f"{COMPACTION}:Compaction.steps", "self.kept.setdefault(run.log,", "str(")),
    # An index that is rebuilt
    mutant("an index in the making does not hear of flushes", "formats.md, a rebuilt index", "new index",
           ("quire.bookie.index.run_index:RunIndex.put_all", "if self.beside is not None:", "if False:")),
    mutant("the new index counts before it is durable", "formats.md, a rebuilt index", "new index",
           ("quire.bookie.directory.ledger_directory:LedgerDirectory.change_index", "made.sync()", "pass")),
    mutant("the files of the new index are taken for leftovers", "formats.md, a rebuilt index", "new index",
           ("quire.bookie.index.sequences:other_path", "RUNS if index_path", "SECOND_RUNS if index_path"),
           ("quire.bookie.index.sequences:other_path", "else SECOND_RUNS", "else RUNS")),
    mutant("logs go while they are read for a new index", "formats.md, a rebuilt index", "new index",
           ("quire.bookie.upkeep.space:Space.reclaim",
            "self._storage.logs_lock.run(\n"
            "        lambda: Deferred.fromCoroutine(self._reclaim(threshold, seconds_max, forced))\n"
            "    )",
            "Deferred.fromCoroutine(self._reclaim(threshold, seconds_max, forced))")),
    # Repair
    mutant("the metadata names a bookie before its copies are complete", "protocol-rules.md 5.1", "repair",
           (f"{COPIER}._stored", "code = await answer", "code = 0")),
    mutant("a fragment that is still written is repaired without fencing", "protocol-rules.md 5.1, R1", "repair",
           (f"{FREEING}:_free", "if run.fence and writer_depends_on(found.value, run.lost):", "if False:"),
           (f"{FREEING}:_Freed.free", "if fragment.settled", "if True"),
           (f"{FREEING}:_Freed.free", "if writer_depends_on(record.metadata, run.lost):", "if False:"),
           (f"{FREEING}:copies", "    size = 0\n",
            "    size = 0\n    if fragment.last is None:\n        reader = await "
            "run.client.open_ledger(record.ledger, b'', recover=False)\n"
            "        fragment = HeldFragment(fragment.first, reader.last_entry_id, fragment.bookies, "
            "fragment.indexes)\n"
            "        await reader.close()\n")),
    mutant("repairs without a lock change what they did not copy", "protocol-rules.md 2.6, 5.1", "repair",
           (f"{NAMING}:_has", "each.first == first and each.bookies == bookies", "each.first == first"),
           UNLOCKED, UNPROVEN),
    mutant("a repair does not take the ledger's lock", "protocol-rules.md 5.1", "surplus", UNLOCKED, UNPROVEN),
    mutant("a repair that lost its lock names bookies all the same", "protocol-rules.md 5.1", "surplus", UNPROVEN),
    mutant("limbo ends with copies missing", "S9", "limbo",
           (f"{RESTORE}._round", "await self._fill(record, master_key, fragment)", "pass")),
    # AutoRecovery
    mutant("two workers repair one ledger", "metadata-rules.md 11.4", "healing",
           (f"{REPAIRS}._take_lock", "return found is not None and found.owner == session", "return True"),
           (f"{REPAIRS}._write_under", "Check(held)", "Check(self._locks)"), *NOT_OURS),
    mutant("a worker names a bookie before its copies are complete", "protocol-rules.md 5.1", "healing",
           (f"{COPIER}._stored", "code = await answer", "code = 0")),
    mutant("a bookie that restarted before it was named is not read back", "protocol-rules.md 5.1", "healing",
           (f"{COPIER}.keep", "connection == self._carried_by.get(index)", "True")),
    mutant("a mark ends before those that were named are asked", "protocol-rules.md 5.1", "healing",
           (f"{FREEING}:_Freed._name", "run.lock is None or not any(each.holds_entries for each in moves)", "True")),
    mutant("a worker does not ask those that another one named", "protocol-rules.md 5.1", "healing",
           ("quire.replication.autorecovery.ledger:Repairer._concerned",
            "replaced = not named.issuperset(shortage.missing)", "replaced = False")),
    mutant("a ledger is marked inside the delay", "protocol-rules.md 5.3", "healing",
           ("quire.replication.core.absences:Absences._judge", ">= self._delay_s", ">= 0.0")),
    mutant("a mark goes by a version that is not the present one", "metadata-rules.md 11.5", "healing",
           (f"{REPAIRS}._leaving", "Delete(path, shortage.version)", "Delete(path, ANY)")),
    mutant("a ledger that is not whole leaves the queue", "protocol-rules.md 5.4", "healing",
           ("quire.replication.autorecovery.worker:Worker._work", "if outcome.done:", "if True:")),
    mutant("an auditor goes on without its vote", "metadata-rules.md 12.1", "healing",
           ("quire.replication.autorecovery.running:Candidate._lost", "self._resign()", "pass"),
           ("quire.replication.autorecovery.running:Candidate._judge", "elif not won:", "elif False:")),
    mutant("lost bookies that were back unseen are marked no more", "metadata-rules.md 13.2", "healing unseen",
           ("quire.replication.autorecovery.losses:Losses._see", "if not follows:", "if False:")),
    mutant("an absence goes on though the bookie may have been back", "protocol-rules.md 5.3", "healing unseen",
           ("quire.replication.autorecovery.losses:Losses._see", "follows=follows", "follows=True")),
    mutant("a mark for a bookie that was back is not made again", "metadata-rules.md 11.5", "healing unseen",
           ("quire.replication.autorecovery.losses:Losses._mark_some",
            "not self._news.isdisjoint(still)", "False")),
    mutant("a worker replaces a bookie inside the delay", "protocol-rules.md 5.3", "healing restarts",
           ("quire.replication.autorecovery.ledger:Absent.inside", "if not delay_s:", "if True:")),
    # Emptying a bookie that is up
    mutant("a drain fences the writers that it should wait for", "protocol-rules.md 5.5", "drain",
           ("quire.replication.decommission:drain", "fence=False", "fence=True")),
    mutant("a bookie is drained though writers would have nowhere to go", "protocol-rules.md 5.5", "drain",
           ("quire.replication.decommission:_check_room", "size > others", "False")),
    mutant("a drain ends while an open ledger names the bookie", "protocol-rules.md 5.5", "drain",
           ("quire.replication.decommission:drain", "left is None and not done.ledgers and not done.failed",
            "left is None")),
    # Who answers
    mutant("an address is kept, and the id that answers there is not read", "protocol.md, who answers", "moves",
           UNNAMED,
           (f"{LINK}._reach", "await self._resolve()",
            "self.__dict__.get('kept') or await self._resolve()\n    self.kept = host, port"),
           (f"{LINK}._leave_alone", "options = self._options", "options, self.kept = self._options, None")),
    mutant("the id that answers is not read", "protocol.md, who answers", "moves", UNNAMED),
    # Bookies that come back empty under their ids
    mutant("a writer takes another incarnation for the one that it knew", "D19, S34", "returns",
           ("quire.client.connections.add_channel:AddChannel._counts_on", "elif met != wanted:", "elif False:")),
    mutant("a writer knows no incarnation before it meets one", "D19, S34", "returns",
           ("quire.client.placement.choice:BookieChoice.incarnations", "info.incarnation if", "None if")),
    mutant("an empty bookie is let in under a decommissioned id", "metadata-rules.md 6.2, 15", "returns",
           (f"{START}:trace_of", "(how := await retired(store, bookie)) is not None", "False")),
    mutant("a decommission leaves no note of the id", "metadata-rules.md 15", "returns",
           ("quire.replication.decommission:decommission", "retire(client.store, bookie, DECOMMISSIONED)",
            "client.store.remove_cookie(bookie)")),
    mutant("an empty bookie is let in though a ledger names it", "metadata-rules.md 6.2", "returns",
           (f"{START}:trace_of", "(ledger := await ledger_naming(store, bookie)) is not None", "False")),
    mutant("directories of another incarnation are let in", "D19, metadata-rules.md 6.2", "returns",
           (f"{START}:incarnation_of", "if others and", "if False and")),
    mutant("a restored bookie keeps its incarnation", "D19", "restore",
           (f"{START}:begin_incarnation", "if left and known.before is not None:", "if True:")),
    # Sessions
    mutant("a bookie that stops unlists its successor", "metadata-rules.md 5.1", "everything",
           *NOT_OURS),
    mutant("a repair lock is given back in another session", "protocol-rules.md 5.1", "surplus",
           *NOT_OURS),
    mutant("a bookie does not look at its own registration", "metadata-rules.md 5.1", "everything",
           (f"{REGISTRY}._follow_own", "self._lost()", "pass")),
    # Readers
    mutant("what comes with a poll is shown as far as it says", "D14", "tail",
           (f"{LEDGER_END}._look", "self._confirmed(coverage)",
            "coverage.lac = max(coverage.lac, answer.lac or 0); self._confirmed(coverage)")),
    mutant("a tail does not rest when a hint came to nothing", "D14", "out of order",
           (f"{LEDGER_END}.await_news", "await self._pause(min(seconds, self._rest, max(0.0, self._rest - waited)))",
            "pass")),
    # Superfluous copies
    mutant("a superfluous copy goes though the others do not answer", "protocol-rules.md 5.2", "surplus",
           (f"{SURPLUS}:_judge", "if not check.complete:", "if False:")),
    mutant("a superfluous copy of a ledger that is not closed goes", "protocol-rules.md 5.2", "idle writer",
           (f"{SURPLUS}:is_surplus", "metadata.is_closed and all(", "all(")),
    mutant("a superfluous copy goes with its fence", "S10", "surplus",
           (f"{WRITES}.drop_copy", "left.fenced = left.key_logged = True", "left.key_logged = True"),
           (f"{WRITES}.drop_copy", "pack_block(FENCE, 0, ledger, 0),", "")),
    *LOG_MUTANTS,
    *MESSAGE_MUTANTS,
    *MIRROR_MUTANTS,
)  # fmt: skip


def hunted(mutant: Mutant, seeds_max: int = SEEDS_MAX, first: int = 0) -> tuple[int, str]:
    """How many seeds from `first` on caught the mutant, and the promise that it broke; (0, "") if it lives."""
    profile = PROFILES[mutant.profile]
    with mutant.applied():
        for seed in range(first, first + seeds_max):
            _history, violation = replay(draw(profile, seed))
            if violation is not None:
                return seed + 1 - first, violation.invariant
    return 0, ""


def row(mutant: Mutant) -> tuple[bool, str]:
    """Whether it was caught, and its line of the table."""
    start = time.process_time()
    seeds, invariant = hunted(mutant)
    seconds = time.process_time() - start
    line = f"| {mutant.name} | {mutant.guard} | {mutant.profile} | {seeds or 'ALIVE'} | {invariant} |"
    return bool(seeds), line + (f" {seconds:.0f} s" if seconds > 10 else "")


def hunt(names: Sequence[str], processes: int) -> int:
    """Takes each guard away in turn and prints the table of docs/simulation.md; 1 when a mutant lives."""
    wanted = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    if unknown := set(names) - {mutant.name for mutant in wanted}:
        sys.exit(f"no mutant is called {', '.join(map(repr, sorted(unknown)))}")
    print("| guard taken away | rule | profile | seeds until caught | by |\n|---|---|---|---|---|", flush=True)
    all_caught = True
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:  # the caller may have threads
        for caught, line in pool.map(row, wanted):
            all_caught &= caught
            print(line, flush=True)
    return int(not all_caught)
