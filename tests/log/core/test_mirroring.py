"""Which records two logs have in common, and the edits that make a log a copy."""

from dataclasses import replace

import pytest

from quire.log.core.edits import Claim, Me, OpenSegment, Publish, Published
from quire.log.core.manifest import MIRROR, TERMINATED, Manifest, new_manifest
from quire.log.core.mirroring import BecomeCopy, Lineage, Promote, check_copy, in_common, promoted_at
from quire.log.core.uses import check_use
from quire.log.core.values import Counts, Origin, Owner
from quire.protocol.log_errors import LogError, LogFenced, LogIsMirror, MirrorDiverged

# SPDX-License-Identifier: Apache-2.0

ME = Me("token", 1)


def of(log, end=None, start=0):
    return Origin("cluster", log, log, "sqlite:///x.db", start, end)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ((), (), None),
        ((of("b", 7),), (), 7),  # a was b's copy up to 7
        ((), (of("a", 7),), 7),
        ((of("b", 7),), (of("a", 9),), 9),  # and b that of a after that
        ((of("c", 7),), (of("c", 5),), 5),  # both were copies of a third one
        ((of("c"),), (of("c", 5),), 5),
        ((of("c", 5), of("b", 3)), (of("c", 4),), 4),
    ],
)
def test_what_two_logs_have_in_common(one, other, common):
    """The best that both of them know, in either order."""
    a, b = Lineage("a", one), Lineage("b", other)
    assert in_common(a, b) == in_common(b, a) == common


@pytest.mark.parametrize(
    ("copy", "end", "source", "first"),
    [
        ((of("b"),), 9, (), None),  # a copy as it is made
        ((), 7, (of("a", 7),), None),  # back, with nothing more
        ((), 6, (of("a", 7),), None),
        ((), 9, (of("a", 7),), 7),  # with records 7 and 8, which were not copied
        ((of("b", start=7),), 20, (of("a", 7),), None),  # back, and on the way
        ((of("b", start=9),), 20, (of("a", 7),), 7),  # a change that was cut off, and then b promoted all the same
        ((of("b", start=9),), 9, (of("a"),), None),  # a change that was cut off
        ((), 3, (), 0),
        ((of("c"),), 8, (of("c", 8),), None),  # another copy of the same log, after that one was promoted
        ((of("c"),), 9, (of("c", 8),), 8),
    ],
)
def test_what_can_be_a_copy(copy, end, source, first):
    """A log a that ends there, of a log b; what b lacks is named."""
    if first is None:
        check_copy(Lineage("a", copy), "a", end, Lineage("b", source))
        return
    with pytest.raises(MirrorDiverged) as caught:
        check_copy(Lineage("a", copy), "a", end, Lineage("b", source))
    assert caught.value.first == first


@pytest.mark.parametrize(
    ("copy", "source", "index"),
    [
        ((), (), None),
        ((of("b"),), (), None),  # still a copy
        ((of("b", 7),), (), 7),
        ((of("b", 7),), (of("a", 9),), None),  # and b a copy of it after that: it may go over again
        ((of("b", 7),), (of("a"),), None),
        ((of("b", 12),), (of("a", 9),), 12),
        ((of("b", 7), of("c", 8)), (), None),
    ],
)
def test_a_promotion_that_counts(copy, source, index):
    """Of a log a that was a copy of b, as long as b was no copy of it after that."""
    assert promoted_at(Lineage("a", copy), Lineage("b", source)) == index


def owned(**changes):
    """A log with ten records that this handle owns."""
    made = new_manifest("a", "id", "e0", {})
    made = Publish([Published(1, 10, 100, 2)], 5).apply(made)
    return replace(made, epoch=1, owner=Owner("token", 1), **changes)


def test_a_log_becomes_a_copy_and_a_log_again():
    """Nobody but a mirror gets it meanwhile; what it was is in its bytes; of a version that does not know, it needs."""
    log = owned()
    copy = BecomeCopy(ME, of("b", start=10)).apply(log)
    assert copy is not None
    copy = Manifest.decode(copy.encode())
    assert (copy.mirrored, copy.needs) == (of("b", start=10), (MIRROR,))
    assert BecomeCopy(ME, of("b", start=10)).apply(copy) is None
    for refused in (lambda: Claim(Owner("other", 0)).apply(copy), lambda: check_use(copy, "")):
        with pytest.raises(LogIsMirror, match="--promote") as caught:
            refused()
        assert (caught.value.log, caught.value.cluster) == ("b", "cluster")
    with pytest.raises(LogIsMirror):
        Publish([Published(2, 1, 1, 1)], 6).apply(copy)
    check_use(copy, MIRROR)
    claimed = Claim(Owner("other", 0), mirrors=True).apply(copy)
    assert claimed is not None
    assert claimed.epoch == 2
    log = Promote(Me("other", 2)).apply(claimed)
    assert log is not None
    assert (log.mirrored, log.needs, log.origins) == (None, (), (of("b", 10, start=10),))
    assert Promote(Me("other", 2)).apply(log) is None
    with pytest.raises(LogFenced):
        Claim(Owner("other", 0), mirrors=True).apply(log)
    with pytest.raises(LogFenced):
        check_use(log, MIRROR)


def test_only_its_owner_changes_its_part_and_with_nothing_open():
    """Another handle is fenced; a segment that is open may have records that nobody counted."""
    log = owned()
    with pytest.raises(LogFenced):
        BecomeCopy(Me("other", 1), of("b", start=10)).apply(log)
    with pytest.raises(LogFenced, match="ends at 10"):
        BecomeCopy(ME, of("b", start=9)).apply(log)
    opened = OpenSegment(ME, 2).apply(log)
    assert opened is not None
    with pytest.raises(LogError, match="open"):
        BecomeCopy(ME, of("b", start=10)).apply(opened)
    copy = BecomeCopy(ME, of("b", start=10)).apply(log)
    assert copy is not None
    with pytest.raises(LogFenced):
        Promote(Me("other", 1)).apply(copy)


def test_a_promoted_log_does_not_claim_what_it_never_had():
    """What its source had of a third log, further than was copied, counts only as far as the copy goes."""
    log = owned(origins=(of("c", 50), of("b")), needs=(MIRROR,))
    promoted = Promote(ME).apply(log)
    assert promoted is not None
    assert promoted.origins == (of("c", 10), of("b", 10))


def test_a_copy_becomes_a_log_in_the_step_in_which_its_last_segment_ends():
    """Its mirror leaves it in that step, too; counts of another segment than the open one close nothing."""
    copy = OpenSegment(ME, 2).apply(owned(origins=(of("b"),), needs=(MIRROR,)))
    assert copy is not None
    number = copy.segments[-1].n
    with pytest.raises(LogError, match="open"):
        Promote(ME, (number - 1, Counts(3, 30, 2, 7))).apply(copy)
    promoted = Promote(ME, (number, Counts(3, 30, 2, 7))).apply(copy)
    assert promoted is not None
    assert (promoted.origins, promoted.owner, promoted.open_segment) == ((of("b", 13),), None, None)
    ended = Promote(ME, (number, Counts(3, 30, 2, 7)), terminated=True).apply(copy)
    assert ended is not None
    assert (ended.origins, ended.owner, ended.state, ended.end) == (promoted.origins, None, TERMINATED, 13)
