"""The options of rights: BookKeeper's keys for roles, ours for the file, and what could not protect."""

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.parts.authentication import APACHES_BOOKIE, APACHES_ROLES
from quire.conf.parts.tls import APACHES
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
MUTUAL = (
    f"tlsProviderFactoryClass={APACHES}\ntlsCertificatePath=/c.pem\ntlsKeyStore=/k.pem\ntlsTrustStore=/t.pem\n"
    "tlsClientAuthentication=true\n"
)
ASKED = f"bookieAuthProviderFactoryClass={APACHES_ROLES}\n"
NAMES = f"bookieAuthProviderFactoryClass={APACHES_BOOKIE}\nsaslJaasFile=/jaas.conf\n"


def bookie(text: str) -> BookieOptions:
    return options(BookieOptions, parse(BASE + text, "bookie.conf"), READERS)[0]


def test_apaches_keys() -> None:
    """Its class, or ours for it; the roles are a list, in a file as in a program's text."""
    found = bookie(MUTUAL + ASKED + "authorizedRoles=Writer, Site Ops\n")
    assert (found.authentication, found.authorized_roles) == ("roles", ("Writer", "Site Ops"))
    assert bookie(MUTUAL + "bookieAuthProviderFactoryClass=roles\nauthorizedRoles=A\n").authorized_roles == ("A",)
    assert BookieOptions.model_validate({**found.model_dump(), "authorized_roles": "A,B"}).authorized_roles == (
        "A",
        "B",
    )


@pytest.mark.parametrize("who", [MUTUAL, NAMES, MUTUAL + ASKED + "authorizedRoles=A\n", MUTUAL + NAMES])
def test_a_file_of_rights_needs_somebody_who_is_known(who: str) -> None:
    """By a certificate, a name, or both; clients that read the same file pass it over."""
    assert bookie(who + "rightsFile=/rights\n").rights_file == "/rights"
    assert options(ClientOptions, parse("rightsFile=/rights\n", "bookie.conf"), READERS)[1] == []


def test_whether_each_client_has_to_say_who_it_is() -> None:
    """A certificate that is asked for over TLS alone is none where a client may do without TLS."""
    optional = "tlsRequired=false\n"
    for text in ("", MUTUAL.replace("tlsClientAuthentication=true\n", ""), MUTUAL + optional):
        assert not bookie(text).asks_clients
    for text in (MUTUAL, NAMES, MUTUAL + optional + "rightsFile=/rights\n", MUTUAL + ASKED + "authorizedRoles=A\n"):
        assert bookie(text).asks_clients


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MUTUAL + ASKED, "lets nobody in: set authorizedRoles"),
        (MUTUAL + ASKED + "authorizedRoles=A,,B\n", "authorizedRoles=A,,B is not allowed: a role without a name"),
        (ASKED + "authorizedRoles=A\n", "set tlsClientAuthentication=true"),
        (MUTUAL + "authorizedRoles=A\n", f"set bookieAuthProviderFactoryClass={APACHES_ROLES}"),
        (NAMES + "authorizedRoles=A\n", "nobody asks for it"),
        ("rightsFile=/rights\n", "set tlsClientAuthentication=true"),
        (MUTUAL.replace("tlsClientAuthentication=true\n", "") + "rightsFile=/rights\n", "nobody has to say who he is"),
    ],
)
def test_what_could_not_protect_a_bookie_is_refused(text: str, said: str) -> None:
    """The start stops, and the text names the key that is missing."""
    with pytest.raises(ConfigurationError, match=said):
        bookie(text)
