"""Ids, and the addresses that they are made of (metadata-rules.md 5.3)."""

import pytest

from quire.bookie.lifecycle.ids import IdentityError, any_host, check_id, derive_id, own_host
from tests.bookie.fakes.home import made

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    "good", ["127.0.0.1:3181", "bookie-c.example:3183", "b_1", "A:B;C<D=E>F?G@[H]^I", "back\\slash"]
)
def test_ids_that_are_fine(good: str) -> None:
    """Ids may have every character that Apache BookKeeper permits."""
    assert check_id(good) == good


@pytest.mark.parametrize("bad", ["", "a/b", "a b", "../x", "..", ".", "é", "readonly", "ReadOnly", "a\n", "a~b", "a+b"])
def test_ids_that_are_refused(bad: str) -> None:
    """An id becomes part of paths and keys."""
    with pytest.raises(IdentityError):
        check_id(bad)


def no_interface(name: str) -> str | None:
    return "10.0.0.9" if name == "eth7" else None


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"bookie_id": "one", "advertised_address": "h"}, "one"),
        ({"advertised_address": "h.example"}, "h.example:3181"),
        ({"listen": "10.1.2.3"}, "10.1.2.3:3181"),
        ({"listen": "eth7"}, "10.0.0.9:3181"),
        ({"listen": "127.0.0.1", "allow_loopback": True}, "127.0.0.1:3181"),
        ({"listen": "127.0.0.1", "advertised_address": "127.0.0.1"}, "127.0.0.1:3181"),
    ],
)
def test_derivation(more: dict[str, object], found: str) -> None:
    """bookieId verbatim, else the advertised address, else that of the interface, with the port."""
    options = made(**more)
    assert derive_id(options, own_host(options, no_interface), 3181) == found


def test_a_loopback_address_is_refused_unless_asked_for() -> None:
    """Every bookie of a cluster would be 127.0.0.1."""
    with pytest.raises(IdentityError, match="advertisedAddress"):
        own_host(made(listen="127.0.0.1"), no_interface)


def test_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host name is the fully qualified one, or its first label on request."""
    monkeypatch.setattr("socket.getfqdn", lambda: "b1.example.org")
    assert own_host(made(use_host_name=True), no_interface) == "b1.example.org"
    assert own_host(made(use_host_name=True, use_short_host_name=True), no_interface) == "b1"


@pytest.mark.parametrize("bad", ["[::1]", "10.0.0.5:3181", "http://b1", "b 1", ""])
def test_an_advertised_address_that_nobody_could_connect_to(bad: str) -> None:
    """The error names the value and what is right; addresses of both kinds and names pass."""
    with pytest.raises(IdentityError, match="host name or an IP address, without brackets and without a port"):
        own_host(made(advertised_address=bad, bookie_id="one"), no_interface)
    for good in ("::1", "2001:db8::5", "10.0.0.5", "b_1.example.org"):
        assert own_host(made(advertised_address=good, bookie_id="one"), no_interface) == good


def test_a_process_that_nobody_connects_to_may_be_known_by_a_loopback_address() -> None:
    """AutoRecovery's address is a label."""
    assert any_host(made(listen="127.0.0.1"), no_interface) == "127.0.0.1"
    assert any_host(made(advertised_address="h"), no_interface) == "h"
