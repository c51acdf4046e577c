"""
Pulsar's topics: what a plan finds out about them, and their messages as Arrow batches.

Knows: which topics the options name, where a query of them begins and ends, messages in columns.
Does not know: Spark, how entries become messages (`quire.pulsar`).

Safety: nothing is fenced and no node is changed.  What a plan, or an earlier batch of a stream, knew to be confirmed is
read whatever the bookies know that are asked now, or the read fails.  A stream passes over no message of a transaction
that has not ended.
"""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic.alias_generators import to_camel

from quire.conf.pipeline import PulsarReading
from quire.conf.pulsar import PulsarOptions
from quire.metadata.store import at_once
from quire.pipeline import columns
from quire.pipeline.clients import Cluster
from quire.pipeline.core.positions import (
    Places,
    after,
    before,
    begin,
    is_lost,
    named,
    offsets_of,
    onward,
    up_to,
)
from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import NoSuchTopic, NotRead
from quire.pulsar import arrow
from quire.pulsar.api import MessageBatch, Plan, Position, TopicRange, Topics, Where
from quire.pulsar.core.chunks import CHUNK_BYTES, LOOK_BACK
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.names import TopicName
from quire.pulsar.core.positions import EARLIEST, LATEST, parse_position

# SPDX-License-Identifier: Apache-2.0

SCHEMA = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "ledger_id": "bigint",
    "entry_id": "bigint",
    "batch_index": "int",
    "batch_size": "int",
    "publish_time": "timestamp",
    "event_time": "timestamp",
    "producer": "string",
    "sequence_id": "bigint",
    "properties": "map<string,string>",
    "schema_version": "bigint",
    "ordering_key": "binary",
    "topic_index": "bigint",
    "broker_time": "timestamp",
    "replicated_from": "string",
    "encrypted": "boolean",
}
TYPES = {name: found.type for name, found in zip(arrow.SCHEMA.names, arrow.SCHEMA, strict=True)} | {
    "partition": pa.int32(),
    "schema_version": pa.int64(),
}
TIMES = ("publish_time", "event_time", "broker_time")
TYPES |= dict.fromkeys(TIMES, columns.STAMP)
DERIVED = (*TIMES, "partition", "schema_version")  # columns that are of another type here, or not there
VERSION_BYTES = 8  # of a version that brokers give
WORDS = {"earliest": EARLIEST, "latest": LATEST}
BEGINS = ("starting_offsets", "starting_timestamp", "subscription")  # options
PLANNED_AT_ONCE = 16  # topics, each with all of its partitions


class Planned(NamedTuple):
    """Ranges to be read of each topic, a partition as a topic of its own, its last position, and its ledgers."""

    ranges: dict[str, list[TopicRange]]
    lasts: dict[str, Position]
    ledgers: dict[str, Sequence[LedgerPart]]

    @property
    def ends(self) -> dict[str, Position]:
        """The next place of each topic."""
        return self.onward({topic: after(last) for topic, last in self.lasts.items()})

    @property
    def begins(self) -> dict[str, Position]:
        """The first place of each topic that is planned."""
        return self.onward({topic: begin(ranges, self.lasts[topic]) for topic, ranges in self.ranges.items()})

    def onward(self, places: Places) -> dict[str, Position]:
        """The places, those behind all of a closed ledger in the next one."""
        return {topic: onward(place, self.ledgers.get(topic, ())) for topic, place in places.items()}

    def frozen(self, ends: Places) -> "Planned":
        """Leaves of each topic what is before its end, and no topic that has none."""
        return Planned(
            {topic: up_to(self.ranges[topic], end) for topic, end in ends.items() if topic in self.ranges},
            {topic: min(self.lasts[topic], before(end)) for topic, end in ends.items() if topic in self.lasts},
            self.ledgers,
        )


def topics_of(ours: Cluster, options: PulsarReading) -> Topics:
    """The topics of a cluster, as these options want them read."""
    given = PulsarOptions(
        root=options.root,
        batch_bytes=options.batch_bytes,
        split_bytes=1 << 62,  # tasks are divided here
        chunk_bytes_max=options.chunk_bytes_max,
        look_back_max=options.look_back_max,
        unconfirmed=options.unconfirmed,
    )
    return Topics(ours.client, given)


