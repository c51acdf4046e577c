"""Where reading begins and ends, as options say it."""

import pytest

from quire.conf.pipeline import LogsReading
from quire.pipeline.reading.places import Places, assigned, ends, starts

# SPDX-License-Identifier: Apache-2.0


def given(**options: str) -> LogsReading:
    return LogsReading.of(
        {"metadata": "x", **({} if {"log", "assign"} & options.keys() else {"subscribe": "a"}), **options}
    )


def start_of(topic: str = "a", partition: int = 0, is_stream: bool = True, **options: str) -> str:
    return starts(given(**options), is_stream).of(topic, partition)


def end_of(topic: str = "a", partition: int = 0, **options: str) -> str:
    return ends(given(**options)).of(topic, partition)


def test_where_nothing_is_said() -> None:
    """Our source begins at the begin, Kafka's in a stream at the end; both end at the end."""
    assert [start_of(log="a"), start_of(log="a", is_stream=False)] == ["begin", "begin"]
    assert [start_of(), start_of(is_stream=False)] == ["end", "begin"]
    assert end_of() == end_of(log="a") == "end"


def test_words_and_numbers() -> None:
    """Kafka's, for all partitions alike or for each."""
    assert [start_of(startingOffsets=word) for word in ("earliest", "Latest")] == ["begin", "end"]
    each = '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}'
    assert [start_of(*of, startingOffsets=each) for of in (("a", 0), ("a", 1), ("b", 0))] == ["23", "begin", "end"]
    assert [end_of(*of, endingOffsets='{"a":{"0":7,"1":-1}}') for of in (("a", 0), ("a", 1))] == ["7", "end"]
    assert start_of(startingOffsets='{"a":{"0":{"index":7,"log":"0f"}}}') == "7"  # as a stream's progress has it
    one = '{"index": 7, "log": "0f"}'  # of one log
    assert start_of(startingOffsets=one) == start_of(log="a", startingOffsets=one) == end_of(endingOffsets=one) == "7"
    assert starts(given(startingOffsets=one), True).is_one
    logs_of_that_name = '{"index":{"0":7},"log":{"0":8}}'
    assert [start_of(name, startingOffsets=logs_of_that_name) for name in ("index", "log")] == ["7", "8"]
    assert [start_of(start="7", log="a"), end_of(end="9", log="a")] == ["7", "9"]


def test_times() -> None:
    """In milliseconds; the one for all goes before those for each, which go before offsets."""
    time = "2026-01-31T08:00:00.001000+00:00"
    each = '{"a":{"0":1769846400001}}'
    assert start_of(startingTimestamp="1769846400001", startingOffsetsByTimestamp='{"a":{"0":1}}') == time
    assert start_of(startingOffsetsByTimestamp=each, startingOffsets="latest") == time
    assert end_of(endingTimestamp="1769846400001", endingOffsets="latest") == time
    assert end_of(endingOffsetsByTimestamp=each) == time
    assert starts(given(startingTimestamp="1"), False).is_strict
    assert not starts(given(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest"), False).is_strict
    assert not ends(given(endingTimestamp="1")).is_strict


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingOffsets": "begin"},
            "'startingOffsets': 'begin' is no JSON of that form: give .*, or one of earliest",
        ),
        ({"startingOffsets": "[1]"}, "no JSON of that form"),
        ({"startingOffsets": '{"a":7}'}, "of 'a' there are no partitions"),
        ({"startingOffsets": '{"index":7}'}, "of 'index' there are no partitions"),
        ({"startingOffsets": '{"index":-3,"log":"0f"}'}, "-3 is no place here"),
        ({"startingOffsets": '{"a":{"x":7}}'}, "of 'a' there are no numbers of partitions"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "of 'a' there are no numbers of partitions"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3 is no place here"),
        ({"startingOffsets": '{"a":{"1":3}}'}, "'startingOffsets' has nothing for partition 0 of the log 'a'"),
        ({"startingTimestamp": "yesterday"}, "'startingTimestamp': 'yesterday' is no time"),
        ({"startingTimestamp": "9" * 20}, "is no time"),
        ({"start": "7", "startingOffsets": "latest"}, "'start' and 'startingOffsets' both say"),
    ],
)
def test_starts_that_can_not_be(options: dict[str, str], said: str) -> None:
    """Each names the option, and what to give."""
    with pytest.raises(ValueError, match=said):
        start_of(**options)


def test_ends_that_can_not_be() -> None:
    """Kafka's -2, for nothing would be read; two that both say it."""
    with pytest.raises(ValueError, match="-2 is no place here: give an index, or one of latest"):
        end_of(endingOffsets='{"a":{"0":-2}}')
    with pytest.raises(ValueError, match="'end' and 'endingTimestamp' both say"):
        end_of(end="7", endingTimestamp="1")


def test_assignments() -> None:
    """Partitions of each log, once; what is none is named."""
    assert assigned('{"a":[1,0,1],"b":[2]}') == {"a": [0, 1], "b": [2]}
    for text in ('{"a":0}', '{"a":[-1]}', '{"a":["0"]}', "a"):
        with pytest.raises(ValueError, match=r'option \'assign\': .*give {"orders":\[0,1\]}'):
            assigned(text)


def test_a_place_for_all_or_for_each() -> None:
    """The one for all goes first."""
    assert Places("start", "begin").of("any", 7) == "begin"
    assert Places("start", each={("a", 1): "7"}).of("a", 1) == "7"
