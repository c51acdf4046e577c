"""A scrub with repair of real bookies whose entry logs are damaged under them, while others write."""

from functools import partial
from pathlib import Path
from random import Random, SystemRandom

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.client.api import Client, connect
from quire.replication.mending import Mending, answered
from quire.replication.scrub.judge import Finding
from quire.replication.scrub.run import Judged, Points, Scrubbed, ScrubRun, Told, only_found
from quire.replication.scrub.whole import Scrubbing
from tests.pipeline.jobs.faults import good
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.replication.scrub.faults import ENTRIES, Copy, closed, held, spoil, with_faults

# SPDX-License-Identifier: Apache-2.0

COUNT = 60
REST_S = 0.02  # of a user between two ledgers: else writing would be most of what the test does
SETTLE_S = 3.0  # bookies, writers and the scrub take turns in one process: what is late is late for all


class Writers:
    """Users who write small ledgers, one after the other; some are closed at once, some left open."""

    def __init__(self, client: Client, count: int) -> None:
        self.ledgers: list[int] = []
        self._client = client
        self._over = False
        self._working = [Deferred.fromCoroutine(self._work()) for _ in range(count)]

    async def _work(self) -> None:
        while not self._over:
            writer = await self._client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            self.ledgers.append(writer.id)
            for _ in range(5):
                await writer.append_many([b"x" * 200] * 20)
            if len(self.ledgers) % 3:
                await writer.close()
            await deferLater(reactor, REST_S)

    async def stop(self) -> None:
        self._over = True
        for each in self._working:
            await each


def copies_of(found: Finding) -> list[Copy]:
    """Each ledger has all entries on all its bookies."""
    return [Copy(found.ledger, found.bookie, entry) for entry in range(found.first, found.last + 1)]


async def scrubbed(client: Client, repair: bool) -> tuple[Scrubbed, list[Judged]]:
    judged: list[Judged] = []
    told = Told(judged=judged.append)
    answer = partial(answered, client, how=Mending()) if repair else only_found
    run = ScrubRun(client, Points(client.store.records, "test"), told, Scrubbing(settle_s=SETTLE_S), answer=answer)
    return await run.run(), judged


def test_faults_are_found_and_mended_and_nothing_else(tmp_path: Path) -> None:
    """Each copy once; no alarm about ledgers that are written or were closed just now; then nothing is found."""
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    dice = Random(seed)
    with RealCluster(tmp_path, 4) as cluster:
        client = run(lambda: connect(reactor, cluster.uri))
        whole = run(lambda: closed(client, cluster.ids[1:]))
        faults = run(lambda: with_faults(client, cluster.ids, COUNT, dice))
        for number in range(4):  # what a bookie flushes at its end is in no cache of the next one
            cluster.kill(cluster.ids[number])
            cluster.start(cluster.ids[number])
        directories = {bookie: tmp_path / f"bookie-{number}" / "ledgers" for number, bookie in enumerate(cluster.ids)}

        async def story() -> None:
            writers = Writers(client, 2)
            spoil(directories, faults, dice)
            done, judged = await scrubbed(client, repair=True)
            seen = [copy for found, _mended, _reason in judged for copy in copies_of(found)]
            assert sorted(seen) == sorted(faults)
            for found, mended, reason in judged:
                kinds = {faults[copy] for copy in copies_of(found)}
                assert (found.kind == "missing") is (kinds == {"missing"}), found
                assert (mended, reason) == (True, ""), found
            assert done.counts["ledgers"] >= len({copy.ledger for copy in faults}) + 1
            count = len(writers.ledgers)
            again, nothing = await scrubbed(client, repair=False)
            assert nothing == []
            assert again.counts["ledgers"] > done.counts["ledgers"]
            assert len(writers.ledgers) > count
            await writers.stop()
            for ledger in {whole, *(copy.ledger for copy in faults)}:
                assert await held(client, ledger) == [good(ledger, ENTRIES)] * 3
            await client.close()

        run(story)
