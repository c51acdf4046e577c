"""The logs of all clusters of a directory: each call goes to the cluster that holds the log."""

import inspect

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.log.api import Logs
from quire.log.clusters.logs import DirectoryLogs, connect
from quire.log.clusters.moving import Move
from quire.log.clusters.owning import FollowingOwner
from quire.log.clusters.reading import FollowingCursor, FollowingReader
from quire.log.reader.reader import LogReader
from quire.log.streams.cursor import Cursor
from quire.log.upkeep.keeping import KeptOwner
from quire.metadata.store import Watch
from quire.protocol.log_errors import LogError, LogExists, LogMoved, NoSuchLog
from tests.log.clusters.test_moving import KilledMove, content, filled, numbers
from tests.log.clusters.two_clusters import played
from tests.metadata.stories import failing
from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0

# What faces and their callers do not use: it belongs to rooms below.
INNER = {
    KeptOwner: {
        "append_copied",
        "become_copy",
        "remember",
        "end_segment",
        "promote",
        "tidy",
        "start",
        "feed",
        "me",
        "on_acknowledged",
        "window",
    },
    LogReader: set(),
    Cursor: {"go_on_from", "standing"},
}
OF_ALL = {"close", "create", "names", "metrics", "options", "bk"}


@pytest.mark.parametrize(
    ("kind", "follows"), [(KeptOwner, FollowingOwner), (LogReader, FollowingReader), (Cursor, FollowingCursor)]
)
def test_a_handle_that_follows_has_what_the_handle_has(kind, follows):
    """The faces use them alike."""
    own = {name for name, _ in inspect.getmembers(follows) if not name.startswith("_")}
    wanted = {
        name
        for each in kind.__mro__
        if each.__module__.startswith("quire.log")
        for name, value in vars(each).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }
    assert wanted - own - INNER[kind] <= {"begin_with", "records"}, wanted - own - INNER[kind]


def test_each_call_is_led(tmp_path):
    """Every method of `Logs` that names a log goes to its cluster, and none to that of the directory by oversight."""
    for name, _method in inspect.getmembers(Logs, inspect.isfunction):
        if not name.startswith("_") and name not in OF_ALL | {"context", "cluster", "create_copy", "merging"}:
            assert vars(DirectoryLogs).get(name) is not None, name

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20, "far", "there")).close()
        await (await filled(logs, 20, "near", "here")).close()
        assert sorted([name async for name in logs.names()]) == ["far", "near"]
        assert (await logs.info("far")).end == (await logs.info("near")).end == 20
        assert [segment.records async for segment in logs.segments("far")] == [10, 10]
        await failing((await two.here.logs()).info("far"), NoSuchLog)
        assert await logs.trim("far", 10) == 10
        await (await logs.cursor("far", "c")).close()
        assert [each.name async for each in logs.cursors("far")] == ["c"]
        await failing(logs.create("far", cluster="here"), LogExists)
        await logs.rename("far", "farther")
        assert (await logs.info("farther")).name == "farther"
        await failing(logs.info("far"), NoSuchLog)
        await logs.delete("farther")
        assert [name async for name in logs.names()] == ["near"]
        with pytest.raises(ValueError, match="one cluster"):
            logs.orphans()
        await failing(logs.tidy(), ValueError)
        await failing(logs.create("new"), ValueError)
        await failing(logs.create("new", cluster="x"), LogError)

    played(tmp_path, story)


def test_partitions_are_with_their_log(tmp_path):
    """A partitioned log is in one cluster, and so its partitions are found there."""

    async def story(two):
        logs = await two.logs()
        await logs.create("visits", cluster="there", partitions=2)
        owner = await logs.own("visits/1")
        await owner.append(b"x")
        await owner.close()
        assert (await logs.info("visits/1")).end == 1
        assert await logs.partitions("visits") == ["visits/0", "visits/1"]
        await failing(Move(logs, "visits", "here").run(), ValueError)

    played(tmp_path, story)


def test_a_name_that_moved_is_free_for_a_new_log(tmp_path):
    """Once the log is deleted where it went, a log of its name can be made in either cluster."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 10)).close()
        await Move(logs, "orders", "there").run()
        await logs.delete("orders")
        await failing((await two.here.logs()).create("orders"), LogMoved)
        await (await filled(logs, 20, cluster="here")).close()
        assert await content(logs) == numbers(20)

    played(tmp_path, story)


def test_the_uri_of_a_directory(tmp_path):
    """`connect` opens all clusters by it; without `directory+` it is the one cluster."""

    async def story(two):
        one = await connect(reactor, two.here.uri)
        assert type(one) is Logs
        await one.close()
        many = await connect(reactor, f"directory+{two.here.uri}")
        assert isinstance(many, DirectoryLogs)
        assert [each.name for each in await many.directory.clusters()] == ["here", "there"]
        await many.close()
        await many.close()

    played(tmp_path, story)


def test_a_log_is_watched_wherever_it_is(tmp_path):
    """A watch tells of the log in the cluster in which it is by then."""

    async def story(two):
        logs = await two.logs()
        owner = await filled(logs, 10)
        heard = []
        watch = logs.watch("orders", heard.append)
        await Move(logs, "orders", "there").run()
        for number in range(10, 30):
            await owner.append(b"%d" % number)
        await owner.close()
        reader = await logs.read("orders")
        async for batch in reader.tail(5):
            if batch.end == 30 and heard and heard[-1] is not None and heard[-1].end == 30:
                break
        await reader.close()
        watch.cancel()
        assert heard[0].end == 10
        assert heard[-1].end == 30

    played(tmp_path, story)


def test_who_gives_up_waiting_for_a_move_leaves_nothing(tmp_path):
    """A call that is cancelled while a log moves no longer watches the directory."""

    async def story(two):
        logs = await two.logs()
        await (await filled(logs, 20)).close()
        await KilledMove("fenced").run(two)
        watching, watch, waits = set(), logs.directory.watch, Deferred()

        def watched(name, heard):
            made = watch(name, heard)
            watching.add(made)
            if not waits.called:
                waits.callback(None)

            def cancel():
                watching.discard(made)
                made.cancel()

            return Watch(cancel)

        logs.directory.watch = watched
        owning = Deferred.fromCoroutine(logs.own("orders"))
        await waits
        owning.addErrback(lambda failure: failure.trap(CancelledError))
        owning.cancel()
        await owning
        assert not watching
        await Move(await two.logs(), "orders", "there").run()

    played(tmp_path, story)
