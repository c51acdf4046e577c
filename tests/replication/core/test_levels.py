"""Levels by what the metadata assigns: holdings, their sums by size, and the band that costs the fewest bytes."""

import pytest

from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import HEADER, SIZES, DigestType
from quire.replication.core.balance import Disk, Holdings, band, bytes_on, excess

# SPDX-License-Identifier: Apache-2.0

MORE = HEADER.size + SIZES[DigestType.CRC32C]  # of each entry


def test_shares_of_a_striped_ledger() -> None:
    """By entries on each bookie, over all fragments; nothing of a ledger that is open or empty."""
    metadata = LedgerMetadata.new(3, 2, 2, ["a", "b", "c"])
    assert bytes_on(metadata) == {}
    two = metadata.with_ensemble(3, ["a", "b", "d"]).closed(5, 600)
    each = 100 + MORE
    assert bytes_on(two) == {"a": 4 * each, "b": 4 * each, "c": 2 * each, "d": 2 * each}
    assert bytes_on(metadata.closed(-1, 0)) == {"a": 0, "b": 0, "c": 0}


def test_holdings_of_parts_are_joined() -> None:
    """As several who count would."""
    one, other, both = Holdings(), Holdings(), Holdings()
    for number in range(20):
        metadata = LedgerMetadata.new(1, 1, 1, ["a" if number % 3 else "b"]).closed(number, 100 * (number + 1))
        (one if number % 2 else other).add(metadata)
        both.add(metadata)
    one.merge(other)
    assert one.by_size() == both.by_size()
    assert one.used("a") > one.used("b") > one.used("nobody") == 0


def test_the_least_size_of_what_is_enough() -> None:
    """From the largest down, without those that fit nowhere."""
    holdings = Holdings()
    for size in (1000, 1000, 100_000, 100):
        holdings.add(LedgerMetadata.new(1, 1, 1, ["a"]).closed(0, size))
    assert holdings.least_of("a", 1000, float("inf")) > 2000
    assert 200 < holdings.least_of("a", 1000, 50_000) <= 1024
    assert holdings.least_of("a", 10_000, 50_000) == 1


def test_a_band_needs_as_much_as_it_gives() -> None:
    """Four full and two empty bookies: a little less is moved than for equal levels."""
    disks = {name: Disk(1000, 1000) for name in "abcdef"}
    used = {**dict.fromkeys("abcd", 900), "e": 0, "f": 0}
    found = band(used, disks, 0.1)
    assert found.high == pytest.approx(1.1 * found.low)
    assert 4 * (900 - 1000 * found.high) == pytest.approx(2 * 1000 * found.low)
    assert excess(used, disks, found) == pytest.approx(1125, abs=4)


@pytest.mark.parametrize("used", [(100, 105), (0, 0), (100, 110)])
def test_what_is_near_enough_is_in_the_band(used: tuple[int, int]) -> None:
    """Nothing is to be moved."""
    disks = {"a": Disk(1000, 1000), "b": Disk(1000, 1000)}
    held = dict(zip("ab", used, strict=True))
    assert excess(held, disks, band(held, disks, 0.1)) == 0


def test_without_one_that_takes_nothing_is_to_be_moved() -> None:
    """All are read-only; or the only one that takes is the fullest."""
    used = {"a": 900, "b": 100}
    for rooms in ((0, 0), (50, 0)):
        disks = {"a": Disk(1000, rooms[0]), "b": Disk(1000, rooms[1])}
        assert excess(used, disks, band(used, disks, 0.1)) == 0
