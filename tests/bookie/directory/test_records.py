"""One check of a run's records, the same for every reader."""

import pytest
from crc32c import crc32c

from quire.bookie.directory.records import (
    BATCH_ENTRY,
    EntryDamaged,
    damages,
    read_bodies,
    read_body,
    read_records,
    records_of,
)
from quire.bookie.index.run import Run, encode_run
from tests.bookie.fakes.disk import body_of

# SPDX-License-Identifier: Apache-2.0

OFFSET = 1024
ROOM = 1 << 20
SIZES = pytest.mark.parametrize("sizes", [[50] * 6, [50, 60, 50, 70, 50, 20], [40]], ids=["equal", "mixed", "one"])


class Log:
    """One entry log in memory with one run of ledger 7 from entry 10 on."""

    def __init__(self, sizes: list[int]) -> None:
        self.bodies = [body_of(7, 10 + number, size) for number, size in enumerate(sizes)]
        records, lengths = records_of(self.bodies)
        self.data = bytearray(OFFSET) + records
        self.run = Run(7, 10, encode_run(3, OFFSET, lengths, list(map(crc32c, self.bodies))))

    def read(self, log: int, offset: int, count: int) -> bytes:
        assert log == 3
        return bytes(self.data[offset : offset + count])

    def at(self, number: int) -> int:
        return self.run.at(10 + number)[0]

    def batch(self, first: int, last: int, room: int = ROOM, begun: bool = False) -> list[bytes]:
        return read_bodies(self.read, "/d", self.run, first, last, room, begun)


@SIZES
def test_intact_records_are_given_out(sizes: list[int]) -> None:
    """One body, a batch from any entry on, and the whole run as it is in the log."""
    log = Log(sizes)
    for number, body in enumerate(log.bodies):
        assert read_body(log.read, "/d", log.run, 10 + number) == body
        assert log.batch(10 + number, log.run.last) == log.bodies[number:]
    assert read_records(log.read, "/d", log.run) == log.data[OFFSET:]
    assert list(damages(log.run, bytes(log.data[OFFSET:]))) == []


@SIZES
@pytest.mark.parametrize("within", [0, 3, 4, 12, 30], ids=["size", "end of the size", "ledger", "entry", "payload"])
def test_a_flipped_bit_is_found_by_all(sizes: list[int], within: int) -> None:
    """A read gives out what is before it, and names the record; so do compaction and verification."""
    for number in range(len(sizes)):
        log = Log(sizes)
        log.data[log.at(number) + within] ^= 0x10
        named = rf"/d/3\.log at offset {log.at(number)}: entry {10 + number} of ledger 7 is cut off or differs "
        named += "from its checksum"
        with pytest.raises(EntryDamaged, match=named):
            read_body(log.read, "/d", log.run, 10 + number)
        with pytest.raises(EntryDamaged, match=named):
            log.batch(10 + number, log.run.last)
        with pytest.raises(EntryDamaged, match=named):
            read_records(log.read, "/d", log.run)
        if number:
            assert log.batch(10, log.run.last) == log.bodies[:number]
        assert list(damages(log.run, bytes(log.data[OFFSET:]))) == [(10 + number, log.at(number))]


@SIZES
def test_every_damage_of_a_run_is_reported(sizes: list[int]) -> None:
    """With the offset of each record, also of those after a damaged one."""
    log = Log(sizes)
    wanted = [number for number in range(len(sizes)) if number % 2 == 0]
    for number in wanted:
        log.data[log.at(number) + 20] ^= 1
    assert list(damages(log.run, bytes(log.data[OFFSET:]))) == [(10 + number, log.at(number)) for number in wanted]


@SIZES
def test_a_log_that_is_too_short(sizes: list[int]) -> None:
    """The entry that is cut off counts as damaged."""
    log = Log(sizes)
    del log.data[-1:]
    last = len(sizes) - 1
    assert list(damages(log.run, bytes(log.data[OFFSET:]))) == [(10 + last, log.at(last))]
    with pytest.raises(EntryDamaged, match=f"entry {10 + last} of"):
        log.batch(10 + last, 10 + last)


def test_records_of_another_ledger_or_entry_are_no_records_of_the_run() -> None:
    """Though their sums are right: a row that names the wrong place."""
    log = Log([50] * 4)
    for run in (Run(8, 10, log.run.part(10, 13)[1]), Run(7, 11, log.run.part(10, 13)[1])):
        with pytest.raises(EntryDamaged):
            read_body(log.read, "/d", run, 11)
        with pytest.raises(EntryDamaged):
            read_bodies(log.read, "/d", run, 11, 13, ROOM, False)
        assert len(list(damages(run, bytes(log.data[OFFSET:])))) == 4


@SIZES
def test_a_batch_takes_what_fits(sizes: list[int]) -> None:
    """At least one entry, unless the batch has some already."""
    log = Log(sizes)
    first = len(log.bodies[0]) + BATCH_ENTRY
    assert log.batch(10, log.run.last, room=first) == log.bodies[:1]
    assert log.batch(10, log.run.last, room=first - 1) == log.bodies[:1]
    assert log.batch(10, log.run.last, room=first - 1, begun=True) == []
