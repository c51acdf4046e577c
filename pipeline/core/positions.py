"""
Where a query of Pulsar's topics begins and ends: positions by text, and how far one batch of a stream goes.

Knows: positions, which are those of the next entry here; the ranges of a plan.
Does not know: how a plan is made, Spark's classes.
"""

from collections.abc import Mapping, Sequence

from quire.metadata.formats.json_text import parse_json
from quire.pipeline.core.filters import Bounds
from quire.pipeline.core.ranges import Extent
from quire.pipeline.core.ranges import grouped as pieces
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.names import TopicName
from quire.pulsar.core.positions import Position, parse_position
from quire.pulsar.core.ranges import TopicRange

# SPDX-License-Identifier: Apache-2.0

Ranges = Sequence[TopicRange]
Places = Mapping[str, Position]  # the next entry of each topic, a partition as a topic of its own

EARLIEST, LATEST = "earliest", "latest"
NOWHERE = Position(-1, -1)


def offsets_of(text: str, option: str) -> dict[str, str]:
    """
    The place of each topic, by its whole name; that of the name "" for those that are not named.  `ValueError` names
    the option.
    """
    if text in (EARLIEST, LATEST):
        return {"": text}
    form = f'`{EARLIEST}`, `{LATEST}`, or a position for each topic as {{"persistent://public/default/t":"12:0"}}'
    try:
        given = parse_json(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f"option {option!r}: {text!r} is not {form}")
    found: dict[str, str] = {}
    for name, place in given.items():
        if not isinstance(place, str):
            raise ValueError(f"option {option!r}: {place!r} of {name} is not {form}")
        if place not in (EARLIEST, LATEST):
            try:
                parse_position(place)
            except ValueError as error:
                raise ValueError(f"option {option!r}: {name}: {error}") from None
        found[str(TopicName.parse(name))] = place
    return found


def named(places: Mapping[str, str], topic: str, option: str) -> str:
    """The place of a topic among these, by its own name or by that which it is a partition of; `ValueError`."""
    for name in (topic, str(TopicName.parse(topic).base), ""):
        if name in places:
            return places[name]
    raise ValueError(f"option {option!r} has no position of {topic}: give one, or `{EARLIEST}`, or `{LATEST}`")


def after(last: Position) -> Position:
    """The next entry behind the last one of a topic; 0:0 where it has none."""
    return Position(max(last.ledger, 0), last.entry + 1)


def before(place: Position) -> Position:
    """The last entry of which a message is before a place."""
    return Position(place.ledger, place.entry if place.batch_index > 0 else place.entry - 1)


def onward(place: Position, ledgers: Sequence[LedgerPart]) -> Position:
    """
    The begin of the next ledger, for a place behind the last entry of a closed one or in one that is no longer there
    between others (a broker takes out empty ones): the ledger of the place may be trimmed then, and nothing is lost.
    """
    for part in ledgers:
        if part.ledger > place.ledger >= ledgers[0].ledger:
            place = Position(part.ledger, 0)
        if part.ledger == place.ledger and not (part.closed_ms and place.entry >= part.entries):
            break
    return place


def begin(ranges: Ranges, last: Position) -> Position:
    """The first place of what is planned of a topic that ends so: of its first range, or behind its end."""
    if not ranges:
        return after(last)
    first = ranges[0]
    place = Position(first.ledger, first.first)
    return first.start if first.start.place == place.place else place


def moved(ranges: Ranges, count: int) -> Position:
    """The place behind so many entries of ranges, one at least and no more than they have."""
    for each in ranges:
        if count <= each.entries:
            return Position(each.ledger, each.first + count)
        count -= each.entries
    raise ValueError("there are fewer entries")


def advanced(
    starts: Places, planned: Mapping[str, Ranges], lasts: Places, entries_max: int | None
) -> dict[str, Position]:
    """
    The next place of each topic, of which the ranges from `starts` on are `planned`: its end, by its last position, or
    about its share of `entries_max`, those with most first; none goes back.
    """
    left = {topic: sum(each.entries for each in ranges) for topic, ranges in planned.items()}
    total, most = sum(left.values()), entries_max
    found: dict[str, Position] = dict(starts)
    room = most or 0
    for topic in sorted(planned, key=lambda each: (-left[each], each)):
        if most is None or total <= most:
            found[topic] = max(after(lasts[topic]), starts.get(topic, after(Position(-1, -1))))
        elif left[topic] and room > 0:
            count = min(room, max(1, most * left[topic] // total))
            found[topic] = moved(planned[topic], count)
            room -= count
        else:
            found.setdefault(topic, begin(planned[topic], lasts[topic]))
    return found


def up_to(ranges: Ranges, end: Position) -> list[TopicRange]:
    """The parts of ranges before a place; one of a compacted ledger knows where it ends."""
    found = []
    last_of_all, stop = before(end), end if end.batch_index > 0 else NOWHERE
    for each in ranges:
        if each.compacted:
            found.append(each._replace(end=min(each.end, last_of_all), stop=stop))
            continue
        last = min(each.last, last_of_all.entry) if each.ledger == end.ledger else each.last
        if each.first <= last and max(each.start, Position(each.ledger, each.first)) < end:
            kept = part(each, each.first, last)
            found.append(kept._replace(stop=stop) if (each.ledger, last) == stop.place else kept)
    return found


def within(ranges: Ranges, ledgers: Bounds, entries: Bounds) -> list[TopicRange]:
    """The parts of ranges that conditions leave; all of a compacted ledger, whose messages have places elsewhere."""
    low, high = entries.span
    found = []
    for each in ranges:
        first, last = max(each.first, low), min(each.last, high)
        if each.compacted:
            found.append(each)
        elif ledgers.holds(each.ledger) and first <= last:
            found.append(part(each, first, last))
    return found


def part(of: TopicRange, first: int, last: int) -> TopicRange:
    """Cuts these entries out of a range."""
    return of._replace(first=first, last=last, bytes=of.bytes * (last - first + 1) // max(of.entries, 1))


def grouped(ranges: Ranges, split_bytes: int, groups_max: int, groups_min: int) -> list[list[TopicRange]]:
    """Divides ranges among tasks."""
    extents = [Extent(number, each.first, each.last, each.bytes) for number, each in enumerate(ranges)]
    groups = pieces(extents, split_bytes, groups_max, groups_min)
    return [[part(ranges[number], first, last) for number, first, last in group] for group in groups]


def is_lost(ledgers: Sequence[int], at: Position) -> bool:
    """True if there may have been entries from a place on that are gone: its ledger is, and later ones are there."""
    return bool(ledgers) and (0, 0) < at.place < (ledgers[0], 0)
