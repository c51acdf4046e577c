"""Runs of small segments: which are worth it, how entries are rewritten, how a manifest comes to name the result."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.core import edits, merging
from quire.log.core import ownership_messages as m
from quire.log.core.batch import ProducerRun, Records
from quire.log.core.edits import Publish, Published, made
from quire.log.core.frame import Assembler, Kind, pack_entries
from quire.log.core.manifest import Chunk
from quire.log.core.merging import Limits, Merge, Rewriting, Run, merged, planned
from quire.log.core.ownership import State as STATES
from quire.log.core.upkeep_edits import DOOMED_MAX, Mark, Trim
from quire.log.core.values import Begin, Doomed, Line, Segment
from quire.log.owner.appending.encoder import Encoder, decompress
from quire.log.owner.tenure import news
from quire.protocol.log_errors import LogDamaged, LogFull, PublishRefused, SegmentLost
from tests.log.core.test_edits import fresh

# SPDX-License-Identifier: Apache-2.0


def with_parts(sizes, stamp=5, start=100):
    """A log of published segments of 10 records, whose values have so many bytes."""
    ledgers = [Published(start + number, 10, size, 2) for number, size in enumerate(sizes)]
    return Publish(ledgers, stamp, txn="t", batch=0).apply(fresh())


def runs(manifest, limits, segments=None):
    """Numbers of both ends of each run that is worth it."""
    found = planned(manifest, manifest.segments if segments is None else segments, limits)
    return [(each.first, each.last) for each in found]


@given(st.lists(st.integers(0, 120), max_size=60), st.integers(2, 9))
def test_only_what_is_worth_it(sizes, run_min):
    """Runs are long enough, not too large, of neighbours, without what is large already; no byte is moved in vain."""
    manifest, limits = with_parts(sizes), Limits(100, run_min)
    end = -1
    for run in planned(manifest, manifest.segments, limits):
        assert run.first > end
        end = run.last
        taken = manifest.segments[run.first : run.last + 1]
        assert run.segments == len(taken) >= run_min
        assert sum(each.bytes for each in taken) == run.bytes <= limits.bytes
        assert 2 * max(each.bytes for each in taken) <= run.bytes
        assert max(each.bytes for each in taken) < 75
        assert run.of_these(manifest.segments) == taken
    assert max((run.segments for run in planned(manifest, manifest.segments, limits)), default=0) <= merging.MERGED_MAX


def test_what_stays_as_it_is():
    """The newest owner's segment, what is open, raw, lost, copied, trimmed, with producers, or of a newer version."""
    limits, whole = Limits(1000, 2), with_parts([10] * 7)
    assert runs(whole, limits) == [(0, 6)]
    for change in (
        {"raw": True},
        {"lost": True},
        {"offload": {"state": "copying"}},
        {"txn": None},  # the newest one of an owner
        {"extra": {"new": 1}},
        {"bytes": 900},
    ):
        segments = [replace(each, **change) if each.n == 3 else each for each in whole.segments]
        assert runs(whole, limits, segments) == [(0, 2), (4, 6)], change
    assert runs(replace(whole, table=3), limits) == [(0, 2), (4, 6)]
    assert runs(whole, limits, [*whole.segments[:3], None, *whole.segments[4:]]) == [(0, 2), (4, 6)]
    assert runs(replace(whole, begin=Begin(2, 25, 25)), limits) == [(2, 6)]
    owners = [replace(each, txn=None) if each.n in (1, 3) else each for each in whole.segments]
    assert runs(whole, limits, owners) == [(0, 2), (4, 6)], "an owner has settled all but its newest segment"
    assert Run.of(whole.segments[:3]).of_these(whole.segments[1:]) is None


@pytest.mark.parametrize("limits", [Limits(0), Limits(1, 1), Limits(1.5), Limits(9, "2")])
def test_limits_that_can_not_be_meant(limits):
    """`ValueError`."""
    with pytest.raises(ValueError, match="at least 2 segments"):
        limits.check()


