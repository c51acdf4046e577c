"""`format("pulsar")` as Spark calls it, without Spark, over topics that a real broker wrote."""

import json
import pickle
from operator import itemgetter
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, LessThan

from quire.pipeline.clients import Cluster
from quire.pipeline.sources import pulsar as module
from quire.pipeline.sources.pulsar import PulsarSource
from quire.pipeline.sources.table import Task, ddl
from quire.pipeline.spark import ReadAllAvailable, ReadMaxRows
from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import NoSuchTopic, NotRead
from tests.client.fakes.cluster import FakeCluster
from tests.pipeline.reading.virtual import process
from tests.pipeline.sources.test_schema import structure
from tests.pulsar import made
from tests.pulsar.broker import Broker
from tests.pulsar.planted import of_peer, plant, rows

# SPDX-License-Identifier: Apache-2.0

ALL = structure(**PulsarSource.columns)
SOME = structure(value="binary", ledger_id="bigint", entry_id="bigint")


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster on virtual time, which all processes have."""
    fake = FakeCluster()
    fake.spin(5)
    made = process(fake)
    monkeypatch.setattr(module, "cluster", lambda uri: made)
    return made


def planted(ours: Cluster, kind: str) -> str:
    """The topics of this kind in the cluster; the name of the last one."""
    return [ours.wait(lambda row=row: plant(ours.client, row)) for row in rows(kind)][-1]  # type: ignore[misc]


def source(ours: Cluster, **options: Any) -> PulsarSource:
    return PulsarSource({"metadata": ours.uri, **{key: str(value) for key, value in options.items()}})


def read(reader: Any, tasks: list[Task[Any]]) -> list[dict[str, Any]]:
    return [row for task in tasks for found in reader.read(task) for row in found.to_pylist()]


def queried(ours: Cluster, **options: Any) -> list[dict[str, Any]]:
    reader = pickle.loads(pickle.dumps(source(ours, **options).reader(ALL)))
    return read(reader, pickle.loads(pickle.dumps(reader.partitions())))


def of_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the words of `planted`."""

    def ms(name: str) -> int | None:
        return None if row[name] is None else round(row[name].timestamp() * 1000)

    version = row["schema_version"]
    same = ("key", "value", "ordering_key", "producer", "sequence_id", "topic_index", "encrypted")
    return {
        **{name: row[name] for name in same},
        "schema_version": None if version is None else version.to_bytes(8, "big"),
        "position": (row["ledger_id"], row["entry_id"], row["batch_index"]),
        "properties": dict(row["properties"]),
        "publish_ms": ms("publish_time"),
        "event_ms": ms("event_time"),
        "broker_ms": ms("broker_time"),
    }


@pytest.mark.parametrize("interceptors", [False, True])
@pytest.mark.parametrize("kind", ["single", "batched", "zlib", "chunked", "json", "rolled", "trimmed"])
def test_each_column(ours: Cluster, kind: str, interceptors: bool) -> None:
    """As Pulsar's own reader has it."""
    for row in rows(kind, interceptors):
        topic = ours.wait(lambda row=row: plant(ours.client, row))  # type: ignore[misc]
        found = queried(ours, topic=topic, splitBytes=500)
        assert list(map(of_row, found)) == list(map(of_peer, row["messages"]))
        assert {(each["topic"], each["partition"]) for each in found} == {(topic, -1)}


def test_partitions_and_patterns(ours: Cluster) -> None:
    """All partitions of a topic, several topics, or those of a pattern, each message with its partition."""
    planted(ours, "partitioned")
    planted(ours, "single")
    name, messages = "persistent://public/default/partitioned-plain", [row["messages"] for row in rows("partitioned")]
    for options in ({"topic": name}, {"topicsPattern": ".*/part.*"}, {"topics": f"{name}-partition-0,{name}"}):
        found = queried(ours, **options)
        parts = [[of_row(row) for row in found if row["partition"] == number] for number in range(3)]
        assert parts == [list(map(of_peer, each)) for each in messages]
    assert len(queried(ours, topicsPattern="persistent://public/.*")) == sum(map(len, messages)) + 9
    for wrong in ("nothing.*", "partitioned-plain"):
        with pytest.raises(NoSuchTopic, match="no topic matches"):
            queried(ours, topicsPattern=wrong)


