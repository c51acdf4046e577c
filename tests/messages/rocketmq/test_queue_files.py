"""Units of consume queues: the last one, and the one of a record, whatever the sizes of the files."""

import random
import struct

import pytest

from quire.messages.rocketmq.queue_files import Unit, Units
from quire.messages.rocketmq.source import Tree, queue_files
from tests.messages.archives import BROKERS, unpack
from tests.messages.reference import parser
from tests.messages.rocketmq.made import written_queue

# SPDX-License-Identifier: Apache-2.0


def units_in(root):
    return {(each.topic, each.queue): Units(Tree(), each) for each in queue_files(Tree(), str(root))}


@pytest.mark.parametrize("name", BROKERS)
def test_queues_of_the_archives(tmp_path, name):
    """Each record's unit is found, and the last one; below a lower end an earlier one is the last."""
    root = unpack(name, tmp_path)
    for (topic, queue), units in units_in(root).items():
        if units.files.is_batch:
            assert units.last(1 << 60) == Unit(0, 4, units[0].offset, units[0].size)
            assert units.of_record(units[0].offset).position == 0
            continue
        rows = list(parser.units(root / "consumequeue" / topic / str(queue)))
        for position, offset, size, _code in rows:
            assert units.of_record(offset) == Unit(position, 1, offset, size)
            assert units.of_record(offset + 1) is None
            before = units.last(offset)
            assert before == (Unit(position - 1, 1, *rows[position - 1][1:3]) if position else None)
        assert units.last(1 << 60) == Unit(rows[-1][0], 1, *rows[-1][1:3])


def test_random_queues(tmp_path):
    """Blanks before the first unit, files of many sizes, unwritten ends."""
    for seed in range(30):
        draw, root = random.Random(seed), tmp_path / str(seed)
        first, count = draw.randrange(300), draw.randrange(1, 400)
        rows = [(1000 + 100 * n, 90) for n in range(count)]
        written_queue(root, rows, first=first, size=20 * draw.randrange(1, 200))
        (units,) = units_in(root).values()
        for _each in range(20):
            n = draw.randrange(count)
            assert units.of_record(1000 + 100 * n) == Unit(first + n, 1, 1000 + 100 * n, 90)
            assert units.last(1000 + 100 * n + 1) == Unit(first + n, 1, 1000 + 100 * n, 90)
        assert units.last(1 << 40).next == first + count


def test_a_damaged_unit_does_not_hide_those_behind_it(tmp_path):
    """A search by halves that meets it looks further."""
    rows = [(1000 + 100 * n, 90) for n in range(50)]
    written_queue(tmp_path, rows)
    (units,) = units_in(tmp_path).values()
    with open(units.files.files[0][0], "r+b") as file:
        for number in range(50):
            data = struct.pack(">qiq", 1000 + 100 * number, 0, 0)
            file.seek(20 * number)
            was = file.read(20)
            file.seek(20 * number)
            file.write(data)
            file.flush()
            assert units.last(1 << 40).next == (50 if number < 49 else 49)
            file.seek(20 * number)
            file.write(was)
            file.flush()


def test_queues_without_a_unit(tmp_path):
    """An empty file, one of zeros, none at all."""
    written_queue(tmp_path, [], name="consumequeue/zeros/0")
    written_queue(tmp_path, [], name="consumequeue/none/0")
    (tmp_path / "consumequeue/none/0" / f"{0:020d}").unlink()
    (tmp_path / "consumequeue/zeros/0" / f"{2000:020d}").write_bytes(b"")
    for units in units_in(tmp_path).values():
        assert units.last(1 << 40) is None
        assert units.of_record(0) is None
