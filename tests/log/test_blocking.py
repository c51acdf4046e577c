"""The blocking face on real bookies: logs as a whole, closed ones, the reactor's own thread, forks."""

import asyncio
import json
import queue
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.registry import CollectorRegistry

import quire.log as quire
from quire.client import ClientClosed, ClientOptions
from quire.log import LogOptions, aio, connect
from quire.log.owner.appending.appends import Position
from quire.metadata.store import WrongCluster
from quire.protocol import log_errors
from tests.alone import alone
from tests.reactor import run
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("blocking"), 3) as made:
        yield made


@pytest.fixture
def logs(cluster, request):
    """With a log named as the test."""
    with connect(cluster.uri) as made:
        made.create(request.node.name)
        yield made


@pytest.fixture
def name(request):
    return request.node.name


def test_a_program_shows_its_logs_to_prometheus(cluster, logs, name):
    """By both faces that hide the reactor, in a thread of the program's, also once the logs are closed."""
    with logs.own(name) as owner:
        owner.append_many([b"one", b"two"])

    async def beside():
        async with aio.connect(cluster.uri) as others:
            await others.create(f"{name} beside")
            async with await others.own(f"{name} beside") as owner:
                await owner.append(b"three")
        return others.metrics

    logs.close()
    for metrics, log, records in ((logs.metrics, name, 2), (asyncio.run(beside()), f"{name} beside", 1)):
        registry = CollectorRegistry()
        registry.register(metrics)
        assert registry.get_sample_value("quire_log_appends_total", {"log": log}) == records


def test_the_options_of_ledgers_are_not_those_of_logs(cluster):
    """Given in each other's place, they are refused before anything is opened."""
    for given in ((ClientOptions(),), (None, LogOptions())):
        for opening in (connect, aio.connect):
            with pytest.raises(TypeError, match=r"options are a (Log|Client)Options, or None for the defaults, not"):
                opening(cluster.uri, *given)


def test_a_log_s_life(cluster):
    """Created, listed, changed, appended to in three ways, read, followed, renamed, deleted."""
    with connect(cluster.uri) as logs:
        info = logs.create("orders/eu", roll_bytes=1 << 20)
        assert (info.name, info.state, info.settings["roll_bytes"]) == ("orders/eu", "open", 1 << 20)
        with logs.own("orders/eu") as owner:
            assert (owner.name, owner.epoch, owner.lost) == ("orders/eu", 1, False)
            assert owner.append(b"one", key=b"k", time_ms=17, headers=[("h", b"v")]) == Position(0, 0)
            done = owner.append_many([b"two", b"three"])
            assert (done.indexes, done.positions) == (range(1, 3), [3, 6])
            assert owner.append_async(b"four").result() == Position(3, 11)
            assert owner.barrier() == Position(4, 15) == owner.end
            owner.roll()
            assert owner.append(b"five").index == 4
        with logs.read("orders/eu") as reader:
            first, *rest = reader
            assert (first.index, first.at, first.value, first.key, first.time_ms) == (0, 0, b"one", b"k", 17)
            assert first.headers == (("h", b"v"),)
            assert [record.value for record in rest] == [b"two", b"three", b"four", b"five"]
            assert reader.index == 5
            assert (reader.begin, reader.end_known, reader.lost) == (0, 5, [])
        assert logs.seek("orders/eu", first.stamp_ms) == (0, False)
        assert logs.find("orders/eu", 4) == (1, 3)
        with logs.read("orders/eu", datetime.now(UTC) + timedelta(hours=1)) as reader:
            assert list(reader) == []
        with logs.read("orders/eu", 3) as reader:
            assert [record.value for record in reader.tail(timeout=0.1)] == [b"four", b"five"]
        assert logs.update("orders/eu", roll_bytes=1 << 21).settings["roll_bytes"] == 1 << 21
        assert logs.rename("orders/eu", "orders/us").name == "orders/us"
        assert "orders/us" in list(logs.names())
        assert [(segment.n, segment.first, segment.records) for segment in logs.segments("orders/us")] == [
            (0, 0, 4),
            (1, 4, 1),
        ]
        assert json.loads(logs.manifest("orders/us"))["name"] == "orders/us"
        assert logs.info("orders/us").ledger is None
        assert logs.bk.is_closed(max(logs.bk.ledgers()))
        with logs.bk.create_ledger() as plain:
            plain.append(b"six")
        assert logs.adopt("orders/us", iter([plain.id])).end == 6
        assert list(logs.orphans()) == []
        assert list(logs.check("orders/us")) == []
        seen = queue.Queue()
        with logs.watch("orders/us", seen.put):
            assert seen.get(timeout=60).end == 6
        with pytest.raises(WrongCluster):
            logs.purge("another")
        with logs.read("orders/us") as reader:
            assert [value for batch in reader.pieces() for value in batch.values][-1] == b"six"
        assert logs.trim("orders/us", 2) == 2
        assert logs.truncate("orders/us") == 6
        assert logs.terminate("orders/us").index == 6
        assert logs.tidy("orders/us").logs == 1
        assert logs.info("orders/us").doomed == 0
        with pytest.raises(quire.SegmentLost):
            logs.give_up("orders/us", 0)
        with pytest.raises(quire.SegmentLost):
            logs.mark("orders/us", 0, None, None)
        logs.delete("orders/us")
        with pytest.raises(quire.NoSuchLog):
            logs.info("orders/us")
        assert len(logs.tidy().removed) == 1


