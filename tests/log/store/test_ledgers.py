"""The ledgers of a log: their tags, what a closed one holds, and that a deleted one was fenced before."""

from twisted.internet.defer import Deferred, fail

from quire.conf.log import LogSettings
from quire.log.core.values import Counts
from quire.log.store.ledgers import LogLedgers, Tags, log_of
from quire.protocol.errors import LedgerFenced, NoSuchLedger, NotEnoughBookies
from quire.protocol.log_errors import LogDamaged
from tests.log.fakes.cluster import cluster
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

TAGS = Tags("log-segment", "6f1c", "orders", "c0ffee", {"epoch": "7"})


def test_ledgers_carry_tags(tmp_path):
    """Apache's tools show them; a ledger of another program is told apart."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            ledgers = LogLedgers(logs.bk, b"secret")
            writer = await ledgers.create(LogSettings.made(ack=3), TAGS)
            metadata = await logs.bk.metadata(writer.id)
            assert metadata.custom == {
                "application": b"quire",
                "component": b"log-segment",
                "quire/log": b"6f1c",
                "quire/name": b"orders",
                "quire/creation": b"c0ffee",
                "quire/epoch": b"7",
            }
            assert (metadata.ack_quorum, metadata.password) == (3, b"secret")
            assert log_of(metadata) == "6f1c"
            other = await logs.bk.create_ledger(custom_metadata={"application": b"quire"})
            assert log_of(await logs.bk.metadata(other.id)) is None

    run(story)


def test_a_closed_ledger_is_counted_by_its_last_entry(tmp_path):
    """Whatever password it has; an empty one holds nothing; one of another program is damage, or raw."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs(password=b"secret")
            ledgers = LogLedgers(logs.bk, b"")
            await other.create("a")
            owner = await other.own("a")
            await owner.append_many([b"ab", b"c"])
            await owner.append(b"def")
            ended = await ledgers.end((await other.info("a")).ledger)
            assert (ended.last, ended.counts.records, ended.counts.bytes, ended.counts.entries) == (1, 3, 6, 2)
            empty = await ledgers.create(LogSettings.made(), TAGS)
            assert await ledgers.end(empty.id) == (-1, Counts(0, 0, 0, 0))
            plain = await logs.bk.create_ledger()
            await plain.append_many([b"x", b"yz"])
            await plain.close()
            error = await failing(Deferred.fromCoroutine(ledgers.end(plain.id)), LogDamaged)
            assert f"ledger {plain.id}, entry 1" in str(error)
            assert (await ledgers.end(plain.id, raw=True)).counts == Counts(2, 3, 2, 0)

    run(story)


def test_a_deleted_ledger_was_fenced(tmp_path):
    """Its writer can't go on; deleting it again is nothing."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            ledgers = LogLedgers(logs.bk, b"")
            writer = await ledgers.create(LogSettings.made(), TAGS)
            await writer.append(b"x")
            await ledgers.delete(writer.id)
            await failing(logs.bk.metadata(writer.id), NoSuchLedger)
            await failing(writer.append(b"y"), LedgerFenced, NoSuchLedger)
            await ledgers.delete(writer.id)

    run(story)


def test_several_are_deleted(tmp_path):
    """Those that are gone are told, one that was not there among them; one that can't be recovered stays."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            ledgers = LogLedgers(logs.bk, b"")
            writers = [await ledgers.create(LogSettings.made(), TAGS) for _ in range(25)]
            stays = writers[7].id
            recover = logs.bk.recover_ledger

            def failing_one(ledger):
                return fail(NotEnoughBookies("none")) if ledger == stays else recover(ledger)

            logs.bk.recover_ledger = failing_one
            wanted = [*(writer.id for writer in writers), 10_000]
            done = await ledgers.delete_all(wanted)
            assert done.gone == set(wanted) - {stays}
            assert list(done.stayed) == [stays]
            assert await logs.bk.ledger_ids() == [stays]

    run(story)
