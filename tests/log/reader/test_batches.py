"""What a reader is given: places in the log, from where it was asked for."""

from quire.log.core.batch import Batch, Records, encode_body
from quire.log.core.values import Segment
from quire.log.reader.batches import LogBatch, Record

# SPDX-License-Identifier: Apache-2.0

SEGMENT = Segment(3, 70, 1, 100, 1000)


def made(records, start=0, segment=SEGMENT):
    """Of a batch that begins at record 5, byte 50 of its ledger."""
    return LogBatch(segment, Batch(encode_body(records), 5, 50, 7, len(records.values), records.size), 9, start)


def test_places_in_the_log():
    """Index and position are those of the segment and of the ledger together."""
    batch = made(Records([b"ab", b"c"], [b"k", None], [None, 9], [(("n", b"v"),), ()]))
    assert (batch.index, batch.count, batch.end, batch.positions) == (105, 2, 107, [1050, 1052])
    assert (batch.place, batch.size) == ((3, 9), 3)
    assert batch.records() == [
        Record(105, 1050, 7, b"ab", b"k", None, (("n", b"v"),)),
        Record(106, 1052, 7, b"c", None, 9, ()),
    ]


def test_the_rest_of_a_batch():
    """A reader that begins inside gets only what it asked for, in all columns."""
    batch = made(Records([b"ab", b"c", b"d"], [b"k", None, b"l"]), 2)
    assert (batch.index, batch.count, batch.values, batch.keys, batch.positions) == (107, 1, [b"d"], [b"l"], [1053])
    assert batch.records() == [Record(107, 1053, 7, b"d", b"l", None, ())]


def test_a_published_segment_has_one_stamp():
    """That of its publishing, for clocks of tasks do not follow the order of the log."""
    segment = Segment(3, 70, 1, 100, 1000, 9, 9, 1, (44, 44), txn="t", batch=1, part=0)
    assert made(Records([b"a"]), segment=segment).stamp_ms == 44
