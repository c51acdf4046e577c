"""The columns of a batch: what is there, what a later version added, and what does not fit."""

import pytest

from quire.log.core import batch as columns
from quire.log.core.batch import ADVANCE_MAX, Batch, ProducerRun, Records, encode_body
from quire.log.core.frame import Assembler, Kind, pack_entries
from quire.protocol.log_errors import LogDamaged, UnknownFormat
from tests.log.core.test_frame import inflate

# SPDX-License-Identifier: Apache-2.0


def test_unknown_columns():
    """One below 128 is passed over, one from 128 on is refused."""
    known = encode_body(Records([b"a"]))
    for column in (100, 127, 128, 255):
        body = b"\2" + columns.COLUMN.pack(column, 3) + known[1:6] + b"xyz" + known[6:]
        entry = pack_entries(Kind.BATCH, body, ordinal=0, offset=0, stamp=0, records=1, value_bytes=1)[0]
        if column < 128:
            assert Assembler(inflate).feed(entry).values == [b"a"]
        else:
            with pytest.raises(UnknownFormat, match=str(column)):
                Assembler(inflate).feed(entry)


def test_a_body_is_bounded():
    """A batch of more than 64 MiB, or more records than a reader takes, can't be encoded."""
    with pytest.raises(ValueError, match="larger"):
        encode_body(Records([bytes(columns.BODY_BYTES_MAX)]))
    for count in (0, columns.RECORDS_MAX + 1):
        with pytest.raises(ValueError, match=f"{count} records"):
            encode_body(Records([b""] * count))


def test_columns_that_are_not_there():
    """None, or no producers; positions need no skips."""
    made = Batch(encode_body(Records([b"ab", b"c"])), 5, 50, 7, 2, 3)
    assert made.keys is made.times is made.headers is made.skips is made.indexes is None
    assert made.producers == []
    assert made.offsets == [50, 52]


def test_runs_of_producers():
    """Each names its producer once; one that names records that are not there is damage."""
    runs = [ProducerRun("a", 0, 2, 10), ProducerRun("b", 2, 1, 0), ProducerRun("a", 3, 1, 99)]
    records = Records([b""] * 4, producers=runs)
    assert Batch(encode_body(records), 0, 0, 0, 4, 0).producers == runs
    records.producers = [ProducerRun("a", 3, 2, 0)]
    made = Batch(encode_body(records), 0, 0, 0, 4, 0)
    with pytest.raises(LogDamaged, match="producers"):
        _ = made.producers


@pytest.mark.parametrize("count", [0, 1, 3, 70_000])
def test_counts_that_contradict_the_columns(count):
    """A batch of two that says another number."""
    body = encode_body(Records([b"ab", b"c"]))
    with pytest.raises(LogDamaged):
        _ = Batch(body, 0, 0, 0, count, 3).values


def test_how_far_one_batch_advances():
    """Values and skips together have 32 bits in the header of its entry."""
    assert encode_body(Records([b"x", b"y"], skips=[ADVANCE_MAX - 2, 0]))
    with pytest.raises(ValueError, match="values and skips have 4294967296 bytes: at most 4294967295 fit"):
        encode_body(Records([b"x", b"y"], skips=[ADVANCE_MAX - 2, 1]))
