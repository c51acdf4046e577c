"""What a bookie sets and says of its sockets."""

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.testing import MemoryReactor

from quire.bookie.server.transport import peer_name, source_of, unsent_bytes

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


class Slow(FileDescriptor):
    """One of Twisted's, whose socket takes so much at a time."""

    connected = True

    def writeSomeData(self, data: bytes) -> int:
        return min(len(data), 100_000)


def test_what_a_transport_keeps() -> None:
    """Before its turn and behind what is being sent, until all was taken."""
    transport = Slow(MemoryReactor())  # type: ignore[no-untyped-call]
    assert unsent_bytes(transport) == 0
    transport.write(bytes(150_000))
    transport.write(bytes(100_000))
    assert unsent_bytes(transport) == 250_000
    transport.doWrite()  # type: ignore[no-untyped-call]
    transport.write(bytes(50_000))
    assert unsent_bytes(transport) == 300_000, "what is sent is kept with what stands behind it"
    for _ in range(4):
        transport.doWrite()  # type: ignore[no-untyped-call]
    assert unsent_bytes(transport) == 0
