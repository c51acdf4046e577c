"""
The writer's machine: its table, each rule of protocol-rules.md 2.3 to 2.8 alone, and random histories against a naive
twin.
"""

from itertools import product
from random import Random

import pytest

from quire.client.core.append.machine import TABLE
from quire.client.core.append.messages import (
    Acked,
    AddRefused,
    Alarm,
    AlarmFired,
    BookiesSeen,
    ChangeRefused,
    ChannelLost,
    Close,
    CloseChannel,
    CloseRefused,
    CloseStored,
    FailPending,
    Fatal,
    Forced,
    Limits,
    Shutdown,
    State,
)
from quire.client.core.machine import IllegalInput
from quire.client.core.quorum import Domains
from tests.client.fakes.story import (
    CLIENT_CLOSED,
    CLOSED,
    FENCED,
    LOST,
    NOT_ENOUGH,
    READ_ONLY,
    UNAUTHORIZED,
    Story,
)

# SPDX-License-Identifier: Apache-2.0

S = State


# The table.


def test_what_a_peer_or_a_clock_can_cause_is_legal_everywhere():
    """Answers, failures, lists of bookies and alarms can come in every state."""
    for state, given in product(S, (Acked, AddRefused, ChannelLost, Fatal, BookiesSeen, AlarmFired)):
        assert (state, given) not in TABLE.illegal


def test_the_ended_states_are_traps():
    """No row leads out of CLOSED and DEAD, and CLOSING leads only to these."""
    for (before, _given), row in TABLE.rows.items():
        if before in (S.CLOSED, S.DEAD):
            assert row.after == {before}
        if before is S.CLOSING:
            assert row.after <= {S.CLOSING, S.CLOSED, S.DEAD}


def test_an_illegal_input_ends_the_machine():
    """An input without a row raises `IllegalInput`, and later appends are refused as closed."""
    story = Story()
    with pytest.raises(IllegalInput):
        story.machine.handle(CloseStored())
    assert story.machine.state is S.DEAD
    story.append(1)
    assert story.refused == [CLOSED]


# Appending and acknowledging.


def test_an_entry_is_acknowledged_at_its_ack_quorum():
    """Each entry is released when its ack quorum has answered, and the machine is idle after the last."""
    story = Story()
    story.append(3)
    story.ack(0, 0, 2)
    assert story.released == -1
    story.ack(2, 0, 1)
    assert story.released == 1
    story.ack(1, 0, 2)
    assert story.released == 2
    assert story.machine.idle


def test_acknowledgement_of_a_later_entry_implies_no_lower_one():
    """Entries are released in order, each by answers for itself."""
    story = Story()
    story.append(3)
    story.ack(0, 2)
    story.ack(1, 1, 2)
    assert story.released == -1
    story.ack(2, 0)
    assert story.released == -1
    story.ack(0, 0)
    assert story.released == 0
    story.ack(2, 1)
    assert story.released == 2


def test_the_same_bookie_twice_is_no_quorum():
    """A second answer of one bookie for an entry does not count."""
    story = Story()
    story.append(1)
    story.ack(0, 0)
    story.ack(0, 0)
    assert story.released == -1


def test_an_answer_for_what_was_never_sent_is_nothing():
    """Acknowledgements beyond what was sent release nothing, now or after later appends."""
    story = Story()
    story.append(1)
    for index in range(3):
        story.ack(index, 5, 9)
    assert story.released == -1
    story.ack(0, 0, 100)
    story.append(5)
    story.ack(1, 0, 100)
    assert story.released == 0


# Ensemble changes.


def test_s12_a_change_starts_above_the_lac_and_drops_the_lost_acknowledgements():
    """S12: e4 at one ack, e5 acked by b0 and b1; b0 fails: change at 4, e5 must regain its quorum."""
    story = Story()
    story.append(6)
    story.ack(0, 0, 3)
    story.ack(1, 0, 3)
    assert story.released == 3
    story.ack(1, 5)
    story.ack(0, 5)
    story.ack(2, 4)
    story.lose(0)
    assert [(store.first, store.failed) for store in story.stores] == [(4, ((0, "b0"),))]
    story.changed(i0="b3")
    assert story.released == 3
    assert story.sent[story.channel(0)] == [4, 5]
    story.ack(0, 4, 5)
    assert story.released == 5


