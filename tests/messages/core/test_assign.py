"""Offsets of new records."""

import random
from types import SimpleNamespace

import pytest

from quire.messages.core.assign import Assigner, Draft
from quire.messages.core.layout import file_name
from quire.messages.core.queues import QueueTable
from quire.messages.core.record import Host, pack, store_time_at, unpack
from quire.protocol.message_errors import StoreDamaged
from tests.messages.reference import builder, parser

# SPDX-License-Identifier: Apache-2.0

LOCAL = Host(b"\x7f\0\0\1", 10911)
F = 16_384


def draft(topic="T", body=b"", queue=0, with_crc=False, born=LOCAL):
    raw = pack(topic, body, queue=queue, born_host=born, store_host=LOCAL, properties=b"a\x01b\x02", with_crc=with_crc)
    made = Draft(raw)
    made.kind = ((topic, queue), store_time_at(unpack(raw).born_host), with_crc)
    return made


def test_what_a_draft_gets():
    """Position, place and store time, with the CRC property over all of it; the draft stays as it was."""
    table = QueueTable()
    assigner = Assigner(table, 0, F)
    made = draft(with_crc=True, born=Host(bytes(16), 1))
    before = bytes(made)
    values, skips = assigner.assign(0, 0, 1000, [made, made])
    first, second = map(unpack, values)
    assert skips == [0, 0]
    assert (first.queue_offset, first.offset, first.store_ms) == (0, 0, 1000)
    assert (second.queue_offset, second.offset) == (1, len(before))
    assert bytes(made) == before
    assert (made.position, made.offset, made.store_ms) == (1, len(before), 1000)


def test_store_times_never_fall():
    """A clock behind the newest record gives its time again."""
    table = QueueTable()
    table.store_ms = 500
    assigner = Assigner(table, 0, F)
    assert unpack(assigner.assign(0, 0, 400, [draft()])[0][0]).store_ms == 500


def test_an_entry_that_is_encoded_again():
    """It takes back its first call and all behind it; what was applied is left."""
    table = QueueTable()
    assigner = Assigner(table, 0, F)
    one, size = draft(), len(draft())
    first = assigner.assign(0, 0, 1, [one])
    assigner.assign(1, size, 2, [one])
    assigner.assign(2, 2 * size, 3, [one])
    again = assigner.assign(1, size, 9, [draft(queue=5), one])
    assert [unpack(each).queue_offset for each in again[0]] == [0, 1]
    table.apply(SimpleNamespace(value=first[0][0]))
    assigner.applied(1)
    values, _ = assigner.assign(1, size, 9, [one, one])
    assert [unpack(each).queue_offset for each in values] == [1, 2]


def test_an_entry_that_is_stored_is_in_the_table_at_once():
    """Only the very records of the oldest call, and only where that call began."""
    table = QueueTable()
    assigner = Assigner(table, 0, F)
    first, _ = assigner.assign(0, 0, 7, [draft(), draft(queue=3), draft()])
    second, _ = assigner.assign(3, 1000, 5, [draft()])
    assert not assigner.stored(3, second)  # not the oldest
    assert not assigner.stored(0, [bytes(bytearray(each)) for each in first])  # others, though equal
    assert not assigner.stored(0, first[:2])
    assert table.topics() == []
    assert assigner.stored(0, list(first))
    assert (table.queues("T"), table.store_ms) == ({0: 2, 3: 1}, 7)
    assert not assigner.stored(0, first)
    assigner.undo(3)
    assert not assigner.stored(3, second)  # it was taken back
    again, _ = assigner.assign(3, 1000, 9, [draft()])
    assert assigner.stored(3, again)
    assert (table.queues("T"), table.store_ms, assigner.next("T", 0)) == ({0: 3, 3: 1}, 9, 3)
    third, _ = assigner.assign(4, 2000, 9, [draft()])
    table.advance(("T", 0), 9)
    assert not assigner.stored(4, third)  # the table says something else: each record is looked at


def test_a_call_that_raises_changes_nothing():
    """The next call begins where that one began."""
    assigner = Assigner(QueueTable(), 0, F)
    with pytest.raises(StoreDamaged, match="no draft"):
        assigner.assign(0, 0, 1, [draft(), b"foreign"])
    assert unpack(assigner.assign(0, 0, 1, [draft()])[0][0]).queue_offset == 0


def test_a_group_goes_to_the_next_file_whole():
    """The sum of its records is what has to fit."""
    assigner = Assigner(QueueTable(), 0, F)
    group = [draft(body=b"x" * 5000), draft(body=b"y" * 5000)]
    group[0].group, group[1].group = sum(map(len, group)), 0
    values, skips = assigner.assign(0, F - 6000, 1, group)
    assert skips == [6000, 0]
    assert [unpack(each).offset for each in values] == [F, F + len(group[0])]


@pytest.mark.parametrize("seed", range(3))
def test_random_puts_fences_and_takeovers(seed, tmp_path):
    """The files are those that the reference writes for the same order, whatever was encoded again."""
    chance = random.Random(seed)
    table, reference = QueueTable(), builder.Builder(tmp_path, size=F)
    assigner = Assigner(table, 0, F)
    index = end = 0
    applied: list[bytes] = []
    for step in range(600):
        entry = []
        for _ in range(chance.randrange(1, 6)):
            topic, queue = chance.choice("ABC"), chance.randrange(3)
            count = chance.choice([1, 1, 3])
            group = [draft(topic, chance.randbytes(chance.randrange(1500)), queue) for _ in range(count)]
            for each in group:
                each.group = 0
            group[0].group = sum(map(len, group))
            entry += group
        values, skips = assigner.assign(index, end, step, entry)
        if chance.random() < 0.2:  # a fence: it comes again, perhaps with less
            begins = [at for at, each in enumerate(entry) if each.group != 0]
            entry = entry[: chance.choice([*begins[1:], len(entry)])]
            values, skips = assigner.assign(index, end, step, entry)
        for value, skip in zip(values, skips, strict=True):
            table.apply(SimpleNamespace(value=value))
            applied.append(value)
            end += skip + len(value)
        index += len(values)
        if chance.random() < 0.1:  # a takeover
            assigner = Assigner(table, 0, F)
        elif chance.random() < 0.5:
            assigner.applied(index)
        start = 0
        while start < len(entry):  # the same in the reference, group by group
            stop = start + 1
            while stop < len(entry) and entry[stop].group == 0:
                stop += 1
            reference.place(sum(map(len, values[start:stop])))
            for value in values[start:stop]:
                found = parser.unpack(value)
                key = (found["topic"], found["queue"])
                assert found["queue_offset"] == reference.next.get(key, 0)
                reference.next[key] = found["queue_offset"] + 1
                reference.write(reference.end, value)
                assert found["offset"] == reference.end
                reference.end += len(value)
            start = stop
    assert reference.end == end
    reference.close()
    found = [record["raw"] for kind, _, record in parser.plain(tmp_path / "commitlog") if kind == "record"]
    assert found == applied
    assert (tmp_path / "commitlog" / file_name(0)).exists()
