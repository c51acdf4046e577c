"""
Where reading begins and ends in each partition, as options say it: by our names for all alike, by Kafka's also for each
partition of each log.

Knows: Kafka's JSON of topics and partitions, its numbers for both ends, times in ms.
Does not know: which logs there are, what index a place has.

A place is a text: an index, a time with its zone, `begin`, `end`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from quire.conf.pipeline import LogsReading
from quire.metadata.formats.json_text import parse_json

# SPDX-License-Identifier: Apache-2.0

EARLIEST, LATEST = -2, -1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLE = '{"orders":{"0":23,"1":-2}}'


@dataclass(frozen=True)
class Places:
    """
    The place `every` in each partition, or for each its own.  `is_strict`: a time has to have a record at or behind it;
    `is_one`: it is that of the only partition that is read, whichever it is.
    """

    option: str
    every: str = ""
    each: Mapping[tuple[str, int], str] = field(default_factory=dict)
    is_strict: bool = False
    is_one: bool = False

    def of(self, topic: str, partition: int) -> str:
        """`ValueError` names the partition that no place was given for."""
        place = self.every or self.each.get((topic, partition))
        if place is None:
            raise ValueError(
                f"option {self.option!r} has nothing for partition {partition} of the log {topic!r}: give an index for "
                "each partition, -2 for its begin, -1 for its end"
            )
        return place


def starts(options: LogsReading, is_stream: bool) -> Places:
    """Where reading begins.  `ValueError` names the option that is wrong."""
    strict = options.starting_offsets_by_timestamp_strategy == "error"
    if options.start:
        _alone(options, "start", ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"))
        return Places("start", options.start)
    if options.starting_timestamp is not None:
        return Places("startingTimestamp", time_at("startingTimestamp", options.starting_timestamp), is_strict=strict)
    if options.starting_offsets_by_timestamp is not None:
        return times("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp, strict)
    if options.starting_offsets is not None:
        return offsets("startingOffsets", options.starting_offsets, {"earliest": "begin", "latest": "end"})
    return Places("start", "end" if is_stream and not options.log else "begin")


def ends(options: LogsReading) -> Places:
    """Where a batch query ends.  `ValueError` names the option that is wrong."""
    if options.end != "end":
        _alone(options, "end", ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
        return Places("end", options.end)
    if options.ending_timestamp is not None:
        return Places("endingTimestamp", time_at("endingTimestamp", options.ending_timestamp))
    if options.ending_offsets_by_timestamp is not None:
        return times("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp, False)
    if options.ending_offsets is not None:
        return offsets("endingOffsets", options.ending_offsets, {"latest": "end"})
    return Places("end", "end")


def assigned(text: str) -> dict[str, list[int]]:
    """The partitions of each log that `assign` names.  `ValueError`."""
    example = '{"orders":[0,1]}'
    found: dict[str, list[int]] = {}
    for topic, numbers in _object("assign", text, example).items():
        if not isinstance(numbers, list) or not all(type(each) is int and each >= 0 for each in numbers):
            raise _no("assign", f"of {topic!r} there are no numbers of partitions", example)
        found[topic] = sorted(set(numbers))
    return found


def offsets(option: str, text: str, words: Mapping[str, str]) -> Places:
    """
    The places that Kafka's JSON names, or a stream's offset; or one of the words, of all partitions.  `ValueError`.
    """
    if text.lower() in words:
        return Places(option, words[text.lower()])
    numbers = {EARLIEST: "begin", LATEST: "end"}

    def place(number: int) -> str:
        known = numbers.get(number, str(number) if number >= 0 else "")
        if known not in {*words.values(), str(number)}:
            raise _no(option, f"{number} is no place here", f"an index, or one of {', '.join(words)}")
        return known

    example = f"{EXAMPLE}, or one of {', '.join(words)}"
    given = _object(option, text, example)
    if given.keys() == {"index", "log"} and type(given["index"]) is int:  # the offset of a stream of one log
        return Places(option, place(given["index"]), is_one=True)
    return Places(option, each=_each(option, given, place, example))


def times(option: str, text: str, is_strict: bool) -> Places:
    """The times that Kafka's JSON names, of each partition.  `ValueError`."""
    example = '{"orders":{"0":1769846400000}}'
    given = _object(option, text, example)
    return Places(option, each=_each(option, given, lambda ms: time_at(option, ms), example), is_strict=is_strict)


def time_at(option: str, milliseconds: str | int) -> str:
    """A time in ms since 1970, as text.  `ValueError`."""
    try:
        return (EPOCH + timedelta(milliseconds=int(milliseconds))).isoformat()
    except (ValueError, OverflowError):
        raise _no(option, f"{milliseconds!r} is no time", "milliseconds since 1970, as 1769846400000") from None


def _each(
    option: str, topics: Mapping[str, Any], place: Callable[[int], str], example: str
) -> dict[tuple[str, int], str]:
    found = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise _no(option, f"of {topic!r} there are no partitions", example)
        for number, given in partitions.items():
            at = given.get("index") if isinstance(given, dict) else given  # as a stream's progress has it
            if not number.isdecimal() or type(at) is not int:
                raise _no(option, f"of {topic!r} there are no numbers of partitions with their places", example)
            found[topic, int(number)] = place(at)
    return found


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _no(option, f"{text!r} is no JSON of that form", example)
    return found


def _alone(options: LogsReading, option: str, others: Iterable[str]) -> None:
    given = options.model_dump(by_alias=True)
    for each in others:
        if given[each] is not None:
            raise ValueError(f"options {option!r} and {each!r} both say where reading goes: give one of them")


def _no(option: str, why: str, example: str) -> ValueError:
    return ValueError(f"option {option!r}: {why}: give {example}")