def test_s13_nothing_is_acknowledged_while_the_ensemble_changes():
    """An ack quorum reached during a change is released when the change is stored."""
    story = Story()
    story.append(1)
    story.lose(0)
    story.ack(1, 0)
    story.ack(2, 0)
    assert story.released == -1
    story.changed(i0="b3")
    assert story.released == 0


def test_s14_late_answers_of_a_replaced_bookie_are_ignored():
    """S14: both an OK and an error."""
    story = Story()
    story.append(1)
    gone = story.channel(0)
    story.lose(0)
    story.changed(i0="b3")
    story.ack(1, 0)
    assert story.give(Acked(gone, 0, 1)) == []
    assert story.give(AddRefused(gone, 0, 1, FENCED)) == []
    assert story.give(ChannelLost(gone, LOST, "")) == []
    assert story.released == -1
    assert story.machine.state is S.OPEN


def test_s15_a_second_failure_during_the_change_is_chained():
    """S15: two writes, both replaced, at the same first entry."""
    story = Story()
    story.append(2)
    story.lose(0)
    story.lose(1)
    assert len(story.stores) == 1
    story.changed(i0="b3")
    assert [(store.first, store.failed) for store in story.stores] == [(0, ((0, "b0"),)), (0, ((1, "b1"),))]
    assert story.sent == {1: [0, 1], 2: [0, 1], 3: [0, 1]}, "no replica gets anything again before the whole change"
    story.changed(i1="b4")
    assert [story.open[channel] for channel in sorted(story.open)] == [(2, "b2"), (0, "b3"), (1, "b4")]
    assert story.sent[story.channel(0)] == story.sent[story.channel(1)] == [0, 1]


def test_s16_an_entry_that_the_failed_bookie_does_not_hold_needs_no_resend():
    """S16: 3/2/1; index 0 fails, e1 lies on 1 and 2 only."""
    story = Story((3, 2, 1))
    story.append(2)
    story.ack(1, 1)
    story.lose(0)
    story.ack(2, 1)
    story.changed(i0="b3")
    assert story.sent[story.channel(0)] == [0]
    story.ack(0, 0)
    assert story.released == 1


def test_s17_a_change_that_finds_the_ledger_closed_or_being_recovered():
    """S17: pending adds fail with -11 and -101, nothing is written."""
    for code in (CLOSED, FENCED):
        story = Story()
        story.append(2)
        story.lose(0)
        story.changing = False
        story.give(ChangeRefused(code, "no"))
        assert story.failed == [code]
        assert story.machine.state is S.DEAD
        assert story.closes == []
        assert story.ended == code


@pytest.mark.parametrize("code", [-9, -18, -17])
def test_a_change_that_the_store_refuses_closes_the_ledger(code):
    """Pending entries fail with the store's code, and the ledger is closed at its last confirmed entry."""
    story = Story()
    story.append(2)
    story.lose(0)
    story.changing = False
    story.give(ChangeRefused(code, "no"))
    assert story.failed == [code]
    assert story.closes == [(-1, 0)]


def test_a_deleted_ledger_is_not_closed():
    """When the store says that the ledger is gone, the handle ends with that code and stores no close."""
    story = Story()
    story.append(1)
    story.lose(0)
    story.give(ChangeRefused(-25, "deleted"))
    assert (story.failed, story.closes, story.ended) == ([-25], [], -25)


GONE = "lost (BookieHandleNotAvailable, code -8), and"


@pytest.mark.parametrize(
    ("ending", "code", "reason"),
    [
        ([Close()], CLOSED, "the ledger is closed; create another to go on"),
        ([Close(), CloseStored()], CLOSED, "the ledger is closed; create another to go on"),
        ([Close(), CloseRefused(FENCED, "fenced")], CLOSED, "this writer has ended: fenced"),
        ([Close(), Shutdown()], CLIENT_CLOSED, "the client was closed while the ledger's end was being stored"),
        ([Shutdown()], CLIENT_CLOSED, "the client was closed"),
        (
            [ChannelLost(1, LOST, "lost"), ChangeRefused(CLOSED, "closed at 7")],
            CLOSED,
            f"this writer has ended: {GONE} closed at 7",
        ),
        (
            [ChannelLost(1, LOST, "lost"), ChangeRefused(-25, "deleted")],
            CLOSED,
            f"this writer has ended: {GONE} deleted",
        ),
    ],
)
def test_callers_after_the_end_hear_how_it_ended(ending, code, reason):
    """And is sent to look where the ledger ends only while there is one."""
    story = Story()
    story.append(1)
    for given in ending:
        story.give(given)
    assert story.machine.final_error == (code, reason)
    story.append(1)
    assert story.refused == [code]


