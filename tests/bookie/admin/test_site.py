"""One server has all paths of a bookie."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from quire.bookie.admin.bookie_paths import site
from quire.bookie.admin.gate import Gate
from quire.bookie.admin.http import Answer
from tests.bookie.admin.test_bookie_paths import Held
from tests.bookie.fakes.asking import OPEN, asking
from tests.bookie.fakes.storage import FakeUpkeep
from tests.bookie.upkeep.test_garbage import Scene

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/healthz", 200),
        ("/api/v1/bookie/state", 200),
        ("/api/v1/bookie/gc", 200),
        ("/api/v1/bookie/rebuild_index", 200),
        ("/api/v1/bookie/entry_location_compact", 200),
        ("/nothing", 404),
    ],
)
def test_every_part_answers_its_paths(path: str, status: int) -> None:
    """The bookie itself, garbage collection, and the index."""
    held: Any = Held()
    server = site(Clock(), "b:1", (), OPEN, held, Scene([]).garbage, FakeUpkeep())
    assert isinstance(server.gate, Gate)
    found = asking(server.gate, "GET", path)
    assert isinstance(found, Answer)
    assert found.status == status
