"""
Two logs that are appended to, copied, promoted and brought back in any order, with answers of both stores that are
lost: what a mirror takes for the same is the same, and what it refuses is not.  `ROUNDS=100` in the environment walks
so often.
"""

import os
from random import Random

from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote, set_aside
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetaStore
from quire.protocol.log_errors import LogExists, LogFenced, LogIsMirror, LogTrimmed, MirrorDiverged, NoSuchLog, NotOwner
from tests.log.mirror.test_kills import kill
from tests.log.mirror.two_clusters import SMALL, content, fill, two_clusters
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
STEPS = 16
FRESH = Random()  # each run of the suite draws other rounds, and says which
REFUSED = (MirrorDiverged, LogFenced, LogIsMirror, LogExists, LogTrimmed, NoSuchLog, NotOwner, ValueError)
CHANGES = {"multi", "set", "create", "delete"}


class Walk:
    """Both logs have the name a; `seen` is what any log ever had, by its id and index."""

    def __init__(self, worlds, dice):
        self.worlds, self.dice = worlds, dice
        self.looking = []
        self.seen = {}
        self.said = []
        self.asides = 0

    async def begin(self):
        self.looking = [await world.logs() for world in self.worlds]
        await self.looking[0].create("a", roll_records=9, **SMALL)

    async def process(self):
        """Both clusters, as a new process has them; some answers are lost, and what was asked for is done or not."""
        opened = [await world.logs() for world in self.worlds]
        lost = self.dice.random() < 0.3
        for logs in opened if lost else ():
            dice = Random(self.dice.random())

            def fault(name, _arguments, dice=dice):
                if name in CHANGES and dice.random() < 0.1:
                    return Fault(error=MetaStore("the answer was lost"), applied=dice.random() < 0.5)
                return None

            logs.bk.store.faults = fault
        return opened

    async def step(self):
        """One of all that may happen."""
        one = self.dice.randrange(2)
        way = self.dice.choice(["append", "append", "copy", "copy", "copy", "promote", "switch", "aside", "trim"])
        opened = await self.process()
        outcome = "done"
        try:
            await getattr(self, way)(opened, one)
        except REFUSED as error:
            outcome = type(error).__name__
            if isinstance(error, MirrorDiverged):
                await self.is_diverged(error, one)
        except LedgerError as error:
            outcome = f"{type(error).__name__}: {error}"
            if not isinstance(error, MetaStore) and "lost" not in str(error):
                raise
        self.said.append(f"{way} {one}: {outcome}")
        for logs in opened:
            kill(logs)
        await self.look()

    async def append(self, opened, one):
        owner = await opened[one].own("a", force=True)
        await fill(owner, owner.end.index, self.dice.randrange(1, 14))
        if self.dice.random() < 0.5:
            await owner.close()

    async def copy(self, opened, one, switch=False):
        source, copy = opened[one], opened[1 - one]
        mirror = Mirror(source, "a", copy, fail_back=self.dice.random() < 0.7)
        await mirror.begin()
        if self.dice.random() < 0.7 or switch:
            end = await mirror.copy_until()
        else:
            end = mirror.progress.end
            await mirror.close()
        await self.is_same(one, end)
        if switch:
            await mirror.switch()

    async def switch(self, opened, one):
        await self.copy(opened, one, True)

    async def promote(self, opened, one):
        await promote(opened[one], "a")

    async def aside(self, opened, one):
        if self.dice.random() < 0.3:
            self.asides += 1
            await set_aside(opened[one], "a", f"aside {self.asides}")

    async def trim(self, opened, one):
        info = await opened[one].info("a")
        await opened[one].trim("a", self.dice.randrange(info.begin, (info.end or info.begin) + 1))

    async def look(self):
        """No index of any log ever has another record."""
        free = 0
        for logs in self.looking:
            async for name in logs.names():
                info = await logs.info(name)
                free += name == "a" and info.mirrored is None
                for record in await content(logs, name):
                    assert self.seen.setdefault((info.id, record.index), record) == record, (name, record)
        self.free = free

    async def records(self, side):
        """What the log is known to have had, by index."""
        info = await self.looking[side].info("a")
        for record in await content(self.looking[side], "a"):
            self.seen.setdefault((info.id, record.index), record)
        return {index: record for (log, index), record in self.seen.items() if log == info.id}

    async def is_same(self, one, end):
        """A copy that was taken for one has nothing else than its log."""
        source, copy = await self.records(one), await self.records(1 - one)
        for index in copy.keys() & source.keys():
            assert copy[index] == source[index], (index, copy[index], source[index])
        assert all(index < end for index in copy)

    async def is_diverged(self, error, one):
        """One of the two has a record from there on that the other one lacks, or has another one."""
        try:
            source, copy = await self.records(one), await self.records(1 - one)
        except NoSuchLog:
            return
        assert any(copy.get(index) != source.get(index) for index in range(error.first, error.end))


def test_any_way_over_and_back(tmp_path):
    """Whatever is done in whatever order, a mirror never mixes two logs."""
    seed = FRESH.randrange(1 << 30)
    print(f"seed {seed}")

    async def story():
        for number in range(ROUNDS):
            dice = Random(seed + number)
            async with two_clusters(tmp_path / str(number)) as worlds:
                walk = Walk(worlds, dice)
                await walk.begin()
                for _ in range(STEPS):
                    await walk.step()
                print("; ".join(walk.said))

    run(story, 120 * ROUNDS)
