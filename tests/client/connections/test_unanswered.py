"""What was sent and not answered: runs in any order, against a slow twin that keeps a set of ids."""

from random import Random

import pytest

from quire.client.connections.unanswered import COMPACT_MIN, RunTable, Sent, Unanswered


def test_a_batch_answered_whole_is_one_run():
    """The usual case: one answer for the whole batch, all bytes set free."""
    table = Unanswered()
    table.add(range(10, 20), 100)
    assert table.bytes == 100
    assert table.answer(10, 10) == [(10, 10)]
    assert not table
    assert table.bytes == 0


def test_an_answer_over_two_batches_is_split_between_them():
    """Acknowledgements know nothing of batches."""
    table = Unanswered()
    table.add(range(5), 50)
    table.add(range(5, 10), 50)
    assert table.answer(3, 4) == [(3, 2), (5, 2)]
    assert table.answer(0, 10) == [(0, 3), (7, 3)]
    assert not table


def test_answers_count_once():
    """A second answer, a late one and one for an id never sent yield nothing."""
    table = Unanswered()
    table.add(range(5), 50)
    assert table.answer(2, 1) == [(2, 1)]
    assert table.answer(2, 1) == []
    assert table.answer(100, 5) == []
    assert table.answer(0, 5) == [(0, 2), (3, 2)]
    assert table.answer(0, 5) == []


def test_late_answers_before_open_ones_do_not_hide_them():
    """A run that begins with ids long settled still reaches the open ones."""
    table = Unanswered()
    table.add(range(100, 110), 10)
    assert table.answer(90, 15) == [(100, 5)]


def test_striped_ids_are_found_one_by_one():
    """With E > WQ a bookie gets only some ids of a batch."""
    table = Unanswered()
    table.add([0, 1, 2, 5, 6, 7], 60)
    assert table.answer(0, 3) == [(0, 3)]
    assert table.answer(3, 3) == [(5, 1)]
    assert table.answer(6, 2) == [(6, 2)]
    assert not table


def test_bytes_go_in_proportion_and_end_at_zero():
    """A backlog's bound in bytes needs a figure that falls with each answer."""
    table = Unanswered()
    table.add(range(3), 100)
    table.answer(0, 1)
    assert table.bytes == 67
    table.answer(2, 1)
    assert table.bytes == 34
    table.answer(1, 1)
    assert table.bytes == 0


def test_overtaken_reports_an_add_that_is_passed_over():
    """Set when a later batch is answered while the oldest waits, cleared when the oldest is complete."""
    table = Unanswered()
    table.add(range(2), 2)
    table.add(range(2, 4), 2)
    table.answer(2, 1)
    assert table.overtaken
    table.answer(0, 2)
    assert not table.overtaken


def test_the_same_id_sent_twice_takes_two_answers():
    """A writer that sends an id again on the same connection gets both answers, once each."""
    table = Unanswered()
    table.add(range(4), 4)
    table.add(range(2, 3), 1)
    assert table.answer(2, 1) == [(2, 1)]
    assert table.answer(2, 1) == [(2, 1)]
    assert table.answer(2, 1) == []


def test_indices_of_a_batch_answer_like_ids():
    """V3 knows the batch already; an answer for a batch that is gone yields nothing."""
    table = Unanswered()
    sent = table.add([3, 4, 9], 30)
    assert table.answer_sent(sent, 1, 2) == [(4, 1), (9, 1)]
    assert table.answer_sent(sent, 0, 1) == [(3, 1)]
    assert table.answer_sent(sent, 0, 1) == []


@pytest.mark.parametrize("seed", range(20))
def test_batches_at_hand_are_answered_like_ids(seed: int):
    """
    Whole or in part, in any order, twice: the same runs and bytes are told whether the batch is at hand or is found by
    its ids.
    """
    random = Random(seed)
    one, other = Unanswered(), Unanswered()
    sent, entry = [], 0
    for _step in range(200):
        if random.random() < 0.5:
            ids = range(entry, entry + random.choice((1, 1, 1, 2, 5)))
            if random.random() < 0.3:
                ids = list(ids)[:: random.choice((1, 2))]
            sent.append(one.add(ids, len(ids) * 7 + 1))
            other.add(ids, len(ids) * 7 + 1)
            entry = ids[-1] + 1
        elif sent:
            batch = random.choice(sent[-4:])
            index = random.choice((0, 0, 0, random.randrange(batch.count)))
            count = random.choice((batch.count, batch.count, 1))
            covered = batch.ids[index : index + count]
            found = one.answer_sent(batch, index, count)
            assert ids_of(found) == [each for one_id in covered for each in ids_of(other.answer(one_id, 1))]
            assert (one.bytes, bool(one)) == (other.bytes, bool(other))


def test_the_oldest_batch_is_overtaken_until_it_is_answered():
    """A later one was answered before it; once it is answered as a whole that is over."""
    table = Unanswered()
    oldest, later, _last = table.add(range(2), 2), table.add(range(2, 4), 2), table.add(range(4, 5), 1)
    assert table.answer_sent(later, 0, 2) == [(2, 2)]
    assert table.overtaken
    assert table.answer_sent(oldest, 0, 2) == [(0, 2)]
    assert not table.overtaken
    assert table.answer_sent(oldest, 0, 2) == []
    assert table.bytes == 1


def ids_of(runs: list[tuple[int, int]]) -> list[int]:
    return [first + step for first, count in runs for step in range(count)]


def test_a_table_is_compacted_while_its_oldest_run_waits():
    """An unanswered straggler must not keep every later run in memory."""
    table = Unanswered()
    for entry in range(COMPACT_MIN * 6):
        table.add(range(entry, entry + 1), 1)
        if entry:
            table.answer(entry, 1)
    assert len(table.table.runs) <= COMPACT_MIN * 2 + 2
    assert table.answer(0, 1) == [(0, 1)]
    assert not table


def test_open_gives_the_runs_with_something_left():
    """Sweeps look at these only."""
    table: RunTable[Sent] = RunTable()
    first, second = Sent(range(1), 0), Sent(range(1), 0)
    table.add(1, first)
    table.add(2, second)
    first.take(0, 1)
    assert table.open() == [second]


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_answers_agrees_with_a_set_of_ids(seed: int):
    """The slow twin: open ids as a set; runs reported must be exactly what left it, and bytes must reach zero."""
    random = Random(seed)
    table, twin = Unanswered(), set()
    entry = 0
    for _step in range(300):
        if random.random() < 0.4:
            if random.random() < 0.5:
                ids = range(entry, entry + random.randint(1, 20))
            else:
                ids = sorted(random.sample(range(entry, entry + 30), random.randint(1, 12)))
            table.add(ids, len(ids) * 7)
            twin.update(ids)
            entry = ids[-1] + 1
        else:
            first, count = random.randint(max(0, entry - 60), entry + 5), random.randint(1, 25)
            if random.random() < 0.1:
                first = 0
            expected = sorted(twin & set(range(first, first + count)))
            found = [start + i for start, length in table.answer(first, count) for i in range(length)]
            assert found == expected
            twin.difference_update(expected)
        assert bool(table) == bool(twin)
    found = [start + i for start, length in table.answer(0, entry) for i in range(length)]
    assert found == sorted(twin)
    assert table.bytes == 0
