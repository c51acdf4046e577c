"""An owner that keeps its log: rounds now and then, until it is over."""

from twisted.internet.defer import Deferred

from quire.log.core.upkeep_edits import Doom
from quire.metadata.clock import pause
from quire.protocol.errors import MetaStore, NoSuchLedger
from tests.log.fakes.cluster import cluster, values
from tests.log.upkeep.test_trims import records_of
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def gone(logs, ledger):
    """Once the ledger is."""
    while True:
        try:
            await logs.bk.metadata(ledger)
        except NoSuchLedger:
            return
        await pause(reactor, 0.01)


def test_rounds(tmp_path):
    """A doomed ledger goes by itself, again after a round that failed; a closed owner tidies no more."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(tidy_ms=100), await world.logs()
            await logs.create("a")
            owner = await logs.own("a")
            await owner.append(b"x")
            for number in range(2):
                writer = await other.bk.create_ledger()
                if number:
                    failed = []
                    read = logs.bk.store.records.read
                    logs.bk.store.records.read = lambda path, read=read, failed=failed: (
                        read(path) if len(failed) > 3 else failed.append(path) or fails()
                    )
                await (await records_of(other)).edit(Doom([writer.id], "orphan", 1))
                await gone(other, writer.id)
            assert len(failed) > 3
            assert (await owner.append(b"y")).index == 1
            await owner.close()
            assert not [each for each in reactor.getDelayedCalls() if each.func == owner.tidy]
            assert await values(await other.read("a")) == [b"x", b"y"]

    def fails():
        failed = Deferred()
        failed.errback(MetaStore("away"))
        return failed

    run(story)


def test_an_owner_trims_and_ends_its_log(tmp_path):
    """As `Logs` does, beside appends."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs(batch_bytes=1)
            await logs.create("a", roll_records=2)
            owner = await logs.own("a")
            for number in range(7):
                await owner.append(b"%d" % number)
            assert await owner.trim(3) == 3
            error = await failing(Deferred.fromCoroutine(owner.trim(-1)), ValueError)
            assert "-1" in str(error)
            await owner.append(b"7")
            assert (await owner.terminate()).index == 8
            assert await values(await logs.read("a")) == [b"%d" % number for number in range(3, 8)]

    run(story)
