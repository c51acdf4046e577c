"""
Partitioned logs: which partition a key belongs to, what partitions are called, and how a batch is split among them.

A partitioned log `orders` of n partitions is a log without records of its own, with the setting `partitions`; the
partitions are logs, `orders/0` to `orders/<n - 1>`.  The partition of a key is

    (murmur2(key) & 0x7FFFFFFF) % n

where `murmur2` is the 32-bit hash of that name with the seed 0x9747B28C, as producers of Kafka place keys by default.

Knows: these rules.  Does not know: owners, which partitions there are.
Safety: what is sent again with its producer and sequence, to the same number of partitions, goes to the same one, with
a key or without.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

# SPDX-License-Identifier: Apache-2.0

SEED, FACTOR, SHIFT = 0x9747B28C, 0x5BD1E995, 24
MASK = 0xFFFFFFFF
KEYS_KEPT = 1 << 16  # whose hashes are known
KEYLESS_RUN = 256  # sequences without a key that go to one partition


def murmur2(data: bytes) -> int:
    """The hash of a key, 0 to 2^32 - 1."""
    length = len(data)
    found = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & MASK
        word = (word ^ word >> SHIFT) * FACTOR & MASK
        found = found * FACTOR & MASK ^ word
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * FACTOR & MASK
    found = (found ^ found >> 13) * FACTOR & MASK
    return found ^ found >> 15


@lru_cache(KEYS_KEPT)
def _place(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key, 0 to `partitions` - 1.  `TypeError`, `ValueError`."""
    if not isinstance(key, bytes):
        raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    if partitions < 1:
        raise ValueError(f"a partitioned log has 1 partition or more, not {partitions}")
    return _place(key) % partitions


def partition_name(name: str, partition: int) -> str:
    """The name of the log that is a partition of the log `name`."""
    return f"{name}/{partition}"


def parted(name: str) -> tuple[str, int] | None:
    """The name of the whole and the number, if this may be the name of a partition."""
    whole, slash, number = name.rpartition("/")
    if not slash or not whole or not number.isascii() or not number.isdecimal() or str(int(number)) != number:
        return None
    return whole, int(number)


def check_partitions(given: Iterable[int] | None, partitions: int) -> list[int]:
    """The chosen partitions, ascending; all without a choice.  `ValueError` for one that there is not."""
    if given is None:
        return list(range(partitions))
    found = sorted(set(given))
    wrong = [each for each in found if type(each) is not int or not 0 <= each < partitions]
    if wrong or not found:
        what = f"no partition {wrong[0]!r}" if wrong else "to be used with one partition at least"
        raise ValueError(f"a log of {partitions} partitions has {what}: they are 0 to {partitions - 1}")
    return found


def placed(
    keys: Sequence[bytes | None] | None,
    given: Sequence[int | None] | None,
    count: int,
    partitions: int,
    keyless: int,
    first_sequence: int | None,
) -> list[int]:
    """
    The partition of each of `count` records: the one that was given for it, else by its key, else `keyless`, or by its
    sequence where it has one.  `ValueError`, `TypeError`.
    """
    for column, what in ((keys, "keys"), (given, "partitions")):
        if column is not None and len(column) != count:
            raise ValueError(f"there are {count} values, and {len(column)} {what}")
    found: list[int] = []
    for number, key, chosen in zip(range(count), keys or repeat(None), given or repeat(None), strict=False):
        if chosen is not None:
            if type(chosen) is not int or not 0 <= chosen < partitions:
                raise ValueError(f"there is no partition {chosen!r}: they are 0 to {partitions - 1}")
            found.append(chosen)
        elif key is not None:
            found.append(partition_for(key, partitions))
        elif first_sequence is not None:
            found.append((first_sequence + number) // KEYLESS_RUN % partitions)
        else:
            found.append(keyless)
    return found


def split(places: Sequence[int]) -> dict[int, list[int]]:
    """The numbers of the records of each partition, in order, of the partition of each record."""
    found: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        numbers = found.get(place)
        if numbers is None:
            found[place] = [number]
        else:
            numbers.append(number)
    return found


def runs(numbers: Sequence[int]) -> list[list[int]]:
    """Cuts ascending numbers where one does not follow the one before."""
    found = [[numbers[0]]]
    for number in numbers[1:]:
        if number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found
