"""Which role a certificate's subject gives."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from quire.security.roles import role_of

# SPDX-License-Identifier: Apache-2.0

ORGANISATION, UNIT = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


def subject(*values: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in values])


@pytest.mark.parametrize(
    ("unit", "role"),
    [
        ("0:Superuser,Client;1:Cluster1", "Superuser"),
        ("1:Cluster1;0: Site Ops ,Client", "Site Ops"),
        ("0:A;0:B", "B"),
        ("0:a:b", "a:b"),
        ("0:é", "é"),
        ("1:Superuser", None),
        ("00:Superuser", None),
        (" 0:Superuser", None),
        ("0:", None),
        ("0:,Superuser", None),
        ("x0:Superuser", None),
        ("Superuser", None),
        ("0", None),
    ],
)
def test_the_first_name_of_value_0(unit: str, role: str | None) -> None:
    """As Apache's bookies read it; what they can't read gives none."""
    assert role_of(subject((UNIT, unit))) == role


def test_the_first_unit_counts() -> None:
    """In the certificate's order; other fields say nothing, and a subject without a unit gives none."""
    assert role_of(subject((ORGANISATION, "0:A"), (UNIT, "0:B"), (UNIT, "0:C"))) == "B"
    assert role_of(subject((UNIT, "nothing"), (UNIT, "0:C"))) is None
    assert role_of(subject((ORGANISATION, "0:A"))) is None
    assert role_of(subject()) is None
