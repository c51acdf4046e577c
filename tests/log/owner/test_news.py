"""What a newer manifest means for an owner."""

from dataclasses import replace

import pytest

from quire.log.core.edits import Claim, CloseSegment
from quire.log.core.ownership import State
from quire.log.core.ownership_messages import Deposed, SegmentEnded, WriterEnded
from quire.log.core.upkeep_edits import Delete, Trim
from quire.log.core.values import Counts, Owner
from quire.log.owner.tenure import news
from quire.protocol.log_errors import LogFenced, LogTerminated, NoSuchLog
from tests.log.core.test_edits import with_open
from tests.log.core.test_ownership import at

# SPDX-License-Identifier: Apache-2.0

TOKEN = "mine"


def owned():
    """A manifest of epoch 3 whose open segment is 5, on ledger 50; and the machine that has made it so."""
    manifest = with_open()
    (segment,) = manifest.segments
    segment = replace(segment, n=5, ledger=50, epoch=3)
    return replace(manifest, epoch=3, owner=Owner(TOKEN, 3), segments=(segment,), next=6), at(State.WRITING)


def test_nothing_new():
    """The manifest is as this owner made it; and a candidate or one that is out hears of nothing."""
    manifest, machine = owned()
    assert news(manifest, machine, TOKEN) == []
    other = Claim(Owner("theirs", 0)).apply(manifest)
    for state in (State.WAITING, State.CLAIMING, State.OUT):
        machine.state = state
        assert news(other, machine, TOKEN) == []


def test_another_owner():
    """Also one with the same token and another epoch, and nobody."""
    manifest, machine = owned()
    for changed in (
        Claim(Owner("theirs", 0)).apply(manifest),
        replace(manifest, epoch=4, owner=Owner(TOKEN, 4)),
        replace(manifest, owner=None),
    ):
        (given,) = news(changed, machine, TOKEN)
        assert isinstance(given, Deposed)
        assert isinstance(given.error, LogFenced)
    machine.state = State.MOVING
    assert news(replace(manifest, owner=None), machine, TOKEN) == []


@pytest.mark.parametrize("records", [0, 7])
def test_a_segment_that_a_publisher_ended(records):
    """With its entries; 0 when it was doomed as empty."""
    manifest, machine = owned()
    ended = CloseSegment(5, Counts(records, 70, 4, 9)).apply(manifest)
    assert news(ended, machine, TOKEN) == [SegmentEnded(5, 4 if records else 0)]
    machine.state = State.LOST
    assert news(ended, machine, TOKEN) == [SegmentEnded(5, 4 if records else 0)]


def test_a_log_that_ends():
    """Deleted or terminated: the owner is deposed, and the error says which."""
    manifest, machine = owned()
    (given,) = news(Delete().apply(manifest), machine, TOKEN)
    assert isinstance(given.error, NoSuchLog)
    ended, terminated = news(replace(manifest, state="terminated", end=0, segments=()), machine, TOKEN)
    assert ended == SegmentEnded(5, 0)
    assert isinstance(terminated.error, LogTerminated)
    machine.state = State.WAITING
    (given,) = news(Delete().apply(manifest), machine, TOKEN)
    assert isinstance(given.error, NoSuchLog)


def test_a_segment_that_was_trimmed():
    """What was in it is looked for: it was not empty. Unless it is among the doomed as that."""
    manifest, machine = owned()
    machine.ledger = 50
    ended = CloseSegment(5, Counts(7, 70, 4, 9)).apply(manifest)
    behind = replace(ended.segments[0], n=6, ledger=60, first=7, at=70)
    trimmed = Trim(6, 7, 70, 1, {}).apply(replace(ended, segments=(*ended.segments, behind), next=7))
    assert [each.n for each in trimmed.segments] == [6]
    assert news(trimmed, machine, TOKEN) == [WriterEnded(5)]
    empty = replace(trimmed, doomed=(replace(trimmed.doomed[-1], why="empty"),))
    assert news(empty, machine, TOKEN) == [SegmentEnded(5, 0)]
    for state in (State.OPENING, State.WRITING, State.ROLLING, State.FENCED, State.MOVING, State.LOST):
        machine = at(state)
        machine.ledger = 50
        for given in news(trimmed, machine, TOKEN):
            machine.handle(given)