def test_from_and_to_a_place(ours: Cluster) -> None:
    """A position, a time, what a subscription has not acknowledged; the message at the end is left out."""
    (row,) = rows("rolled")
    topic, messages = planted(ours, "rolled"), [of_peer(each) for each in row["messages"]]
    ledgers = [message["position"][0] for message in messages]
    for first, end in ((0, 20), (3, 17), (5, 15), (7, 7), (19, 20)):
        start = json.dumps({topic: "{}:{}".format(*messages[first]["position"])})
        stop = "latest" if end == 20 else json.dumps({topic: "{}:{}".format(*messages[end]["position"])})
        found = queried(ours, topic=topic, startingOffsets=start, endingOffsets=stop)
        assert list(map(of_row, found)) == messages[first:end]
    assert queried(ours, topic=topic, startingOffsets="latest") == []
    assert queried(ours, topic=topic, endingOffsets="earliest") == []
    assert len(queried(ours, topic=topic, endingOffsets=json.dumps({topic: f"{ledgers[5]}:0"}))) == 5
    at = messages[10]["publish_ms"]
    found = queried(ours, topic=topic, startingTime=at)
    assert list(map(of_row, found)) == [each for each in messages if each["publish_ms"] >= at]
    (row,) = rows("subscribed")
    topic = planted(ours, "subscribed")
    for name, rest in row["rest"].items():
        left = sorted(map(of_peer, rest), key=itemgetter("position"))
        assert list(map(of_row, queried(ours, topic=topic, subscription=name))) == left


def test_to_a_place_within_a_batch(ours: Cluster) -> None:
    """The messages before it are read; a query from there has the others."""
    (row,) = rows("batched")
    topic, messages = planted(ours, "batched"), [of_peer(each) for each in row["messages"]]
    batch = next(at for at, each in enumerate(messages) if each["position"][2] == 2)
    for at in range(batch - 2, batch + 1):
        place = json.dumps({topic: "{}:{}:{}".format(*messages[at]["position"])})
        assert list(map(of_row, queried(ours, topic=topic, endingOffsets=place))) == messages[:at]
        assert list(map(of_row, queried(ours, topic=topic, startingOffsets=place))) == messages[at:]
        assert queried(ours, topic=topic, startingOffsets=place, endingOffsets=place) == []


def test_conditions_and_compaction(ours: Cluster) -> None:
    """Conditions on positions reach the plan; of a compacted topic there is the newest message of each key."""
    (row,) = rows("rolled")
    topic, messages = planted(ours, "rolled"), [of_peer(each) for each in row["messages"]]
    ledger = messages[7]["position"][0]
    reader = pickle.loads(pickle.dumps(source(ours, topic=topic).reader(ALL)))
    assert len(list(reader.pushFilters([EqualTo(("ledger_id",), ledger), LessThan(("entry_id",), 3)]))) == 2
    assert list(map(of_row, read(reader, reader.partitions()))) == messages[5:8]
    (row,) = rows("compacted")
    topic, messages = planted(ours, "compacted"), [of_peer(each) for each in row["messages"]]
    assert list(map(of_row, queried(ours, topic=topic, readCompacted=True))) == messages
    assert len(queried(ours, topic=topic)) > len(messages)


def test_options_of_batch_queries(ours: Cluster) -> None:
    """A stream refuses them: it gives each message, and once."""
    for option in ("readCompacted", "unconfirmed"):
        with pytest.raises(ValueError, match=f"'{option}' is for batch queries"):
            source(ours, topic="t", **{option: True}).streamReader(ALL)
        assert source(ours, topic="t", **{option: True}).reader(ALL)


def test_a_stream(ours: Cluster) -> None:
    """From offset to offset, limited by entries, and to a frozen end when only that is wanted."""
    (row,) = rows("rolled")
    topic, messages = planted(ours, "rolled"), [of_peer(each) for each in row["messages"]]
    stream = source(ours, topic=topic, startingOffsets="earliest", maxEntriesPerTrigger=7).streamReader(ALL)
    assert stream.getDefaultReadLimit() == ReadMaxRows(7)
    assert isinstance(source(ours, topic=topic).streamReader(ALL).getDefaultReadLimit(), ReadAllAvailable)
    at = json.loads(json.dumps(stream.initialOffset()))
    assert at == {topic: f"{messages[0]['position'][0]}:0"}
    found: list[dict[str, Any]] = []
    for count in (7, 7, 6, 0):
        end = json.loads(json.dumps(stream.latestOffset(at, ReadMaxRows(7))))
        some = [of_row(each) for each in read(stream, stream.partitions(at, end))]
        assert len(some) == count
        found, at = found + some, end
    assert found == messages
    assert at == stream.reportLatestOffset() == source(ours, topic=topic).streamReader(ALL).initialOffset()
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == at
    stream.frozen = {topic: f"{messages[8]['position'][0]}:2"}
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == stream.frozen


