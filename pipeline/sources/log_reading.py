"""
`format("log")` as a source: records of one log or of several as rows, in batch queries and in streams.

Knows: what a plan and an offset of logs are for Spark; which logs there are changes between two batches of a stream;
when Spark says what of a stream is done.
Does not know: how records are read, what options mean (`reading.places`), how offsets are written (`core.offsets`).

A log that a stream has no place of yet is read from its index 0 on.  A stream's cursor follows what is done, no more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from quire.conf.pipeline import LogsReading
from quire.log.api import Cursor, Start
from quire.pipeline import spark
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.core.offsets import Position, encoded, positions_in, shared
from quire.pipeline.core.ranges import Range
from quire.pipeline.reading import kafka, places, topics
from quire.pipeline.reading import logs as reading
from quire.pipeline.reading.places import Places
from quire.pipeline.reading.topics import Partition
from quire.pipeline.sources import table
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import NoSuchLog

# SPDX-License-Identifier: Apache-2.0

END = Places("end", "end")


@dataclass
class LogTask(table.Task[Range]):
    """Ranges of one partition, whose log has that id."""

    of: Partition
    log: str


class Span(NamedTuple):
    """The records of a partition from `first` to before `end`, and the id of its log."""

    of: Partition
    log: str
    first: int
    end: int

    @property
    def count(self) -> int:  # type: ignore[override]  # tuple has a method of that name, which nobody needs here
        """How many they are."""
        return max(0, self.end - self.first)


class LogRows(table.Rows[Range]):
    """Records of logs."""

    def __init__(self, options: LogsReading, names: Sequence[str]) -> None:
        self._options = options
        self._names = names

    def _ours(self) -> Cluster:
        return cluster(self._options.metadata)

    def chosen(self) -> list[Partition]:
        """The partitions that are to be read, as they are now."""
        ours = self._ours()
        return ours.wait(lambda: topics.chosen(ours.logs, self._options))

    def located(self, chosen: Sequence[Partition], where: Places) -> list[reading.Located]:
        """Finds these places in each of the partitions."""
        ours = self._ours()
        return ours.wait(lambda: topics.all_located(ours.logs, self._options, chosen, where))

    def between(self, spans: Iterable[Span]) -> list[table.Task[Range]]:
        """Plans tasks for all of these."""
        ours, wanted = self._ours(), [span for span in spans if span.count]
        total = sum(span.count for span in wanted)
        pairs = [(span, self._options.one(span.of.log, span.count / total)) for span in wanted]
        plans = ours.wait(
            lambda: topics.each(lambda pair: reading.planned(ours.logs, pair[1], pair[0].first, pair[0].end), pairs)
        )
        return [
            LogTask(group, span.of, span.log)
            for (span, options), extents in zip(pairs, plans, strict=True)
            for group in reading.divided(extents, options)
        ]

    def batches(self, task: table.Task[Range]) -> Iterator[Any]:
        assert isinstance(task, LogTask), "planned here"
        options, names = self._options.one(task.of.log), kafka.needed(self._names)
        found = reading.batches(self._ours(), task.log, task.pieces, names, options)
        return kafka.all_renamed(found, self._names, task.of.topic, task.of.number)


class LogReader(LogRows, table.BatchReader[Range]):
    """A batch query."""

    def __init__(self, options: LogsReading, names: Sequence[str]) -> None:
        super().__init__(options, names)
        if options.cursor is not None:
            raise ValueError("option 'cursor' is for streams: a batch query has no place that it goes on from")
        self._conditions = table.Conditions(("index", "offset", "partition"))
        if options.pushdown:
            self.pushFilters = self._conditions  # type: ignore[method-assign]  # see there

    def tasks(self) -> list[table.Task[Range]]:
        bounds = self._conditions.bounds
        (low, high), (low_too, high_too) = bounds["index"].span, bounds["offset"].span
        chosen = [each for each in self.chosen() if bounds["partition"].holds(each.number)]
        starts = self.located(chosen, places.starts(self._options, is_stream=False))
        lasts = self._lasts(chosen, places.ends(self._options))
        return self.between(
            Span(of, start.log, max(start.index, low, low_too), min(last, high + 1, high_too + 1))
            for of, start, last in zip(chosen, starts, lasts, strict=True)
        )

    def _lasts(self, chosen: Sequence[Partition], wanted: Places) -> list[int]:
        """
        Where the query ends in each partition.  An index that the log was seen to reach counts, whatever the bookies
        know that are asked next; one that is taken as it is does not lie behind the log's end.
        """
        found = [each.index for each in self.located(chosen, wanted)]
        if wanted == END or self._options.fail_on_data_loss:
            return found
        return [min(last, end.index) for last, end in zip(found, self.located(chosen, END), strict=True)]


Now = list[tuple[Partition, reading.Located]]  # where each partition begins and ends


class LogStream(LogRows, table.StreamReader[Range]):
    """A stream."""

    def __init__(self, options: LogsReading, names: Sequence[str]) -> None:
        super().__init__(options, names)
        self._cursors = dict[str, Cursor]()  # that are open, by the ids of their logs
        self._began: float | None = None  # the last batch

    def __getstate__(self) -> dict[str, Any]:
        """Goes to tasks without cursors, which are this process's."""
        return self.__dict__ | {"_cursors": {}}

    def initialOffset(self) -> table.Offset:
        chosen = self.chosen()
        starts = self.located(chosen, places.starts(self._options, is_stream=True))
        return self._encoded(
            Span(of, at.log, 0, at.index if self._options.cursor is None else self._cursor(of, at.log, at.index).mark)
            for of, at in zip(chosen, starts, strict=True)
        )

    def reportLatestOffset(self) -> table.Offset:
        return self._encoded(Span(of, at.log, 0, at.index) for of, at in self._now())

    def getDefaultReadLimit(self) -> spark.ReadLimit:
        options = self._options
        if options.max_records_per_trigger is not None:
            return spark.ReadMaxRows(options.max_records_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return spark.ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_records_per_trigger is not None:
            return spark.ReadMinRows(options.min_records_per_trigger)
        return spark.ReadAllAvailable()

    def latestOffset(self, start: table.Offset, limit: spark.ReadLimit) -> table.Offset:
        done, now = positions_in(start), self._now()
        self._check_there(done, now)
        self._follow(done, now)
        frozen = None if self.frozen is None else positions_in(self.frozen)
        spans = []
        for of, at in now:
            first = self._kept(of, at, index_of(done, at.log))
            end = at.index if frozen is None else index_of(frozen, at.log)
            spans.append(Span(of, at.log, first, max(end, first)))
        if not isinstance(limit, spark.ReadAllAvailable) and self._waits(sum(span.count for span in spans)):
            return start
        return self._encoded(self._limited(spans, limit))

    def partitions(self, start: table.Offset, end: table.Offset) -> list[table.Task[Range]]:
        first, last, now = positions_in(start), positions_in(end), self._now()
        self._check_there(last, now)
        return self.between(
            Span(of, at.log, index_of(first, at.log), index_of(last, at.log)) for of, at in now if at.log in last
        )

    def commit(self, end: table.Offset) -> None:
        """Everything before it is done: Spark says so with the next batch, and by each start of `latestOffset`."""
        if self._options.cursor is not None:
            self._follow(positions_in(end), self._now())

    def stop(self) -> None:
        for cursor in self._cursors.values():
            with suppress(LedgerError):  # what it had to say is stored
                self._ours().wait(cursor.close)

    # -- how -------------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        chosen = self.chosen()
        return list(zip(chosen, self.located(chosen, END), strict=True))

    def _encoded(self, spans: Iterable[Span]) -> table.Offset:
        """The ends of these as an offset."""
        every = list(spans)
        is_one = [span.of.log for span in every] == [self._options.log]
        return encoded((Position(span.of.topic, span.of.number, span.log, span.end) for span in every), is_one)

    def _check_there(self, positions: Mapping[str, Position], now: Now) -> None:
        """`NoSuchLog` for one that has a place and is not there, unless that may be passed over."""
        gone = positions.keys() - {at.log for _of, at in now}
        if gone and self._options.fail_on_data_loss:
            name = positions[min(gone)].topic or self._options.log
            raise NoSuchLog(
                f"the log {name!r} is another one than that of the checkpoint, which was renamed or deleted, or is not "
                "asked for any more: give the log's new name, or begin with a new checkpoint; failOnDataLoss=false "
                "goes on without it"
            )

    def _kept(self, of: Partition, at: reading.Located, index: int) -> int:
        """The index, or where that begins that is still there, if the rest may be passed over."""
        if self._options.fail_on_data_loss or index >= at.index:
            return index
        ours, kept = self._ours(), max(index, at.begin)
        return ours.wait(lambda: reading.behind_lost(ours.logs, of.log, kept))

    def _waits(self, count: int) -> bool:
        """True if a batch of so many records is not worth its begin yet."""
        least, now = self._options.min_records_per_trigger, self._ours().client.reactor.seconds()
        waited = self._began is None or now - self._began >= self._options.delay_s
        if least is not None and self.frozen is None and count < least and not (count and waited):
            return True
        self._began = now
        return False

    def _limited(self, spans: list[Span], limit: spark.ReadLimit) -> list[Span]:
        """Less of each."""
        bytes_max = limit.max_bytes if isinstance(limit, spark.ReadMaxBytes) else None
        if isinstance(limit, spark.ReadMaxRows):  # Spark has no limit of both, so the other one is not in it
            bytes_max = self._options.max_bytes_per_trigger
            counts = shared({span.log: span.count for span in spans}, limit.max_rows)
            spans = [span._replace(end=span.first + counts[span.log]) for span in spans]
        wanted = [span for span in spans if span.count]
        if bytes_max is None or not wanted:
            return spans
        ours, each = self._ours(), max(1, bytes_max // len(wanted))
        ends = ours.wait(
            lambda: topics.each(
                lambda span: reading.limited(ours.logs, span.of.log, span.first, span.end, each), wanted
            )
        )
        nearer = {span.log: end for span, end in zip(wanted, ends, strict=True)}
        return [span._replace(end=nearer.get(span.log, span.end)) for span in spans]

    # -- cursors ---------------------------------------------------------------------------------------------------

    def _cursor(self, of: Partition, log: str, start: Start) -> Cursor:
        """The stream's cursor of a log, held from now on; made at `start` where it is not there."""
        if log not in self._cursors:
            ours, name = self._ours(), self._options.cursor
            assert name is not None, "asked for"
            self._cursors[log] = ours.wait(lambda: ours.logs.cursor(of.log, name, start=start))
        return self._cursors[log]

    def _follow(self, done: Mapping[str, Position], now: Now) -> None:
        """
        Takes the cursors to what is done; those of logs that were found just now to their begin.  Where bookies that
        answer now know less, a cursor stays where it is until a later turn.
        """
        if self._options.cursor is None:
            return
        for of, at in now:
            index = index_of(done, at.log)
            if index > at.index:
                continue
            cursor = self._cursor(of, at.log, max(index, at.begin))
            if index > cursor.mark:
                with suppress(ValueError):  # it looks for the end itself, perhaps at other bookies
                    self._ours().wait(lambda cursor=cursor, index=index: cursor.seek(index))  # type: ignore[misc]  # this turn's


def index_of(positions: Mapping[str, Position], log: str) -> int:
    """The position of a log; 0 where it has none yet."""
    found = positions.get(log)
    return 0 if found is None else found.index
