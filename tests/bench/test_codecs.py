"""The codec figures: every row is measured and none is absurd."""

from bench import codecs

# SPDX-License-Identifier: Apache-2.0


def test_adds_are_measured_in_both_generations(monkeypatch):
    """Packing, parsing, acknowledging and parsing acknowledgements have a positive cost in V2 and V3."""
    monkeypatch.setattr(codecs, "ROUNDS", 1)
    monkeypatch.setattr(codecs, "KEPT_BUSY_S", 0.0001)
    row = codecs.adds([10, 20, 10])
    assert [name for name in row if name.startswith("V2")] == ["V2 pack", "V2 parse", "V2 ack", "V2 parse acks"]
    assert len(row) == 8
    assert all(cost > 0 for cost in row.values())


def test_reads_are_measured_one_by_one_and_in_a_batch(monkeypatch):
    """The table has a positive cost for single reads, batch reads and the check of digests."""
    monkeypatch.setattr(codecs, "ROUNDS", 1)
    monkeypatch.setattr(codecs, "KEPT_BUSY_S", 0.0001)
    row = codecs.reads(3)
    assert {"V2 parse", "V3 answer", "batch answer", "check digests"} <= set(row)
    assert all(cost > 0 for cost in row.values())


def test_a_cost_is_per_entry(monkeypatch):
    """The clock moves 3 s per round of one call that handled 3 entries."""
    ticks = iter(range(0, 300, 3))
    monkeypatch.setattr(codecs.time, "process_time", lambda: float(next(ticks)))
    assert codecs.microseconds(lambda: None, 3) == 1e6
