"""The options that bound what peers may take: their units in a file, and what is on without being set."""

from quire.conf.bookie import BookieOptions
from quire.conf.properties import options, parse

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
MIB = 1 << 20


def bookie(text: str = "") -> BookieOptions:
    return options(BookieOptions, parse(BASE + text, "bookie.conf"))[0]


def test_all_bounds_are_on() -> None:
    """And a share of one address is a part of what all have."""
    made = bookie()
    assert 0 < made.connections_per_address_max < made.connections_max
    assert 0 < made.partial_bytes_per_address_max < made.partial_bytes_max
    assert made.partial_frame_bytes_per_second_min > 0


def test_behind_a_proxy_an_address_may_have_all() -> None:
    """Sizes are in MiB in the file."""
    made = bookie("connectionsPerAddressMax=10000\npartialFramesPerAddressSizeMB=48\npartialFrameBytesPerSecondMin=0\n")
    assert made.connections_per_address_max == made.connections_max
    assert made.partial_bytes_per_address_max == made.partial_bytes_max == 48 * MIB
    assert made.partial_frame_bytes_per_second_min == 0
