"""A log with a use: who does not name it may read and trim, and changes nothing else."""

import json

from quire.log.publish.sink import Sink
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.machines import Chain
from tests.log.upkeep.test_children import refused
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

KEPT = "the log 'orders' is kept by `quire messages`, and nothing was changed: `quire messages --help` lists"


def changes(logs, **use):
    """Everything that fills a log, ends it, or takes its name, as a story to begin."""
    return {
        "own": lambda: logs.own("orders", wait_s=0, **use),
        "replica": lambda: logs.replica("orders", Chain, **use),
        "standing": lambda: logs.replica("orders", Chain, stand=True, **use),
        "sink": lambda: logs.sink("orders", "t", "r", **use),
        "adopt": lambda: logs.adopt("orders", [1], **use),
        "rename": lambda: logs.rename("orders", "sales", **use),
        "truncate": lambda: logs.truncate("orders", **use),
        "terminate": lambda: logs.terminate("orders", **use),
        "delete": lambda: logs.delete("orders", **use),
    }


def test_who_does_not_name_it(tmp_path):
    """Is refused by the use and its commands, whether no use is named or another; the manifest stays as it is."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", use="messages", roll_records=1)
            holder = await logs.own("orders", use="messages")
            before = await other.manifest("orders")
            for use in ({}, {"use": "tables"}):
                for begin in changes(other, **use).values():
                    assert KEPT in await refused(begin(), ValueError)
            assert await other.manifest("orders") == before
            await holder.close()

    run(story)


def test_who_names_it(tmp_path):
    """Does all of it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("orders", use="messages")
            assert await logs.truncate("orders", use="messages") == 0
            assert isinstance(await logs.sink("orders", "t", "r", use="messages"), Sink)
            await logs.rename("orders", "sales", use="messages")
            replica = await logs.replica("sales", Chain, stand=True, use="messages")
            assert await replica.leads(60)  # it owns the log by the same name
            await replica.close()
            assert (await logs.terminate("sales", use="messages")).index == 0
            await logs.delete("sales", use="messages")

    run(story)


def test_what_stays_free(tmp_path):
    """Reading, cursors, trims, settings and upkeep need no use."""

    async def story():
        async with cluster(tmp_path) as world:
            logs, other = await world.logs(), await world.logs()
            await logs.create("orders", use="messages", roll_records=1)
            owner = await logs.own("orders", use="messages")
            for value in (b"a", b"b", b"c"):
                await owner.append(value)
            await owner.close()
            assert await values(await other.read("orders")) == [b"a", b"b", b"c"]
            cursor = await other.cursor("orders", "c", start="begin")
            cursor.ack(0)
            await cursor.close()
            assert await other.trim("orders", 1) == 1
            assert (await other.update("orders", retention_ms=5)).settings["use"] == "messages"
            assert not (await other.tidy("orders")).failed

    run(story)


def test_given_at_creation(tmp_path):
    """It stays as it is; a log without one refuses who names one; an older version can't open one that has it."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            assert "use" in await refused(logs.create("a", use="No Use"), ValueError)
            await logs.create("orders", use="messages")
            await logs.create("plain")
            for name, use in (("orders", ""), ("plain", "messages")):
                said = await refused(logs.update(name, use=use), ValueError)
                assert "is given when it is created and stays" in said
            assert (await logs.update("orders", use="messages", ack=1)).settings["ack"] == 1
            said = await refused(logs.own("plain", use="messages"), ValueError)
            assert said.startswith("the log 'plain' has no use 'messages', and nothing was changed")
            assert json.loads(await logs.manifest("orders"))["needs"] == ["use"]
            assert json.loads(await logs.manifest("plain"))["needs"] == []

    run(story)
