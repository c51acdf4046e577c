"""What is known of producers: highest sequences, places of the last ones, tables, and who is forgotten."""

import pytest

from quire.log.core.batch import ProducerRun
from quire.log.core.frame import TableRow, encode_table
from quire.log.core.streams.producers import (
    IDLE_MS,
    PRODUCERS_KEPT,
    ROW_BYTES,
    TABLE_BYTES_MAX,
    Producer,
    Producers,
    check_producer,
)

# SPDX-License-Identifier: Apache-2.0


def test_places():
    """Of the last 64 sequences; gaps have none."""
    known = Producers()
    known.stored([ProducerRun("p", 0, 100, 1000), ProducerRun("q", 100, 1, 5)], 50, 9)
    known.stored([ProducerRun("p", 2, 1, 2000)], 200, 10)
    producer = known.of("p")
    assert (producer.stored, producer.pushed, producer.record) == (2000, 2000, 202)
    assert producer.places(1036, 3) == [-1, 87, 88]
    assert producer.places(1099, 2) == [149, -1]
    assert producer.places(2000, 1) == [202]
    assert known.of("q").places(5, 1) == [150]
    assert known.of("r").stored == -1


def test_a_table_has_what_was_written_before_it():
    """Though it is not acknowledged yet; in the next segment it has what is stored."""
    known = Producers()
    known.stored([ProducerRun("p", 0, 1, 1)], 10, 1)
    known.wrote([ProducerRun("p", 0, 2, 2), ProducerRun("q", 2, 1, 7)], 11, 2)
    assert known.table(3) == {"p": TableRow(3, 12, 2), "q": TableRow(7, 13, 2)}
    known.begin_segment()
    assert known.table(3) == {"p": TableRow(1, 10, 1)}


def test_who_writes_nothing_to_a_segment():
    """Of it the last place stays known, for there may be very many; who writes goes on to know the last 64."""
    known = Producers()
    known.stored([ProducerRun("idle", 0, 3, 1), ProducerRun("busy", 3, 3, 1)], 10, 1)
    known.wrote([ProducerRun("busy", 0, 1, 4)], 16, 2)
    known.begin_segment()
    assert known.of("idle").places(1, 3) == [-1, -1, 12]
    assert known.of("busy").places(1, 3) == [13, 14, 15]
    known.stored([ProducerRun("idle", 0, 1, 4)], 20, 3)
    assert known.of("idle").places(2, 3) == [-1, 12, 20]


def test_a_table_is_loaded():
    """And what is behind it counts on top."""
    known = Producers()
    known.load({"p": TableRow(3, 12, 2)})
    assert known.of("p").places(2, 2) == [-1, 12]
    known.stored([ProducerRun("p", 0, 1, 4)], 13, 3)
    assert known.of("p").places(3, 2) == [12, 13]


def test_what_is_learned_of_some():
    """The higher counts, and nothing of them is under way."""
    known, read = Producers(), Producers()
    for each in (known, read):
        each.load({"p": TableRow(3, 12, 2), "q": TableRow(3, 13, 2)})
    known.of("p").pushed = known.of("q").pushed = 9
    read.stored([ProducerRun("p", 0, 1, 4)], 14, 3)
    known.learn(read, ["p"])
    assert (known.of("p").stored, known.of("p").pushed) == (4, 4)
    assert (known.of("q").stored, known.of("q").pushed) == (3, 9)


def test_the_longest_idle_are_forgotten():
    """Only above 10,000, and only after six hours."""
    known = Producers()
    known.load({f"p{number}": TableRow(1, number, number) for number in range(PRODUCERS_KEPT + 5)})
    assert len(known.table(IDLE_MS)) == PRODUCERS_KEPT + 5
    rows = known.table(IDLE_MS + 3)
    assert "p2" not in rows
    assert len(rows) == PRODUCERS_KEPT + 2
    assert len(known.table(IDLE_MS * 2)) == PRODUCERS_KEPT
    assert len(known.by_name) == PRODUCERS_KEPT


def test_who_is_idle_in_a_segment_that_lasts():
    """Is forgotten with what it wrote to that."""
    known = Producers()
    for number in range(PRODUCERS_KEPT + 5):
        run = [ProducerRun(f"p{number}", 0, 1, 1)]
        known.wrote(run, number, number)
        known.stored(run, number, number)
    for _ in range(2):
        assert len(known.table(IDLE_MS + 3)) == PRODUCERS_KEPT + 2


def test_a_table_fits_into_an_entry():
    """Who is not in it has no room, until others are idle; who stored nothing takes none."""
    known = Producers()
    names = [f"{number:0200}" for number in range(TABLE_BYTES_MAX // (200 + ROW_BYTES))]
    known.load({name: TableRow(1, number, number) for number, name in enumerate(names)})
    assert len(encode_table(known.table(IDLE_MS))) <= TABLE_BYTES_MAX + 4
    assert not known.has_room("n" * 200, IDLE_MS)
    assert known.has_room(names[0], IDLE_MS)
    assert known.has_room("n" * 200, IDLE_MS * 2)
    for number in range(len(names)):
        known.of(f"failed {number}")
    assert known.has_room("n" * 200, IDLE_MS * 3)


def test_a_small_table():
    """Of fewer than are kept otherwise, too, those that are idle give their room to a new one."""
    known = Producers()
    known.load({f"p{number}": TableRow(1, number, number * IDLE_MS) for number in range(4)})
    most = 4 * (2 + ROW_BYTES)
    assert not known.has_room("p4", IDLE_MS, most)
    assert known.has_room("p4", 3 * IDLE_MS, most)
    assert sorted(known.by_name) == ["p2", "p3"]


def test_names_and_sequences():
    """Both or neither, within their limits."""
    check_producer(None, None)
    check_producer("p" * 200, (1 << 64) - 1)
    for wrong in (("p", None), (None, 0), ("p", True), (b"p", 1)):
        with pytest.raises(TypeError):
            check_producer(*wrong)
    for wrong in (("", 0), ("é" * 101, 0), ("p", -1), ("p", 1 << 64)):
        with pytest.raises(ValueError, match=r"a producer's name has|a sequence is"):
            check_producer(*wrong)


def test_what_failed_and_was_passed():
    """By a higher one that was taken; when that fails, too, all of them may come again, in order."""
    known = Producer()
    known.push(0, 0)
    known.fail(1, 3, 0)
    assert not known.has_passed(0, 9)
    known.push(2, 2)
    assert known.has_passed(1, 2)
    known.push(7, 9)
    assert known.has_passed(3, 4)
    assert not known.has_passed(4, 10), "what was only left out counts as a duplicate"
    known.fail(7, 9, 2)
    assert (known.pushed, known.has_passed(0, 10)) == (2, False)
    for number in range(3, 10):
        known.push(number, number)
    assert not known.has_passed(0, 10)
    known.fail(20, 20, 9)
    known.push(30, 30)
    assert [known.has_passed(each, each + 1) for each in (19, 20, 21)] == [False, True, False]
