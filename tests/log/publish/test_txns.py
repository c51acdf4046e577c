"""A publisher's records: made once, claimed by runs, written over lost answers."""

from dataclasses import replace

from twisted.internet.defer import Deferred

from quire.log.core.publishing import Intent, aborting
from quire.log.publish.txns import Txns, txns_of
from quire.metadata.memory.cluster import Fault
from quire.metadata.records import NoRecord
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, NoSuchLog
from tests.log.store.test_editing import LOST, NOT_DONE, World, paths
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


def test_runs_claim_a_txn():
    """The first makes it, with its folder; a new one takes over; a former one is fenced."""

    async def story():
        world = World()
        txns = Txns(await world.made(), "facts/é")
        first = await txns.claim("one", first_batch=7)
        assert (first.value.claim, first.value.last) == (1, 6)
        assert await txns.claim("one") == first
        assert await txns.names() == []
        second = await Txns(world.handle(), "facts/é").claim("two")
        assert (second.value.claim, second.value.past, second.value.last) == (2, ("one",), 6)
        third = await Txns(world.handle(), "facts/é").claim("three", first_batch=9)  # nothing was published yet
        assert (third.value.claim, third.value.last) == (3, 8)
        await failing(story_of(txns.claim("one")), LogFenced)

    run(story)


def test_the_txns_of_a_log():
    """By their names."""

    async def story():
        handle = await World().made()
        assert [txn async for txn in txns_of(handle)] == []
        for name in ("facts/é", "b"):
            await Txns(handle, name).claim("one")
        assert [txn.txn async for txn in txns_of(handle)] == ["b", "facts/é"]

    run(story)


def test_a_txn_of_a_log_that_is_gone():
    """`NoSuchLog`, for its folders are gone."""

    async def story():
        world = World()
        handle = await world.made()
        for part in [*paths.PARTS, "lease"]:
            await handle.records.delete(f"{handle.path}/{part}", -1)
        await failing(story_of(Txns(handle, "facts").claim("one")), NoSuchLog)

    run(story)


def test_answers_that_are_lost():
    """Done: told by the content. Not done, and the version did not move: unknown. Another was faster: no."""

    async def story():
        world = World()
        handle = await world.made()
        txns = Txns(handle, "facts")
        txn, version = await txns.claim("one")
        marked = aborting(txn, "one", 0, 5, "mine")
        handle.faults.append(NOT_DONE)
        await failing(story_of(txns.write(marked, version)), MetaStore)
        handle.faults.append(LOST)
        assert await txns.write(marked, version)
        assert await txns.write(marked, version), "it was this very write"
        assert not await txns.write(replace(marked, edit="another"), version)
        now = await txns.read()
        other = Txns(world.handle(), "facts")
        await other.write(replace(marked, edit="theirs"), now.version)
        handle.faults.append(Fault(error=MetaStore("no answer")))
        assert not await txns.write(replace(marked, edit="late"), now.version)

    run(story)


def test_intents():
    """Listed by pages, read one by one."""

    async def story():
        world = World()
        txns = Txns(await world.made(), "facts")
        await txns.claim("one")
        intent = Intent("one", 1, (5,), 9)
        for number in range(3):
            await txns.log.records.create(f"{txns.intents}/0-{number}-0-aa", intent.encode())
        assert await txns.names() == [f"0-{number}-0-aa" for number in range(3)]
        assert (await txns.intent("0-1-0-aa")).value == intent
        await failing(story_of(txns.intent("gone")), NoRecord)

    run(story)