def test_a_closed_handle_says_so(cluster, name):
    """Calls on it raise `ClientClosed`; what it owned is free."""
    logs = connect(cluster.uri)
    logs.create(name)
    owner = logs.own(name)
    owner.append(b"x")
    logs.close()
    logs.close()
    with pytest.raises(ClientClosed):
        logs.info(name)
    with pytest.raises(quire.NotOwner):
        owner.append(b"late")
    with connect(cluster.uri) as other, other.own(name, wait_s=30) as second:
        assert second.append(b"y").index == 1


def test_a_blocking_call_from_the_reactor_is_refused(cluster, logs, name):
    """connect, append, iteration: each raises instead of hanging the process."""
    with logs.own(name) as owner, logs.read(name) as reader:

        async def story():
            for call in (
                lambda: connect(cluster.uri),
                lambda: owner.append(b"x"),
                lambda: owner.append_many([b"x"]),
                owner.close,
                lambda: next(iter(reader)),
                lambda: next(logs.names()),
            ):
                with pytest.raises(RuntimeError, match=r"quire\.log\.api"):
                    call()

        run(story)


def test_every_operation_in_a_forked_child_says_at_once_that_it_did_not_survive(tmp_path):
    """Nothing waits, in both faces, and the parent goes on."""
    out = alone(
        f"""
        import asyncio, os, pathlib, signal
        from quire.log import aio, connect
        from tests.real_cluster import RealCluster

        said = 0

        def refused(operation, *given, **named):
            global said
            try:
                made = operation(*given, **named)
                if asyncio.iscoroutine(made):
                    asyncio.run(made)
            except RuntimeError as error:
                assert "survive a fork" in str(error), error
                said += 1
            else:
                raise AssertionError(f"{{operation}} went on")

        async def handles():
            logs = await aio.connect(cluster.uri)
            await logs.create("b")
            return logs, await logs.own("b"), await logs.read("b"), await logs.sink("b", "t", "r")

        async def one(records):
            async for _record in records:
                pass

        async def soon(owner):
            owner.append_async(b"x")

        with RealCluster(pathlib.Path({str(tmp_path)!r}), 3) as cluster:
            logs = connect(cluster.uri)
            logs.create("a")
            owner = logs.own("a")
            owner.append_many([b"one", b"two"])
            reader = logs.read("a")
            sink = logs.sink("a", "t", "r")
            part = sink.part(0, 0, 0)
            alogs, aowner, areader, asink = asyncio.run(handles())
            child = os.fork()
            if not child:
                signal.alarm(20)
                for one_name in (logs.create, logs.info, logs.update, logs.delete, logs.own, logs.read):
                    refused(one_name, "a")
                refused(logs.rename, "a", "c")
                refused(logs.sink, "a", "t", "r")
                refused(logs.manifest, "a")
                refused(lambda: list(logs.check("a")))
                refused(logs.watch, "a", print)
                refused(logs.purge, "a")
                refused(lambda: list(reader.pieces()))
                refused(logs.seek, "a", 0)
                refused(logs.find, "a", 0)
                refused(logs.adopt, "a", [7])
                refused(lambda: list(logs.orphans()))
                for one_name in (logs.terminate, logs.truncate, logs.tidy):
                    refused(one_name, "a")
                refused(logs.trim, "a", 0)
                refused(logs.give_up, "a", 0)
                refused(logs.mark, "a", 0, None, None)
                refused(owner.trim, 0)
                refused(owner.terminate)
                refused(lambda: list(logs.names()))
                for listed in (logs.segments, logs.txns, logs.candidates):
                    refused(lambda: list(listed("a")))
                refused(owner.append, b"x")
                refused(owner.append_async, b"x")
                refused(owner.append_many, [b"x"])
                for operation in (owner.barrier, owner.roll, owner.transfer, owner.close, reader.close, logs.close):
                    refused(operation)
                for records in (lambda: list(reader), lambda: list(reader.batches()), lambda: list(reader.tail(1.0))):
                    refused(records)
                refused(sink.part, 1, 0, 0)
                refused(sink.commit, 0, [])
                refused(sink.abort, 0)
                refused(sink.janitor)
                refused(part.append_many, [b"x"])
                refused(part.close)
                refused(part.discard)
                refused(connect, cluster.uri)
                for operation in (alogs.info, alogs.own, alogs.read):
                    refused(operation, "b")
                refused(aowner.append, b"x")
                refused(soon, aowner)
                refused(aowner.append_many, [b"x"])
                for operation in (aowner.barrier, aowner.close, areader.close, asink.janitor, alogs.close):
                    refused(operation)
                for made in (areader.__aiter__, lambda: areader.tail(1.0), areader.batches, alogs.names):
                    refused(lambda: one(made()))
                print("child:", said, flush=True)
                os._exit(0)
            print("ended:", os.waitpid(child, 0)[1])
            owner.append(b"three")
            owner.close()
            print(*[record.value for record in reader])
            logs.close()
            asyncio.run(alogs.close())
        """
    )
    assert out == "child: 64\nended: 0\nb'one' b'two' b'three'\n"


def test_every_error_of_logs_is_reachable_from_the_package():
    """`quire.log.LogError` and everything below it."""
    kinds = [
        kind for kind in vars(log_errors).values() if isinstance(kind, type) and kind.__module__ == log_errors.__name__
    ]
    assert len(kinds) > 15
    for kind in kinds:
        assert getattr(quire, kind.__name__) is kind
        assert issubclass(kind, quire.LogError)
