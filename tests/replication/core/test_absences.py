"""Which bookies count as lost: by the delay, each by its own time, and only what was seen."""

from hypothesis import given
from hypothesis import strategies as st

from quire.replication.core.absences import Absences, Sight

# SPDX-License-Identifier: Apache-2.0

ALL = ("a:1", "b:1", "c:1")
NOTHING = Sight()


def seen(delay_s: float, *bookies: str) -> Absences:
    """At 0 all three are there."""
    made = Absences(delay_s)
    assert made.see(0.0, bookies or ALL) == NOTHING
    return made


def test_without_a_delay_a_bookie_that_left_is_lost_at_once() -> None:
    """Once, until it is back; what was lost and is there again is said, too."""
    absences = seen(0.0)
    assert absences.see(5.0, ("a:1", "c:1")) == Sight(lost=("b:1",))
    assert absences.see(6.0, ("a:1", "c:1")) == NOTHING
    assert absences.lost == {"b:1"}
    assert absences.see(7.0, ALL) == Sight(back=("b:1",))
    assert absences.lost == set()
    assert absences.see(8.0, ("a:1", "c:1")) == Sight(lost=("b:1",))


def test_who_comes_back_within_the_delay_was_never_lost() -> None:
    """Its next absence has the whole delay before it."""
    absences = seen(30.0)
    assert absences.see(10.0, ("a:1", "b:1")) == NOTHING
    assert (absences.away, absences.due) == ({"c:1"}, 40.0)
    assert absences.wait(39.9) == NOTHING
    assert absences.see(39.9, ALL) == NOTHING
    assert (absences.away, absences.due) == (set(), None)
    absences.see(45.0, ("a:1", "b:1"))
    assert absences.wait(74.9) == NOTHING
    assert absences.wait(75.0) == Sight(lost=("c:1",))
    assert (absences.away, absences.due) == (set(), None)


def test_each_has_its_own_delay_however_many_are_away() -> None:
    """Two that are away at once are no reason to hurry."""
    absences = seen(30.0)
    assert absences.see(10.0, ("a:1", "b:1")) == NOTHING
    assert absences.see(20.0, ("a:1",)) == NOTHING
    assert absences.wait(40.0) == Sight(lost=("c:1",))
    assert absences.due == 50.0
    assert absences.wait(50.0) == Sight(lost=("b:1",))


def test_a_bookie_that_is_known_and_was_never_seen_has_its_delay_too() -> None:
    """From the first look on; before that nobody is judged."""
    absences = Absences(30.0)
    assert absences.expect(["d:1"]) is True
    assert (absences.wait(100.0), absences.due) == (NOTHING, None)
    assert absences.see(100.0, ALL) == NOTHING
    assert absences.expect(["e:1", "a:1"]) is True
    assert absences.expect(["e:1", "a:1"]) is False
    assert absences.see(110.0, ALL) == NOTHING
    assert absences.wait(130.0) == Sight(lost=("d:1",))
    assert absences.wait(140.0) == Sight(lost=("e:1",))


def test_what_could_not_be_seen_is_no_absence() -> None:
    """After the store was away each delay begins again; who was lost stays lost until it is seen."""
    absences = seen(30.0)
    absences.see(1.0, ("a:1", "b:1"))
    absences.wait(31.0)
    absences.see(40.0, ("a:1",))
    absences.lose_sight()
    assert (absences.wait(1000.0), absences.due, absences.lost) == (NOTHING, None, {"c:1"})
    assert absences.see(1000.0, ("a:1",)) == NOTHING
    assert absences.due == 1030.0
    assert absences.see(1030.0, ("a:1", "c:1")) == Sight(lost=("b:1",), back=("c:1",))


def test_another_delay_holds_for_who_is_away() -> None:
    """A shorter one may be over already; a longer one takes nothing back."""
    absences = seen(30.0)
    absences.see(10.0, ("a:1", "b:1"))
    assert absences.set_delay(15.0, 60.0) == NOTHING
    assert absences.due == 70.0
    assert absences.set_delay(20.0, 10.0) == Sight(lost=("c:1",))
    assert absences.set_delay(21.0, 60.0) == NOTHING
    assert absences.lost == {"c:1"}


