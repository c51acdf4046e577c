"""
Ledgers of an Apache bookie's directory of which its index may have lost entries: a look from the entry logs to index
and ledger table, at the moment of the takeover.

RocksDB and `.idx` files lose what was written last without a word: a log of writes that is cut or gone, a file that is
cut or gone.  The records are in the entry logs, which are written before the index, so the newest logs show it.

* Logs without a ledgers map, and the newest ones down to the first that the index has whole, are walked, heads only:
  each record's entry has to be in the index.  Whole is a log that was read to its end, of which the index lacks nothing
  and names a record in this log, and none of its entries in an older log: a compaction makes a log of entries that the
  index has elsewhere, with an id above those of logs that are written after it.
* Of the others the map is read: each of its ledgers has to be in the table and in the index, which is looked up once.
* An `.idx` file has whole pages.

Knows: these signs.  Does not know: whether a ledger without a row was deleted, which only the metadata store can tell.
Safety: an entry whose row is gone is denied unless its ledger is in doubt.  A hole in an `.idx` file of which the
records lie in an older log with a map is not seen, nor rows lost of a log that was sealed after a compaction had made
one of a higher id, which the index has whole; `quire bookie check` walks all logs.
"""

from functools import partial
from itertools import takewhile

from quire.bookie.apache.idx_files import Pages
from quire.bookie.apache.joined_index import AHEAD_ENTRIES, JoinedIndex
from quire.bookie.index.ledger_table import LedgerTable
from quire.bookie.index.run_index import RunIndex
from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import HEADER_BYTES, log_name, read_map
from quire.bookie.logs.walk import UNLIMITED, LogWalk, unnamed

# SPDX-License-Identifier: Apache-2.0


def doubted(logs: EntryLogs, index: RunIndex, table: LedgerTable) -> set[int]:
    """Finds the ledgers with records that no index or table row names, after the replay.  `StorageError`, `OSError`."""
    found: set[int] = set()
    if isinstance(index, JoinedIndex) and isinstance(index.apache, Pages):
        found.update(index.apache.cut_off())
    looked_at: set[int] = set()  # ledgers of maps: most are in many logs, and table and index say the same of each
    whole = False  # the index has a newer log whole, so what was written before it is in the index, too
    for log in reversed(logs.ids()):
        if log == logs.current or logs.size(log) <= HEADER_BYTES:
            continue
        mapped = read_map(partial(logs.read, log))
        if mapped is None or not whole:
            whole = _walk(logs, log, index, table, found) or whole
        else:
            fresh = mapped.keys() - looked_at - found
            found.update(ledger for ledger in fresh if table.get(ledger) is None or index.last(ledger) < 0)
            looked_at |= fresh
    return found


def _walk(logs: EntryLogs, log: int, index: RunIndex, table: LedgerTable, found: set[int]) -> bool:
    """Adds the ledgers of one log to `found`; whether the index has the log whole, which Apache's rows alone show."""
    size = logs.size(log)
    walk = LogWalk(partial(logs.read, log), size, log_name(log), UNLIMITED)
    apache = index.apache if isinstance(index, JoinedIndex) else None
    here = older = lost = False

    def counts(ledger: int) -> bool:
        if ledger in found:
            return False
        row = table.get(ledger)
        if row is None:
            found.add(ledger)
            return False
        return not (row.limbo or row.dropped)

    def named(ledger: int, entry: int) -> int:
        nonlocal here, older
        places = apache.locations(ledger, entry, AHEAD_ENTRIES) if apache is not None else []
        if not places:
            return index.named(ledger, entry)
        at = places[0] >> 32
        here = here or at == log
        older = older or at < log
        return entry - 1 + sum(1 for _place in takewhile(lambda place: place >> 32 == at, places))

    for ledger, _entry, _offset in unnamed(walk, size, named, counts):
        lost = True
        found.add(ledger)
    return here and not (older or lost) and (walk.problem is None or walk.cut)