def test_a_stream_of_trimmed_messages(ours: Cluster) -> None:
    """It fails, or passes over them when it may."""
    (row,) = rows("trimmed")
    topic, kept = planted(ours, "trimmed"), [of_peer(each) for each in row["messages"]]
    gone = {topic: f"{kept[0]['position'][0] - 1}:3"}
    with pytest.raises(NoSuchLedger, match=rf"messages from {gone[topic]} on were trimmed"):
        source(ours, topic=topic).streamReader(ALL).latestOffset(gone, ReadAllAvailable())
    with pytest.raises(NoSuchLedger, match="were trimmed"):
        queried(ours, topic=topic, startingOffsets=json.dumps(gone))
    stream = source(ours, topic=topic, failOnDataLoss="false").streamReader(ALL)
    end = stream.latestOffset(gone, ReadAllAvailable())
    assert list(map(of_row, read(stream, stream.partitions(gone, end)))) == kept


NODE, T = "public/default/persistent/quiet", "persistent://public/default/quiet"


def message(value: bytes) -> bytes:
    return made.entry(made.metadata(), value)


class Follower:
    """A stream of one topic that is triggered by the test, and begun again each time."""

    def __init__(self, ours: Cluster, **options: Any) -> None:
        self._new = lambda: source(ours, topic=T, startingOffsets="earliest", **options).streamReader(ALL)
        self.at = self._new().initialOffset()

    def trigger(self) -> list[bytes]:
        stream = self._new()
        end = stream.latestOffset(self.at, stream.getDefaultReadLimit())
        found = [row["value"] for row in read(stream, stream.partitions(self.at, end))]
        self.at = end
        return found


@pytest.mark.parametrize("options", [{}, {"maxEntriesPerTrigger": 2}])
def test_a_quiet_stream_and_the_end_of_a_ledger(ours: Cluster, options: dict[str, Any]) -> None:
    """A closed ledger that was read to its last entry may be trimmed once the stream has seen the next one."""
    broker = Broker(ours.client)
    first = ours.wait(lambda: broker.topic(NODE, [message(b"a"), message(b"b")], closed=False))
    follower = Follower(ours, **options)
    assert follower.trigger() == [b"a"]
    ours.wait(lambda: broker.rolled(NODE))
    assert (follower.trigger(), follower.at) == ([b"b"], {T: f"{first}:2"})
    empty = ours.wait(lambda: broker.topic(NODE, [], closed=False))
    assert (follower.trigger(), follower.at) == ([], {T: f"{empty}:0"})
    ours.wait(lambda: broker.forgotten(NODE, empty))  # its broker has begun again
    second = ours.wait(lambda: broker.topic(NODE, [], closed=False))
    assert (follower.trigger(), follower.at) == ([], {T: f"{second}:0"})
    ours.wait(lambda: broker.forgotten(NODE, first))
    assert (follower.trigger(), follower.at) == ([], {T: f"{second}:0"})
    for value in (b"c", b"d", b"e"):
        ours.wait(lambda value=value: broker.append(NODE, message(value)))  # type: ignore[misc]
    assert follower.trigger() == [b"c", b"d"]
    ours.wait(lambda: broker.rolled(NODE))
    ours.wait(lambda: broker.topic(NODE, [], closed=False))
    ours.wait(lambda: broker.forgotten(NODE, second))
    with pytest.raises(NoSuchLedger, match=f"messages from {second}:2 on were trimmed"):
        follower.trigger()


def test_a_limit_at_the_end_of_a_ledger(ours: Cluster) -> None:
    """What is behind it is in the next one, so that the ledger may be trimmed."""
    broker = Broker(ours.client)
    first = ours.wait(lambda: broker.topic(NODE, [message(b"a"), message(b"b")]))
    second = ours.wait(lambda: broker.topic(NODE, [message(b"c"), message(b"d")]))
    new = source(ours, topic=T).streamReader(ALL)
    ours.wait(lambda: broker.topic(NODE, [], closed=False))
    follower = Follower(ours, maxEntriesPerTrigger=2)
    assert (follower.trigger(), follower.at) == ([b"a", b"b"], {T: f"{second}:0"})
    ours.wait(lambda: broker.forgotten(NODE, first))
    assert (follower.trigger(), follower.at) == ([b"c", b"d"], new.initialOffset())
    assert follower.at == new.reportLatestOffset() == {T: f"{second + 1}:0"}
    ours.wait(lambda: broker.forgotten(NODE, second))
    assert follower.trigger() == []