def batches_of(entries):
    """What a reader makes of a ledger's entries: all that a batch says."""
    assembler, found = Assembler(decompress), []
    for entry in entries:
        batch = assembler.feed(entry)
        if batch is not None:
            columns = batch.values, batch.keys, batch.times, batch.headers, batch.producers, batch.skips
            found.append((batch.first, batch.offset, batch.stamp, *columns))
    return found


RECORDS = st.lists(st.binary(max_size=90), min_size=1, max_size=6)


@given(
    st.lists(
        st.tuples(st.lists(RECORDS, min_size=1, max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=5
    ),
    st.sampled_from(["none", "zlib"]),
    st.randoms(use_true_random=False),
)
def test_entries_keep_all_but_their_place(drawn, compression, dice):
    """Columns, compression, parts, batches are as they were, one ledger behind the other; half a group is dropped."""
    rewriting, found, wanted, ordinal, offset = Rewriting(), [], [], 0, 0
    for number, (lists, published, torn) in enumerate(drawn):
        encoder, entries = Encoder.of_ledger(64, compression), []
        for values in lists:
            some = Records(
                values,
                [dice.choice([None, b"k"]) for _ in values],
                [dice.choice([None, -3]) for _ in values],
                [[("h", b"v")]] * len(values) if dice.random() < 0.5 else None,
                [ProducerRun("p", 0, len(values), 7)] if dice.random() < 0.5 else [],
                [dice.randrange(9) for _ in values] if dice.random() < 0.5 else None,
            )
            entries += encoder.encode(some, 1000 * number)[0]
        entries += pack_entries(Kind.BARRIER, b"", ordinal=encoder.ordinal, offset=encoder.offset, stamp=2)
        counts = encoder.counts
        whole = batches_of(entries)
        if torn:
            more = Encoder.of_ledger(64, "none")
            more.ordinal, more.offset = encoder.ordinal, encoder.offset
            entries += more.encode(Records([b"x" * 400]), 1000 * number)[0][:-1]
        stamp = 1000 * number + 500 if published else None
        segment = Segment(
            number, number, 1, ordinal, offset, counts.records, counts.bytes, len(entries), (stamp or 0, stamp or 0),
            txn="t" if published else None,
        )  # fmt: skip
        wanted += [(a + ordinal, b + offset, c if stamp is None else stamp, *rest) for a, b, c, *rest in whole]
        rewriting.begin(segment)
        for entry in entries:
            found += rewriting.feed(entry)
        rewriting.end()
        ordinal, offset = segment.end, segment.end_at
    assert batches_of(found) == wanted
    assert rewriting.counts[:3] == (ordinal, offset, len(found))


def test_what_does_not_hold_what_its_segment_says():
    """Is damage: an entry that does not continue, records that are missing."""
    entries = Encoder.of_ledger(64, "none").encode(Records([b"a", b"b"]), 1)[0]
    rewriting = Rewriting()
    rewriting.begin(Segment(0, 9, 1, 0, 0, 3, 3, 1, (1, 1)))
    rewriting.feed(entries[0])
    with pytest.raises(LogDamaged, match="begins at record 0"):
        rewriting.feed(entries[0])
    with pytest.raises(LogDamaged, match="its segment 0 says 3"):
        rewriting.end()


def chunked_log(monkeypatch, count=20):
    """A log of which the oldest segments are in chunks of 4, and what these hold."""
    monkeypatch.setattr(edits, "SEGMENTS_MAX", 7)
    monkeypatch.setattr(edits, "SEGMENTS_KEPT", 3)
    monkeypatch.setattr(edits, "CHUNK_SEGMENTS_MAX", 4)
    done = made(with_parts([10] * count), "e1", 0, iter(f"{each:08x}" for each in range(99)).__next__)
    return done.manifest, {name: chunk.segments for name, chunk in done.chunks}


def all_of(manifest, chunks):
    """All segments, in order."""
    return [each for line in manifest.chunks for each in chunks[line.c]] + list(manifest.segments)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (1, 2), (2, 9), (0, 16), (6, 18), (15, 19), (0, 19), (17, 19)])
