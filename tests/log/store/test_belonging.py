"""To which log a ledger belongs: by its tags, or by the record of its adoption."""

from quire.log.store.ledgers import adoption, log_id_of, log_name, refuse
from quire.protocol.log_errors import LogError
from tests.log.fakes.cluster import cluster
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import story_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_whose_a_ledger_is(tmp_path):
    """An owner's, an adopted one, a plain one; a log is named as its manifest says, or by its id when it is gone."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            info = await logs.create("orders")
            records = logs.bk.store.records
            taken, other = await plain(logs, b"x"), await plain(logs, b"x")
            await logs.adopt("orders", [taken])
            owner = await logs.own("orders")
            await owner.append(b"x")
            own = (await logs.info("orders")).ledger
            for ledger, wanted in ((taken, info.id), (own, info.id), (other, None)):
                assert await log_id_of(records, ledger, await logs.bk.metadata(ledger)) == wanted
            found = await adoption(records, taken)
            assert (found.log, found.n, found.first, found.end) == (info.id, 0, 0, 1)
            assert await adoption(records, own) is None
            assert await log_name(records, info.id) == "'orders'"
            assert "gone" in await log_name(records, "0" * 32)

    run(story)


def test_who_deletes_is_refused(tmp_path):
    """The error names the log; a plain ledger passes."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders")
            records = logs.bk.store.records
            taken, other = await plain(logs, b"x"), await plain(logs, b"x")
            await logs.adopt("orders", [taken])
            await refuse(records, other, await logs.bk.metadata(other))
            refusing = refuse(records, taken, await logs.bk.metadata(taken))
            assert "belongs to the log 'orders'" in str(await failing(story_of(refusing), LogError))

    run(story)
