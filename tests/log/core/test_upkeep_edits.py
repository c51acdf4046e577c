"""Edits that are not about appending: trims, marks, lost segments, the end of a log."""

from dataclasses import replace

import pytest

from quire.log.core import upkeep_edits
from quire.log.core.edits import Claim, CloseSegment, OpenSegment, Publish, Published
from quire.log.core.upkeep_edits import Clear, Delete, Doom, GiveUp, Hold, Mark, Rename, Terminate, Trim, Update
from quire.log.core.values import Owner
from quire.protocol.log_errors import LogFull, LogTerminated, NoSuchLog, PublishRefused, SegmentLost
from tests.log.core.test_edits import COUNTS, ME, with_closed, with_open

# SPDX-License-Identifier: Apache-2.0


def test_a_trim_dooms_what_is_before():
    """Closed segments and chunks below go, the begin may be inside a segment and never moves back."""
    manifest = with_closed(4)
    trimmed = Trim(2, 25, 250, 9, {}).apply(manifest)
    assert [each.n for each in trimmed.segments] == [2, 3]
    assert [(each.ledger, each.why) for each in trimmed.doomed[1:]] == [(7, "trimmed"), (8, "trimmed")]
    assert (trimmed.begin.n, trimmed.begin.index, trimmed.begin.at) == (2, 25, 250)
    assert Trim(1, 12, 120, 9, {}).apply(trimmed) is None
    assert Trim(4, 40, 400, 9, {}).apply(trimmed) is None, "the last segment stays"
    trimmed.check()
    assert trimmed.begin.stamp == manifest.segments[1].t[1], "the next records are stamped no lower, whatever is left"
    full = replace(manifest, doomed=manifest.doomed * (upkeep_edits.DOOMED_MAX + 1))
    with pytest.raises(LogFull):
        Trim(2, 25, 250, 9, {}).apply(full)


def test_marks_of_an_offloaded_segment():
    """Set only over the expected one; once the bookies' copies may go, the ledger is doomed and the segment stays."""
    manifest = with_closed(2)
    copying = {"id": "x", "state": "copying"}
    complete = {"id": "x", "state": "complete", "uri": "s3:", "bookies": "kept"}
    gone = {**complete, "bookies": "deleted"}
    marked = Mark(0, copying, None, 1).apply(manifest)
    assert marked.segments[0].offload == copying
    assert Mark(0, copying, None, 1).apply(marked) is None
    with pytest.raises(PublishRefused):
        Mark(0, complete, None, 1).apply(marked)
    done = Mark(0, gone, complete, 1).apply(Mark(0, complete, copying, 1).apply(marked))
    assert done.segments[0].ledger == 7
    assert done.doomed[-1].ledger == 7
    with pytest.raises(SegmentLost):
        Mark(9, copying, None, 1).apply(manifest)
    assert [each.ledger for each in Trim(1, 10, 100, 9, {}).apply(done).doomed] == [9, 7]


def test_a_lost_segment_is_given_up():
    """A closed one keeps its counts; an open one counts as much as anybody can have been told."""
    manifest = with_closed(2)
    given = GiveUp(manifest.segments[0], 50, 9, "operator").apply(manifest)
    assert given.segments[0].lost
    assert given.segments[0].records == 10
    assert given.segments[0].extra["given-up"] == {"by": "operator", "at": 9}
    assert GiveUp(manifest.segments[0], 50, 9, "operator").apply(given) is None
    opened = with_open()
    lost = GiveUp(opened.segments[0], 50, 9, "operator").apply(opened)
    assert lost.closed_end == (50, upkeep_edits.LOST_BYTES)
    with pytest.raises(SegmentLost):
        GiveUp(opened.segments[0], 50, 9, "o").apply(CloseSegment(0, COUNTS, ME).apply(opened))


def test_a_terminated_log_takes_nothing_more():
    """Neither owner nor publisher nor records; its end is told; a deleted one takes no edit at all."""
    manifest = Terminate(None, 1).apply(with_closed(2))
    assert (manifest.state, manifest.end, manifest.owner) == ("terminated", 20, None)
    assert Terminate(None, 1).apply(manifest) is None
    for edit in (Claim(Owner("x", 0)), OpenSegment(ME, 9), Publish([Published(9, 1, 1, 1)], 1)):
        with pytest.raises(LogTerminated) as raised:
            edit.apply(manifest)
        assert raised.value.end == 20
    assert Hold().apply(manifest) == manifest
    assert Terminate(None, 1).apply(with_open()) is None, "another segment is open than was settled"
    settled = Terminate((0, COUNTS), 1).apply(with_open())
    assert (settled.end, settled.open_segment) == (COUNTS.records, None)
    gone = Delete().apply(manifest)
    assert Delete().apply(gone) is None
    for edit in (Claim(Owner("x", 0)), Hold(), Rename("n"), Update({}), Trim(1, 1, 1, 1, {}), Mark(0, None, None, 1)):
        with pytest.raises(NoSuchLog):
            edit.apply(gone)


def test_small_edits():
    """Doom and clear, rename, settings: each once."""
    manifest = with_closed()
    assert Doom([7], "orphan", 1).apply(manifest) is None
    doomed = Doom([7, 50], "orphan", 1).apply(manifest)
    assert doomed.doomed[-1].ledger == 50
    assert Clear([50]).apply(doomed) == manifest
    assert Clear([51]).apply(doomed) is None
    assert Rename("new").apply(manifest).name == "new"
    assert Rename("orders").apply(manifest) is None
    assert Update({"a": 1}).apply(manifest).settings == {"a": 1}
    assert Update({}).apply(manifest) is None
