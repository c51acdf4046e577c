"""
A real bookie beside which superfluous copies are looked for: they go, are readable elsewhere, and may be copied here
again.
"""

from pathlib import Path
from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.client.api import connect
from quire.conf.client import ClientOptions
from quire.metadata.clock import pause
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import NoSuchEntry
from quire.replication.own_copies import IDLE_S
from quire.tools.daemons.own_copies import SurplusRuns
from tests.metadata.zk.guarded import told
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


def test_a_copy_goes_and_may_come_again(tmp_path: Path) -> None:
    """
    Left over after the ledger's metadata named another bookie; a day later, by the storage's own count of hours, it
    goes.
    """
    with RealCluster(tmp_path, 3, flush_interval_ms=20) as cluster:

        async def story() -> None:
            client = await connect(reactor, cluster.uri)
            writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
            await writer.append_many([b"%d" % number for number in range(50)])
            await writer.close()
            named = set(writer.metadata.fragments[0].bookies)
            (spare,) = set(cluster.ids) - named
            bookie = cluster.bookie(spare)
            assert bookie is not None
            reader = await client.open_ledger(writer.id)
            bodies = [(await client.pool.read(next(iter(named)), writer.id, entry)).body for entry in range(50)]
            key = Digest(DigestType.CRC32C, b"").master_key
            assert await bookie.copies.store(writer.id, key, 0, [body for body in bodies if body is not None]) == 0
            while writer.id not in await bookie.copies.stored_ledgers():
                await pause(reactor, 0.01)  # for a checkpoint
            runs = SurplusRuns(reactor, bookie, ClientOptions())
            assert (await runs.run()).looked_at == 0, "the process is too young"
            bookie.copies.idle_seconds = lambda ledger: IDLE_S  # type: ignore[method-assign]  # a day has passed
            done = await runs.run()
            assert (done.dropped, done.kept) == ([writer.id], {})
            assert (await client.pool.read(spare, writer.id, 3)).code == NoSuchEntry.code, "the ledger's fence stays"
            assert [entry.data for entry in await reader.read(0, 49)] == [b"%d" % number for number in range(50)]
            assert await bookie.copies.store(writer.id, key, 0, [body for body in bodies if body is not None]) == 0
            await client.close()

        run(story)


def test_it_can_be_turned_off_and_stopped(tmp_path: Path) -> None:
    """With an interval of 0 nothing runs, and a stop may be repeated."""
    with RealCluster(tmp_path, 1, over_replicated_interval_ms=0) as cluster:

        async def story() -> None:
            bookie = cluster.bookies[0]
            assert bookie is not None
            runs = SurplusRuns(reactor, bookie, ClientOptions())
            runs.start()
            await runs.stop()
            stopped: Deferred[None] = Deferred.fromCoroutine(runs.stop())
            await stopped

        run(story)


def test_a_failure_that_nobody_foresaw_is_not_the_end() -> None:
    """The log has it, and the next run comes at its time."""
    clock = Clock()
    options = SimpleNamespace(over_replicated_interval_ms=1000, metadata_uri=None)  # no text: what opens it fails
    with told("critical") as lines:
        runs = SurplusRuns(clock, SimpleNamespace(options=options, id="b:1"), ClientOptions())  # type: ignore[arg-type]  # what is used of them
        runs.start()
        clock.pump([1.0, 1.0])
        Deferred.fromCoroutine(runs.stop())
    assert len(lines) == 2
    assert clock.getDelayedCalls() == []
