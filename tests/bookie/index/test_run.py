"""The format of a run."""

import struct

import pytest

from quire.bookie.index.run import EQUAL, LONG, SHORT, Run, encode_run
from quire.bookie.index.run_index import RunIndex
from quire.rows.files import StorageError
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

DAMAGED = [
    b"",
    b"\x01",
    struct.pack(">BIIH", 9, 0, 0, 1) + bytes(8),
    struct.pack(">BIIH", 1, 0, 0, 300) + bytes(8),
    struct.pack(">BIIH", 1, 0, 0, 1) + bytes(9),
]


def test_a_row_is_as_drawn() -> None:
    """Three kinds of sizes; equal ones cost four bytes for the whole run."""
    sums = [7, 8, 9]
    equal = encode_run(5, 1024, [100, 100, 100], sums)
    assert equal == struct.pack(">BIIH", EQUAL, 5, 1024, 3) + struct.pack(">I3I", 100, *sums)
    short = encode_run(5, 1024, [100, 101, 65535], sums)
    assert short == struct.pack(">BIIH", SHORT, 5, 1024, 3) + struct.pack(">3H3I", 100, 101, 65535, *sums)
    long = encode_run(5, 1024, [100, 101, 65536], sums)
    assert long == struct.pack(">BIIH", LONG, 5, 1024, 3) + struct.pack(">3I3I", 100, 101, 65536, *sums)
    run = Run(1, 40, long)
    assert run.at(42) == (1024 + 104 + 105, 65536, 9)
    assert (run.first, run.last, run.count, run.log, run.offset) == (40, 42, 3, 5, 1024)
    assert list(run.sizes()) == [100, 101, 65536]
    full = encode_run(5, 1024, [100] * 256, list(range(256)))
    assert (len(full) + 16) / 256 <= 4.3, "bytes of index for one entry of fixed size"
    mixed = encode_run(5, 1024, [100, *[101] * 255], list(range(256)))
    assert (len(mixed) + 16) / 256 <= 6.5


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_row_is_an_error(damage: bytes) -> None:
    """Never taken for "no such entry"."""
    rows = DictRows()
    rows.write([(struct.pack(">QQ", 1, 0), damage)])
    index = RunIndex(rows)
    with pytest.raises(StorageError, match="ledger 1 entry 0"):
        index.find(1, 0)
    with pytest.raises(StorageError, match="ledger 1 entry 0"):
        index.last(1)
