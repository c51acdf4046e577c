"""The names of all logs: by pages of each shard, and many of them."""

from time import perf_counter

import pytest

from quire.log.store.paths import log_names, name_path, refuse
from quire.metadata.records import parent_of
from quire.metadata.tree import Create
from quire.protocol.log_errors import LogError
from tests.log.publish.test_sink import story_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LOGS = 10_000


@pytest.mark.parametrize("kind", ["memory", "sqlite", "zookeeper"])
def test_ten_thousand_logs(request, kind):
    """All are listed, each once, over several pages of a shard; how long it takes is printed."""
    place = request.getfixturevalue(f"{kind}_place")

    async def story():
        records = (await place.ready()).records
        assert [name async for name in log_names(records)] == []
        await refuse(records)
        names = {f"logs/of {number}" for number in range(LOGS)}
        paths = sorted(map(name_path, names))
        for folder in sorted(set(map(parent_of, paths))):
            await records.folder(folder)
        for start in range(0, LOGS, 2000):
            await records.multi([Create(path, b"x") for path in paths[start : start + 2000]])
        started = perf_counter()
        found = [name async for name in log_names(records)]
        print(f"{LOGS} logs are listed in {perf_counter() - started:.2f} s ({kind})")
        assert len(found) == LOGS
        assert set(found) == names
        assert "is one; nothing was removed" in str(await failing(story_of(refuse(records)), LogError))

    run(story)
