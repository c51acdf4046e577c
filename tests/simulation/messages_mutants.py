"""
Guards of message stores, as `mutants.py` has those of ledgers.

Two guards have a test and no mutant, since no history has a source that is damaged or that a checkpoint contradicts:
that the end which DLedger's checkpoint says does not count (`tests/messages/rocketmq/test_plan.py`), and that more is
looked for behind the first bad place (`tests/messages/rocketmq/test_walking.py`).  A third has one since histories met
it once in 700: that no offset is given before all is applied that was there (`tests/messages/test_standing.py`).
"""

from tests.simulation.guards import mutant

ASSIGN = "quire.messages.core.assign:Assigner.assign"
LAYOUT, IMPORTING = "quire.messages.core.layout", "quire.messages.rocketmq.importing:Importing"
FOLLOWING, PLACING = "quire.messages.derived.following:Following", "quire.messages.core.queues:Placing.position"

MESSAGE_MUTANTS = (
    # Puts
    mutant("a draft that comes again keeps what it was filled with", "messages.md, M2", "messages",
           (ASSIGN, "values.append(_filled(draft, position, place, store_ms))",
            "values.append(draft.__dict__.setdefault('made', _filled(draft, position, place, store_ms)))")),
    mutant("an entry that is encoded again takes nothing back", "messages.md, M1", "messages",
           ("quire.messages.core.assign:Assigner.undo", "self._calls[-1].end > index", "False")),
    mutant("a replica applies what was appended, not what was stored", "messages.md, M1", "messages",
           ("quire.log.owner.appending.sending:Sending._encode", "batch.stored = records", "pass")),
    mutant("a caller is told what the first call gave its draft", "messages.md, M3", "messages",
           (ASSIGN, "draft.offset, draft.position, draft.store_ms = place, position, store_ms",
            "if draft.offset < 0:\n"
            "                draft.offset, draft.position, draft.store_ms = place, position, store_ms")),
    mutant("the filler before a group is decided by its first record", "messages.md, places", "messages",
           (ASSIGN, "if group and place + group + FILLER_BYTES > file_end",
            "if place + size + FILLER_BYTES > file_end"),
           (ASSIGN, "self._begin, group,", "self._begin, size,")),
    mutant("a record that fits to the last byte goes to the next file", "messages.md, places", "messages",
           (f"{LAYOUT}:skip_before", "size + FILLER_BYTES > left", "size + FILLER_BYTES >= left")),
    mutant("a record of one byte too much for a file is taken", "messages.md, statuses", "messages",
           (f"{LAYOUT}:fits", "size + FILLER_BYTES <= file_bytes", "size + FILLER_BYTES <= file_bytes + 1")),
    # Rows and reads
    mutant("the checkpoint of rows is not in their write", "messages.md, rows", "messages",
           ("quire.messages.derived.dispatch:Dispatch._write", "self.rows.write(self._puts)",
            "self.rows.write(self._puts[-1:])\n    self.rows.write(self._puts[:-1])")),
    mutant("rows are made of what is not acknowledged", "messages.md, M4", "messages",
           ("quire.client.handles.end_of_ledger:EndOfLedger.confirm", "max(self.lac, lac)", "max(self.lac, lac + 1)")),
    mutant("rows of another log are taken", "messages.md, M5", "messages",
           (f"{FOLLOWING}._check", "known.log != self._id", "False")),
    mutant("rows are served whose checkpoint is not in the log", "messages.md, M5", "messages",
           (f"{FOLLOWING}._check",
            "(batch.index, end, crc32c(batch.values[0])) == (known.index - 1, known.position, known.crc)", "True")),
    mutant("keys are compared by their hash alone", "messages.md, reads", "messages",
           ("quire.messages.derived.reads:Reads._queried",
            "record.topic == topic and key in words(record.properties)", "True")),
    # Imports
    mutant("48 is added twice to a place of DLedger", "messages.md, places", "messages import",
           ("quire.messages.derived.dispatch:stored_at", "return offset, record",
            "return offset + inset, record")),
    mutant("a double has the position of the one before", "messages.md, positions", "messages import",
           (PLACING, " or offset in self.doubles", "")),
    mutant("a gap of a source is left open", "messages.md, positions", "messages import",
           (PLACING, "position -= found[1][before - 1]", "pass")),
    mutant("a gap of a source moves what is put later", "messages.md, positions", "messages import",
           (PLACING, "if offset < self.end and", "if")),
    mutant("next positions come from records alone", "messages.md, import", "messages import",
           ("quire.messages.rocketmq.plan:_Planning._compare_queues",
            "self._next.append(Next(topic, queue, last.next))", "pass")),
    mutant("a ready store takes published ledgers", "messages.md, import", "messages import",
           (f"{IMPORTING}.run", "await self._logs.update(self._name, publish=False)", "pass")),
    mutant("each run of an import has a transaction of its own", "messages.md, import", "messages import",
           (f"{IMPORTING}._copy", "self._name, txn, run", "self._name, run, run")),
    mutant("an import is ready before its table is saved", "messages.md, import", "messages import",
           (f"{IMPORTING}.run", "await self._save_table()",
            "await self._end(descriptor)\n    await self._save_table()")),
)  # fmt: skip
