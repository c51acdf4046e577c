"""What a bookie sets and says of its sockets."""

from quire.bookie.server.transport import peer_name

# SPDX-License-Identifier: Apache-2.0


def test_peer_names() -> None:
    """A transport without a peer address still has a name."""
    assert peer_name(None) == "None"
