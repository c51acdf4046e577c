"""What the entries of a snapshot's ledger say, and what is found when they do not agree."""

from random import Random

import pytest
from crc32c import crc32c

from quire.log.core.machine.snapshots import Content, End, Head, check_end, check_head, slices
from quire.log.core.values import Snapshot
from quire.protocol.log_errors import LogDamaged, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

SNAPSHOT = Snapshot(index=17, ledger=5, bytes=5, entries=2, crc=crc32c(b"abcde"), machine="kv/1", epoch=3)


def test_data_are_cut_anew():
    """Whatever the pieces are: the same bytes, in slices of one size, and nothing is asked for ahead."""
    rng = Random(1)
    for _ in range(200):
        pieces = [bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 3, 40)))) for _ in range(rng.randrange(9))]
        found = list(slices(pieces, 10))
        assert b"".join(found) == b"".join(pieces)
        assert all(len(each) == 10 for each in found[:-1])
        assert all(found)
    asked = []
    cut = slices((asked.append(number) or b"x" * 10 for number in range(9)), 10)
    assert next(cut) == b"x" * 10
    assert asked == [0]


def test_head_and_end_round_trip():
    """With members that are not known."""
    head = Head("6f1c", 17, 3, "kv/1", extra={"later": [1]})
    assert Head.decode(head.encode()) == head
    end = End(3, 90, 7, extra={"later": 1})
    assert End.decode(end.encode()) == end
    with pytest.raises(UnknownFormat):
        Head.decode(head.encode().replace(b'"format":1', b'"format":2'))
    for wrong in (b"", b"[]", b"{}", b"\xff", b'{"entries":1}', b'{"entries":"1","bytes":0,"crc":0}'):
        with pytest.raises(LogDamaged):
            End.decode(wrong)


def test_a_content_is_what_both_say():
    """The last entry and the manifest: any number that differs is damage."""
    content = Content(crc32c)
    assert [content.add(each) for each in (b"abc", b"de")] == [b"abc", b"de"]
    end = content.end
    assert (end.entries, end.bytes, end.crc) == (2, 5, crc32c(b"abcde"))
    check_end(end, content, SNAPSHOT)
    for wrong in (End(1, 5, end.crc), End(2, 4, end.crc), End(2, 5, end.crc + 1)):
        with pytest.raises(LogDamaged, match="its last entry says"):
            check_end(wrong, content, SNAPSHOT)
    content.add(b"")
    with pytest.raises(LogDamaged, match="the manifest says"):
        check_end(content.end, content, SNAPSHOT)


def test_a_ledger_of_another_snapshot_is_none():
    """Its log, index and epoch are the manifest's."""
    check_head(Head("6f1c", 17, 3, "kv/1"), "6f1c", SNAPSHOT)
    for wrong in (Head("6f1d", 17, 3, "kv/1"), Head("6f1c", 18, 3, "kv/1"), Head("6f1c", 17, 4, "kv/1")):
        with pytest.raises(LogDamaged, match="ledger 5 has the snapshot"):
            check_head(wrong, "6f1c", SNAPSHOT)
