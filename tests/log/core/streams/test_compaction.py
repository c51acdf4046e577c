"""Which records are left by key, against a map; when a log is due; the edit that names what is left."""

from dataclasses import replace
from random import Random

import pytest

from quire.log.core.manifest import new_manifest
from quire.log.core.streams.compaction import Compact, Newest, has_news, is_due
from quire.log.core.upkeep_edits import Trim
from quire.log.core.values import Begin, Compacted, CompactedLedger, Doomed, Segment
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0


def batches(dice, count):
    """Indexes, keys and values, a few at a time; indexes leave some out."""
    index, found = 0, []
    for _ in range(count):
        rows = []
        for _ in range(dice.randint(1, 8)):
            index += dice.choice((1, 1, 1, 5))
            key = dice.choice([None, b"", *(b"%d" % number for number in range(30))])
            rows.append((index, key, dice.choice((b"", b"v", b"w"))))
        found.append(tuple(zip(*rows, strict=True)))
    return found


@pytest.mark.parametrize("keys_max", [2, 3, 10, 1000])
@pytest.mark.parametrize("keyless", [False, True])
def test_the_newest_of_each_key(keys_max, keyless):
    """As a map has it, however few keys are looked at at once; an empty value removes its key."""
    for seed in range(40):
        given = batches(Random(seed), 25)
        newest, passes, is_whole = Newest(keys_max), 0, False
        while not is_whole:
            for batch in given:
                newest.add(*batch)
            is_whole = newest.end_pass()
            passes += 1
        wanted = {}
        for batch in given:
            for index, key, value in zip(*batch, strict=True):
                if key is not None:
                    wanted[key] = index if value else None
        left = newest.left()
        assert len(left) == sum(index is not None for index in wanted.values())
        for indexes, keys, _values in given:
            picked = left.picked(indexes, keys, keyless)
            assert picked == [
                number
                for number, (index, key) in enumerate(zip(indexes, keys, strict=True))
                if (keyless if key is None else wanted[key] == index)
            ]
        assert (passes > 1) is (keys_max < 31)


def test_no_more_keys_than_fit():
    """Are held after a batch, but for the batch."""
    newest = Newest(100)
    for number in range(50):
        names = [b"%d" % each for each in range(number * 10, number * 10 + 10)]
        newest.add(range(number * 10, number * 10 + 10), names, names)
    passes = 1
    while not newest.end_pass():
        newest.add(range(500), [b"%d" % each for each in range(500)], [b"v"] * 500)
        passes += 1
    assert passes >= 5
    assert len(newest.left()) == 500


def made(**members):
    """A manifest with a closed segment of 10 records, 100 bytes."""
    manifest = new_manifest("a", "0" * 32, "e", {"compaction": True})
    segment = Segment(0, 7, 1, 0, 0, 10, 100, 1, (1, 1))
    return replace(manifest, segments=(segment,), next=1, epoch=1, **members)


def left(horizon, *ledgers, at=0, size=10):
    """What a compaction left."""
    return Compacted(horizon, at, tuple(CompactedLedger(each, 0, horizon, 1, size, 1) for each in ledgers))


def test_when_a_log_is_due():
    """It wants to be compacted, and as many bytes are new as the last time left; at first, if there is anything."""
    manifest = made()
    assert is_due(manifest)
    assert not is_due(replace(manifest, settings={}))
    assert not is_due(new_manifest("a", "0" * 32, "e", {"compaction": True}))
    for horizon, size, due, news in ((4, 50, True, True), (4, 51, False, True), (9, 0, False, False)):
        found = replace(manifest, compacted=left(horizon, 8, at=50, size=size))
        assert is_due(found) is due
        assert has_news(found) is news


def test_the_edit():
    """Only a higher horizon, and no doomed ledger; what it takes the place of is doomed; not of a log that goes."""
    manifest = made()
    first = Compact(left(4, 8, 9), 17).apply(manifest)
    assert first.compacted == left(4, 8, 9)
    assert first.doomed == ()
    second = Compact(left(9, 11), 18).apply(first)
    assert second.compacted == left(9, 11)
    assert second.doomed == (Doomed(8, "compacted", 18), Doomed(9, "compacted", 18))
    assert second.named_ledgers() == {7, 8, 9, 11}
    for each in (left(4, 12), left(9, 12), left(3)):
        assert Compact(each, 19).apply(second) is None
    assert Compact(left(10, 12, 8), 19).apply(second) is None
    with pytest.raises(NoSuchLog):
        Compact(left(10, 12), 19).apply(replace(second, state="deleting"))


def test_a_compaction_that_lacks_trimmed_records():
    """Does not stand: it is due anew, is not named, and goes with the trim that overtakes it."""
    manifest = made(compacted=left(4, 8, at=50, size=500))
    manifest = replace(manifest, segments=(*manifest.segments, Segment(1, 9, 1, 10, 100)), next=2)
    assert manifest.standing == manifest.compacted
    assert not is_due(manifest)
    for begin in (5, 6):
        trimmed = Trim(0, begin, begin * 10, 17, {}).apply(manifest)
        assert trimmed.compacted == (manifest.compacted if begin == 5 else None)
        assert trimmed.doomed == (() if begin == 5 else (Doomed(8, "compacted", 17),))
    behind = replace(manifest, begin=Begin(0, 6, 60))  # as an earlier version trimmed
    assert behind.standing is None
    assert is_due(behind)
    assert Compact(left(4, 12), 19).apply(replace(behind, compacted=None)) is None
    named = Compact(left(9, 12), 19).apply(behind)
    assert named.compacted == left(9, 12)
    assert named.doomed == (Doomed(8, "compacted", 19),)
