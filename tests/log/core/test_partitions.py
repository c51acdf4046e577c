"""Which partition a key belongs to: Kafka's own values, and how a batch is split."""

from itertools import pairwise
from random import Random

import pytest

from quire.log.core.partitions import (
    KEYLESS_RUN,
    check_partitions,
    murmur2,
    parted,
    partition_for,
    partition_name,
    placed,
    runs,
    split,
)

# SPDX-License-Identifier: Apache-2.0

# signed values that tests of Kafka and of its clients state
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"1": -1993445489,
    b"12": 126087238,
    b"123": -267702483,
    b"1234": -1614185708,
    b"12345": -1188365604,
}


@pytest.mark.parametrize("key", HASHES)
def test_a_key_has_the_hash_that_kafka_gives_it(key):
    """As a signed number of 32 bits; the partition is that of Kafka's default partitioner."""
    assert murmur2(key) == HASHES[key] & 0xFFFFFFFF
    for count in (1, 2, 7, 100):
        assert partition_for(key, count) == (HASHES[key] & 0x7FFFFFFF) % count


def test_keys_are_spread():
    """A thousand keys over ten partitions: none has less than half of its share, or more than twice."""
    counts = [0] * 10
    for number in range(1000):
        counts[partition_for(b"customer-%d" % number, 10)] += 1
    assert min(counts) > 50
    assert max(counts) < 200


def test_a_bad_key_or_number_is_refused():
    """By its kind, and with what is possible."""
    with pytest.raises(TypeError, match="a key must be bytes, not str"):
        partition_for("k", 4)
    with pytest.raises(ValueError, match="1 partition or more"):
        partition_for(b"k", 0)
    with pytest.raises(ValueError, match="they are 0 to 3"):
        check_partitions([1, 4], 4)
    with pytest.raises(ValueError, match="one partition at least"):
        check_partitions([], 4)
    assert check_partitions(None, 3) == [0, 1, 2]
    assert check_partitions({2, 0}, 3) == [0, 2]


def test_a_partition_is_called_by_its_number():
    """As the command line shows it; a name that only looks so is none."""
    assert partition_name("orders", 12) == "orders/12"
    assert parted("orders/eu/12") == ("orders/eu", 12)
    assert [parted(name) for name in ("orders", "orders/", "/1", "orders/01", "orders/-1", "orders/²")] == [None] * 6


def test_each_record_has_a_partition():
    """The given one, else that of its key, else the one for records without a key; with a sequence by that."""
    keys = [b"abc", None, b"21", None]
    assert placed(keys, [None, None, 3, None], 4, 4, 2, None) == [partition_for(b"abc", 4), 2, 3, 2]
    assert placed(None, None, 3, 4, 1, None) == [1, 1, 1]
    first = 10 * KEYLESS_RUN - 1
    assert placed(None, None, 2, 4, 0, first) == [9 % 4, 10 % 4]
    with pytest.raises(ValueError, match="there is no partition 4"):
        placed(None, [4], 1, 4, 0, None)
    with pytest.raises(ValueError, match="2 values, and 1 keys"):
        placed([b"k"], None, 2, 4, 0, None)


def test_a_batch_is_split_and_joined_again():
    """Each record is in one part, in its order; runs are of numbers that follow each other."""
    random = Random(7)
    places = [random.randrange(5) for _ in range(500)]
    parts = split(places)
    assert sorted(number for numbers in parts.values() for number in numbers) == list(range(500))
    for place, numbers in parts.items():
        assert numbers == sorted(numbers)
        assert {places[number] for number in numbers} == {place}
        cut = runs(numbers)
        assert [number for run in cut for number in run] == numbers
        assert all(run == list(range(run[0], run[0] + len(run))) for run in cut)
        assert all(after[0] > before[-1] + 1 for before, after in pairwise(cut))
