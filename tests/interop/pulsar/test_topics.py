"""
Topics that a Pulsar broker writes on our bookies, read straight from these: what Pulsar's own reader gets, position by
position.

`MESSAGES=1000000` in the environment makes the long run so long, and with `-s` it prints both rates.
"""

import contextlib
import json
import os
import pathlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from quire.pulsar import Topics, connect
from tests.interop import peer
from tests.interop.ours import Bookies
from tests.interop.pulsar import capture
from tests.interop.pulsar.broker import Broker
from tests.pulsar.planted import of_ours, of_peer

# SPDX-License-Identifier: Apache-2.0

MESSAGES = int(os.environ.get("MESSAGES") or Random().randrange(15_000, 40_000))
SIZE, BATCH, KEYS, MS_PER_MESSAGE = 100, 50, 1000, 0.3
SECONDS_MAX = 3600
OF_STORES = ("/ledgers", "/managed-ledgers", "/schemas", "/admin")


@dataclass
class World:
    """A broker on our bookies, a client of it, and our reader."""

    folder: pathlib.Path
    metadata: str
    bookies: Bookies
    broker: Broker
    client: peer.Driver
    topics: Topics


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """With ledgers on two of four bookies, and each setting that makes messages of another kind."""
    folder = tmp_path_factory.mktemp("topics")
    with (
        peer.Cluster(bookies=0) as apache,
        Bookies(folder, apache.metadata, 4) as bookies,
        Broker(folder, apache.metadata, **capture.settings(interceptors=True)) as broker,
        broker.topics("transactions") as client,
        connect(apache.metadata) as topics,
    ):
        yield World(folder, apache.metadata, bookies, broker, client, topics)


def ours(world: World, topic: str, **options: Any) -> list[dict[str, Any]]:
    plan = world.topics.plan(capture.uri_of(topic), **options)
    return [of_ours(message) for message in world.topics.read(plan)]


@pytest.mark.parametrize("kind", capture.KINDS)
def test_each_kind_of_message(world: World, kind: str) -> None:
    """The same messages in the same order, with all that they have."""
    for topic in capture.write(world.broker, world.client, kind, kind):
        theirs = [of_peer(row) for row in capture.dumped(world.client, topic, world.folder, kind == "compacted")]
        if kind not in capture.LEFT:
            world.broker.ask("PUT", f"{capture.path_of(topic)}/unload")
        found = ours(world, topic, compacted=kind == "compacted")
        if kind == "open":  # no later entry confirms the last ones
            assert len(found) >= 9
            theirs = theirs[: len(found)]
        elif kind == "transactions":  # theirs stops at the one that is open
            assert [each["value"] for each in found[len(theirs) :]] == [b"after"]
            found = found[: len(theirs)]
        assert found == theirs
        for name in capture.SUBSCRIPTIONS if kind == "subscribed" else ():
            rest = [of_peer(row) for row in capture.rest(world.client, topic, name, world.folder)]
            world.broker.ask("PUT", f"{capture.path_of(topic)}/unload")
            left = ours(world, topic, subscription=name)
            assert left == sorted(rest, key=lambda each: each["position"])


def versions(world: World) -> dict[str, tuple[int, int]]:
    """The version of each node that a topic has anything to do with, and when it was changed."""
    zookeeper = KazooClient(world.broker.zookeeper)
    zookeeper.start()
    found = {}
    try:
        below = [root for root in OF_STORES if zookeeper.exists(root)]
        while below:
            path = below.pop()
            stat = zookeeper.exists(path)
            if stat is not None:
                found[path] = (stat.version, stat.mzxid)
                below += [f"{path}/{name}" for name in zookeeper.get_children(path)]
    finally:
        zookeeper.stop()
        zookeeper.close()
    return found


