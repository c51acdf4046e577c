"""The names of all logs: by pages of each shard, and many of them."""

from time import perf_counter

import pytest
from twisted.internet.defer import Deferred

from quire.log.store.paths import SHARDS, SHARDS_AT_ONCE, log_names, name_path, refuse
from quire.metadata.records import NoRecord, parent_of
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


class Slow:
    """Records that answer when they are told to: two pages in each shard, or no such shard."""

    def __init__(self) -> None:
        self.asked: list[tuple[Deferred[list[str]], str, str]] = []

    def children(self, path: str, after: str) -> Deferred[list[str]]:
        self.asked.append((Deferred(), path, after))
        return self.asked[-1][0]

    def answer(self) -> int:
        """All that are asked; how many they are."""
        asked, self.asked = self.asked, []
        for answer, path, after in reversed(asked):
            number = int(path[-2:], 16)
            if number % 3 == 0:
                answer.errback(NoRecord(path))
            else:
                answer.callback({"": [f"{number}a", f"{number}b"], f"{number}b": [f"{number}c"]}.get(after, []))
        return len(asked)


def test_some_shards_are_asked_at_the_same_time():
    """And the names come by shard, then by name, though answers may come in any order."""
    records, found = Slow(), []

    async def listed():
        async for name in log_names(records):
            found.append(name)

    done, rounds = Deferred.fromCoroutine(listed()), []
    while not done.called:
        rounds.append(records.answer())
    assert done.result is None
    shards = [number for number in range(SHARDS) if number % 3]
    assert found == [f"{number}{letter}" for number in shards for letter in "abc"]
    assert [each for each in rounds if each > 1] == [SHARDS_AT_ONCE] * (SHARDS // SHARDS_AT_ONCE)
    assert rounds.count(1) == 2 * len(shards)
