"""The edits of a manifest: predicates, changes, chunks, and that no row of them breaks what must hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.log.core import edits
from quire.log.core.edits import Announce, Claim, CloseSegment, Me, OpenSegment, Publish, Published, Resign
from quire.log.core.manifest import Manifest, new_manifest, to_index
from quire.log.core.upkeep_edits import GiveUp, Hold, Mark, Terminate, Trim
from quire.log.core.values import Counts, Doomed, Owner, Transfer
from quire.protocol.log_errors import (
    LogError,
    LogFenced,
    LogFull,
    PublishRefused,
)

# SPDX-License-Identifier: Apache-2.0

ME = Me("mine", 1)
COUNTS = Counts(10, 100, 3, 1700)


def fresh(**settings) -> Manifest:
    """An empty log."""
    return new_manifest("orders", "id", "e0", settings)


def owned(**settings) -> Manifest:
    """With an owner of epoch 1."""
    return Claim(Owner("mine", 0)).apply(fresh(**settings))


def with_open(ledger=7) -> Manifest:
    """With an open segment."""
    return OpenSegment(ME, ledger).apply(owned())


def with_closed(count=1) -> Manifest:
    """With so many closed segments of 10 records, on ledgers 7, 8, ..."""
    manifest = with_open()
    for number in range(count):
        ledger = 8 + number
        manifest = OpenSegment(ME, ledger, ends=(number, COUNTS._replace(stamp=1700 + number))).apply(manifest)
    return CloseSegment(count, Counts(0, 0, 0, 0), ME).apply(manifest)


def test_a_claim_raises_the_epoch():
    """By one, clears a transfer, and is done once for a token."""
    manifest = replace(owned(), transfer=Transfer("other", 500))
    assert Claim(Owner("mine", 9)).apply(manifest) is None
    taken = Claim(Owner("theirs", 9, "here:1")).apply(manifest)
    assert (taken.epoch, taken.owner, taken.transfer) == (2, Owner("theirs", 2, "here:1"), None)


def test_only_the_owner_opens_and_closes():
    """Another token or epoch is `LogFenced`; nothing is changed twice."""
    for me in (Me("other", 1), Me("mine", 2)):
        for edit in (
            OpenSegment(me, 7),
            CloseSegment(0, COUNTS, me),
            Resign(me),
        ):
            with pytest.raises(LogFenced):
                edit.apply(owned())
        assert Announce(me, Transfer("t", 1)).apply(owned()) is None
    manifest = with_open()
    assert OpenSegment(ME, 7).apply(manifest) is None
    with pytest.raises(LogFenced):
        OpenSegment(ME, 8).apply(manifest)
    closed = CloseSegment(0, COUNTS, ME).apply(manifest)
    assert CloseSegment(0, COUNTS, ME).apply(closed) is None
    (segment,) = closed.segments
    assert (segment.records, segment.bytes, segment.entries, segment.t) == (10, 100, 3, (0, 1700))
    assert closed.closed_end == (10, 100)


def test_a_roll_closes_and_opens():
    """In one step; where a publisher has closed the segment meanwhile, the next is named behind it."""
    rolled = OpenSegment(ME, 8, ends=(0, COUNTS)).apply(with_open())
    assert [(each.n, each.first, each.is_open) for each in rolled.segments] == [(0, 0, False), (1, 10, True)]
    published = Publish([Published(20, 5, 50, 1)], 1800, (0, COUNTS)).apply(with_open())
    rolled = OpenSegment(ME, 8, ends=(0, COUNTS)).apply(published)
    assert [(each.n, each.first) for each in rolled.segments] == [(0, 0), (1, 10), (2, 15)]


def test_an_empty_segment_is_doomed_and_its_number_gone():
    """A reader that was in it finds the next by a higher number."""
    closed = CloseSegment(0, Counts(0, 0, 0, 0), ME, now_ms=5).apply(with_open())
    assert closed.segments == ()
    assert [(each.ledger, each.why, each.since) for each in closed.doomed] == [(7, "empty", 5)]
    assert OpenSegment(ME, 8).apply(closed).segments[0].n == 1


def test_an_owner_resigns_with_its_last_segment():
    """One edit closes and resigns, also when a publisher has closed the segment; nothing is announced after it."""
    left = CloseSegment(0, COUNTS, ME, resign=True).apply(with_open())
    assert (left.owner, left.epoch, left.open_segment) == (None, 1, None)
    left = CloseSegment(5, COUNTS, ME, resign=True).apply(owned())
    assert left.owner is None
    announced = Announce(ME, Transfer("t", 500)).apply(owned())
    assert announced.transfer == Transfer("t", 500)
    assert Resign(ME).apply(announced).transfer == Transfer("t", 500)
    assert Announce(ME, Transfer("t", 500)).apply(left) is None


def test_published_ledgers_come_behind_the_end():
    """In their order, with one stamp that is not below the log's end; another open segment has to be settled first."""
    parts = [Published(20, 5, 50, 1, part=0), Published(21, 2, 20, 1, part=1)]
    edit = Publish(parts, 1600, (0, COUNTS), "txn", 3)
    done = edit.apply(with_open())
    assert [
        (each.n, each.ledger, each.first, each.at, each.t, each.txn, each.batch, each.part)
        for each in done.segments[1:]
    ] == [
        (1, 20, 10, 100, (1700, 1700), "txn", 3, 0),
        (2, 21, 15, 150, (1700, 1700), "txn", 3, 1),
    ]
    assert Publish(parts, 1600).apply(with_open()) is None
    assert Publish(parts, 1600, (4, COUNTS)).apply(with_open()) is None
    later = Publish(parts, 1900, (0, Counts(0, 0, 0, 0))).apply(with_open())
    assert later.segments[0].t == (1900, 1900)
    for settings_ in ({"publish": False}, {"lease_ms": 100}):
        with pytest.raises(PublishRefused):
            Publish(parts, 1).apply(fresh(**settings_))