def test_who_was_taken_out_of_the_cluster_is_not_missed() -> None:
    """Unless it is there."""
    absences = seen(0.0)
    absences.see(1.0, ("a:1",))
    absences.forget(["a:1", "b:1"])
    assert absences.lost == {"c:1"}
    assert absences.see(2.0, ()) == Sight(lost=("a:1",))


@given(
    st.floats(0.1, 100),
    st.lists(st.tuples(st.sampled_from(ALL), st.floats(0, 99)), max_size=30),
)
def test_a_rolling_restart_loses_nobody(delay_s: float, restarts: list[tuple[str, float]]) -> None:
    """However many of them restart one after the other, each for less than the delay, while audits are due."""
    absences = seen(delay_s)
    now = 0.0
    for bookie, part in restarts:
        assert absences.see(now, [each for each in ALL if each != bookie]) == NOTHING
        now += delay_s * part / 100
        assert absences.wait(now) == NOTHING
        assert absences.see(now, ALL) == NOTHING
        assert absences.away == set()
    assert absences.lost == set()


@given(
    st.floats(0, 20),
    st.lists(st.tuples(st.floats(0, 10), st.sets(st.sampled_from(ALL)), st.booleans()), max_size=20),
)
def test_who_is_lost_was_away_for_the_delay(delay_s: float, looks: list[tuple[float, set[str], bool]]) -> None:
    """At every look in a row without an interruption, whatever the looks were; and who is due is lost then."""
    absences = Absences(delay_s)
    now, known, since = 0.0, set[str](), dict[str, float]()
    for seconds, here, blind in looks:
        now += seconds
        if blind:
            absences.lose_sight()
            since = {bookie: time for bookie, time in since.items() if bookie in absences.lost}
            continue
        known |= here
        absences.see(now, here)
        since = {bookie: since.get(bookie, now) for bookie in known - here}
        expected = {bookie for bookie, time in since.items() if now - time >= delay_s}
        assert expected <= absences.lost
        assert absences.lost <= set(since)
        due = absences.due
        assert (due is None) == (not absences.away)
        if due is not None:
            assert due > now - 1e-9


def test_an_operator_does_not_wait() -> None:
    """Who is away counts as lost, delay or not; but nobody by a view that was lost."""
    absences = seen(30.0)
    absences.see(10.0, ("a:1",))
    assert absences.hurry() == Sight(lost=("b:1", "c:1"))
    assert absences.hurry() == NOTHING
    assert absences.lost == {"b:1", "c:1"}
    other = seen(30.0)
    other.see(10.0, ("a:1",))
    other.lose_sight()
    assert (other.sees, other.hurry(), other.lost) == (False, NOTHING, set())


def test_a_cluster_without_bookies_is_deserted() -> None:
    """Before the first look, too."""
    absences = Absences(0.0)
    assert absences.is_deserted
    absences.see(0.0, ALL)
    assert not absences.is_deserted
    absences.see(1.0, ())
    assert absences.is_deserted


def test_nobody_is_lost_right_after_the_view_came_back() -> None:
    """The bookies' sessions may have ended with ours: they have a session time-out to come back, delay or not."""
    absences = Absences(0.0, settle_s=10.0)
    absences.see(0.0, ["a", "b"])
    absences.lose_sight()
    assert absences.see(100.0, ["a"]) == Sight()
    assert absences.due == 110.0
    assert absences.wait(109.0) == Sight()
    assert absences.see(109.5, ["a", "b"]) == Sight()
    assert absences.due is None
    assert absences.see(120.0, ["a"]) == Sight(("b",))


def test_a_look_that_missed_something_begins_the_absences_anew() -> None:
    """Who is away may have been back; who counts as lost goes on to do so."""
    absences = seen(10.0)
    absences.see(0.0, ("a:1", "b:1"))
    assert absences.see(10.0, ("a:1",)) == Sight(lost=("c:1",))
    assert absences.see(19.0, ("a:1",), follows=False) == NOTHING
    assert absences.lost == {"c:1"}
    assert absences.wait(28.9) == NOTHING
    assert absences.wait(29.0) == Sight(lost=("b:1",))