async def named_topics(topics: Topics, options: PulsarReading) -> list[str]:
    """The topics that the options mean, of partitions the topic.  `NoSuchTopic` for a name or a pattern without one."""
    if options.topics_pattern is None:
        given = [options.topic] if options.topic is not None else (options.topics or "").split(",")
        return [str(TopicName.parse(each.strip())) for each in given]
    pattern = re.compile(options.topics_pattern)
    found: set[str] = set()
    async for name in topics.names():
        base = str(TopicName.parse(name).base)
        if pattern.fullmatch(base):
            found.add(base)
    if not found:
        raise NoSuchTopic(
            f"no topic matches {options.topics_pattern!r}, which a whole name has to, as "
            "persistent://public/default/orders: `quire pulsar topics` lists them"
        )
    return sorted(found)


async def planned(topics: Topics, options: PulsarReading, starts: Places | None = None, word: str = "") -> Planned:
    """
    Plans what is to be read of all topics up to what is confirmed now: from `starts` on, new topics from their begin;
    without them as the options say, or from where `word` says.
    """
    names = await named_topics(topics, options)
    ranges: dict[str, list[TopicRange]] = {}
    lasts: dict[str, Position] = {}
    ledgers: dict[str, Sequence[LedgerPart]] = {}
    for at in range(0, len(names), PLANNED_AT_ONCE):
        some = names[at : at + PLANNED_AT_ONCE]
        plans = await at_once([_plan(topics, options, name, starts, word) for name in some])
        for plan in plans:
            for topic, last in plan.ends.items():
                ranges[topic] = [each for each in plan.ranges if each.topic == topic]
                lasts[topic] = last
            ledgers |= plan.ledgers
    if options.fail_on_data_loss and starts is not None:
        for topic, there in ledgers.items():
            check_kept(topic, there, starts.get(topic, EARLIEST))
    return Planned(ranges, lasts, ledgers)


async def latest(topics: Topics, options: PulsarReading) -> dict[str, Position]:
    """
    The next place of each topic.  Where the options begin is not asked for: a stream that is there is past it, and it
    may be gone.
    """
    plain = options.model_copy(update=dict.fromkeys(BEGINS))
    return (await planned(topics, plain, word="latest")).ends


async def _plan(topics: Topics, options: PulsarReading, name: str, starts: Places | None, word: str) -> Plan:
    if starts is not None:
        return await topics.plan(name, start=dict(starts))
    start: Where = word
    if options.starting_ms is not None:
        start = options.starting_ms
    elif options.subscription is not None:
        start = "earliest"
    elif options.starting_offsets is not None:
        places = offsets_of(options.starting_offsets, "startingOffsets")
        given = {part: named(places, part, "startingOffsets") for part in await topics.partitions(name)}
        found = {part: WORDS[place] if place in WORDS else parse_position(place) for part, place in given.items()}
        if options.fail_on_data_loss:
            for part, place in found.items():
                check_kept(part, await topics.parts(part, LATEST.ledger), place)
        start = found
    return await topics.plan(name, start=start, subscription=options.subscription, compacted=options.read_compacted)


def check_kept(topic: str, ledgers: Sequence[LedgerPart], place: Position) -> None:
    """`NoSuchLedger` if messages from a place on may have been trimmed."""
    kept = [part.ledger for part in ledgers]
    if place not in (EARLIEST, LATEST) and is_lost(kept, place):
        raise NoSuchLedger(
            f"{topic} begins in ledger {kept[0]}: messages from {place} on were trimmed; failOnDataLoss=false passes "
            "over them"
        )


async def ending(topics: Topics, options: PulsarReading, found: Planned) -> dict[str, Position]:
    """The place before which a batch query ends, of each topic."""
    if options.ending_offsets is None:
        return found.ends
    places = offsets_of(options.ending_offsets, "endingOffsets")
    ends = {}
    for topic, last in found.lasts.items():
        place = named(places, topic, "endingOffsets")
        ends[topic] = {"latest": after(last), "earliest": Position(0, 0)}.get(place) or parse_position(place)
    return ends


