"""The paths of the index: when a rebuild or a compaction begins, when it is refused."""

import json

import pytest

from quire.bookie.admin.bookie_paths import COMPACT_INDEX, REBUILD_INDEX, IndexPaths
from quire.bookie.admin.http import REASONS, Answer
from tests.bookie.fakes import asking
from tests.bookie.fakes.storage import FakeRebuild, FakeUpkeep

# SPDX-License-Identifier: Apache-2.0


def ask(reindex: FakeRebuild, method: str) -> Answer:
    upkeep = FakeUpkeep()
    upkeep.rebuild = reindex
    return asking.ask([IndexPaths(upkeep, "b:1")], method, REBUILD_INDEX, b"{}")


def test_it_begins_once_and_reports() -> None:
    """PUT starts a rebuild, PUT during one gets 409, GET reports its progress."""
    reindex = FakeRebuild()
    assert json.loads(ask(reindex, "GET").body)["running"] is False
    assert reindex.begun == 0
    assert json.loads(ask(reindex, "PUT").body) == {"running": False, "problem": None, "directories": []}
    reindex.under_way = True
    assert ask(reindex, "PUT").status == 409
    assert REASONS[409] == "Conflict"
    assert json.loads(ask(reindex, "GET").body)["running"] is True
    assert reindex.begun == 1


def test_only_these_methods() -> None:
    """Others are refused and begin nothing."""
    reindex = FakeRebuild()
    assert ask(reindex, "DELETE").status == 405
    assert reindex.begun == 0


ALL = "Triggered entry Location RocksDB compact on bookie:b:1"


@pytest.mark.parametrize(
    ("body", "status", "text", "started"),
    [
        (b'{"entryLocationRocksDBCompact": true}', 200, ALL, [{"/one/runs", "/two/runs"}]),
        (b'{"entryLocationRocksDBCompact": true, "entryLocations": " "}', 200, ALL, [{"/one/runs", "/two/runs"}]),
        (
            b'{"entryLocationRocksDBCompact": true, "entryLocations": "/two/runs"}',
            200,
            "Triggered entry Location RocksDB: /two/runs compact on bookie:b:1.",
            [{"/two/runs"}],
        ),
        (b'{"entryLocationRocksDBCompact": false}', 200, "Not trigger Entry Location RocksDB compact.", []),
        (
            b'{"entryLocationRocksDBCompact": true, "entryLocations": "/two/runs,/three"}',
            400,
            {"error": "no index is at /three", "next": "name some of /one/runs, /two/runs"},
            [],
        ),
    ],
)
def test_stores_are_compacted(body: bytes, status: int, text: object, started: list[set[str]]) -> None:
    """All, or those that are named, if each of them is one; with Apache's texts."""
    upkeep = FakeUpkeep()
    found = asking.ask([IndexPaths(upkeep, "b:1")], "PUT", COMPACT_INDEX, body)
    assert (found.status, json.loads(found.body)) == (status, text)
    assert upkeep.compaction.started == started
    shown = asking.ask([IndexPaths(upkeep, "b:1")], "GET", COMPACT_INDEX, b"")
    assert json.loads(shown.body) == {"/one/runs": bool(started), "/two/runs": False}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"entryLocationRocksDBCompact": 1}', b'{"entryLocations": 1}'])
def test_a_body_that_asks_for_nothing_is_refused(body: bytes) -> None:
    """It says what to send."""
    upkeep = FakeUpkeep()
    found = asking.ask([IndexPaths(upkeep, "b:1")], "PUT", COMPACT_INDEX, body)
    assert (found.status, upkeep.compaction.started) == (400, [])
    assert "entryLocationRocksDBCompact" in json.loads(found.body)["next"]
