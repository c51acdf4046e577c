"""
Plans of what is read of a topic: where it begins and ends, in ranges for readers.

Knows: the ledgers of each partition and how far they may be read, positions by publish time, the places of
subscriptions, compacted ledgers.
Does not know: messages.

Safety: nothing is fenced; a plan ends at what was confirmed when it was made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from quire.client.api import Client
from quire.conf.pulsar import PulsarOptions
from quire.metadata.store import at_once
from quire.protocol.errors import NoSuchLedger
from quire.protocol.pulsar_errors import LedgerOffloaded
from quire.pulsar.core.entry import decode_entry
from quire.pulsar.core.managed import COMPACTED_LEDGER, COMPACTION, CursorPlace, LedgerPart, decode_place
from quire.pulsar.core.names import TopicName
from quire.pulsar.core.positions import EARLIEST, LATEST, Position, parse_position
from quire.pulsar.core.ranges import Segment, TopicRange, Window, cut, end_of
from quire.pulsar.nodes import Nodes
from quire.pulsar.reading import last_entry, opened

# SPDX-License-Identifier: Apache-2.0

Place = Position | int | str  # a position, a publish time in ms since 1970, or one of both or a name as text
Where = Place | Mapping[str, Place]
WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A plan of what is read of a topic.  `ranges`: in the order of each partition, for one reader or several; `ends`: the
    last position of each partition that is read, (-1, -1) where it has none; `ledgers`: those of each partition.
    """

    topic: str
    ranges: tuple[TopicRange, ...]
    ends: Mapping[str, Position]
    ledgers: Mapping[str, Sequence[LedgerPart]]

    @property
    def entries(self) -> int:
        """Counts the entries that are read, each a message or a batch of them."""
        return sum(each.entries for each in self.ranges)

    @property
    def bytes(self) -> int:
        """Counts the bytes of these in ledgers, about."""
        return sum(each.bytes for each in self.ranges)


def parse_place(given: Place) -> Position | int:
    """A position, or a publish time; `ValueError` names the forms."""
    if isinstance(given, int) or not isinstance(given, str):
        return given
    if given in WORDS:
        return WORDS[given]
    try:
        return parse_position(given)
    except ValueError:
        pass
    try:
        return round(datetime.fromisoformat(given).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{given!r} is no place in a topic: earliest, latest, LEDGER:ENTRY, LEDGER:ENTRY:BATCH_INDEX, or a publish "
            "time as 2026-01-31T08:00:00+00:00"
        ) from None


