"""The directory: clusters by name, and which of them holds a log."""

from twisted.internet.defer import Deferred

from quire.log.clusters.directory import Directory, is_directory, place_path
from quire.protocol.log_errors import LogError, LogExists, NoSuchLog
from tests.bookie.fakes.in_process import new_store
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def played(story):
    """`story(directory, store)`, with clusters a and b."""

    async def whole():
        store = await new_store()
        try:
            directory = Directory(store.records, store.uri)
            await directory.add("a", "memory://a")
            await directory.add("b", "memory://b")
            await story(directory, store)
        finally:
            await store.close()

    run(whole)


async def names(directory):
    return [name async for name in directory.logs()]


def test_clusters_come_change_and_go():
    """By their names; one that holds a log, or has not lost it yet, stays and takes logs again."""

    async def story(directory, _store):
        await directory.add("a", "memory://a2")
        await directory.add("a", "memory://a2")
        assert await directory.clusters() == [("a", "memory://a2"), ("b", "memory://b")]
        await directory.place("orders", "a")
        error = await failing(directory.remove("a"), LogError)
        assert "'orders'" in str(error)
        await directory.place("visits", "a")
        await directory.moved("orders", "a", "b")
        await directory.forget("visits", "a")
        await failing(directory.remove("a"), LogError)
        await directory.settled("orders", "a")
        await directory.remove("a")
        assert [each.name for each in await directory.clusters()] == ["b"]
        await failing(directory.place("visits", "a"), LogError)
        await failing(directory.remove("a"), LogError)

    played(story)


def test_a_log_is_in_one_cluster():
    """Placed again in the same one nothing changes, in another one it is refused."""

    async def story(directory, _store):
        await directory.place("or/ders", "a")
        await directory.place("or/ders", "a")
        await failing(directory.place("or/ders", "b"), LogExists)
        await failing(directory.place("visits", "c"), LogError)
        found = await directory.find("or/ders")
        assert (found.cluster, found.uri, found.source) == ("a", "memory://a", None)
        assert await names(directory) == ["or/ders"]
        await failing(directory.find("visits"), NoSuchLog)
        await directory.forget("or/ders", "b")
        await directory.forget("or/ders", "a")
        await directory.forget("or/ders", "a")
        assert await names(directory) == []

    played(story)


def test_a_move_changes_the_place_once():
    """Also when it is said twice; not from a cluster in which the log is not."""

    async def story(directory, _store):
        await directory.place("orders", "a")
        await failing(directory.moved("orders", "b", "a"), LogError)
        first = await directory.moved("orders", "a", "b")
        assert (first.cluster, first.source) == ("b", "a")
        assert await directory.moved("orders", "a", "b") == first
        await directory.settled("orders", "b")
        await directory.settled("orders", "a")
        await directory.settled("orders", "a")
        assert (await directory.find("orders")).source is None

    played(story)


def test_a_cluster_that_leaves_takes_no_log():
    """A place that is made while a cluster is taken out is refused, or keeps the cluster."""

    async def story(directory, store):
        removing = Deferred.fromCoroutine(directory.remove("a"))
        placing = Deferred.fromCoroutine(directory.place("orders", "a"))
        outcomes = []
        for each in (removing, placing):
            try:
                await each
                outcomes.append(True)
            except LogError:
                outcomes.append(False)
        assert outcomes.count(True) == 1, outcomes
        there = [each.name for each in await directory.clusters()]
        assert (await names(directory) == ["orders"]) == ("a" in there)
        assert (await store.records.children("places")) != []

    played(story)


def test_a_place_is_watched():
    """Its version is told now and after a change, None where there is none."""

    async def story(directory, _store):
        heard, changed = [], Deferred()

        def hear(version):
            heard.append(version)
            if version == 1:
                changed.callback(None)

        await directory.place("orders", "a")
        watch = directory.watch("orders", hear)
        await directory.moved("orders", "a", "b")
        await changed
        watch.cancel()
        assert heard[-1] == 1
        assert is_directory("directory+zk://h/ledgers")
        assert not is_directory("zk://h/ledgers")
        assert place_path("a/b").startswith("places/")

    played(story)
