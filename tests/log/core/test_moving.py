"""The edits of a move to another cluster, and when a log may go for its copy."""

from dataclasses import replace

import pytest

from quire.log.core.edits import Me
from quire.log.core.manifest import MIRROR, TERMINATED, new_manifest
from quire.log.core.mirroring import Promote
from quire.log.core.moving import Carry, HoldCopy, has_all
from quire.log.core.upkeep_edits import Update
from quire.log.core.values import Moved, Origin, Owner
from quire.protocol.log_errors import LogFenced, LogIsMirror

# SPDX-License-Identifier: Apache-2.0


def of(log, start=0, end=None):
    return Origin("cluster", log, log, "sqlite:///x.db", start, end)


def log(id_, *origins, **more):
    return replace(new_manifest(id_, id_, "edit", {}, origins=origins), **more)


@pytest.mark.parametrize(
    ("source", "copy", "wanted"),
    [
        (log("a", of("b", 20)), log("b", of("a", 0, 20)), True),
        (log("a", of("b", 20)), log("b", of("a", 0, 30)), True),  # it was fenced again, further on
        (log("a", of("b", 20)), log("b", of("a")), False),  # not promoted yet
        (log("a", of("b", 20)), log("b", of("a", 0, 10)), False),  # promoted by hand before all was copied
        (log("a", of("c", 20)), log("b", of("a", 0, 20)), False),  # it went on as another one
        (log("a"), log("b", of("a", 0, 20)), False),  # it takes appends
        (log("a", of("b", 20, 20)), log("b", of("a", 0, 20)), False),  # again
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 20)), True),
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 10)), False),
        (log("a", state=TERMINATED, end=20), log("b", of("a", 0, 20), of("c")), True),
        (log("a", state=TERMINATED, end=20), log("b", of("a")), False),
        (log("a", state=TERMINATED, end=20), log("b"), False),
    ],
)
def test_a_copy_that_has_all_of_a_log(source, copy, wanted):
    """Only what was promoted with the log's last record, as a copy of this very log."""
    assert has_all(source, copy) is wanted


def test_a_copy_is_held_until_it_is_promoted():
    """For the log that moves there alone; a move that was given up lets go of it, also when it is no copy any more."""
    copy = log("b", of("a"), epoch=1, owner=Owner("token", 1), needs=(MIRROR,))
    held = HoldCopy("a").apply(copy)
    assert held.mirrored == replace(of("a"), held=True)
    assert HoldCopy("a").apply(held) is None
    assert HoldCopy("a", False).apply(held) == copy
    assert Carry({"dedup": False}).apply(held).mirrored.held
    promoted = Promote(Me("token", 1)).apply(held)
    assert promoted.origins == (of("a", 0, 0),)
    assert HoldCopy("a", False).apply(promoted) is None
    for wrong in (promoted, log("b", of("c"))):
        with pytest.raises(LogFenced):
            HoldCopy("a").apply(wrong)


def test_settings_go_with_the_log():
    """A copy takes them, and a log that is fenced no others; without `dedup` there is no table of producers."""
    copy = log("b", of("a"), settings={"dedup": True, "ack": 2}, table=4)
    assert Carry().apply(copy) == copy
    carried = Carry({"dedup": False, "ttl_ms": 7}).apply(copy)
    assert (carried.settings, carried.table) == ({"dedup": False, "ack": 2, "ttl_ms": 7}, None)
    fenced = log("a", of("b", 20), moved=Moved("move", "there", "zk://b", "zk://d"))
    with pytest.raises(LogIsMirror):
        Update({"ttl_ms": 7}).apply(fenced)
    assert Update({"ttl_ms": 7}).apply(replace(fenced, moved=None)).settings == {"ttl_ms": 7}
