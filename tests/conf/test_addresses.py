"""This machine's addresses by name."""

import pytest

from quire.conf import addresses

# SPDX-License-Identifier: Apache-2.0


def test_the_loopback_interface_has_its_address() -> None:
    """An interface's name gives its IPv4 address."""
    assert addresses.interface_address("lo") == "127.0.0.1"


@pytest.mark.parametrize("name", ["nothing9", "0.0.0.0", "", "x" * 300])
def test_what_is_no_interface_has_none(name: str) -> None:
    """Unknown, empty and too long names give `None`."""
    assert addresses.interface_address(name) is None


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the domain and without; an address has no parts to lose but its first."""
    monkeypatch.setattr("socket.getfqdn", lambda: "b1.example.org")
    assert addresses.own_name(short=False) == "b1.example.org"
    assert addresses.own_name(short=True) == "b1"
