"""The path of an index rebuild: when one begins, when it is refused."""

import json

from quire.bookie.admin.bookie_paths import REBUILD_INDEX, IndexPaths
from quire.bookie.admin.http import REASONS, Answer
from tests.bookie.fakes import asking
from tests.bookie.fakes.storage import FakeRebuild

# SPDX-License-Identifier: Apache-2.0


def ask(reindex: FakeRebuild, method: str) -> Answer:
    return asking.ask([IndexPaths(reindex)], method, REBUILD_INDEX, b"{}")


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
