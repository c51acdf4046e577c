"""How long an entry may wait for its ack quorum: alone, and as the writer's machine has it (protocol-rules.md 2.4)."""

from quire.client.core.append.messages import Alarm, AlarmFired, Limits, SetAlarm
from quire.client.core.append.sending import QuorumTimeout
from tests.client.fakes.story import Story

# SPDX-License-Identifier: Apache-2.0

QUORUM_TIMEOUT = -21


def patient(ms=1000, **options):
    return Story(limits=Limits(quorum_ms_max=ms), **options)


def test_an_entry_that_misses_its_quorum_for_the_time_out_ends_the_writer():
    """The ledger is closed behind what is confirmed, after two alarms of half the time."""
    story = patient()
    story.append(2)
    story.ack(0, 0, 1)
    assert story.alarms[Alarm.QUORUM] == 500, "two looks in one time-out"
    story.give(AlarmFired(Alarm.QUORUM))
    assert not story.failed
    story.give(AlarmFired(Alarm.QUORUM))
    assert story.failed == [QUORUM_TIMEOUT]
    assert story.closes == [(-1, 0)]
    assert Alarm.QUORUM not in story.alarms


def test_the_time_out_says_how_a_bookie_failed_and_that_others_are_silent():
    """The reason has the error of one bookie and "no answer" for the other."""
    story = Story(limits=Limits(quorum_ms_max=1000, delay_change=True))
    story.append(1)
    story.ack(0, 0)
    story.lose(1)
    for _ in range(2):
        story.give(AlarmFired(Alarm.QUORUM))
    _code, reason = story.machine.ended_by
    assert "(addEntryQuorumTimeoutSec): lost (BookieHandleNotAvailable, code -8); no answer from b2;" in reason


def test_the_time_out_counts_from_each_entry_s_own_append():
    """An entry that was appended later is not failed by the alarm of an earlier one."""
    story = patient()
    story.append(1)
    story.give(AlarmFired(Alarm.QUORUM))
    story.append(1)
    story.ack(0, 0, 1)
    story.ack(1, 0)
    story.give(AlarmFired(Alarm.QUORUM))
    story.give(AlarmFired(Alarm.QUORUM))
    assert not story.failed, "the first is acknowledged, the second is young"
    story.give(AlarmFired(Alarm.QUORUM))
    assert story.failed == [QUORUM_TIMEOUT]
    assert story.closes == [(0, 10)]


def test_the_alarm_stops_when_nothing_waits_and_begins_again():
    """It is set again by the next append."""
    story = patient()
    story.append(1)
    story.ack(0, 0)
    story.ack(1, 0)
    story.alarms.clear()
    story.give(AlarmFired(Alarm.QUORUM))
    assert story.alarms == {}
    story.append(1)
    assert story.alarms == {Alarm.QUORUM: 500}


def test_an_advanced_entry_behind_a_gap_has_its_quorum():
    """It waits for its caller, who has not given the lower id yet; that is no bookie's failure."""
    story = patient(advanced=True)
    story.append(1, first=1)
    story.ack(0, 1)
    story.ack(1, 1)
    for _ in range(5):
        story.give(AlarmFired(Alarm.QUORUM))
    assert not story.failed
    story.append(1, first=0)
    for _ in range(3):
        story.give(AlarmFired(Alarm.QUORUM))
    assert story.failed == [QUORUM_TIMEOUT]


def test_what_waited_at_the_look_before_the_last_is_overdue():
    """A look comes every half time-out, so what is reported has waited between one and one and a half of it."""
    effects = []
    timeout = QuorumTimeout(1000)
    assert not timeout.waiting
    timeout.begin(3, effects)
    assert effects == [SetAlarm(Alarm.QUORUM, 500)]
    assert timeout.waiting
    assert timeout.alarm_fired(5) == -1, "nothing waited before it began"
    assert timeout.alarm_fired(7) == 3
    assert timeout.alarm_fired(frozenset((9,))) == 5
    assert timeout.alarm_fired(9) == 7
    assert timeout.alarm_fired(9) == frozenset((9,)), "as it was reported, also where ids are the caller's"


def test_what_begins_again_forgets_what_waited_before():
    """Ids from before the pause are not overdue, however long that was."""
    timeout = QuorumTimeout(1000)
    timeout.begin(3, [])
    timeout.alarm_fired(4)
    timeout.waiting = False
    timeout.begin(8, [])
    assert timeout.alarm_fired(9) == -1
    assert timeout.alarm_fired(9) == 8


def test_the_shortest_time_out_has_an_alarm_all_the_same():
    """Half of one millisecond is not none."""
    effects = []
    QuorumTimeout(1).set_alarm(effects)
    assert effects == [SetAlarm(Alarm.QUORUM, 1)]
