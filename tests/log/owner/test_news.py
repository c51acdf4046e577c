"""What a newer manifest means for an owner."""

from dataclasses import replace

import pytest

from quire.log.core.edits import Claim, CloseSegment
from quire.log.core.ownership import State
from quire.log.core.ownership_messages import Deposed, SegmentEnded
from quire.log.core.upkeep_edits import Delete
from quire.log.core.values import Counts, Owner
from quire.log.owner.news import news
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