def test_a_recovery_s_error_does_not_advise_to_open_the_ledger():
    """It is what opens it; and the number of changes that a writer may make does not bind it."""
    story = Story(recovery=True, limits=Limits(changes_max=0))
    story.append(1)
    story.lose(0)
    assert len(story.stores) == 1
    story.give(ChangeRefused(-9, "the store is away"))
    assert story.machine.ended_by == (-9, f"{GONE} the store is away")


def test_d17_without_a_spare_the_ledger_goes_on_with_the_rest():
    """A bookie without replacement is left out; entries are acknowledged by the others."""
    story = Story()
    story.append(2)
    story.lose(0)
    assert not story.stores[0].must
    story.changed(shortage="no spare", seen=("b1", "b2"))
    assert story.machine.state is S.OPEN
    assert story.machine.out == ("b0",)
    assert story.watching
    story.append(2)
    assert sorted(story.open) == [2, 3], "the bookie that is out gets nothing"
    story.ack(1, 0, 3)
    story.ack(2, 0, 3)
    assert story.released == 3


def test_d17_the_same_bookie_returns_without_a_metadata_change():
    """It gets everything above the LAC; what it missed below is left for repair."""
    story = Story()
    story.append(2)
    story.lose(0)
    story.changed(seen=("b1", "b2"))
    story.ack(1, 0, 1)
    story.ack(2, 0, 1)
    story.append(2)
    story.give(BookiesSeen(frozenset(("b0", "b1", "b2"))))
    assert len(story.stores) == 1
    assert story.sent[story.channel(0)] == [2, 3]
    assert not story.watching
    story.ack(0, 2, 3)
    story.ack(1, 2, 3)
    assert story.released == 3


def test_d17_another_bookie_that_registers_is_taken_into_the_ensemble():
    """It replaces the bookie that was left out; then nothing is watched and no retry is set."""
    story = Story()
    story.append(1)
    story.lose(0)
    story.changed(seen=("b1", "b2"))
    story.ack(1, 0)
    story.ack(2, 0)
    story.give(BookiesSeen(frozenset(("b1", "b2", "b3"))))
    assert [(store.first, store.failed) for store in story.stores[1:]] == [(1, ((0, "b0"),))]
    story.changed(i0="b3", seen=("b1", "b2", "b3"))
    assert not story.watching
    assert Alarm.RETRY not in story.alarms


def test_d17_a_bookie_that_stays_registered_is_tried_again_ever_less_often():
    """A connection may fail while the registration remains; no change would say when it is back."""
    story = Story()
    story.append(1)
    story.lose(0)
    story.changed(seen=("b0", "b1", "b2"))
    waits = []
    for _ in range(6):
        waits.append(story.alarms[Alarm.RETRY])
        story.give(AlarmFired(Alarm.RETRY))
        story.lose(0)
        story.changed(seen=("b0", "b1", "b2"))
    assert waits == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    story.give(AlarmFired(Alarm.RETRY))
    story.append(1)
    story.ack(0, 1)
    story.lose(0)
    story.changed(seen=("b0", "b1", "b2"))
    assert story.alarms[Alarm.RETRY] == 5_000, "it worked for a while"


def test_d17_a_bookie_that_no_policy_takes_keeps_none_from_coming_back():
    """
    A spare is writable that may not be taken, on a machine that has a copy, say.  One that is out and was registered
    all the time is tried again all the same, and the ensemble is changed for those that are away.
    """
    here = ("b0", "b2", "b3", "b4", "spare")
    story = Story((5, 5, 3))
    story.append(1)
    story.lose(0)
    story.lose(1)
    story.changed(shortage="no other host", seen=here)
    story.changed(shortage="no other host", seen=here)
    assert story.machine.out == ("b0", "b1")
    story.give(AlarmFired(Alarm.RETRY))
    assert story.machine.out == ("b1",)
    assert story.sent[story.channel(0)] == [0]
    assert [store.failed for store in story.stores[2:]] == [((1, "b1"),)]