class Planning:
    """Makes plans for the topics of one cluster."""

    def __init__(self, client: Client, nodes: Nodes, options: PulsarOptions) -> None:
        self._client = client
        self._nodes = nodes
        self._options = options

    async def plan(self, topic: str, start: Where, end: Where, subscription: str | None, compacted: bool) -> Plan:
        """`NoSuchTopic`, `NoSuchSubscription`, `LedgerOffloaded`, `MessageDamaged`, `NotRead`; `ValueError`."""
        name = TopicName.parse(topic)
        parts = await self._nodes.partitions(name)
        if len(parts) > 1 or parts != [name]:
            for each in (start, end):
                check_of_one(name, each)
        plans = await at_once(
            [
                self._planned(part, of(start, part, EARLIEST), of(end, part, LATEST), subscription, compacted)
                for part in parts
            ]
        )
        ranges = tuple(each for plan in plans for each in plan.ranges)
        ends = {part: last for plan in plans for part, last in plan.ends.items()}
        return Plan(str(name), ranges, ends, {part: some for plan in plans for part, some in plan.ledgers.items()})

    async def _planned(
        self, name: TopicName, start: Place, end: Place, subscription: str | None, compacted: bool
    ) -> Plan:
        parts = (await self._nodes.ledgers(name)).ledgers
        segments = await self.segments(name, parts)
        place = None if subscription is None else await self.place(name, subscription)
        probe = Probe(self._client, name, parts, segments)
        first = await probe.position(parse_place(start))
        stop = await probe.position(parse_place(end))
        if isinstance(parse_place(end), int):
            stop = before(stop)
        window = Window(first, stop, place)
        last = min(end_of(segments), stop)
        head: list[TopicRange] = []
        if compacted:
            head, horizon = await self._compacted(name, window, last)
            window = window._replace(start=max(first, Position(horizon.ledger, horizon.entry + 1)))
        ranges = (*head, *cut(str(name), segments, window, self._options.split_bytes))
        return Plan(str(name), ranges, {str(name): last}, {str(name): parts})

    async def segments(self, name: TopicName, parts: Sequence[LedgerPart]) -> list[Segment]:
        """The ledgers with their ends, of which that of an open one is asked for."""
        return await at_once([self._segment(name, part) for part in parts])

    async def _segment(self, name: TopicName, part: LedgerPart) -> Segment:
        if part.closed_ms or part.entries:
            return Segment(part.ledger, part.entries - 1, part.size)
        try:
            reader = await opened(self._client, str(name), part.ledger, part)
        except NoSuchLedger:
            return Segment(part.ledger, -1, 0)  # trimmed since the node was read, or made and given up by a broker
        try:
            last = await last_entry(reader, self._options.unconfirmed)
            return Segment(part.ledger, last, reader.length)
        finally:
            await reader.close()

    async def place(self, name: TopicName, subscription: str) -> CursorPlace:
        """
        Finds what a subscription has acknowledged, as far as its broker has written it down.  `NoSuchSubscription`,
        `MessageDamaged`, `NotRead`.
        """
        node = await self._nodes.cursor(name, subscription)
        if node.ledger < 0:
            return node.place
        try:
            reader = await opened(self._client, str(name), node.ledger)
        except NoSuchLedger:
            if (await self._nodes.cursor(name, subscription)).ledger == node.ledger:
                raise
            return await self.place(name, subscription)  # its broker has begun another one meanwhile
        try:
            last = await last_entry(reader, True)
            if last < 0:
                return node.place
            (found,) = await reader.read_unconfirmed(last, last)
        finally:
            await reader.close()
        return decode_place(found.data)

    async def compaction(self, name: TopicName) -> tuple[int, Position] | None:
        """The ledger of a compacted topic, and the last position that it covers; None where there is none."""
        if COMPACTION not in await self._nodes.subscriptions(name):
            return None
        place = await self.place(name, COMPACTION)
        ledger = place.properties.get(COMPACTED_LEDGER, -1)
        return None if ledger < 0 else (ledger, place.mark)

    async def _compacted(self, name: TopicName, window: Window, last: Position) -> tuple[list[TopicRange], Position]:
        found = await self.compaction(name)
        if found is None:
            return [], EARLIEST
        ledger, horizon = found
        start, place = window.start, window.place
        if place is not None:
            start = max(start, Position(place.mark.ledger, place.mark.entry + 1))
        if horizon < start:
            return [], EARLIEST
        reader = await opened(self._client, str(name), ledger)
        try:
            segment = Segment(ledger, reader.last_entry_id, reader.length)
        finally:
            await reader.close()
        whole = cut(str(name), [segment], Window(EARLIEST), self._options.split_bytes)
        stop = window.stop
        ranges = [each._replace(start=start, end=last, compacted=True, stop=stop, place=place) for each in whole]
        return ranges, horizon


class Probe:
    """Looks for publish times in a topic, by single entries."""

    def __init__(
        self, client: Client, name: TopicName, parts: Sequence[LedgerPart], segments: Sequence[Segment]
    ) -> None:
        self._client = client
        self._name = name
        self._parts = {each.ledger: each for each in parts}
        self._full = [each for each in segments if each.last >= 0]

    async def position(self, place: Position | int) -> Position:
        """The position of a publish time: of the first entry that is not before it, as far as times ascend."""
        if isinstance(place, Position):
            return place
        low, high = 0, len(self._full)
        while low < high:  # the first ledger whose last entry is not before the time
            middle = (low + high) // 2
            if await self._ended(self._full[middle]) < place:
                low = middle + 1
            else:
                high = middle
        if low == len(self._full):
            return LATEST
        segment, first, last = self._full[low], 0, self._full[low].last
        while first < last:
            middle = (first + last) // 2
            if await self._published(segment, middle) < place:
                first = middle + 1
            else:
                last = middle
        return Position(segment.ledger, first)

    async def _ended(self, segment: Segment) -> int:
        """The publish time of the last entry; where bookies no longer have it, the time when the ledger was closed."""
        try:
            return await self._published(segment, segment.last)
        except LedgerOffloaded:
            return self._parts[segment.ledger].closed_ms

    async def _published(self, segment: Segment, entry: int) -> int:
        reader = await opened(self._client, str(self._name), segment.ledger, self._parts.get(segment.ledger))
        try:
            reader.learn_confirmed(segment.last)
            (found,) = await reader.read(entry, entry)
        finally:
            await reader.close()
        return decode_entry(found.data, segment.ledger, entry).publish_ms


def before(position: Position) -> Position:
    """The position before this one, in a ledger; that of a publish time is the first that is not before it."""
    return position if position == LATEST else Position(position.ledger, position.entry - 1)


def of(where: Where, part: TopicName, otherwise: Position) -> Place:
    """The place in one partition."""
    return where.get(str(part), otherwise) if isinstance(where, Mapping) else where


def check_of_one(name: TopicName, where: Where) -> None:
    """`ValueError` for one position in several partitions."""
    if isinstance(where, Mapping):
        return
    place = parse_place(where)
    if isinstance(place, Position) and place not in (EARLIEST, LATEST):
        raise ValueError(
            f"{name} has partitions, and the position {place} is in one of them: name that, as {name}-partition-0"
        )
