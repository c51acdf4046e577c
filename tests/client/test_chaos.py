"""
Real bookies as processes, under a writer, a reader that follows it and a recoverer: SIGKILL, SIGSTOP and connections that are cut in the
middle of a frame.  Checked as in the histories: what was acknowledged is there with the same bytes; all see one end; nothing is
acknowledged behind it; a reader that follows sees a prefix and stops at the end.
"""

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.client.api import Client, Reader, Writer, connect
from quire.conf.client import ClientOptions
from quire.tools.cluster import LocalCluster
from tests.client.cutting import ThroughProxies
from tests.reactor import reactor, run

SMALL = {"journalSegmentSizeMB": "4", "dbStorage_writeCacheMaxSizeMb": "32", "diskUsageThreshold": "0.999", "diskUsageWarnThreshold": "0.999"}
OPTIONS = ClientOptions(add_timeout_ms=1000, read_timeout_ms=1500, long_poll_ms=300, speculative_read_ms=300, read_ahead_bytes_max=1 << 20)
UNDER_WAY_MAX = 4
ENTRIES_MAX = 20_000  # of one ledger


class Drama:
    """One ledger: who acts, and what each was told."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.wire = ThroughProxies(reactor)
        self.payloads: list[bytes] = []
        self.acknowledged = -1
        self.under_way = 0
        self.ended: BaseException | None = None
        self.seen: list[bytes] = []
        self.clients: list[Client] = []
        self.tail: Deferred[None] | None = None

    async def client(self) -> Client:
        made = await connect(self.wire, self.uri, OPTIONS)  # type: ignore[arg-type]  # a reactor but for its connections
        self.clients.append(made)
        return made

    async def begin(self, uri: str) -> None:
        self.uri = uri
        self.writer: Writer = await (await self.client()).create_ledger()
        self.go_on()
        follower: Reader = await (await self.client()).open_ledger(self.writer.id, recover=False)

        async def follow() -> None:
            async for batch in follower.tail(120.0):
                self.seen += [entry.data for entry in batch]

        self.tail = Deferred.fromCoroutine(follow())

    def go_on(self) -> None:
        while self.ended is None and self.under_way < UNDER_WAY_MAX and len(self.payloads) < ENTRIES_MAX:
            batch = [self.dice.randbytes(self.dice.choice([0, 10, 300, 2000])) for _ in range(self.dice.randrange(1, 30))]
            self.payloads += batch
            self.under_way += 1
            self.writer.append_many(batch).addCallbacks(self.safe, self.lost)

    def safe(self, ids: range) -> None:
        self.acknowledged = max(self.acknowledged, ids[-1])
        self.under_way -= 1
        reactor.callLater(0.002, self.go_on)

    def lost(self, failure: Failure) -> None:
        self.under_way -= 1
        self.ended = failure.value

    async def pause(self, seconds: float) -> None:
        over: Deferred[None] = Deferred()
        reactor.callLater(seconds, over.callback, None)
        await over

    async def recovered(self) -> tuple[int, int, list[bytes]]:
        """Opens until it succeeds (any number of tries is allowed); (tries, end, entries)."""
        client, tries = await self.client(), 0
        while True:
            tries += 1
            try:
                reader = await client.open_ledger(self.writer.id)
                entries = [entry.data async for batch in reader.stream() for entry in batch]
            except Exception as error:
                if tries == 20:
                    raise AssertionError(f"the ledger can't be recovered: {error}") from error
                await self.pause(0.5)
            else:
                return tries, reader.last_entry_id, entries

    async def end(self) -> None:
        self.ended = self.ended or AssertionError("over")
        for client in self.clients:
            await client.close()
        await self.wire.stop()


def strike(cluster: LocalCluster, drama: Drama, what: str) -> None:
    """One bookie is hit, and is back afterwards."""
    dice = drama.dice
    bookie = dice.choice(sorted(cluster.ids))
    if what == "kill":
        cluster.kill(bookie)
        run(lambda: drama.pause(dice.random()))
        cluster.restart(bookie)
    elif what == "stop":
        pid = cluster.bookie(bookie).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            run(lambda: drama.pause(dice.choice([0.2, 1.5])))
        finally:
            os.kill(pid, signal.SIGCONT)
    else:

        async def cut() -> None:
            drama.wire.cut(int(bookie.rpartition(":")[2]), dice.randrange(1, 20_000))
            await drama.pause(0.3)

        run(cut)


def round_of(cluster: LocalCluster, seed: int) -> None:
    drama = Drama(Random(seed))
    try:
        run(lambda: drama.begin(cluster.uri))
        for _ in range(drama.dice.randrange(1, 4)):
            run(lambda: drama.pause(0.1))
            strike(cluster, drama, drama.dice.choice(["kill", "stop", "cut", "cut"]))
        tries, end, entries = run(drama.recovered, timeout=90)
        assert end >= drama.acknowledged, f"entries {end + 1} to {drama.acknowledged} were acknowledged and are gone"
        assert entries == drama.payloads[: end + 1]
        _tries, other, _entries = run(drama.recovered, timeout=90)
        assert other == end, "two openers saw two ends"

        async def last_append() -> Any:
            while drama.ended is None:  # the writer learns it by its next append, if it lived until now
                if drama.under_way == 0:
                    drama.under_way += 1
                    drama.writer.append_many([b"too late"]).addCallbacks(drama.safe, drama.lost)
                await drama.pause(0.05)
            tail = drama.tail
            assert tail is not None
            await tail

        run(last_append, timeout=60)
        assert drama.acknowledged <= end, "acknowledged behind the end"
        assert drama.seen == entries, "the reader that followed came to another end"
        assert tries >= 1
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    finally:
        run(drama.end)


def rounds(directory: Path, seeds: range) -> None:
    with LocalCluster(directory, 4, options=SMALL) as cluster:
        for seed in seeds:
            round_of(cluster, seed)


def test_a_writer_a_follower_and_a_recoverer_live_through_kills_stops_and_cuts(tmp_path: Path) -> None:
    rounds(tmp_path, range(3))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_rounds_of_kills_stops_and_cuts(tmp_path: Path) -> None:
    rounds(tmp_path, range(1000, 1100))
