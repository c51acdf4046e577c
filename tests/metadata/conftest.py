"""The three places where metadata can be kept, for the tests that hold for all of them."""

import itertools
import os
import struct
from pathlib import Path

import pytest

from quire.metadata.memory_store import CLUSTERS
from tests.metadata.stories import Place
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

NUMBERS = itertools.count()


class MemoryPlace(Place):
    kind = "memory"

    async def expire(self, store) -> None:
        store.expire_session()


class SQLitePlace(Place):
    kind = "sqlite"

    async def expire(self, store) -> None:
        """Sets the heartbeats of every session back to the start of the clock; the next who looks finds them hanging."""
        directory = Path(self.uri.removeprefix("sqlite://") + "-sessions")
        for file in directory.iterdir():
            with open(file, "r+b") as stamped:
                os.pwrite(stamped.fileno(), struct.pack(">Q", 0), 0)
        await (await self.open()).bookies()


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path):
    if request.param == "memory":
        made = MemoryPlace(f"memory://test-{next(NUMBERS)}")
    else:
        made = SQLitePlace(f"sqlite://{tmp_path}/metadata.db")
    yield made
    run(made.close)
    CLUSTERS.pop(made.uri.removeprefix("memory://"), None)
