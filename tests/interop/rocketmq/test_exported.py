"""A real broker on directories that an export wrote: it has each message where it was, and goes on behind them."""

import pathlib
from dataclasses import replace
from typing import Any

import pytest

from quire.messages.descriptor import Next, Shift
from tests.interop.rocketmq.broker import FILE_BYTES, Broker, RocketMQ, free_port
from tests.messages.exported import Stored
from tests.messages.reference import builder

# SPDX-License-Identifier: Apache-2.0

CUT = ("truncate", "logic queue order maybe wrong", "length not matched", "found illegal")


def by_queue(peer: RocketMQ, topic: str) -> dict[int, Any]:
    return {queue["queue"]: queue for queue in peer.call("pull", topic=topic)}


def found(peer: RocketMQ, topic: str, keys: list[str]) -> dict[str, Any]:
    """The messages of each key."""
    return {each["key"]: each["found"] for each in peer.call("query", topic=topic, keys=",".join(keys))}


def all_of(queues: dict[int, Any]) -> list[Any]:
    return [message for queue in queues.values() for message in queue["messages"]]


def all_taken(peer: RocketMQ) -> None:
    """The group `again` has all messages, one of which it sent back and was then given again."""
    taken = peer.call("take", topic="T", group="again", back=1, quiet=8000)
    while not any(message["reconsume"] for message in taken):  # it looks for topics of that kind now and then
        taken += peer.call("take", topic="T", group="again", quiet=8000)


def taken(peer: RocketMQ, count: int) -> list[Any]:
    """What the group `again` is given, at least so many, and then no more for a while."""
    found: list[Any] = []
    for _ in range(20):  # a consumer on a busy machine may be given its queues late
        some = peer.call("take", topic="T", group="again", quiet=8000)
        found += some
        if len(found) >= count and not some:
            break
    return found


def exported(broker: Broker, out: pathlib.Path) -> Stored:
    """What a stopped broker has, exported; its message ids are those of the same address."""
    stored = Stored.of(broker.store)
    stored.export(out)
    return stored


def goes_on(peer: RocketMQ, broker: Broker, before: dict[int, Any], sent: int = 4) -> None:
    """Each queue has what it had and no more, then new messages at the next positions; nothing was cut."""
    keys = sorted({key for message in all_of(before) for key in message["properties"].get("KEYS", "").split()})
    after = by_queue(peer, "T")
    for number, queue in before.items():
        assert (after[number]["min"], after[number]["max"]) == (queue["min"], queue["max"])
        for was, is_ in zip(queue["messages"], after[number]["messages"], strict=True):
            assert {**was, "properties": {}} == {**is_, "properties": {}}
    ids = [message_id(message) for message in all_of(after)]
    viewed = peer.call("view", topic="T", ids=",".join(ids))
    assert [each["found"]["offset"] for each in viewed] == [message["offset"] for message in all_of(after)]
    for key, messages in found(peer, "T", keys).items():
        wanted = [m["offset"] for m in all_of(before) if key in m["properties"].get("KEYS", "").split()]
        assert sorted(message["offset"] for message in messages) == sorted(wanted)
    put = peer.call("send", topic="T", count=sent, **{"from": 1000})
    positions = {number: queue["max"] for number, queue in before.items()}
    for each in put:
        assert each["queue_offset"] == positions[each["queue"]]
        positions[each["queue"]] += 1
    log = broker.log()
    assert not [text for text in CUT if text in log]


def message_id(message: Any) -> str:
    host, port = message["store_host"].removeprefix("/").split(":")
    address = bytes(map(int, host.split(".")))
    return (address + int(port).to_bytes(4, "big") + int(message["offset"]).to_bytes(8, "big")).hex().upper()


def test_a_plain_store(tmp_path: pathlib.Path) -> None:
    """One of everything, consumed and sent back: nothing is delivered again, the rest is as it was."""
    with RocketMQ(tmp_path) as peer:
        with peer.broker("a") as broker:
            for topic, kind in (("T", {}), ("I", {"type": "BatchCQ", "queues": 1})):
                peer.call("topic", topic=topic, address=broker.address, **kind)
            peer.call("scenario", topic="T", inner="I")
            all_taken(peer)
            peer.call("send", topic="T", count=60, size=2500)
            rest = peer.call("take", topic="T", group="again", quiet=8000)
            assert len(rest) == 60
            before = by_queue(peer, "T"), by_queue(peer, "I")
        out = tmp_path / "out"
        exported(broker, out)
        with peer.broker("a", store=out, port=broker.port) as again:
            assert peer.call("take", topic="T", group="again", quiet=8000) == []
            assert by_queue(peer, "I").keys() == before[1].keys()
            assert [m["offset"] for m in all_of(by_queue(peer, "I"))] == [m["offset"] for m in all_of(before[1])]
            goes_on(peer, again, before[0])
            assert len(taken(peer, 4)) == 4


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_group_of_dledger(tmp_path: pathlib.Path, upgraded: bool) -> None:
    """In a whole broker that leads a group of one; also behind plain files, of a store that was upgraded."""
    with RocketMQ(tmp_path) as peer:
        store, port = tmp_path / "a", free_port()
        if upgraded:
            with peer.broker("a", store, port) as broker:
                peer.call("topic", topic="T", address=broker.address)
                peer.call("send", topic="T", count=40, size=2500)
                peer.call("take", topic="T", group="again", quiet=8000)
        with peer.broker("a", store, port, dledger="n0") as broker:
            peer.call("topic", topic="T", address=broker.address)
            peer.call("scenario", topic="T")
            peer.call("send", topic="T", count=40, size=2500, **{"from": 40})
            peer.call("take", topic="T", group="again", quiet=8000)
            before = by_queue(peer, "T")
        out = tmp_path / "out"
        stored = exported(broker, out)
        assert len(stored.descriptor.regions) == (3 if upgraded else 2)
        with peer.broker("a", out, port, dledger="n0") as again:
            goes_on(peer, again, before)
            assert len(taken(peer, 4)) == 4


@pytest.mark.parametrize("shift", [2, 489])
def test_positions_that_records_do_not_say(tmp_path: pathlib.Path, shift: int) -> None:
    """A queue that begins elsewhere than its first record says, and one whose messages have expired, keep theirs."""
    with RocketMQ(tmp_path / "peer") as peer:
        made = builder.Builder(tmp_path / "made", first=FILE_BYTES)
        for number in range(20):
            made.put("T", b"%d" % number, queue=1, queue_offset=489 + number, properties=b"KEYS\x01k%d\x02" % number)
        stored = Stored([(at, record["raw"]) for at, record in made.records], [], FILE_BYTES)
        changed = {"shifts": (Shift("T", 1, FILE_BYTES, shift),), "next": (Next("T", 0, 343),)}
        stored.descriptor = replace(stored.descriptor, **changed)
        out = tmp_path / "out"
        report = stored.export(out)
        assert report.topics == ["T"]
        with peer.broker("a", store=out) as broker:
            queues = by_queue(peer, "T")
            assert [(queues[n]["min"], queues[n]["max"]) for n in (0, 1)] == [(343, 343), (489 - shift, 509 - shift)]
            assert [message["offset"] for message in queues[1]["messages"]] == [at for at, _value in stored.values]
            assert [len(messages) for messages in found(peer, "T", ["k0", "k19"]).values()] == [1, 1]
            sent = peer.call("send", topic="T", count=2)
            assert [each["queue_offset"] for each in sent] == [343, 509 - shift]
            assert broker.process.alive
