"""A hundred thousand queues: their table, their rows, and what opening takes."""

import time
import tracemalloc

import pytest

from quire.messages.core.queues import Placing, QueueTable
from quire.messages.core.record import unpack
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import Lookup
from quire.rows.rocks import RocksRows
from tests.messages.derived.stores import LOG, made, portions

# SPDX-License-Identifier: Apache-2.0

QUEUES = 100_000


@pytest.mark.long
def test_a_hundred_thousand_queues(tmp_path):
    """The table has at most 40 MB, its snapshot at most 2 s, rows are open within 5 s, of CPU time."""
    values = made([(f"topic-{n // 8}", n % 8, 0, {"body": b""}) for n in range(QUEUES)])
    records = [unpack(each.value) for each in values]
    tracemalloc.start()
    table = QueueTable()
    for record in records:
        table.take(record)
    size, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 40e6
    begun = time.process_time()
    saved = b"".join(table.save())
    assert time.process_time() - begun < 2
    loaded = QueueTable()
    loaded.load([saved])
    assert b"".join(loaded.save()) == saved
    rows = RocksRows(str(tmp_path / "rows"))
    Dispatch(rows, LOG, Placing()).take(portions(values, 1000))
    rows.close()
    begun = time.process_time()
    rows = RocksRows(str(tmp_path / "rows"))
    lookup = Lookup(rows, 0)
    assert Dispatch(rows, LOG, Placing()).checkpoint.index == QUEUES
    assert len(lookup.topics()) == QUEUES // 8
    assert lookup.queues("topic-77") == list(range(8))
    assert lookup.bounds("topic-12499", 7) == (0, 1)
    assert time.process_time() - begun < 5
    rows.close()
