"""What is planned of Pulsar's topics, and its messages as columns."""

import pytest

from quire.conf.pipeline import PulsarReading
from quire.pipeline.clients import Cluster
from quire.pipeline.reading.pulsar import SCHEMA, TYPES, Planned, batches, between, named_topics, topics_of, version
from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import NoSuchTopic, NotRead
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.positions import Position
from quire.pulsar.core.ranges import TopicRange
from tests.client.fakes.cluster import FakeCluster
from tests.pipeline.reading.virtual import process
from tests.pulsar.planted import plant, rows

# SPDX-License-Identifier: Apache-2.0

T = "persistent://public/default/t"


def one(ledger: int, first: int, last: int) -> TopicRange:
    return TopicRange(T, ledger, first, last, Position(9, 9))


@pytest.fixture
def ours() -> Cluster:
    fake = FakeCluster()
    fake.spin(5)
    return process(fake)


def test_what_bookies_know_less_of_is_planned_all_the_same() -> None:
    """An offset was confirmed once: entries up to it are a task's to find."""
    closed, last = LedgerPart(7, 6, 60, 1), LedgerPart(8, 0, 0, 0)
    known = Planned({T: [one(7, 3, 5)]}, {T: Position(7, 5)}, {T: [closed, last]})
    start = {T: Position(7, 3)}
    assert between(known, start, {T: Position(7, 6)}) == [one(7, 3, 5)]
    assert between(known, start, {T: Position(7, 5)}) == [one(7, 3, 4)]
    (first, second) = between(known, start, {T: Position(7, 9)})
    assert (first[1:4], second[1:4]) == ((7, 3, 5), (7, 6, 8))
    (first, second) = between(known, start, {T: Position(8, 2)})
    assert (first[1:4], second[1:4]) == ((7, 3, 5), (8, 0, 1))
    assert [each[1:4] for each in between(known, start, {T: Position(8, 0)})] == [(7, 3, 5)]
    nothing = Planned({T: []}, {T: Position(7, 2)}, {T: [LedgerPart(7, 0, 0, 0)]})
    assert [each[1:4] for each in between(nothing, start, {T: Position(7, 5)})] == [(7, 3, 4)]
    assert between(nothing, start, start) == []
    unknown = Planned({T: []}, {T: Position(-1, -1)}, {T: [last]})
    assert between(unknown, {}, {T: Position(0, 0)}) == []
    for before in (Position(7, 6), Position(0, 6)):
        assert [each[1:4] for each in between(unknown, {T: before}, {T: Position(8, 2)})] == [(8, 0, 1)]
    for end in (Position(8, 0), Position(8, 2)):  # how much ledger 7 has is not known then
        with pytest.raises(NotRead, match=r"knows nothing of ledger 8 yet.* nor how ledger 7 ended"):
            between(nothing, start, {T: end})


def test_a_topic_of_the_checkpoint_that_is_gone() -> None:
    """It is named."""
    with pytest.raises(NoSuchTopic, match="in the stream's checkpoint and no longer there"):
        between(Planned({}, {}, {}), {T: Position(7, 3)}, {T: Position(7, 5)})


def test_names_of_topics(ours: Cluster) -> None:
    """In any form, or by a pattern of whole names, where the partitions of a topic are that topic."""
    for row in (*rows("partitioned"), *rows("single")):
        ours.wait(lambda row=row: plant(ours.client, row))  # type: ignore[misc]

    def named(**options: str) -> list[str]:
        given = PulsarReading.of({"metadata": "x", **options})
        return ours.wait(lambda: named_topics(topics_of(ours, given), given))

    assert named(topics="t, public/default/u") == [T, "persistent://public/default/u"]
    assert [name.rpartition("/")[2] for name in named(topicsPattern=".*")] == ["partitioned-plain", "single-plain"]


def test_a_ledger_that_is_gone(ours: Cluster) -> None:
    """Its messages fail the read, or are passed over."""
    (row,) = rows("rolled")
    topic = ours.wait(lambda: plant(ours.client, row))
    first = min(map(int, row["ledgers"]))
    ours.wait(lambda: ours.client.delete_ledger(first))
    ranges = [one(first, 0, 4)._replace(topic=topic), one(first + 1, 0, 4)._replace(topic=topic)]
    for lossy, found in ((False, 0), (True, 5)):
        options = PulsarReading.of({"metadata": "x", "topic": topic, "failOnDataLoss": str(not lossy)})
        if not lossy:
            with pytest.raises(NoSuchLedger, match=f"ledger {first} is gone"):
                list(batches(ours, ranges, ["value"], options, stream=False))
        else:
            made = list(batches(ours, ranges, ["value"], options, stream=False))
            assert sum(each.num_rows for each in made) == found


def test_columns() -> None:
    """Each has its type; a version is the number that brokers give."""
    assert SCHEMA.keys() == TYPES.keys()
    assert (version(None), version(b"\x00" * 7 + b"\x05"), version(b"other")) == (None, 5, None)
