"""
Guards of named logs, as `mutants.py` has those of ledgers.

Three guards have a test and no mutant.  That nothing more goes to a segment that a publisher has ended
(`tests/log/owner/appending/test_sending.py`): 2,000 histories do not meet what it leads to.  That a lease is looked at
again after the value was taken (`tests/log/machine/test_proofs.py`): nothing comes between the two in a history.  That
it does not count for a segment which was opened without (`tests/log/owner/test_lease.py`): 2,000 histories do not meet
that, either.
"""

from tests.simulation.guards import mutant

TENURE, SEGMENTS = "quire.log.owner.tenure:Tenure", "quire.log.owner.segments:OwnedSegments"
MACHINE, EDITS, CLAIMS = (
    "quire.log.core.ownership:Ownership",
    "quire.log.core.edits",
    "quire.log.owner.claims:Claims",
)
LEASES, LEASE = "quire.log.store.leases:Leases", "quire.log.owner.lease:OwnerLease"
PROOFS = "quire.log.machine.proofs:Proofs"
COMPACTION = "quire.log.core.streams.compaction"
HOLDING = "quire.log.streams.holding:Holding"
MERGING = "quire.log.upkeep.merging"
SINK, PUBLISHING = "quire.log.publish.sink:Sink", "quire.log.core.publishing"

# beside them, for a lease that no claim has given to an owner would be nobody's
ANY_EPOCH = ("quire.log.core.machine.lease:Lease.held", "self.epoch != epoch or ", "")

