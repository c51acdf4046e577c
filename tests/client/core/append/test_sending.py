"""The sending half of the writer's machine: ids, batches, the window, who gets what again, and a replica that lags."""

import pytest

from quire.client.core.append.messages import (
    Alarm,
    AlarmFired,
    Limits,
)
from tests.client.fakes.story import (
    Story,
)

# SPDX-License-Identifier: Apache-2.0


def test_lac_and_length_travel_in_the_batches():
    """LAC is the one of the moment of sending, length counts payload bytes before the batch."""
    story = Story()
    story.append(2, size=10)
    story.ack(0, 0, 1)
    story.ack(1, 0, 1)
    story.append(1, size=5)
    first, second = story.batches
    assert (first.lac, first.length, first.recovery, first.priority) == (-1, 0, False, 0)
    assert (second.lac, second.length) == (1, 20)
    assert story.machine.length == 25


def test_a_long_append_is_cut():
    """An append is divided at the entries and bytes of a batch, and each batch has the length before it."""
    story = Story(limits=Limits(batch_entries_max=4, batch_bytes_max=100))
    story.append(9, size=10)
    assert [batch.count for batch in story.batches] == [4, 4, 1]
    story.append(3, size=60)
    assert [batch.count for batch in story.batches[3:]] == [1, 1, 1]
    assert [batch.length for batch in story.batches] == [0, 40, 80, 90, 150, 210]


def test_the_window_holds_back_what_exceeds_it():
    """Entries above the window are sent when earlier ones are acknowledged."""
    story = Story(limits=Limits(window_entries_max=10, batch_entries_max=5))
    story.append(15)
    assert sum(batch.count for batch in story.batches) == 10
    assert story.machine.window_full
    story.ack(0, 0, 4)
    story.ack(1, 0, 4)
    assert sum(batch.count for batch in story.batches) == 15
    assert not story.machine.window_full


def test_a_batch_larger_than_the_window_goes_alone():
    """It is sent when nothing else is in flight, and the next one waits."""
    story = Story(limits=Limits(window_bytes_max=100, batch_bytes_max=1000))
    story.append(1, size=500)
    assert len(story.batches) == 1
    story.append(1, size=10)
    assert len(story.batches) == 1


def test_more_than_a_window_may_not_wait():
    """An append is refused while a full window waits already, and takes no entry ids."""
    story = Story(limits=Limits(window_bytes_max=100))
    story.append(1, size=90)
    story.append(1, size=200)
    story.append(1, size=1)
    assert story.refused == [-105]
    assert story.machine.pushed == 1


def test_an_idle_writer_does_not_replace_a_bookie_that_went_away():
    """A connection that was lost owing nothing is made again by the next append; what it acknowledged counts."""
    story = Story()
    story.append(1)
    for index in range(3):
        story.ack(index, 0)
    story.lose(0)
    assert story.stores == []
    story.append(1)
    assert story.stores == []
    assert story.open[story.channel(0)] == (0, "b0")
    assert story.sent[story.channel(0)] == [1]
    story.ack(0, 1)
    story.ack(1, 1)
    assert story.released == 1


def test_a_bookie_that_owes_settled_entries_is_replaced_at_the_next_append():
    """protocol-rules.md 2.5: a failure noticed after the quorum is handled by the next append."""
    story = Story()
    story.append(1)
    story.ack(0, 0)
    story.ack(1, 0)
    story.lose(2)
    assert story.stores == []
    story.append(1)
    assert [(store.first, store.failed) for store in story.stores] == [(1, ((2, "b2"),))]


@pytest.mark.parametrize("late", [False, True])
def test_a_bookie_that_owes_entries_below_others_is_replaced_at_the_next_append(late):
    """It answered a later one first, before the quorum had the earlier one or behind that."""
    story = Story()
    story.append(1)
    story.append(1)
    if not late:
        story.ack(2, 1)
    for entry in (0, 1):
        story.ack(0, entry)
        story.ack(1, entry)
    if late:
        story.ack(2, 1)
    story.lose(2)
    assert story.stores == []
    story.append(1)
    assert [(store.first, store.failed) for store in story.stores] == [(2, ((2, "b2"),))]


def test_a_lapsed_bookie_misses_nothing_of_what_waited_for_the_window():
    """It acknowledged all it got, went away, and the window opens without an append: it is connected again for that."""
    story = Story(limits=Limits(window_entries_max=2, batch_entries_max=2))
    story.append(4)
    story.ack(0, 0, 1)
    story.lose(0)
    story.ack(1, 0, 1)
    assert story.released == 1
    assert story.sent[story.channel(0)] == [2, 3]


def test_advanced_ids_are_used_once():
    """D11: an id at or below the head, or under way."""
    story = Story(advanced=True)
    story.append(1, first=0)
    story.append(1, first=0)
    story.ack(0, 0)
    story.ack(1, 0)
    story.append(1, first=0)
    assert story.refused == [-22, -22]


def test_s31_deferred_sync_with_own_ids_compares_with_the_head():
    """An id that was released already is refused as duplicate, although it is not confirmed yet."""
    story = Story(advanced=True, deferred_sync=True)
    for entry in range(11):
        story.append(1, first=entry)
    for entry in range(11):
        story.ack(0, entry)
        story.ack(1, entry)
    assert (story.released, story.machine.lac) == (10, -1)
    story.append(1, first=3)
    assert story.refused == [-22]


def test_own_ids_need_an_advanced_writer_and_the_other_way_round():
    """An append with an id, or without one, is refused by the other kind of writer."""
    story = Story()
    story.append(1, first=5)
    assert story.refused == [-100]
    story = Story(advanced=True)
    story.append(1)
    assert story.refused == [-100]