def between(found: Planned, starts: Places, ends: Places) -> list[TopicRange]:
    """
    The ranges from one offset of a stream to the next: all of them, for an offset was confirmed once, and bookies that
    are asked now may know less of an open ledger.  `NotRead` where the metadata knows less: not of the ledger.
    """
    ranges: list[TopicRange] = []
    for topic, end in ends.items():
        last = found.lasts.get(topic)
        if last is None:
            raise NoSuchTopic(f"{topic} is in the stream's checkpoint and no longer there: begin with a new checkpoint")
        ranges += up_to(found.ranges[topic], end)
        known = max(after(last), starts.get(topic, Position(0, 0)))
        if known.place >= end.place:
            continue
        if (there := found.ledgers[topic]) and there[-1].ledger < end.ledger:
            raise NotRead(
                f"{topic}: the metadata store knows nothing of ledger {end.ledger} yet, to which a batch of the stream"
                f" goes, nor how ledger {there[-1].ledger} ended: start the stream again"
            )
        first = known.entry if known.ledger == end.ledger else 0
        if end.entry > first:
            ranges.append(TopicRange(topic, end.ledger, first, end.entry - 1, before(end)))
    return ranges


def batches(
    ours: Cluster, ranges: Sequence[TopicRange], names: Sequence[str], options: PulsarReading, *, stream: bool
) -> Iterator[Any]:
    """
    Arrow batches of these ranges.  `NotRead` for a message in chunks above the options' bounds, and in a stream for one
    of an open transaction.
    """
    return ours.each(lambda: _batches(topics_of(ours, options), ranges, names, options, stream))


async def _batches(
    topics: Topics, ranges: Sequence[TopicRange], names: Sequence[str], options: PulsarReading, stream: bool
) -> AsyncGenerator[Any, None]:
    gathered, size = list[Any](), 0
    for wanted in ranges:
        try:
            async with aclosing(topics.read_range(wanted)) as found:
                async for batch in found:
                    refuse(wanted.topic, batch, stream)
                    if not len(batch):
                        continue
                    gathered.append(rows(batch, names))
                    size += batch.bytes
                    if size >= options.batch_bytes:
                        yield columns.joined(gathered)
                        gathered, size = [], 0
        except NoSuchLedger:
            if options.fail_on_data_loss:
                raise
    if gathered:
        yield columns.joined(gathered)


def refuse(topic: str, batch: MessageBatch, stream: bool) -> None:
    """
    `NotRead` names a message that was given up for a bound, or one of a transaction that may still be committed: a
    stream would never give it.
    """
    for position, why, text in batch.passed:
        if why in (CHUNK_BYTES, LOOK_BACK):
            more = f"option {to_camel(why)!r} allows more"
            raise NotRead(f"{topic}: the message at {position} is not read: {text}; {more}")
        if why == "open" and stream:
            raise NotRead(
                f"{topic}: the message at {position} is not committed, for {text}: start the stream again when it has "
                "ended, or end it, as its producer or `pulsar-admin transactions abort-transaction` does"
            )


def rows(batch: MessageBatch, names: Sequence[str]) -> Any:
    """Makes a batch of messages."""
    plain = [name for name in names if name not in DERIVED]
    found = dict(zip(plain, arrow.record_batch(batch, plain).columns, strict=True))
    makers: dict[str, columns.Column] = {
        "partition": lambda: pa.array(partitions(batch.column("topic")), pa.int32()),
        "schema_version": lambda: pa.array(map(version, batch.column("schema_version")), pa.int64()),
        **{name: partial(stamps, batch, arrow.FIELDS[name][0]) for name in TIMES},
        **{name: partial(found.__getitem__, name) for name in plain},
    }
    return columns.batch(names, makers, TYPES)


def stamps(batch: MessageBatch, field: str) -> Any:
    """Makes a column of times, null for one that Spark's type has not."""
    return columns.stamps(batch.column(field))


def partitions(topics: Sequence[str]) -> Iterator[int]:
    """The number of the partition of each topic; -1: it has none."""
    known: dict[str, int] = {}
    for topic in topics:
        if topic not in known:
            known[topic] = TopicName.parse(topic).partition
        yield known[topic]


def version(given: bytes | None) -> int | None:
    """The number of a schema; None where there is none, or one that no broker gives."""
    return int.from_bytes(given, "big", signed=True) if given is not None and len(given) == VERSION_BYTES else None