def test_d17_a_choice_without_an_answer_does_not_hide_who_is_registered():
    """
    The store was away when the second bookie failed.  The lists that are watched are what they were, so no change of
    them says that both are still there: both are tried again.
    """
    here = ("b0", "b1", "b2", "b3", "b4")
    story = Story((5, 5, 3))
    story.append(1)
    story.lose(0)
    story.changed(shortage="no spare", seen=here)
    story.give(BookiesSeen(frozenset(here)))
    story.lose(1)
    story.changed(shortage="no spare could be looked up", seen=())
    assert story.machine.out == ("b0", "b1")
    story.give(AlarmFired(Alarm.RETRY))
    assert story.machine.out == ()
    assert story.sent[story.channel(0)] == story.sent[story.channel(1)] == [0]


def test_d17_after_a_choice_without_an_answer_nobody_is_new():
    """Who is seen then may have been there all the time, so the bookie that is out is tried after a while, not now."""
    here = ("b0", "b1", "b2")
    story = Story((3, 3, 2))
    story.append(1)
    story.lose(0)
    story.changed(shortage="no spare could be looked up", seen=())
    story.give(BookiesSeen(frozenset(here)))
    assert story.machine.out == ("b0",)
    story.give(BookiesSeen(frozenset(here[1:])))
    story.give(BookiesSeen(frozenset(here)))
    assert story.machine.out == (), "it left and came back"


def test_d12_s30_too_few_spares_is_an_end_and_no_hang():
    """S30: E = WQ = AQ = 4, two spares, three bookies fail."""
    story = Story((4, 4, 4))
    story.append(1)
    story.lose(0)
    story.lose(1)
    story.lose(2)
    story.changed(i0="b4")
    assert story.stores[1].must
    story.changed(i1="b5", shortage="5 of 5 are used")
    assert story.failed == [NOT_ENOUGH]
    assert story.closes == [(-1, 0)]


def test_no_replacement_and_no_quorum_closes_at_the_lac():
    """Pending entries fail with NotEnoughBookies and the ledger is closed behind its last confirmed entry."""
    story = Story((3, 2, 2))
    story.append(4, size=3)
    for index in range(3):
        story.give(Acked(story.channel(index), 0, 2))
    assert story.released == 1
    story.lose(1)
    story.changed(shortage="none")
    assert story.failed == [NOT_ENOUGH]
    assert story.closes == [(1, 6)]
    story.give(CloseStored())
    assert story.ended == 0
    story.append(1)
    assert story.refused == [CLOSED]


def test_a_refused_add_replaces_the_bookie():
    """A read-only bookie is replaced and gets no more entries."""
    story = Story()
    story.append(1)
    story.refuse(0, 0, READ_ONLY)
    assert story.stores[0].failed == ((0, "b0"),)
    assert 1 not in story.open


# Fatal answers.


@pytest.mark.parametrize("code", [FENCED, UNAUTHORIZED, -100])
def test_a_fatal_answer_before_the_quorum_ends_the_handle(code):
    """All fail with its code; the ledger is closed, but not if it was fenced."""
    story = Story()
    story.append(3)
    story.ack(0, 0)
    story.refuse(1, 0, code)
    assert story.failed == [code]
    assert story.open == {}
    # A fenced ledger is another client's: nothing is written (D1).
    assert story.closes == ([] if code == FENCED else [(-1, 0)])
    story.append(1)
    assert story.refused == [CLOSED]


def test_a_bookie_that_does_not_let_us_in_is_not_replaced():
    """It works, and the others have the same rights: the writer ends where an entry waits for it, and only there."""
    story = Story()
    story.append(1)
    story.ack(0, 0)
    story.ack(1, 0)
    story.lose(2, UNAUTHORIZED)
    assert story.failed == []
    story.append(1)
    story.lose(1, UNAUTHORIZED)
    assert story.failed == [UNAUTHORIZED]
    assert story.closes == [(0, 10)]


