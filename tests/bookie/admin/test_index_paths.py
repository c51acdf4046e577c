"""The path of an index rebuild: who may begin one, when it is refused."""

import json

from quire.bookie.admin.bookie_paths import Admin
from quire.bookie.admin.http import REASONS, Answer, Asked
from quire.bookie.admin.index_paths import PATH, IndexPaths
from tests.bookie.admin.test_bookie_paths import Held
from tests.bookie.fakes.storage import FakeRebuild

# SPDX-License-Identifier: Apache-2.0


def ask(reindex: FakeRebuild, method: str, local: bool = True) -> Answer:
    return Admin(Held(), IndexPaths(reindex)).serve(Asked(method, PATH, b"{}", local))


def test_it_begins_once_and_reports() -> None:
    """PUT starts a rebuild, PUT during one gets 409, GET from any host reports its progress."""
    reindex = FakeRebuild()
    assert json.loads(ask(reindex, "GET").body)["running"] is False
    assert reindex.begun == 0
    assert json.loads(ask(reindex, "PUT").body) == {"running": False, "problem": None, "directories": []}
    reindex.under_way = True
    assert ask(reindex, "PUT").status == 409
    assert REASONS[409] == "Conflict"
    assert json.loads(ask(reindex, "GET", local=False).body)["running"] is True
    assert reindex.begun == 1


def test_only_from_this_machine_and_only_these_methods() -> None:
    """PUT from another host and other methods are refused; without an index to rebuild the path is 404."""
    reindex = FakeRebuild()
    assert ask(reindex, "PUT", local=False).status == 403
    assert ask(reindex, "DELETE").status == 405
    assert reindex.begun == 0
    assert Admin(Held()).serve(Asked("GET", PATH, b"", True)).status == 404