LOG_MUTANTS = (
    # Owners
    mutant("a segment is written before it is named", "logs.md, a log's life", "log takeover",
           (f"{SEGMENTS}._create_ledger", "self._reached(\"open.created\")",
            "await writer.append(b'early')\n    self._reached('open.created')")),
    mutant("a fenced segment is closed with what its owner remembers", "logs.md, safety", "log takeover",
           (f"{SEGMENTS}._recover", "ended.last, ended.counts",
            "ended.last, ended.counts if self._settles else self._counts")),
    mutant("a claim does not raise the epoch", "logs.md, the owner", "log takeover",
           (f"{EDITS}:Claim.apply", "epoch = manifest.epoch + 1", "epoch = manifest.epoch or 1")),
    mutant("an owner's open or roll does not check token and epoch", "logs.md, the owner", "log takeover",
           (f"{EDITS}:OpenSegment.apply", "self.me.check(manifest)", "pass")),
    mutant("a fenced owner sends again what is in its ledger", "logs.md, safety", "log takeover",
           (f"{MACHINE}._known", "self._release(last)", "self._release(-1)")),
    mutant("a fenced owner acknowledges what is not in its ledger", "logs.md, safety", "log takeover",
           (f"{MACHINE}._known", "self._release(last)", "self._release(1 << 60)")),
    mutant("a fenced owner takes what it sent as not sent", "logs.md, safety", "log takeover",
           (f"{MACHINE}._end_sending", "self.items[self.sent - 1].last == m.UNSENT", "True")),
    mutant("a deposed owner fails what is in its ledger", "logs.md, safety", "log takeover",
           (f"{MACHINE}._lost_settled",
            "self._release(given.entries - 1 if isinstance(given, m.SegmentEnded) else given.last)",
            "self._fail(self._take(self.sent), self.error)")),
    mutant("an edit whose answer was lost gets a new id", "log-design.md, edits", "log late",
           (f"{TENURE}._edit", "self.records.edit(edit, id_,", "self.records.edit(edit, self.records.new_id(),")),
    mutant("an owner deletes its ledger while the edit may land", "log-design.md, edits", "log late",
           (f"{TENURE}._edit", "await pause(self._clock, self._poll_s)",
            "if edit.name in ('open', 'roll'):\n                await self._ledgers.delete(edit.ledger)\n"
            "                self._feed(m.NewLedgerVanished())\n                return None\n"
            "            await pause(self._clock, self._poll_s)")),
    mutant("an owner names its ledger without looking it up again", "log-design.md, where the design was left",
           "log trim",
           (f"{TENURE}._edit_open", "await self._edit(edit, is_open, writers[effect.ledger].known)",
            "await self._edit(edit)")),
    mutant("orphans are deleted without being doomed", "log-operating.md, orphans", "log trim",
           ("quire.log.upkeep.orphans:Removal.remove", "if named.gone:", "if True:")),
    mutant("claims are compared by process", "metadata-rules.md 10", "log takeover",
           (f"{CLAIMS}._seen", "token = token_of(found)",
            "token = token_of(found)\n    same = found is not None and json.loads(found.value)['host'] == "
            "self._candidacy.host\n    token = self._token if same else token")),
    mutant("the number of an empty segment comes again", "logs.md, safety", "log takeover",
           (f"{EDITS}:closed", "segments=manifest.segments[:-1],", "segments=manifest.segments[:-1], next=found.n,")),
    mutant("a call denies what is in the log", "log-design.md, where the design was left", "log takeover",
           ("quire.log.owner.appending.appends:Call.fail", "if (stored or self.is_under_way) and", "if False and")),
    mutant("a claim that lands after its handle has left stays", "metadata-rules.md 10", "log late",
           (f"{CLAIMS}._has_left", "return not self._unanswered", "return True")),
    mutant("a log made again has the place of the old one", "log-design.md, where things are", "log end",
           ("quire.log.upkeep.known_logs:KnownLogs._create", "f\"{self.bk.random.getrandbits(128):032x}\"",
            "f\"{sum(name.encode()):032x}\"")),
    mutant("a plain ledger is taken in without a record of it", "log-publishing.md, plain ledgers", "log publish",
           ("quire.log.publish.adopting:Adopting._beside",
            "return ledgers.adopted(self._log.log, self._edit, published, n, first)", "return []")),
    mutant("an owner gives its ledger's writer more than its window takes", "logs.md, a first program",
           "log takeover",
           ("quire.log.owner.appending.sending:Sending._go_on", "while waiting and not writer.window_full:",
            "while waiting:")),
    # Leases, and reads without an append
    mutant("an owner hears of entries that it sent together when all are acknowledged",
           "log-replicas.md, linearizable reads",
           "log lease",
           (f"{TENURE}._begin_segment", "self._writer.on_acknowledged = lambda last: self._acked(number, last)",
            "pass"),
           (f"{SEGMENTS}._appended", "done.addErrback(self._writer_failed, n)",
            "done.addCallbacks(lambda ids: self._acked(n, ids[-1]), self._writer_failed, errbackArgs=(n,))")),
    mutant("a takeover does not wait out the lease", "log-replicas.md, linearizable reads", "log lease",
           (f"{LEASES}.ended", "while (left := until - self.boottime()) > 0:", "while (left := 0) > 0:")),
    mutant("the lease is not freed in the step that claims the log", "log-replicas.md, linearizable reads", "log lease",
           (f"{LEASES}.edit", "await perform(edit, beside=self.freed(ended))", "await perform(edit)"), ANY_EPOCH),
    mutant("a claim leaves a free lease as it is", "log-replicas.md, linearizable reads", "log lease",
           (f"{LEASES}._freed", "if ended.lease.state == OFF and not on:", "if not ended.lease.lasts:"), ANY_EPOCH),
    mutant("a lease is counted from the answer", "log-replicas.md, linearizable reads", "log lease",
           (f"{LEASE}._hold", "end_of(sent, ms)", "end_of(self.leases.boottime(), ms)")),
    mutant("readers of a leased segment end at their ledger's close", "log-replicas.md, linearizable reads",
           "log lease",
           ("quire.log.reader.one_segment:_last_of", "segment.is_open and segment.leased", "False"),
           ("quire.log.reader.one_segment:SegmentReader.batches", "past_close=not segment.leased", "past_close=True")),
    mutant("an owner's read by index does not look at its ledger", "log-replicas.md, linearizable reads", "log lease",
           (f"{PROOFS}._is_open", "await self._ledgers.is_open(segment.ledger)", "True")),
    mutant("an owner's read by index forgets what others published", "log-replicas.md, linearizable reads",
           "log replica",
           (f"{PROOFS}._round", "if before is None:\n            return max(end, manifest.closed_end[0])",
            "if before is None:\n            return end")),
    mutant("a read by index elsewhere goes by the last add confirmed", "log-replicas.md, linearizable reads",
           "log lease",
           ("quire.log.machine.proofs:Horizon.stored", "Stored(segment, reader, last)",
            "Stored(segment, reader, _confirmed)")),
    mutant("the producers' table is not replayed", "log-publishing.md, producers", "log producers",
           ("quire.log.upkeep.keeping:replayed", "found.load(_table(entry.data))", "pass")),
    mutant("a part of a batch counts its sequences from the first of the call", "partitioned-logs.md, which partition",
           "log partitions",
           ("quire.log.partitions.owner:PartitionedOwner._append", "first + run[0]", "first")),
    # Readers
    mutant("a reader judges before it looks at the manifest", "logs.md, safety", "log trim",
           ("quire.log.reader.view:judged", "await view.fresh()", "await view.manifest()")),
    mutant("half a large batch at the end of a ledger is damage", "log-design.md, entries", "log takeover",
           ("quire.log.reader.one_segment:SegmentReader.batches", "end = assembler.progress.ordinal,",
            "end = assembler.progress.ordinal + bool(assembler._group),")),
    # Replicas
    mutant("a trim goes up to the newest snapshot", "log-replicas.md, replicas", "log replica",
           ("quire.log.store.holds:own_holds", "kept = min((each.index", "kept = max((each.index")),
    mutant("an older snapshot replaces a newer one", "log-replicas.md, replicas", "log replica",
           ("quire.log.core.machine.snapshots:NameSnapshot.apply", "made.index <= newest(manifest)", "False"),
           ("quire.log.machine.snapshots:SnapshotWriter.write", "if kept and max(kept) >= index:", "if False:")),
    # Publishers
    mutant("an abort does not move the txn", "log-publishing.md, publishing", "log publish",
           (f"{SINK}.abort", "if await self._txns.write(marked, found.version):", "if True:"),
           (f"{SINK}._clean", "if not publishing.is_dead(", "if what != 'abort' and not publishing.is_dead(")),
    mutant("a commit does not delete the intents", "log-publishing.md, publishing", "log publish",
           (f"{SINK}._publish", "for part in parts if part.intent]", "for part in ()]")),
    mutant("a commit takes parts of an earlier claim", "log-publishing.md, publishing", "log publish",
           (f"{PUBLISHING}:check_parts", "(part.txn, part.run, part.claim, part.batch) != wanted",
            "(part.txn, part.batch) != (txn.txn, batch)"),
           (f"{SINK}._verify_one", "or named != wanted", "")),
    mutant("a commit ignores the abort of its run", "log-publishing.md, publishing", "log publish",
           (f"{PUBLISHING}:committing", "if is_aborted(txn, batch):", "if False:")),
    mutant("the janitor takes intents of the living batch", "log-publishing.md, publishing", "log publish",
           (f"{SINK}._clean", "if not publishing.is_dead(txn, parsed.batch, intent.claim):", "if False:")),
    mutant("the janitor reads the intents before the txn", "log-publishing.md, publishing", "log publish",
           (f"{SINK}._clean", "for name in await self._txns.names():", "for name in list(seen):"),
           (f"{SINK}._clean", "txn = (await self._txns.read()).value",
            "seen = {}\n        for name in await self._txns.names():\n            with suppress(NoRecord):\n"
            "                seen[name] = await self._txns.intent(name)\n"
            "        txn = (await self._txns.read()).value"),
           (f"{SINK}._clean", "intent, version = await self._txns.intent(name)",
            "intent, version = seen.pop(name, None) or await self._txns.intent(name)")),
    mutant("the janitor deletes without fencing", "log-publishing.md, publishing", "log publish",
           ("quire.log.store.ledgers:LogLedgers.delete", "await self._client.recover_ledger(ledger)",
            "await self._client.metadata(ledger)")),
    mutant("a later abort forgets an earlier one's mark", "log-publishing.md, publishing", "log publish",
           (f"{PUBLISHING}:aborting", "min(batch, before.batch)", "batch")),
    # Compaction
    mutant("a compaction forgets which keys were looked at", "log-keeping.md, compaction by key", "log compact",
           (f"{COMPACTION}:Newest.end_pass", "self._low, self._bound = self._bound, ABOVE_ALL",
            "self._low, self._bound = ABOVE_ALL, ABOVE_ALL")),
    mutant("a lower horizon takes the place of a higher one", "log-keeping.md, compaction by key", "log compact",
           (f"{COMPACTION}:Compact.apply", "before.horizon >= self.done.horizon", "before == self.done")),
    mutant("a compacted ledger is named without a look", "log-keeping.md, compaction by key", "log compact",
           ("quire.log.streams.compaction:Compaction._named", "id_, look_up=are_closed)", "id_)"),
           (f"{COMPACTION}:Compact.apply", "if any(is_doomed(manifest, each.ledger) for each in self.done.ledgers):",
            "if False:")),
    mutant("the former compaction's ledgers are forgotten", "log-keeping.md, compaction by key", "log compact",
           (f"{COMPACTION}:Compact.apply", "doomed=(*manifest.doomed, *doomed)", "doomed=manifest.doomed")),
    mutant("a compaction goes on with one that lacks trimmed records", "log-keeping.md, compaction by key",
           "log settings",
           ("quire.log.core.manifest:Manifest.standing", "done is None or done.horizon + 1 < self.begin.index",
            "done is None")),
    mutant("a compaction is named that lacks trimmed records", "log-keeping.md, compaction by key", "log settings",
           (f"{COMPACTION}:Compact.apply", "if after.standing is None:", "if False:")),
    # Merging
    mutant("small segments go before the large one is named", "log-operating.md, merging small segments", "log merge",
           (f"{MERGING}:Merges.merge", "if not await self._named(run, before, segment):",
            "await self._context.ledgers.delete_all([each.ledger for each in before])\n"
            "    if not await self._named(run, before, segment):")),
    mutant("a merged ledger is named without a look", "log-operating.md, merging small segments", "log merge",
           (f"{MERGING}:Merges._named", "found is None or not await self._is_closed(segment.ledger)", "found is None"),
           ("quire.log.core.merging:Merge.apply", "is_doomed(manifest, self.segment.ledger)", "False")),
    mutant("what was merged is forgotten", "log-operating.md, merging small segments", "log merge",
           ("quire.log.core.merging:Merge.apply", "doomed=(*manifest.doomed, *doomed)", "doomed=manifest.doomed")),
    mutant("a merged segment has the number of its first", "log-design.md, where the design was left", "log merge",
           ("quire.log.core.merging:merged", "last.n,", "first.n,")),
    # Settings
    mutant("settings are checked before the edit only", "log-design.md, edits", "log settings",
           ("quire.log.core.upkeep_edits:Update.apply", "self.check(settings)", "pass")),
    # Cursors
    mutant("a new cursor does not move the manifest", "logs.md, cursors", "log cursors",
           ("quire.log.streams.cursors:make", "await log.edit(Hold(), edit, beside)",
            "known = (await log.read()).value\n        await log.records.multi(list(beside(known, known)))")),
    mutant("a trim reads the holds before the manifest", "log-keeping.md, trimming, ending, deleting", "log cursors",
           ("quire.log.upkeep.trims:trim_to", "wanted = await choose(manifest)", "pass"),
           ("quire.log.upkeep.trims:trim_to", "manifest, version = await context.log.read()",
            "wanted = await choose((await context.log.read()).value)\n"
            "        manifest, version = await context.log.read()")),
    mutant("a cursor's ledger is named before its checkpoint is stored", "logs.md, cursors", "log cursors",
           (f"{HOLDING}._begin", "await begun.write_checkpoint(self.marks)",
            "await self.record.change(self._named(begun))\n        await begun.write_checkpoint(self.marks)")),
    mutant("a holder writes its mark over a policy's", "logs.md, cursors", "log cursors",
           (f"{HOLDING}.follow", "self.marks.rise(value.mark)", "pass"),
           (f"{HOLDING}.fold", "max(value.mark, self.marks.mark)", "self.marks.mark")),
    mutant("a holder does not look whether the cursor is still its", "logs.md, cursors", "log cursors",
           (f"{HOLDING}._check_mine", "if value.holder != self._token:", "if False:")),
    mutant("what a cursor's ledger says counts from the value's mark", "logs.md, cursors", "log cursors",
           ("quire.log.streams.holding:_entries", "yield entry", "yield entry._replace(mark=entry.mark + 1)")),
)  # fmt: skip
