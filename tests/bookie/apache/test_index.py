"""
Apache's two indexes against a dict: what is found, the next that is there, ranges, runs cut where records do not lie
together, writing and deleting.
"""

import pathlib
import random
import struct

import pytest

from quire.bookie.apache.idx_files import Pages
from quire.bookie.apache.index import ENTRY, LOCATION, ApacheIndex, Locations, location
from quire.bookie.index.ledger_table import LedgerRow
from quire.rows.files import Files, StorageError
from tests.rows.fakes import DictRows

ROW = LedgerRow(b"k" * 20, fenced=True, explicit_lac=b"l" * 24)


class Log:
    """An entry log in memory."""

    def __init__(self) -> None:
        self.data = bytearray(1024)

    def add(self, ledger: int, entry: int, size: int) -> int:
        """Its location."""
        at = len(self.data)
        self.data += struct.pack(">iqq", size + 16, ledger, entry) + random.Random(entry).randbytes(size)
        return location(3, at)

    def read(self, log: int, offset: int, count: int) -> bytes:
        if log != 3:
            raise FileNotFoundError(f"{log:x}.log")
        return bytes(self.data[offset : offset + count])


def made(kind: str, log: Log, folder: pathlib.Path) -> ApacheIndex:
    if kind == "idx":
        return Pages(Files(), str(folder), log.read, lambda ledger: ROW)
    return Locations(DictRows(), log.read)


@pytest.mark.parametrize("kind", ["locations", "idx"])
@pytest.mark.parametrize("mixed", [False, True], ids=["flushed in order", "interleaved"])
def test_an_index_is_a_dict(kind: str, mixed: bool, tmp_path: pathlib.Path) -> None:
    """Of entries with gaps, in two ledgers, whose records lie together or between each other's."""
    log = Log()
    rng = random.Random(5)
    wanted = [(ledger, entry) for ledger in (7, 0x12345) for entry in sorted(rng.sample(range(2600), 1500))]
    if mixed:
        rng.shuffle(wanted)
    places = {key: log.add(*key, rng.randrange(9, 60)) for key in wanted}
    index = made(kind, log, tmp_path)
    assert index.store((ledger, entry, [place]) for (ledger, entry), place in places.items()) == len(places)
    index.sync()
    for ledger in (7, 0x12345, 8):
        have = sorted(entry for of, entry in places if of == ledger)
        assert index.last(ledger) == (have[-1] if have else -1)
        assert [entry for first, count in index.ranges(ledger) for entry in range(first, first + count)] == have
        for at in (0, 1, 1029, 2599, 2600, 100_000):
            assert index.following(ledger, at) == next((entry for entry in have if entry >= at), None)
        seen = []
        for run in index.runs(ledger, 0, 1 << 40):
            at = run.offset
            for entry, size in enumerate(run.sizes(), run.first):
                assert location(run.log, at) == places[ledger, entry]
                assert struct.unpack_from(">iqq", log.data, at) == (size, ledger, entry)
                seen.append(entry)
                at += 4 + size
        assert seen == have
        part = [entry for run in index.runs(ledger, 500, 700) for entry in range(run.first, run.last + 1)]
        assert part == [entry for entry in have if 500 <= entry <= 700]
    index.delete(7)
    assert (index.last(7), index.find(7, min(entry for of, entry in places if of == 7)), list(index.ranges(7))) == (
        -1,
        None,
        [],
    )
    assert index.last(0x12345) >= 0
    index.close()


@pytest.mark.parametrize("kind", ["locations", "idx"])
def test_what_is_indexed_and_not_there_is_an_error(kind: str, tmp_path: pathlib.Path) -> None:
    """Another entry's record, one that is cut off, a log that is gone."""
    log = Log()
    index = made(kind, log, tmp_path)
    other = log.add(1, 6, 30)
    cut = log.add(1, 7, 30)
    del log.data[-1:]
    index.store([(1, 5, [other]), (1, 7, [cut]), (1, 9, [location(4, 2000)])])
    for entry in (5, 7):
        with pytest.raises(StorageError, match=f"entry {entry} of ledger 1"):
            index.find(1, entry)
    with pytest.raises(FileNotFoundError):
        index.find(1, 9)
    assert index.find(1, 6) is None


def test_a_row_of_another_size_is_damage() -> None:
    """With its bytes; it is never taken for an entry that is not there."""
    for row in ((ENTRY.pack(1, 5), b"short"), (ENTRY.pack(1, 5) + b"longer", LOCATION.pack(location(0, 1024)))):
        index = Locations(DictRows(dict([row])), Log().read)
        with pytest.raises(StorageError, match="a row with"):
            index.locations(1, 5, 2)
        if len(row[0]) > ENTRY.size:
            with pytest.raises(StorageError, match="a row with"):
                index.following(1, 0)