def test_advanced_change_sends_gaps_and_all_again():
    """The replacement gets all pending entries in the order of their ids."""
    story = Story(advanced=True)
    story.append(1, first=3)
    story.append(1, first=1)
    story.lose(0)
    story.changed(i0="b3")
    assert story.sent[story.channel(0)] == [1, 3]


def test_a_lagging_replica_stops_the_writer_only_at_its_bound():
    """Sending pauses when one replica's backlog is full, with an alarm, and goes on when it answers."""
    story = Story(limits=Limits(replica_backlog_bytes_max=100, batch_entries_max=1))
    for entry in range(11):
        story.append(1, size=10)
        story.ack(0, entry)
        story.ack(1, entry)
        if entry == 0:
            story.ack(2, 0)
    assert story.released == 10
    story.append(1, size=10)
    assert story.machine.pushed == 11
    assert len(story.batches) == 11, "the twelfth waits"
    assert story.alarms[Alarm.STALL] == 5_000
    story.ack(2, 1, 6)
    assert len(story.batches) == 12
    assert Alarm.STALL not in story.alarms


def test_a_replica_that_holds_up_the_writer_too_long_is_replaced():
    """When the alarm rings it is replaced; entries with a quorum are not sent again."""
    story = Story(limits=Limits(replica_backlog_bytes_max=100, batch_entries_max=1))
    for entry in range(11):
        story.append(1, size=10)
        story.ack(0, entry)
        story.ack(1, entry)
        if entry == 0:
            story.ack(2, 0)
    story.append(1, size=10)
    story.ack(2, 1)
    story.give(AlarmFired(Alarm.STALL))
    assert [store.failed for store in story.stores] == [((2, "b2"),)]
    story.changed(i2="b3")
    assert story.sent[story.channel(2)] == [11]
    assert Alarm.STALL not in story.alarms


def test_a_replica_that_never_answered_does_not_stop_the_writer():
    """One that can't be reached but does not refuse either: it is given up when its backlog is full, without a wait."""
    story = Story(limits=Limits(replica_backlog_bytes_max=100, batch_entries_max=1))
    for entry in range(11):
        story.append(1, size=10)
        story.ack(0, entry)
        story.ack(1, entry)
    assert [store.failed for store in story.stores] == [((2, "b2"),)]
    assert len(story.batches) == 11
    story.changed(seen=("b0", "b1", "b2"))
    assert story.released == 10
    assert story.machine.out == ("b2",)


def test_settled_entries_are_not_kept_for_a_lagging_replica():
    """Memory is bounded by the channel's backlog, not by what the machine keeps."""
    story = Story()
    for entry in range(50):
        story.append(1)
        story.ack(0, entry)
        story.ack(1, entry)
    assert story.machine.idle


def test_a_striped_batch_goes_to_each_replica_in_part():
    """
    4/2/2: each bookie gets the entries whose write set it is in; its channel is opened with the first of them.  What
    one entry is alone goes to its write set as a whole.
    """
    story = Story(shape=(4, 2, 2))
    story.append(1)
    assert sorted(bookie for _channel, _index, bookie in story.opened) == ["b0", "b1"]
    story.append(5)
    sent = {index: story.sent[channel] for channel, (index, _bookie) in story.open.items()}
    assert sent == {0: [0, 3, 4], 1: [0, 1, 4, 5], 2: [1, 2, 5], 3: [2, 3]}
    assert len(story.batches) == 5, "one effect for the single entry, and one for each share of the five"


def test_ids_end_where_entries_of_a_ledger_do():
    """An append that would run past 2^63 - 1 is refused whole, as is a negative id."""
    highest = (1 << 63) - 1
    story = Story(advanced=True)
    for first, count in ((-1, 1), (highest, 2), (highest + 1, 1)):
        story.append(count, first=first)
    assert story.refused == [-14] * 3
    assert story.batches == []
    story.append(2, first=highest - 1)
    assert story.refused == [-14] * 3
    assert story.machine.pushed == highest


def test_a_recovery_sends_with_priority_and_the_lac_it_began_with():
    """Its batches are recovery adds, whatever it acknowledges meanwhile; and what it reads ahead is not refused."""
    story = Story(recovery=True, last=4, length=100, limits=Limits(window_bytes_max=10))
    for _ in range(4):
        story.append(1, size=10)
    assert story.refused == []
    story.ack(0, 5)
    story.ack(1, 5)
    assert [(batch.first, batch.recovery, batch.priority, batch.lac) for batch in story.batches] == [
        (5, True, 100, 4),
        (6, True, 100, 4),
    ]
    assert [batch.length for batch in story.batches] == [100, 110]
    assert (story.machine.carried, story.machine.length, story.machine.length_at_head()) == (4, 140, 110)


def test_a_replacement_gets_what_is_above_the_head():
    """Of a batch that is acknowledged in part, only the rest; later batches carry the LAC of then."""
    story = Story()
    story.append(4)
    for index in (0, 1):
        story.ack(index, 0, 1)
    story.lose(2)
    story.changed(i2="b3")
    assert story.sent[story.channel(2)] == [2, 3]
    assert story.machine.carried == -1
    story.append(1)
    assert story.machine.carried == 1


def test_a_share_of_a_batch_weighs_what_is_in_it():
    """A replica of a striped ledger that was sent half of a batch has half of its bytes to answer."""
    story = Story(shape=(2, 1, 1), limits=Limits(replica_backlog_bytes_max=100))
    story.append(10, size=10)
    story.append(2, size=10)
    assert Alarm.STALL not in story.alarms
    assert sum(map(len, story.sent.values())) == 12
    story.append(7, size=10)
    assert Alarm.STALL in story.alarms
    assert sum(map(len, story.sent.values())) == 12