def test_one_takes_the_place_of_several(monkeypatch, first, last):
    """In a chunk, over several, up to those that are in none: what is around stays, and what was there is doomed."""
    manifest, chunks = chunked_log(monkeypatch)
    whole = all_of(manifest, chunks)
    before = tuple(whole[first : last + 1])
    segment = merged(before, 999, 5)
    edit, new = Merge.of(manifest, chunks, before, segment, "abcdefgh", 7)
    after = made(edit.apply(manifest), "e2", 0, lambda: "0" * 8).manifest
    assert all(isinstance(chunk, Chunk) and Chunk.decode(chunk.encode()) == chunk for _name, chunk in new)
    there = chunks | {name: chunk.segments for name, chunk in new}
    assert all_of(after, there) == [*whole[:first], segment, *whole[last + 1 :]]
    assert [(each.ledger, each.why) for each in after.doomed] == [(each.ledger, "merged") for each in before]
    assert (after.closed_end, after.last_stamp) == (manifest.closed_end, manifest.last_stamp)
    assert after.segments, "what looks for the end of a log finds it"
    assert after.segment_count == len(all_of(after, there))
    assert all(after.line(n) is not None or after.is_merged(n) for n in range(first, last + 1))
    assert Merge.of(after, there, before, segment, "x", 7) is None
    again = tuple(all_of(after, there))
    twice = merged(again, 1000, 3)
    assert (twice.lowest, twice.n, twice.place) == (0, 19, (segment.place + 5) if last == 19 else 2)


def test_the_edit_is_not_made():
    """Where its ledger is doomed, or too many wait to be deleted; the begin goes on in the merged segment."""
    manifest = with_parts([10] * 4)
    before = manifest.segments[:3]
    edit, chunks = Merge.of(manifest, {}, before, merged(before, 50, 4), "e", 7)
    assert chunks == []
    assert edit.apply(replace(manifest, doomed=(Doomed(50, "orphan", 1),))) is None
    with pytest.raises(LogFull):
        edit.apply(replace(manifest, doomed=(Doomed(51, "orphan", 1),) * (DOOMED_MAX + 1)))
    assert edit.apply(replace(manifest, begin=Begin(1, 15, 15))).begin.n == 2
    trimmed = Trim(2, 20, 20, 9, {}).apply(manifest)
    assert Merge.of(trimmed, {}, before, merged(before, 50, 4), "e", 7) is None


def test_a_mark_names_the_ledger_of_a_merged_segment():
    """Or is refused: the copy may be of one that had its number."""
    manifest = with_parts([10] * 4)
    before = manifest.segments[:3]
    edit, _chunks = Merge.of(manifest, {}, before, merged(before, 50, 4), "e", 7)
    after = edit.apply(manifest)
    with pytest.raises(PublishRefused, match="ledger="):
        Mark(2, {"state": "copying"}, None, 1).apply(after)
    with pytest.raises(SegmentLost, match="is ledger 50"):
        Mark(2, {"state": "copying"}, None, 1, 102).apply(after)
    assert Mark(2, {"state": "copying"}, None, 1, 50).apply(after).segments[0].offload is not None


class Former:
    """An owner that is deposed, whose segment was the one with that number."""

    def __init__(self, segment):
        self.state, self.segment, self.ending, self.ledger, self.epoch = STATES.LOST, segment, None, 100 + segment, 0


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_former_owner_is_not_told_by_merged_counts(number):
    """What was in its segment is to be looked for: neither all of the merged one, nor nothing."""
    manifest = with_parts([10] * 4)
    before = manifest.segments[:3]
    edit, _chunks = Merge.of(manifest, {}, before, merged(before, 50, 4), "e", 7)
    assert news(manifest, Former(number), "t") == [m.SegmentEnded(number, 2)]
    assert news(edit.apply(manifest), Former(number), "t") == [m.WriterEnded(number)]


def test_a_chunk_whose_segments_are_large_is_not_looked_at():
    """By its line alone, whether or not some were taken out of it."""
    line = Line("c", (0, 9), 0, 0, 100, 1000, (0, 0))
    assert merging.may_be_small(line, Limits(1000))
    assert not merging.may_be_small(line, Limits(100))
    assert not merging.may_be_small(replace(line, count=1), Limits(1000))
