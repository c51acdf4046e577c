"""What a bookie sets and says of its sockets."""

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from quire.bookie.server.transport import peer_name, source_of

# SPDX-License-Identifier: Apache-2.0


def test_peer_names() -> None:
    """A transport without a peer address still has a name."""
    assert peer_name(None) == "None"


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:7:1:2:3:4", "2001:db8:0:7::/64"),
        ("2001:db8:0:7::9", "2001:db8:0:7::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_what_one_machine_has_one_of(host: str, source: str) -> None:
    """An address of IPv4, in either family, and a /64 of IPv6."""
    made = IPv6Address if ":" in host else IPv4Address
    assert source_of(made("TCP", host, 1)) == source


def test_a_transport_without_an_address_has_a_source() -> None:
    """Of its own kind."""
    assert source_of(None) == "None"
