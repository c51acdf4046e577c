"""The index compacted at an operator's wish: what goes on beside it, what ends it."""

from itertools import pairwise

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.storage.checkpoint import SPARE_BYTES
from quire.bookie.upkeep.index_compaction import IndexCompaction
from quire.rows.contract import StorePiece
from tests.bookie.fakes.disk import Bookie, WatchedRows
from tests.bookie.upkeep.test_compaction import LOG_BYTES
from tests.bookie.upkeep.test_rebuild import check, flushed, lived, reindexed

# SPDX-License-Identifier: Apache-2.0

RUNS, SECOND = "/disk/ledgers0/current/runs", "/disk/ledgers0/current/runs.2"
PIECE_BYTES = 1 << 20


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[StorePiece]:
    """Rows are in three pieces; which of them were compacted."""
    compacted: list[StorePiece] = []
    ends = (None, b"a", b"b", None)
    pieces = [StorePiece(low, high, PIECE_BYTES) for low, high in pairwise(ends)]
    monkeypatch.setattr(WatchedRows, "pieces", lambda rows: pieces)
    monkeypatch.setattr(WatchedRows, "compact", lambda rows, piece: compacted.append(piece))
    return compacted


def bookie_at(rate: int) -> Bookie:
    return Bookie(lived().disk.killed(), entry_log_bytes_max=LOG_BYTES, compaction_bytes_per_second=rate)


def begun(bookie: Bookie, *stores: str) -> IndexCompaction:
    compaction = bookie.upkeep.compaction
    assert compaction.status() == {RUNS: False}
    compaction.start(stores or {RUNS})
    return compaction


def test_pieces_come_one_after_the_other_at_the_rate(done: list[StorePiece]) -> None:
    """A second start changes nothing; between two pieces a checkpoint and a pass over the logs are made."""
    bookie = bookie_at(PIECE_BYTES)
    compaction = begun(bookie)
    passed: list[object] = []
    bookie.upkeep.space.reclaim(lambda path: 0.0).addBoth(passed.append)
    assert (len(done), compaction.status(), passed) == (1, {RUNS: True}, [])
    compaction.start({RUNS})
    flushed(bookie)
    bookie.clock.advance(1)
    assert (len(done), passed) == (2, [None])
    bookie.clock.advance(1)
    bookie.clock.advance(1)
    assert (len(done), compaction.status(), compaction.count) == (3, {RUNS: False}, 1)
    assert [piece.high for piece in done] == [b"a", b"b", None]
    check(bookie)
    bookie.close()


def test_a_stop_waits_for_no_rest(done: list[StorePiece]) -> None:
    """At a low rate it ends in the midst of the rest after a piece, and nothing begins afterwards."""
    bookie = bookie_at(1)
    compaction = begun(bookie)
    ended: list[object] = []
    Deferred.fromCoroutine(bookie.upkeep.stop()).addBoth(ended.append)
    bookie.clock.advance(0)
    assert (len(done), ended, compaction.status()) == (1, [None], {RUNS: False})
    compaction.start({RUNS})
    assert (len(done), compaction.status(), compaction.count) == (1, {RUNS: False}, 0)
    bookie.close()


def test_a_new_index_ends_it(done: list[StorePiece]) -> None:
    """A rebuild that had its turn between two pieces leaves nothing to compact, and the store has another path."""
    bookie = bookie_at(PIECE_BYTES)
    compaction = begun(bookie)
    assert reindexed(bookie).done
    assert (len(done), compaction.status(), compaction.count) == (1, {SECOND: False}, 0)
    check(bookie)


def test_a_full_disk_ends_it(done: list[StorePiece]) -> None:
    """A piece needs room for itself and for a flush; the bookie goes on, and the next one finds room."""
    bookie = bookie_at(0)
    wanted = PIECE_BYTES + bookie.options.write_cache_bytes_max + SPARE_BYTES
    bookie.disk.free = wanted - 1
    compaction = begun(bookie)
    assert (done, compaction.status(), compaction.count) == ([], {RUNS: False}, 0)
    assert bookie.storage.read_only is None
    bookie.disk.free = wanted
    compaction.start({RUNS})
    assert (len(done), compaction.count) == (3, 1)


def test_only_stores_that_are_named(done: list[StorePiece]) -> None:
    """Another path starts nothing."""
    compaction = begun(bookie_at(0), SECOND)
    assert (done, compaction.status()) == ([], {RUNS: False})
