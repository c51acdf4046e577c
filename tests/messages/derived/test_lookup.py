"""What rows say, beside a slow twin that looks at every record."""

import random

import pytest

from quire.messages.core.queues import Placing
from quire.messages.derived import rows as r
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import LOOK_ROWS, Lookup
from tests.messages.derived.stores import LOG, made, portions
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

INNER = b"INNER_NUM\x013\x02INNER_BASE\x010\x02"


def drawn(chance, count=200):
    """Records of some queues, some of them inner batches, with store times that stay or rise."""
    records, following, ms = [], {}, 1000
    for _ in range(count):
        topic, queue = chance.choice(["T", "U", "Topic"]), chance.choice([0, 1, 7])
        inner = topic == "U" and chance.random() < 0.3
        position = following.setdefault((topic, queue), chance.choice([0, 5]))
        following[topic, queue] += 3 if inner else 1
        ms += chance.choice([0, 0, 1, 10])
        records.append((topic, queue, position, {"store_ms": ms, "properties": INNER if inner else b""}))
    return records


@pytest.mark.parametrize("seed", range(4))
def test_queues_beside_a_slow_twin(seed):
    """Bounds, windows and times of each queue, whatever begin the log has."""
    chance = random.Random(seed)
    records = drawn(chance)
    values = made(records)
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take(portions(values))
    for begin in (0, values[chance.randrange(200)].position, values[-1].position, values[-1].position + 1):
        lookup = Lookup(rows, begin)
        assert lookup.topics() == sorted({topic for topic, *_ in records})
        for topic, queue in {record[:2] for record in records}:
            of_queue = [
                (record[2], each.position, record[3]["store_ms"], 3 if record[3]["properties"] else 1)
                for record, each in zip(records, values, strict=True)
                if record[:2] == (topic, queue)
            ]
            following = of_queue[-1][0] + of_queue[-1][3]
            there = [each for each in of_queue if each[1] >= begin]
            first = there[0][0] if there else following
            assert queue in lookup.queues(topic)
            assert lookup.bounds(topic, queue) == (first, following)
            for position in range(first, following):
                expected = [each[1] for each in there if each[0] + each[3] > position]
                found = lookup.window(topic, queue, position, 5)
                assert [row.offset for row in found] == expected[:5]
            for ms in {each[2] + more for each in there for more in (-1, 0, 1)} | {0, 1 << 50}:
                lower = next((each[0] for each in there if each[2] >= ms), following)
                upper = max((each[0] for each in there if each[2] <= ms), default=first)
                assert lookup.by_time(topic, queue, ms, "lower") == lower
                assert lookup.by_time(topic, queue, ms, "upper") == upper
    assert Lookup(rows, 0).bounds("none", 0) is None
    assert Lookup(rows, 0).queues("none") == []
    assert Lookup(rows, 0).by_time("none", 0, 5, "upper") == 0


def test_keys_newest_first_in_turns():
    """Some at a time, in a window, above the begin; a turn looks at so many rows at most."""
    rows = DictRows()
    rows.write([(r.key_key(5, offset), r.key_value(offset)) for offset in range(LOOK_ROWS + 10)])
    rows.write([(r.key_key(4, 3), r.key_value(3)), (r.key_key(6, 3), r.key_value(3))])
    lookup = Lookup(rows, 0)
    last = LOOK_ROWS + 9
    assert lookup.keyed(5, 0, None, None, 2) == ([last, last - 1], last - 1)
    assert lookup.keyed(5, 0, None, last - 1, 1) == ([last - 2], last - 2)
    assert lookup.keyed(5, 3, 5, None, 9) == ([], 10)
    assert lookup.keyed(5, 3, 5, 10, 9) == ([5, 4, 3], None)
    assert lookup.keyed(5, 0, None, 0, 9) == ([], None)
    assert Lookup(rows, 8).keyed(5, 0, 9, 10, 9) == ([9, 8], None)
    assert lookup.keyed(7, 0, None, None, 9) == ([], None)


def test_entries_by_place():
    """The entry that holds a place or comes last before it, and the one behind."""
    values = made([("T", 0, n) for n in range(10)])
    rows = DictRows()
    assert Lookup(rows, 0).entries([5]) == [None]
    Dispatch(rows, LOG, Placing()).take(portions(values, 4))
    lookup = Lookup(rows, 0)
    places = [values[0].position, values[3].position + 1, values[4].position, 1 << 40]
    assert [row.first for row in lookup.entries(places)] == [0, 0, 4, 8]
    assert lookup.entry_above(values[3].position).first == 4
    assert lookup.entry_above(values[4].position).first == 8
    assert lookup.entry_above(values[8].position) is None
