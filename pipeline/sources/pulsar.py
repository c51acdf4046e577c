"""
`format("pulsar")`: messages of Pulsar's topics as rows, in batch queries and in streams, without a broker; read only.

Knows: what a plan, an offset and a limit of topics are for Spark.
Does not know: how messages are read.

An offset of a stream has the next place of each topic, a partition as a topic of its own, as LEDGER:ENTRY.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from quire.conf.pipeline import PulsarReading
from quire.pipeline import spark
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.core.positions import Places, advanced, grouped, up_to, within
from quire.pipeline.reading import pulsar as reading
from quire.pipeline.sources import table
from quire.pulsar.api import Position, TopicRange
from quire.pulsar.core.positions import parse_position

# SPDX-License-Identifier: Apache-2.0


class PulsarSource(table.Table):
    """The data source of `format("pulsar")`."""

    columns = reading.SCHEMA
    kinds = (PulsarReading,)
    naming = ("topic", "topics", "topicsPattern")

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def reader(self, schema: spark.StructType) -> "PulsarReader":
        return PulsarReader(self.given(PulsarReading, schema), table.wanted(schema, self.columns))

    def streamReader(self, schema: spark.StructType) -> "PulsarStream":
        options = self.given(PulsarReading, schema)
        if options.read_compacted:
            raise ValueError("option 'readCompacted' is for batch queries: a stream has each message")
        if options.unconfirmed:
            raise ValueError(
                "option 'unconfirmed' is for batch queries: after a failure of its broker what no entry confirms may"
                " come again, and a stream gives each message once"
            )
        return PulsarStream(options, table.wanted(schema, self.columns))

    def writer(self, schema: spark.StructType, overwrite: bool) -> spark.DataSourceArrowWriter:
        raise ValueError("topics of Pulsar are only read: write through a broker, with Pulsar's own client")

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> spark.DataSourceStreamArrowWriter:
        raise ValueError("topics of Pulsar are only read: write through a broker, with Pulsar's own client")


class PulsarRows(table.Rows[TopicRange]):
    """Messages of topics."""

    of_stream = False

    def __init__(self, options: PulsarReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def _ours(self) -> Cluster:
        return cluster(self._options.metadata)

    def planned(self, starts: Places | None = None, word: str = "") -> reading.Planned:
        ours, options = self._ours(), self._options
        return ours.wait(lambda: reading.planned(reading.topics_of(ours, options), options, starts, word))

    def divided(self, ranges: Sequence[TopicRange]) -> list[table.Task[TopicRange]]:
        options = self._options
        groups = grouped(ranges, options.split_bytes, options.max_partitions, options.tasks_min)
        return [table.Task(group) for group in groups]

    def batches(self, task: table.Task[TopicRange]) -> Iterator[Any]:
        return reading.batches(self._ours(), task.pieces, self._names, self._options, stream=self.of_stream)


class PulsarReader(PulsarRows, table.BatchReader[TopicRange]):
    """A batch query."""

    def __init__(self, options: PulsarReading, names: Sequence[str]) -> None:
        super().__init__(options, names)
        self._conditions = table.Conditions(("ledger_id", "entry_id"))
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def tasks(self) -> list[table.Task[TopicRange]]:
        ours, options = self._ours(), self._options
        found = self.planned(word="earliest")
        ends = ours.wait(lambda: reading.ending(reading.topics_of(ours, options), options, found))
        wanted = [part for topic, ranges in found.ranges.items() for part in up_to(ranges, ends[topic])]
        bounds = self._conditions.bounds
        return self.divided(within(wanted, bounds["ledger_id"], bounds["entry_id"]))


def offset(places: Places) -> table.Offset:
    """Returns places as Spark keeps them."""
    return {topic: str(place) for topic, place in sorted(places.items())}


def places(offset: table.Offset) -> dict[str, Position]:
    """Returns the places of an offset."""
    return {topic: parse_position(text) for topic, text in offset.items()}


class PulsarStream(PulsarRows, table.StreamReader[TopicRange]):
    """A stream."""

    of_stream = True

    def initialOffset(self) -> table.Offset:
        return offset(self.planned(word="latest").begins)

    def reportLatestOffset(self) -> table.Offset:
        ours, options = self._ours(), self._options
        return offset(ours.wait(lambda: reading.latest(reading.topics_of(ours, options), options)))

    def getDefaultReadLimit(self) -> spark.ReadLimit:
        most = self._options.max_entries_per_trigger
        return spark.ReadAllAvailable() if most is None else spark.ReadMaxRows(most)

    def latestOffset(self, start: table.Offset, limit: spark.ReadLimit) -> table.Offset:
        starts = places(start)
        found = self.planned(starts)
        if self.frozen is not None:
            ends = places(self.frozen)
            found = found.frozen(ends)
        most = limit.max_rows if isinstance(limit, spark.ReadMaxRows) else None
        return offset(found.onward(advanced(starts, found.ranges, found.lasts, most)))

    def partitions(self, start: table.Offset, end: table.Offset) -> list[table.Task[TopicRange]]:
        if start == end:
            return []
        starts = places(start)
        return self.divided(reading.between(self.planned(starts), starts, places(end)))
