"""A RocketMQ broker, as the tests of the message store use one: it keeps what it acknowledged, also when killed."""

import pathlib

from tests.interop.rocketmq.broker import SMALL, RocketMQ, client
from tests.interop.rocketmq.group import Group

# SPDX-License-Identifier: Apache-2.0


def test_a_killed_broker_comes_back_on_its_directory(tmp_path: pathlib.Path) -> None:
    """One of everything is acknowledged; after SIGKILL all messages of the topic are there, by queue and by id."""
    with RocketMQ(tmp_path) as peer:
        broker = peer.broker("a")
        for topic, kind in (("T", {}), ("I", {"type": "BatchCQ", "queues": 1})):
            peer.call("topic", topic=topic, address=broker.address, **kind)
        sent = peer.call("scenario", topic="T", inner="I")
        assert {each["status"] for each in sent if "status" in each} == {"SEND_OK"}
        before = {queue["queue"]: queue for queue in peer.call("pull", topic="T")}
        broker.kill()
        broker = peer.broker("a", port=broker.port)
        ids = [each["id"] for each in sent if each["what"] in ("plain", "bare", "keys", "large")]
        found = peer.call("view", topic="T", ids=",".join(ids))
        assert [each["found"]["body_sha1"] for each in found] == [
            each["body_sha1"] for each in sent if each["id"] in ids
        ]
        after = {queue["queue"]: queue for queue in peer.call("pull", topic="T")}
        for queue, had in before.items():
            bodies = [message["body_sha1"] for message in after[queue]["messages"]]
            assert bodies[: had["max"]] == [message["body_sha1"] for message in had["messages"]]


def test_a_group_of_one(tmp_path: pathlib.Path) -> None:
    """In DLedger mode a broker leads by itself, and a clean stop leaves no mark of a running one."""
    with RocketMQ(tmp_path) as peer:
        with peer.broker("a", dledger="n0") as broker:
            peer.call("topic", topic="T", address=broker.address)
            assert len(peer.call("send", topic="T", count=5)) == 5
        assert (broker.store / "dledger-n0" / "data").is_dir()
        assert not (broker.store / "abort").exists()


def test_a_group_of_three(tmp_path: pathlib.Path) -> None:
    """It takes messages, also once its master was killed, which comes back and follows."""
    with RocketMQ(tmp_path) as peer:
        group = Group(peer, "T")
        killed = group.master()
        peer.call("busy", topic="T")
        group.kill(killed)
        peer.call("resumed")
        group.start(killed)
        assert group.master() != killed
        (found,) = peer.call("load", topic="T", count=100, calls=4)
        assert found["entries_per_second"] > 0
        assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_the_store_module_alone(tmp_path: pathlib.Path) -> None:
    """It puts and reads without a broker."""
    with client(tmp_path / "home", dir=tmp_path / "store", **SMALL) as store:
        assert store.call("open")["said"] == [{"max": 0, "min": -1}]
        (put,) = store.call("do", words="put T 0 10 keys=k")["said"]
        assert put["status"] == "PUT_OK"
        store.call("do", words="settle 100")
        assert store.call("do", words="range T 0")["said"] == [{"min": 0, "max": 1}]
        assert [found[0] for found in store.call("do", words="query T k 32 0 9999999999999")["said"]] == [0]
        store.call("close")
