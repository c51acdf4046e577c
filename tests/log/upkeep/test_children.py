"""Child records of a log: made in the step of its creation, written by version, gone with it."""

import pytest
from twisted.internet.defer import Deferred

import quire.log as quire
from quire.log.store.paths import PARTS, child_path, log_path
from quire.metadata.records import VALUE_BYTES_MAX, NoRecord, RecordChanged
from quire.protocol.log_errors import LogExists, NoSuchLog
from tests.log.fakes.cluster import cluster
from tests.metadata.stories import failing
from tests.reactor import run
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


async def refused(story, *kinds):
    """The text of the error that a coroutine fails with."""
    return str(await failing(Deferred.fromCoroutine(story), *kinds))


def test_a_life(tmp_path):
    """There as soon as the log is, changed by the version that was read only, gone when the log is removed."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            info = await logs.create("orders", children={"store": b"one", "a/b": b""})
            value, version = await other.child("orders", "store")
            assert (value, (await logs.child("orders", "a/b")).value) == (b"one", b"")
            assert await logs.child("orders", "else") is None
            newer = await logs.write_child("orders", "store", b"two", version)
            await refused(other.write_child("orders", "store", b"three", version), RecordChanged)
            assert await other.child("orders", "store") == (b"two", newer)
            await logs.rename("orders", "sales")
            assert (await logs.child("sales", "store")).value == b"two"
            records = logs.bk.store.records
            await logs.delete("sales")
            await refused(logs.child("sales", "store"), NoSuchLog)
            await refused(logs.write_child("sales", "store", b"", newer), NoSuchLog)
            await logs.tidy()
            await failing(records.read(child_path(info.id, "store")), NoRecord)
            await failing(records.read(log_path(info.id)), NoRecord)

    run(story)


def test_all_in_one_step(tmp_path):
    """A creation whose step the store does not take leaves neither a log nor a child; one that it took counts."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("taken", children={"store": b"first"})
            await refused(logs.create("taken", children={"store": b"second"}), LogExists)
            assert (await logs.child("taken", "store")).value == b"first"
            found = await logs.bk.store.records.children(log_path((await logs.info("taken")).id))
            assert found == sorted([*PARTS, "child", "lease"])
            await logs.create("plain")
            assert "child" not in await logs.bk.store.records.children(log_path((await logs.info("plain")).id))

    run(story)


def test_what_can_not_be(tmp_path):
    """Each refusal names the record and says what may be; nothing is made."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            for child, value, kind, text in (
                ("store", "text", TypeError, "'store' is bytes, not str"),
                ("store", b"x" * (VALUE_BYTES_MAX + 1), ValueError, f"at most {VALUE_BYTES_MAX} are allowed"),
                ("", b"", ValueError, "'' is no name of a child record"),
            ):
                assert text in await refused(logs.create("a", children={child: value}), kind)
            await refused(logs.info("a"), NoSuchLog)
            await logs.create("a")
            assert "has no child record 'store'" in await refused(logs.write_child("a", "store", b"", 0), ValueError)
            assert await logs.child("a", "store") is None

    run(story)


def test_blocking(tmp_path):
    """The blocking face has the same calls."""
    with RealCluster(tmp_path, 1) as made, quire.connect(made.uri) as logs:
        logs.create("a", ensemble=1, write=1, ack=1, children={"store": b"one"})
        value, version = logs.child("a", "store")
        assert value == b"one"
        logs.write_child("a", "store", b"two", version)
        with pytest.raises(quire.RecordChanged):
            logs.write_child("a", "store", b"three", version)
        assert logs.child("a", "store").value == b"two"