def test_a_fence_seen_after_the_quorum_replaces_the_bookie_at_the_next_append():
    """The change then finds out whether the ledger is being recovered, or the bookie fenced itself (S33)."""
    story = Story()
    story.append(1)
    story.ack(0, 0)
    story.ack(1, 0)
    story.refuse(2, 0, FENCED)
    assert story.failed == []
    story.append(1)
    assert story.stores[0].failed == ((2, "b2"),)


# Close.


def test_s20_close_fails_what_is_pending_and_ends_at_the_lac():
    """Entries without quorum fail; the closed ledger has the last confirmed entry and its length."""
    story = Story()
    story.append(2, size=4)
    story.ack(0, 0)
    story.ack(1, 0)
    story.append(3, size=100)
    story.give(Close())
    assert story.failed == [CLOSED]
    assert story.closes == [(0, 4)]
    assert (story.machine.pushed, story.machine.lac, story.machine.length) == (0, 0, 4)
    story.give(CloseStored())
    assert (story.ended, story.machine.state) == (0, S.CLOSED)


@pytest.mark.parametrize(("end", "finish"), [(Close(), True), (Shutdown(), False), (Fatal(FENCED, "fenced"), False)])
def test_only_the_users_close_lets_what_is_queued_go_on(end, finish):
    """Channels of a writer that lost its ledger, or whose client ends, send nothing more."""
    story = Story()
    story.append(1)
    closed = [effect for effect in story.machine.handle(end) if isinstance(effect, CloseChannel)]
    assert len(closed) == 3
    assert all(effect.finish is finish for effect in closed)


def test_a_close_that_is_refused_reports_its_code():
    """The handle ends with the code that the store gave."""
    story = Story()
    story.give(Close())
    story.give(CloseRefused(-17, "elsewhere"))
    assert (story.ended, story.machine.state) == (-17, S.DEAD)


def test_close_during_a_change_lets_the_change_go():
    """The close is stored at once, and the result of the change is ignored."""
    story = Story()
    story.append(1)
    story.lose(0)
    story.give(Close())
    assert story.closes == [(-1, 0)]
    assert story.changed(i0="b3") == []
    story.give(CloseStored())
    assert story.ended == 0


def test_shutdown_writes_nothing():
    """Pending entries fail and no close is stored."""
    story = Story()
    story.append(1)
    story.give(Shutdown())
    assert (story.failed, story.closes, story.ended) == ([-19], [], -19)


# Deferred sync, advanced ids.


def test_deferred_sync_moves_the_lac_by_force_only():
    """Acknowledged entries are confirmed by `force` alone, and a close ends at what was forced."""
    story = Story(deferred_sync=True)
    story.append(2, size=4)
    story.ack(0, 0, 1)
    story.ack(1, 0, 1)
    assert (story.released, story.machine.lac) == (1, -1)
    story.append(1, size=4)
    assert story.batches[-1].lac == -1
    assert story.batches[-1].deferred_sync
    story.give(Forced(1, 8))
    assert story.machine.lac == 1
    story.give(Close())
    assert story.closes == [(1, 8)]


def test_deferred_sync_ends_with_the_first_bookie_that_fails():
    """A ledger with deferred sync is closed instead of changing its ensemble."""
    story = Story(deferred_sync=True)
    story.append(1)
    story.lose(0)
    assert (story.failed, story.stores, story.closes) == ([-12], [], [(-1, 0)])


def test_advanced_ids_wait_for_the_gap():
    """Entries behind a missing id are released together with it."""
    story = Story(advanced=True)
    story.append(1, first=0)
    story.append(1, first=2)
    for index in (0, 1):
        story.ack(index, 0)
        story.ack(index, 2)
    assert story.released == 0
    story.append(1, first=1)
    story.ack(0, 1)
    story.ack(2, 1)
    assert story.released == 2


# Random histories.


def naive_head(q, count, acks):
    """The highest id such that it and all below have an ack quorum of their write set: entry by entry."""
    head = -1
    while head + 1 < count and sum(index in acks.get(head + 1, ()) for index in q.write_set(head + 1)) >= q.ack:
        head += 1
    return head


