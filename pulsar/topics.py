"""
The topics of a cluster of Pulsar: found, described, planned, read and followed.

Knows: which parts do what.  Does not know: formats.

Safety: nothing is fenced, and no node and no entry is written: all of it can be done beside a broker.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from quire.client.api import Client
from quire.conf.pulsar import PulsarOptions
from quire.metadata.clock import pause
from quire.pulsar.core.batch import MessageBatch
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.names import TopicName
from quire.pulsar.core.positions import EARLIEST, LATEST, Position
from quire.pulsar.core.ranges import TopicRange, end_of
from quire.pulsar.nodes import Nodes
from quire.pulsar.planning import Plan, Planning, Where, parse_place
from quire.pulsar.reading import RangeReading
from quire.pulsar.schemas import Schema, Schemas

# SPDX-License-Identifier: Apache-2.0


class Subscription(NamedTuple):
    """A subscription: all up to `mark` is acknowledged, and `behind` entries after that."""

    name: str
    mark: Position
    ranges: int
    backlog: int


class TopicInfo(NamedTuple):
    """
    A topic, or one partition of it.  `end`: the last position that may be read; `compacted`: the ledger of the
    compacted topic and the last position that it covers.
    """

    topic: str
    ledgers: tuple[LedgerPart, ...]
    end: Position
    entries: int
    bytes: int
    terminated: Position | None
    properties: dict[str, str]
    subscriptions: tuple[Subscription, ...]
    compacted: tuple[int, Position] | None


class Topics:
    """The topics of a cluster.  `close` ends the client, too, if `owns_client`."""

    def __init__(self, client: Client, options: PulsarOptions | None = None, *, owns_client: bool = False) -> None:
        self.client = client
        self.options = PulsarOptions.given(options)
        self._owns_client = owns_client
        self._nodes = Nodes(client.store, self.options.root)
        self._planning = Planning(client, self._nodes, self.options)
        self._schemas = Schemas(client, self._nodes)
        self._parts: dict[str, Sequence[LedgerPart]] = {}

    async def names(self, namespace: str | None = None, *, system: bool = False) -> AsyncGenerator[str, None]:
        """Yields the names of stored topics, of each partition by itself.  `system`: Pulsar's own, too."""
        async for name in self._nodes.topics(namespace, system=system):
            yield str(name)

    async def partitions(self, topic: str) -> list[str]:
        """The names of the stored partitions of a topic; of one without partitions its own.  `NoSuchTopic`."""
        return [str(each) for each in await self._nodes.partitions(TopicName.parse(topic))]

    async def info(self, topic: str) -> TopicInfo:
        """Describes a topic without partitions, or one partition.  `NoSuchTopic`, `MessageDamaged`, `NotRead`."""
        name = TopicName.parse(topic)
        found = await self._nodes.ledgers(name)
        segments = await self._planning.segments(name, found.ledgers)
        cursors = []
        for each in await self._nodes.subscriptions(name):
            place = await self._planning.place(name, each)
            ranges = [each for part in segments if part.last >= 0 for each in place.wanted(part.ledger, 0, part.last)]
            left = sum(high - low + 1 for low, high in ranges)
            cursors.append(Subscription(each, place.mark, len(place.ranges), left))
        return TopicInfo(
            str(name),
            found.ledgers,
            end_of(segments),
            sum(each.last + 1 for each in segments),
            sum(each.bytes for each in segments),
            found.terminated,
            dict(found.properties),
            tuple(cursors),
            await self._planning.compaction(name),
        )

    async def plan(
        self,
        topic: str,
        *,
        start: Where = "earliest",
        end: Where = "latest",
        subscription: str | None = None,
        compacted: bool = False,
    ) -> Plan:
        """
        Finds out what is to be read of a topic and all its partitions, up to what is confirmed now.

        `start`, `end`: a position, included; a publish time (the end is before it); `earliest`, `latest`; by name for
        partitions.  `subscription`: only what it has not acknowledged.  `compacted`: of each key the newest, as far as
        Pulsar has compacted the topic.
        """
        return await self._planning.plan(topic, start, end, subscription, compacted)

    def read_range(self, wanted: TopicRange) -> AsyncGenerator[MessageBatch, None]:
        """Yields the messages of one range of a plan, which may come from another process."""
        return RangeReading(self.client, self, wanted, self.options).batches()

    async def batches(self, plan: Plan) -> AsyncGenerator[MessageBatch, None]:
        """Yields the messages of a plan, range by range."""
        for each in plan.ranges:
            async with aclosing(self.read_range(each)) as found:
                async for batch in found:
                    yield batch

    async def follow(
        self, topic: str, timeout: float, *, start: Where = "latest", subscription: str | None = None
    ) -> AsyncGenerator[MessageBatch, None]:
        """
        Yields messages as they are confirmed, until none has come for so many seconds; none of an open transaction, nor
        what is behind it in its partition.
        """
        clock = self.client.reactor
        silent_since = clock.seconds()
        places = start_places(topic, start)
        plan = await self.plan(topic, start=start, subscription=subscription)
        while True:
            following = {
                name: max(Position(last.ledger, last.entry + 1), places.get(name, EARLIEST))
                for name, last in plan.ends.items()
            }
            stopped: set[str] = set()
            for each in plan.ranges:
                if each.topic in stopped:
                    continue
                reading = RangeReading(self.client, self, each, self.options, stop_at_open=True)
                async with aclosing(reading.batches()) as found:
                    async for batch in found:
                        silent_since = clock.seconds()
                        yield batch
                if reading.stopped is not None:
                    stopped.add(each.topic)
                    following[each.topic] = reading.stopped
            if clock.seconds() - silent_since >= timeout:
                return
            places = following
            await pause(clock, self.options.poll_ms / 1000)
            plan = await self.plan(topic, start=places)

    async def schema(self, topic: str, version: bytes) -> Schema:
        """The schema of a message's `schema_version`.  `NoSuchSchema`, `MessageDamaged`."""
        return await self._schemas.schema(TopicName.parse(topic), version)

    async def parts(self, topic: str, end: int) -> Sequence[LedgerPart]:
        """The ledgers of a topic, at least as new as the one with the id `end`."""
        known = self._parts.get(topic)
        if not known or known[-1].ledger < end:
            known = self._parts[topic] = (await self._nodes.ledgers(TopicName.parse(topic))).ledgers
        return known

    async def close(self) -> None:
        """Ends the client, if it was opened for this."""
        if self._owns_client:
            await self.client.close()


def start_places(topic: str, start: Where) -> dict[str, Position]:
    """The positions that a caller names, which may be ahead of what is there."""
    given = start if isinstance(start, Mapping) else {str(TopicName.parse(topic)): start}
    placed = {name: parse_place(each) for name, each in given.items()}
    return {name: each for name, each in placed.items() if isinstance(each, Position) and each != LATEST}