def test_nothing_is_changed(world: World) -> None:
    """No node, and no ledger is fenced: the producer goes on in the same one, which would have to be replaced."""
    topic = "unchanged"
    with world.broker.topics() as other:
        other.call("numbers", topic=capture.uri_of(topic), **{"from": 0, "to": 50})
        capture.until(world.broker, lambda found: found["entriesAddedCounter"] >= 50, stats(topic))
        before = versions(world)
        assert len(ours(world, topic)) >= 1
        assert world.topics.info(capture.uri_of(topic)).topic == capture.uri_of(topic)
        assert set(before) - set(versions(world)) == set()
        assert {path: found for path, found in versions(world).items() if before.get(path) != found} == {}
        ledgers = [each["ledgerId"] for each in world.broker.ask("GET", stats(topic))["ledgers"]]
        other.call("numbers", topic=capture.uri_of(topic), **{"from": 50, "to": 100})
        assert [each["ledgerId"] for each in world.broker.ask("GET", stats(topic))["ledgers"]] == ledgers
    world.broker.ask("PUT", f"{capture.path_of(topic)}/unload")
    assert len(ours(world, topic)) == 100


def stats(topic: str) -> str:
    return f"{capture.path_of(topic)}/internalStats"


def test_from_a_publish_time(world: World) -> None:
    """The first message that is not older, over many ledgers."""
    (topic,) = capture.write(world.broker, world.client, "rolled", "times")
    theirs = [of_peer(row) for row in capture.dumped(world.client, topic, world.folder)]
    for message in theirs[::3]:
        at = message["publish_ms"]
        assert ours(world, topic, start=at) == [each for each in theirs if each["publish_ms"] >= at]
        assert ours(world, topic, end=at) == [each for each in theirs if each["publish_ms"] < at]


@pytest.mark.timeout(SECONDS_MAX)
def test_beside_load_rollovers_and_a_killed_bookie(world: World) -> None:
    """What is confirmed while it is written is all there and stays the same; in the end it is all of Pulsar's."""
    topic = "load"
    failed: list[BaseException] = []
    with world.broker.topics() as other:
        keep = {"name": "keep", "acknowledged": 0}  # or the broker trims what no subscription wants
        other.call("subscribe", topic=capture.uri_of(topic), **keep)

        def produce() -> None:
            try:
                span = {"from": 0, "to": MESSAGES, "ms": int(MESSAGES * MS_PER_MESSAGE)}
                shape = {"size": SIZE, "batch": BATCH, "keys": KEYS}
                other.call("numbers", SECONDS_MAX, topic=capture.uri_of(topic), **shape, **span)
            except BaseException as error:
                failed.append(error)

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            seen, reads = 0, 0
            while producer.is_alive():
                with contextlib.suppress(LookupError):
                    seen = looked(world, topic, seen)
                    reads += 1
                if reads and seen > MESSAGES // 3:
                    world.bookies.kill(world.bookies.ids[0])
        finally:
            producer.join()
    assert failed == []
    assert reads > 1
    world.bookies.restart(world.bookies.ids[0])
    world.broker.ask("PUT", f"{capture.path_of(topic)}/unload")
    compared(world, topic)


def looked(world: World, topic: str, seen: int) -> int:
    """Reads all that is confirmed, which is numbered through; how much that is, no less than `seen`."""
    if topic not in {name.rpartition("/")[2] for name in world.topics.names("public/default")}:
        raise LookupError("not yet")
    plan = world.topics.plan(capture.uri_of(topic))
    values = [value for batch in world.topics.batches(plan) for value in batch.column("value")]
    assert [int(value) for value in values] == list(range(len(values)))
    assert len(values) >= seen
    return len(values)


def compared(world: World, topic: str) -> None:
    """Each message of Pulsar's reader beside ours, and the rates of a consumer and of ours."""
    file = world.folder / "load.jsonl"
    world.client.call("dump", SECONDS_MAX, topic=capture.uri_of(topic), file=file)
    with file.open() as lines:
        mine = world.topics.read(world.topics.plan(capture.uri_of(topic)))
        count = 0
        for line, message in zip_longest(lines, mine):
            assert of_peer(json.loads(line)) == of_ours(message)
            count += 1
    assert count == MESSAGES
    begun = time.perf_counter()
    plan = world.topics.plan(capture.uri_of(topic))
    assert sum(map(len, world.topics.batches(plan))) == MESSAGES
    seconds = time.perf_counter() - begun
    theirs = world.client.call("count", SECONDS_MAX, topic=capture.uri_of(topic), messages=MESSAGES)["seconds"]
    print(
        f"{MESSAGES} messages: one consumer {MESSAGES / theirs:,.0f}/s, "
        f"one process of ours {MESSAGES / seconds:,.0f}/s ({theirs / seconds:.2f})"
    )