SHAPES = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 3, 3), (3, 2, 2), (3, 2, 1), (4, 2, 2), (5, 3, 2), (5, 5, 3), (6, 4, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_random_answers_in_any_order_against_the_naive_twin(shape):
    """Without failures the head is, after every input, what counting entry by entry says."""
    for seed in range(40):
        random = Random(f"{shape}{seed}")
        in_order = random.random()
        story = Story(shape)
        acks, waiting, count = {}, {}, 0
        for _ in range(60):
            if random.random() < 0.3 and count < 60:
                size = random.randint(1, 6)
                story.append(size)
                for entry in range(count, count + size):
                    for index in story.q.write_set(entry):
                        waiting.setdefault(index, []).append(entry)
                count += size
                continue
            index = random.choice(sorted(waiting)) if waiting else 0
            ids = waiting.get(index)
            if not ids:
                continue
            at = 0 if random.random() < in_order else random.randrange(len(ids))
            taken = [ids.pop(at)]
            while at < len(ids) and ids[at] == taken[-1] + 1 and random.random() < 0.7:
                taken.append(ids.pop(at))
            for entry in taken:
                acks.setdefault(entry, set()).add(index)
            story.ack(index, taken[0], taken[-1])
            assert story.machine.head == naive_head(story.q, count, acks), (shape, seed)
            assert story.released == story.machine.head


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("advanced", [False, True])
def test_random_histories_with_failures(shape, advanced):
    """
    Nothing is released that is not stored on an ack quorum of its current write set; and once failures stop and every
    answer comes, everything is released.
    """
    for seed in range(400):
        RandomHistory(shape, advanced, Random(f"{shape}{advanced}{seed}")).run()


class RandomHistory:
    """One random life of a writer; bookies store what they get and answer in any order."""

    def __init__(self, shape, advanced, random):
        self.random = random
        self.story = Story(
            shape,
            advanced=advanced,
            limits=Limits(window_entries_max=25, batch_entries_max=4, replica_backlog_bytes_max=600),
        )
        self.advanced = advanced
        self.free = list(range(40))
        self.stored = {}  # bookie -> acknowledged ids
        self.answers = {}  # channel -> ids without an answer
        self.spare = shape[0]
        self.spares_left = random.randint(0, 4)
        self.checked = -1

    def give(self, effects):
        story = self.story
        for channel, ids in story.sent.items():
            seen = self.answers.setdefault(channel, (set(), []))
            for entry in ids:
                if entry not in seen[0]:
                    seen[0].add(entry)
                    seen[1].append(entry)
        bookies = story.machine.bookies
        for entry in range(self.checked + 1, story.released + 1):
            holders = [index for index in story.q.write_set(entry) if entry in self.stored.get(bookies[index], ())]
            assert len(holders) >= story.q.ack, f"entry {entry} was released with {holders}"
        self.checked = story.released
        return effects

    def run(self):
        steps = [
            self.append,
            self.answer,
            self.answer,
            self.answer,
            self.lose,
            self.refuse,
            self.finish_change,
            self.seen,
            self.ring,
        ]
        for _ in range(self.random.randint(20, 90)):
            self.random.choice(steps)()
            if self.story.machine.state not in (S.OPEN, S.CHANGING):
                break
        self.settle()

    def append(self):
        count = self.random.randint(1, 6)
        if self.advanced:
            at = min(len(self.free) - 1, self.random.randint(0, 2))
            if at >= 0:
                self.give(self.story.append(1, first=self.free.pop(at)))
        else:
            self.give(self.story.append(count))

    def answer(self):
        open_channels = [channel for channel in self.story.open if self.answers.get(channel, ((), ()))[1]]
        if not open_channels:
            return
        channel = self.random.choice(sorted(open_channels))
        ids = self.answers[channel][1]
        at = 0 if self.random.random() < 0.8 else self.random.randrange(len(ids))
        self.stored.setdefault(self.story.open[channel][1], set()).add(ids[at])
        self.give(self.story.give(Acked(channel, ids.pop(at), 1)))

    def lose(self):
        if self.story.open and self.random.random() < 0.3:
            channel = self.random.choice(sorted(self.story.open))
            self.give(self.story.give(ChannelLost(channel, LOST, "lost")))

    def refuse(self):
        open_channels = [channel for channel in self.story.open if self.answers.get(channel, ((), ()))[1]]
        if open_channels and self.random.random() < 0.3:
            channel = self.random.choice(sorted(open_channels))
            self.give(
                self.story.give(
                    AddRefused(
                        channel, self.random.choice(self.answers[channel][1]), 1, self.random.choice((READ_ONLY, -12))
                    )
                )
            )

    def finish_change(self):
        if not self.story.changing:
            return
        replaced = {}
        for index, _bookie in self.story.stores[-1].failed:
            if self.spares_left:
                self.spares_left -= 1
                replaced[f"i{index}"] = f"b{self.spare}"
                self.spare += 1
        self.give(self.story.changed(shortage="none left", seen=self.story.machine.bookies, **replaced))

    def seen(self):
        if self.story.watching:
            here = set(self.story.machine.bookies)
            self.give(self.story.give(BookiesSeen(frozenset(here - set(self.story.machine.out)))))
            self.give(self.story.give(BookiesSeen(frozenset(here))))

    def ring(self):
        for alarm in list(self.story.alarms):
            del self.story.alarms[alarm]
            self.give(self.story.give(AlarmFired(alarm)))

    def settle(self):
        """No more failures; a bookie that is out stays out."""
        if self.advanced:
            while self.free and self.free[0] < self.story.machine.pushed:
                self.give(self.story.append(1, first=self.free.pop(0)))
        for _ in range(5000):
            machine = self.story.machine
            if machine.state not in (S.OPEN, S.CHANGING):
                assert self.story.failed
                return
            self.finish_change()
            self.answer()
            if not self.story.changing and not any(
                self.answers.get(channel, ((), ()))[1] for channel in self.story.open
            ):
                if not machine.window_full or not self.story.alarms:
                    break
                self.ring()  # a bookie's backlog holds up the writer until the clock says so
        assert self.story.released == machine.pushed, (self.story.released, machine.pushed, machine.state)
        self.check_copies()

    def check_copies(self):
        """Every replica that lives has every entry of its index that was not settled before it came."""
        machine = self.story.machine
        for channel, (index, bookie) in self.story.open.items():
            first = min(self.story.sent[channel], default=None)
            if first is None:
                continue
            missing = [
                entry
                for entry in self.story.q.entries_of(index, first, machine.pushed)
                if entry not in self.stored.get(bookie, ())
            ]
            assert not missing, f"{bookie} lacks {missing}"


# Fault domains (enforceMinNumFaultDomainsForWrite).

RACKS = {"b0": "/r1", "b1": "/r1", "b2": "/r2", "b3": "/r2", "b4": "/r1"}
APART = Domains(RACKS.__getitem__, 2)


@pytest.mark.parametrize("advanced", [False, True])
def test_copies_in_one_rack_are_no_quorum(advanced):
    """Two of two are needed, in two racks: entries wait for the copy elsewhere, then go together."""
    story = Story(domains=APART, advanced=advanced)
    story.append(3, first=0 if advanced else None)
    story.ack(0, 0, 2)
    story.ack(1, 0, 2)
    assert story.released == -1
    story.ack(2, 1)
    assert story.released == -1
    story.ack(2, 0)
    assert story.released == 1
    story.ack(2, 2)
    assert story.released == 2


def test_the_last_bookie_of_a_rack_is_not_gone_on_without():
    """
    An ack quorum lives, but in one rack: without a spare elsewhere the writer ends and says why; with one it goes on.
    """
    for spare, ends in (("b4", True), ("b3", False)):
        story = Story(domains=APART)
        story.append(1)
        for index in range(3):
            story.ack(index, 0)
        story.append(1)
        story.lose(2)
        assert story.stores[-1].must, "even a suspect will do"
        effects = story.changed(i2=spare)
        assert (story.machine.state is S.CLOSING) == ends
        if ends:
            (failure,) = [effect for effect in effects if isinstance(effect, FailPending)]
            assert failure.code == NOT_ENOUGH
            assert "of b0, b1, b4 some write set is in fewer than 2 racks" in failure.reason
    story = Story(domains=APART)
    story.append(1)
    story.ack(0, 0)
    story.lose(1)
    story.changed("no spare")
    assert story.machine.state is S.OPEN, "the others lie in two racks"
    story.ack(2, 0)
    assert story.released == 0
