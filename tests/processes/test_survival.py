"""An acknowledged entry survives SIGKILL of all bookies at once, and restart."""

import random
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.client.api import Client, Writer, connect
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import reactor, run
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


class Story:
    """One writer that appends as fast as it goes; what is acknowledged to it is safe."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.payloads: list[bytes] = []  # by entry id, as handed over
        self.acknowledged = -1
        self.under_way = 0
        self.failed = False
        self.reached: Deferred[None] | None = None
        self.goal = 0

    async def begin(self, uri: str) -> None:
        self.client: Client = await connect(reactor, uri)
        self.writer: Writer = await self.client.create_ledger()
        self.go_on()

    def go_on(self) -> None:
        """Keeps some batches under way until one fails."""
        while not self.failed and self.under_way < 8:
            batch = [
                self.dice.randbytes(self.dice.choice([0, 1, 40, 300, 5000])) for _ in range(self.dice.randrange(1, 60))
            ]
            self.payloads += batch
            self.under_way += 1
            self.writer.append_many(batch).addCallbacks(self.safe, self.lost)

    def safe(self, ids: range) -> None:
        self.acknowledged = max(self.acknowledged, ids[-1])
        self.under_way -= 1
        if self.reached is not None and self.acknowledged >= self.goal:
            reached, self.reached = self.reached, None
            reached.callback(None)
        reactor.callLater(0, self.go_on)

    def lost(self, _failure: Failure) -> None:
        self.under_way -= 1
        self.failed = True

    async def until(self, entries: int) -> None:
        """Waits until so many more entries are acknowledged."""
        self.goal = self.acknowledged + entries
        self.reached = Deferred()
        await self.reached

    async def end(self) -> None:
        self.failed = True
        await self.client.close()


def round_of(cluster: LocalCluster, seed: int) -> int:
    """
    Appends, kills every bookie in the middle of it, starts them again, recovers, compares; entries that were
    acknowledged.
    """
    story = Story(seed)
    run(lambda: story.begin(cluster.uri))
    run(lambda: story.until(story.dice.randrange(1, 4000)))
    cluster.kill_all()
    run(story.end)
    told = story.acknowledged
    cluster.start_bookies()

    async def read_back() -> tuple[int, list[bytes]]:
        client = await connect(reactor, cluster.uri)
        reader = await client.open_ledger(story.writer.id)
        entries = [entry.data async for batch in reader.stream() for entry in batch]
        last = reader.last_entry_id
        await client.close()
        return last, entries

    last, entries = run(read_back)
    assert last >= told, f"entries {last + 1} to {told} were acknowledged and are gone"
    assert len(entries) == last + 1
    assert entries == story.payloads[: last + 1]
    return told + 1


def rounds(directory: Path, count: int, seed: int) -> None:
    with LocalCluster(directory, 3, options={**SMALL, "flushInterval": "300"}) as cluster:
        total = sum(round_of(cluster, seed + number) for number in range(count))
    assert total > count


def test_acknowledged_entries_survive_sigkill_of_all_bookies(tmp_path: Path) -> None:
    """
    Some rounds: what was acknowledged is there, in order, unchanged; what was not may be, but then whole and in order
    too.
    """
    rounds(tmp_path, 4, seed=1)


@pytest.mark.long
def test_acknowledged_entries_survive_many_rounds(tmp_path: Path) -> None:
    """The same for minutes."""
    rounds(tmp_path, 100, seed=1000)