def test_recent_edits_are_kept():
    """The newest first, 64 of them."""
    manifest = fresh()
    for number in range(70):
        manifest = edits.made(manifest, f"e{number}", 1, str).manifest
    assert manifest.recent == tuple(f"e{number}" for number in range(69, 5, -1))
    assert manifest.edit == "e69"


def test_old_segments_move_into_chunks():
    """Above 512 all but the newest 64; the chunks continue each other, and a segment is found through its line."""
    manifest = with_closed(edits.SEGMENTS_MAX)
    manifest = OpenSegment(ME, 99999).apply(manifest)
    done = edits.made(manifest, "e1", 5, lambda: "5f3a9c01")
    assert len(done.manifest.segments) == edits.SEGMENTS_KEPT
    ((name, chunk),) = done.chunks
    assert name == "000000000000-5f3a9c01"
    assert chunk.segments == manifest.segments[: -edits.SEGMENTS_KEPT]
    assert done.manifest.first(to_index(5)) == done.manifest.chunks[0] == chunk.line(name)
    assert done.manifest.closed_end == manifest.closed_end
    trimmed = Trim(460, 4600, 46000, 1, {name: chunk.segments}).apply(done.manifest)
    assert trimmed.chunks == ()
    assert trimmed.segments[0].n == 460
    assert Trim(460, 4600, 46000, 1, {}).apply(done.manifest) is None, "what is in the chunk is not known"
    part = Trim(100, 1005, 10050, 1, {name: chunk.segments}).apply(done.manifest)
    assert part.chunks == done.manifest.chunks, "its line goes with its last segment"
    assert [each.ledger for each in part.doomed[1:]] == [each.ledger for each in chunk.segments[:100]]
    rest = Trim(460, 4600, 46000, 1, {name: chunk.segments}).apply(replace(part, doomed=()))
    assert [each.ledger for each in (*part.doomed, *rest.doomed)] == [each.ledger for each in trimmed.doomed]
    many = replace(done.manifest, chunks=(), segments=())
    lines = tuple(
        replace(chunk.line(name), n=(number, number), first=number, at=0, records=1, bytes=0)
        for number in range(edits.LINES_MAX)
    )
    full = replace(many, chunks=lines, next=10**6, segments=())
    segments = tuple(
        replace(each, n=10_000 + number, first=edits.LINES_MAX + number * 10, at=number * 100)
        for number, each in enumerate(manifest.segments[:-1] * 2)
    )
    with pytest.raises(LogFull, match="chunks"):
        edits.made(replace(full, segments=segments), "e", 1, lambda: "x")
    with pytest.raises(LogFull, match="bytes"):
        edits.encoded(replace(fresh(), settings={"x": "y" * (768 << 10)}))


STEPS = st.sampled_from(
    ["claim", "open", "roll", "close", "empty", "resign", "publish", "trim", "mark", "give", "terminate"]
)


def edit_of(name, number, manifest, ledger):
    """The edit of that name upon this manifest."""
    me = Me(manifest.owner.token if manifest.owner else "none", manifest.epoch)
    counts = Counts(number, 10 * number, 1, 1000 + number)
    last = manifest.segments[-1].n if manifest.segments else 0
    edits_by_name = {
        "claim": Claim(Owner(f"t{number}", 0)),
        "open": OpenSegment(me, ledger),
        "roll": OpenSegment(me, ledger, ends=(last, counts)),
        "close": CloseSegment(last, counts),
        "empty": CloseSegment(last, Counts(0, 0, 0, 0), me),
        "resign": Resign(me),
        "publish": Publish([Published(ledger, number + 1, 7, 1)], 1000, (last, counts)),
        "trim": Trim(last, *manifest.closed_end, 1, {}),
        "mark": Mark(last, {"bookies": "deleted"}, None, 1),
        "give": GiveUp(manifest.segments[-1], 5, 1, "o") if manifest.segments else Hold(),
        "terminate": Terminate(None, 1),
    }
    return edits_by_name[name]


@settings(max_examples=300)
@given(st.lists(st.tuples(STEPS, st.integers(0, 9)), max_size=40))
def test_no_row_of_edits_breaks_what_must_hold(steps):
    """Whatever is asked in whichever order, each manifest holds its invariants, epochs and begin never go back."""
    manifest = fresh()
    for ledger, (name, number) in enumerate(steps, 1):
        try:
            after = edit_of(name, number, manifest, ledger).apply(manifest)
        except LogError:
            continue
        if after is None:
            continue
        after = edits.made(after, f"e{ledger}", 1, lambda: "0").manifest
        assert Manifest.decode(after.encode()) == after
        assert after.epoch >= manifest.epoch
        assert after.begin.index >= manifest.begin.index
        assert after.next >= manifest.next
        assert after.closed_end >= manifest.closed_end
        manifest = after


def test_a_doomed_ledger_is_not_named():
    """Upkeep may have fenced it already: an owner makes another one, a publisher is refused."""
    manifest = replace(owned(), doomed=(Doomed(7, "orphan", 1),))
    assert OpenSegment(ME, 7).apply(manifest) is None
    assert OpenSegment(ME, 8).apply(manifest).open_segment.ledger == 8
    with pytest.raises(PublishRefused, match="ledger 7 is being deleted"):
        Publish([Published(6, 5, 50, 1), Published(7, 5, 50, 1)], 1800, raw=True).apply(manifest)