def test_how_far_topics_are_whatever_a_stream_began_with(ours: Cluster) -> None:
    """A report asks for the ends alone: where the stream began may be trimmed, or its subscription deleted, by now."""
    (row,) = rows("trimmed")
    topic, kept = planted(ours, "trimmed"), [of_peer(each) for each in row["messages"]]
    end = source(ours, topic=topic).streamReader(ALL).reportLatestOffset()
    for began in (
        {"startingOffsets": json.dumps({topic: f"{kept[0]['position'][0] - 1}:3"})},
        {"startingOffsets": json.dumps({"persistent://public/default/another": "12:0"})},
        {"startingOffsets": "earliest"},
        {"startingTimestamp": kept[0]["publish_ms"]},
        {"subscription": "deleted"},
    ):
        stream = source(ours, topic=topic, **began).streamReader(ALL)
        assert stream.reportLatestOffset() == end
        stream.prepareForTriggerAvailableNow()
        start = {topic: "{}:{}".format(*kept[0]["position"])}
        assert stream.latestOffset(start, ReadAllAvailable()) == stream.frozen == end


def test_a_stream_and_transactions(ours: Cluster) -> None:
    """Aborted messages are passed over; a message of an open transaction is not: the stream waits for its end."""
    (row,) = rows("transactions")
    topic, seen = planted(ours, "transactions"), [of_peer(each) for each in row["messages"]]
    assert list(map(of_row, queried(ours, topic=topic)))[: len(seen)] == seen
    stream = source(ours, topic=topic, startingOffsets="earliest").streamReader(ALL)
    start = stream.initialOffset()
    with pytest.raises(NotRead, match=r"is not committed, for transaction \(.*\) is open: start the stream again"):
        read(stream, stream.partitions(start, stream.latestOffset(start, ReadAllAvailable())))
    ledger, entry, _batch = seen[-1]["position"]
    before = {topic: f"{ledger}:{entry + 1}"}
    assert list(map(of_row, read(stream, stream.partitions(start, before)))) == seen


def chunks(value: bytes, count: int, name: str) -> list[bytes]:
    """The entries of a message."""
    size = -(-len(value) // count)
    return [
        made.entry(
            made.metadata((26, name), (27, count), (28, len(value)), (29, number)),
            value[number * size : (number + 1) * size],
        )
        for number in range(count)
    ]


def test_messages_in_chunks_above_the_bounds(ours: Cluster) -> None:
    """They fail a query and a stream, which name the option, for they may be whole; one that lacks chunks does not."""
    broker, topic = Broker(ours.client), "persistent://public/default/chunks"
    one, two, gone = chunks(b"1" * 90, 2, "one"), chunks(b"2" * 30, 2, "two"), chunks(b"g" * 9, 3, "gone")
    node = "public/default/persistent/chunks"
    ours.wait(lambda: broker.topic(node, [gone[0], gone[2], one[0], two[0], two[1]]))
    last = ours.wait(lambda: broker.topic(node, [one[1]]))

    def found(stream: bool, **options: Any) -> list[dict[str, Any]]:
        if not stream:
            return queried(ours, topic=topic, **options)
        reader = source(ours, topic=topic, startingOffsets="earliest", **options).streamReader(ALL)
        start = reader.initialOffset()
        return read(reader, reader.partitions(start, reader.latestOffset(start, ReadAllAvailable())))

    for stream in (False, True):
        assert [row["value"] for row in found(stream)] == [b"2" * 30, b"1" * 90]
        assert len(found(stream, lookBackMax=3, chunkBytesMax=46)) == 2
        with pytest.raises(NotRead, match=f"at {last}:0 is not read: .*'one' in 2 chunks.*'lookBackMax' allows more"):
            found(stream, lookBackMax=2)
    ours.wait(lambda: broker.topic(node, [one[0], two[0], two[1], one[1]]))
    for stream in (False, True):
        with pytest.raises(NotRead, match=rf"at {last + 1}:3 is not read: .*'one' .*'chunkBytesMax' allows more"):
            found(stream, chunkBytesMax=46)


def test_what_is_written(ours: Cluster) -> None:
    """Is refused: brokers write."""
    for begin in (source(ours, topic="t").writer, source(ours, topic="t").streamWriter):
        with pytest.raises(ValueError, match="topics of Pulsar are only read"):
            begin(SOME, False)
    assert "`properties` map<string,string>" in ddl(PulsarSource.columns) == source(ours, topic="t").schema()
    assert PulsarSource.name() == "pulsar"
