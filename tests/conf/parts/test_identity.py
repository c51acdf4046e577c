"""What a process is called: a bookie and AutoRecovery beside it read the same keys into the same fields."""

import pytest

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.options import key_of
from quire.conf.parts import identity
from quire.conf.parts.identity import IdentityOptions

# SPDX-License-Identifier: Apache-2.0


def test_both_kinds_of_process_have_the_same_fields() -> None:
    """Key and default of each field of the identity are the same in both."""
    for name, field in IdentityOptions.model_fields.items():
        for model in (BookieOptions, AutoRecoveryOptions):
            there = model.model_fields[name]
            assert key_of(there) == key_of(field)
            assert there.default == field.default


def test_the_loopback_interface_has_its_address() -> None:
    """An interface's name gives its IPv4 address."""
    assert identity.interface_address("lo") == "127.0.0.1"


@pytest.mark.parametrize("name", ["nothing9", "0.0.0.0", "", "x" * 300])
def test_what_is_no_interface_has_none(name: str) -> None:
    """Unknown, empty and too long names give `None`."""
    assert identity.interface_address(name) is None


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the domain and without; an address has no parts to lose but its first."""
    monkeypatch.setattr("socket.getfqdn", lambda: "b1.example.org")
    assert identity.own_name(short=False) == "b1.example.org"
    assert identity.own_name(short=True) == "b1"
