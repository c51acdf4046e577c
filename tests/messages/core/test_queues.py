"""Positions of records in their queues."""

from types import SimpleNamespace

import pytest

from quire.messages.core.queues import Place, Placing, QueueTable
from quire.messages.core.record import Flag, Host, pack, unpack
from quire.protocol.message_errors import NotAMessage, StoreDamaged
from tests.messages import archives
from tests.messages.reference import parser

# SPDX-License-Identifier: Apache-2.0

LOCAL = Host(b"\x7f\0\0\1", 10911)


def record(queue_offset, offset, *, topic="T", queue=0, sys_flag=0, properties=b"", store_ms=0):
    return unpack(
        pack(
            topic,
            queue=queue,
            queue_offset=queue_offset,
            offset=offset,
            sys_flag=sys_flag,
            store_ms=store_ms,
            born_host=LOCAL,
            store_host=LOCAL,
            properties=properties,
        )
    )


def place_of(found, placing, table):
    """The place of a record that a table takes, which its queue goes on behind."""
    place = placing.place(found, found.offset)
    table.take(found)
    assert place is None or table.next(found.topic, found.queue) == place.next
    return place


@pytest.mark.parametrize("name", archives.BROKERS)
def test_next_positions_are_those_of_a_real_broker(name, tmp_path):
    """Each queue's next position is behind the last unit that the broker wrote for it."""
    store = archives.unpack(name, tmp_path)
    table = QueueTable()
    for at, each in parser.log(store):
        table.apply(SimpleNamespace(value=each["raw"]))
        assert table.store_ms >= each["store_ms"], at
    compared = 0
    for topic in (store / "consumequeue").iterdir():
        for queue in topic.iterdir():
            units = list(parser.units(queue))
            if units:
                assert table.next(topic.name, int(queue.name)) == units[-1][0] + 1
                compared += 1
    assert compared > 5


def test_the_exceptions_of_an_import():
    """A shift counts from its offset on, a double has no position, and what is behind the import is dense."""
    placing = Placing([("E", 3, 343)], [("T", 0, 1000, 2), ("T", 0, 2000, 5)], [652], end=3000)
    table = QueueTable(placing)
    assert table.next("E", 3) == 343
    assert place_of(record(0, 100), placing, table) == Place(0, 1)
    assert place_of(record(0, 652), placing, table) is None
    assert place_of(record(3, 1000), placing, table) == Place(1, 1)
    assert place_of(record(9, 2500), placing, table) == Place(4, 1)
    assert place_of(record(9, 2600, queue=1), placing, table) == Place(9, 1)
    assert place_of(record(5, 3000), placing, table) == Place(5, 1)  # put here, at the next position as it is
    with pytest.raises(StoreDamaged, match="queue 1 of 'T', whose next one is 10"):
        table.take(record(11, 3000, queue=1))


def test_records_without_a_position():
    """A prepared or rollback record has none; a commit has."""
    placing = Placing()
    table = QueueTable(placing)
    for state in (Flag.PREPARED, Flag.ROLLBACK):
        assert place_of(record(0, 0, sys_flag=state), placing, table) is None
    assert place_of(record(0, 0, sys_flag=Flag.COMMIT), placing, table) == Place(0, 1)
    assert table.next("T", 0) == 1


def test_an_inner_batch_takes_positions():
    """As many as it has messages."""
    table = QueueTable()
    table.take(record(0, 0, properties=b"INNER_BASE\x010\x02INNER_NUM\x014\x02"))
    assert table.next("T", 0) == 4


def test_a_table_takes_what_the_log_gives_whatever_its_sums():
    """A replica applies what the log accepted: sums are the readers' part, lengths that do not add up are refused."""
    good = record(0, 0, store_ms=5).raw
    wrong_sum = good[:8] + b"\xff" + good[9:]
    with pytest.raises(NotAMessage, match="CRC of its body"):
        unpack(wrong_sum)
    table = QueueTable()
    table.apply(SimpleNamespace(value=wrong_sum))
    assert (table.next("T", 0), table.store_ms) == (1, 5)
    good = record(1, 100).raw
    for damaged in (good[:50], good[:87] + b"\1" + good[88:], good[:4] + b"\0" + good[5:]):
        with pytest.raises((NotAMessage, StoreDamaged), match=r"at least|lengths|neither"):
            table.apply(SimpleNamespace(value=damaged))
    assert table.next("T", 0) == 1


def test_equal_tables_have_equal_bytes():
    """In whatever order queues came; what is loaded is what was saved, however it is cut."""
    one, two = QueueTable(), QueueTable()
    made = [record(0, 0, topic=topic, queue=queue, store_ms=7) for topic in ("b", "a", "é") for queue in (2, 0, 1)]
    for each in made:
        one.take(each)
    for each in reversed(made):
        two.take(each)
    saved = b"".join(one.save())
    assert saved == b"".join(two.save())
    three = QueueTable()
    three.load([saved[:9], saved[9:]])
    assert b"".join(three.save()) == saved
    assert three.queues("é") == {0: 1, 1: 1, 2: 1}
    assert three.topics() == ["a", "b", "é"]
    assert three.store_ms == 7
    for cut in range(len(saved)):
        broken = QueueTable()
        try:
            broken.load([saved[:cut]])
        except StoreDamaged:
            continue
        assert b"".join(broken.save()) == saved[:cut]  # it ends between two topics
