"""What is counted of a log."""

from quire.log.core.counters import Histogram, LogCounters
from quire.log.core.manifest import new_manifest

# SPDX-License-Identifier: Apache-2.0


def test_a_histogram_s_buckets():
    """An observation at a bound is in its bucket; the last bucket has all."""
    made = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        made.observe(value)
    assert made.buckets() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert made.sum == 12.0


def test_what_is_counted():
    """By batch, by edit and outcome, by why; a lag is never below 0."""
    counters = LogCounters()
    counters.appended(5, 100, 0.01)
    counters.appended(1, 7, 0.5)
    assert (counters.appends, counters.append_bytes, counters.batch_records.sum) == (6, 107, 6)
    for _ in range(2):
        counters.rolled("age")
        counters.edited("claim", "done")
    counters.published("done", 3)
    counters.published("again")
    assert counters.rolls == {("age",): 2}
    assert counters.edits == {("claim", "done"): 2}
    assert (counters.publishes, counters.published_ledgers) == ({("done",): 1, ("again",): 1}, 3)
    counters.tailed(-5, -0.1)
    assert (counters.tail_lag_records, counters.tail_lag_seconds) == (0, 0.0)
    counters.known(new_manifest("a", "id", "e", {}), 77)
    assert (counters.manifest_bytes, counters.segments, counters.doomed) == (77, 0, 0)
