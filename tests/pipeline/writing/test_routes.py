"""Which log a row goes to."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from quire.log import partition_for
from quire.pipeline.writing.routes import by_partition, by_topic

# SPDX-License-Identifier: Apache-2.0


def arrow(**columns: list[Any]) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def values(pairs: Any) -> dict[Any, list[Any]]:
    return {name: rows.column("value").to_pylist() for name, rows in pairs}


def test_rows_of_each_topic() -> None:
    """In their order; a log that is named takes all."""
    batch = arrow(topic=["b", "a", "b"], value=[b"1", b"2", b"3"])
    assert values(by_topic(batch, "")) == {"b": [b"1", b"3"], "a": [b"2"]}
    assert values(by_topic(batch, "c")) == {"c": [b"1", b"2", b"3"]}
    with pytest.raises(ValueError, match="a row has no topic: filter it out, or give an option `log`"):
        list(by_topic(arrow(topic=["a", None], value=[b"1", b"2"]), ""))


def test_topics_that_are_no_text() -> None:
    """Bytes are decoded, as those of keys and values count as text; anything else names no log."""
    assert values(by_topic(arrow(topic=[b"b", "ä".encode()], value=[b"1", b"2"]), "")) == {"b": [b"1"], "ä": [b"2"]}
    with pytest.raises(ValueError, match="a row's topic is no text in UTF-8"):
        list(by_topic(arrow(topic=[b"\xff"], value=[b"1"]), ""))
    with pytest.raises(ValueError, match=r"'topic' is of the type int64, .*cast\(topic as string\)"):
        list(by_topic(arrow(topic=[7], value=[b"1"]), ""))
    assert values(by_topic(arrow(topic=[7], value=[b"1"]), "c")) == {"c": [b"1"]}


def test_rows_of_each_partition() -> None:
    """By the row's own number, its key, as bytes or text, or one for all others."""
    keys = ["x", "y", None, "x"]
    where = [partition_for(key.encode(), 4) if key else 6 % 4 for key in keys]
    wanted: dict[int, list[int]] = {}
    for number, place in enumerate(where):
        wanted.setdefault(place, []).append(number)
    for given in (keys, [None if key is None else key.encode() for key in keys]):
        assert values(by_partition(arrow(key=given, value=[0, 1, 2, 3]), "a", 4, 6)) == wanted
    assert values(by_partition(arrow(value=[0, 1]), "a", 4, 6)) == {2: [0, 1]}
    given = arrow(key=keys, partition=[3, None, None, 1], value=[0, 1, 2, 3])
    assert values(by_partition(given, "a", 4, 6)) == {3: [0], where[1]: [1], 2: [2], 1: [3]}
    assert values(by_partition(arrow(partition=[7, 8], value=[0, 1]), "a", 1, 6)) == {0: [0, 1]}, "as it has one only"


@pytest.mark.parametrize("number", [4, -1])
def test_a_partition_that_is_not_there(number: int) -> None:
    """Is named, with what to do."""
    with pytest.raises(ValueError, match=rf"partition {number} of the log 'a', which has 0 to 3: drop the column"):
        list(by_partition(arrow(partition=[0, number], value=[0, 1]), "a", 4, 0))


def test_keys_spread() -> None:
    """As Kafka's producers spread them, for the hash is theirs."""
    keys = [b"key %d" % number for number in range(1000)]
    found = by_partition(arrow(key=keys, value=keys), "a", 5, 0)
    counts = Counter({number: rows.num_rows for number, rows in found})
    assert sum(counts.values()) == 1000
    assert min(counts.values()) > 150
