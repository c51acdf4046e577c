"""The options of authentication: BookKeeper's keys and class names, and what stops the start."""

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.parts.authentication import (
    APACHES_BOOKIE,
    APACHES_CLIENT,
    NONE,
    BookieAuthenticationOptions,
    ClientAuthenticationOptions,
)
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"


def bookie(text: str) -> BookieOptions:
    return options(BookieOptions, parse(BASE + text, "bookie.conf"), READERS)[0]


def client(text: str) -> ClientOptions:
    return options(ClientOptions, parse(text, "bookie.conf"), READERS)[0]


def test_apaches_names_for_a_bookie() -> None:
    """The class that is served, the one that asks for nothing, and the defaults of its keys."""
    found = bookie(f"bookieAuthProviderFactoryClass={APACHES_BOOKIE}\nsaslJaasFile=/jaas.conf\n")
    assert (found.authentication, found.jaas_file) == ("sasl", "/jaas.conf")
    assert (found.jaas_section, found.jaas_allowed) == ("Bookie", ".*bookkeeper.*")
    assert bookie("bookieAuthProviderFactoryClass=sasl\nsaslJaasFile=/jaas.conf\n").authentication == "sasl"
    for nothing in ("", f"bookieAuthProviderFactoryClass={NONE}\n", "bookieAuthProviderFactoryClass=False\n"):
        assert bookie(nothing).authentication is None


def test_apaches_names_for_a_client() -> None:
    """The same in a file that a bookie reads, too; each side takes its own keys of it."""
    both = (
        f"bookieAuthProviderFactoryClass={APACHES_BOOKIE}\nclientAuthProviderFactoryClass={APACHES_CLIENT}\n"
        "saslJaasFile=/jaas.conf\n"
    )
    found = client(both + "clientRole=system\n")
    assert (found.authentication, found.jaas_file, found.client_role) == ("sasl", "/jaas.conf", "system")
    assert (found.jaas_client_section, found.jaas_system_section) == ("BookKeeper", "Auditor")
    assert bookie(both).authentication == "sasl"
    assert client("").authentication is None
    assert client(f"clientAuthProviderFactoryClass={NONE}\n").authentication is None


@pytest.mark.parametrize(
    "text",
    [
        "clientAuthProviderFactoryClass=com.example.Mine\n",
        "clientAuthProviderFactoryClass=roles\n",
        "clientRole=king\n",
    ],
)
def test_a_client_that_could_not_say_who_it_is(text: str) -> None:
    """The line and the key are named."""
    with pytest.raises(ConfigurationError, match=f"bookie.conf:1: {text.strip()}"):
        client(text)
    with pytest.raises(ConfigurationError, match="set saslJaasFile"):
        client("clientAuthProviderFactoryClass=sasl\n")


@pytest.mark.parametrize("name", ["com.example.Mine", "org.apache.bookkeeper.tls.BookieAuthZFactor", "true"])
def test_another_provider_stops_the_start(name: str) -> None:
    """With the line and the key: nobody is let in by a line that protects nothing."""
    said = rf"bookie\.conf:4: bookieAuthProviderFactoryClass={name} is not allowed: it is not served"
    with pytest.raises(ConfigurationError, match=said):
        bookie(f"bookieAuthProviderFactoryClass={name}\nsaslJaasFile=/jaas.conf\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"bookieAuthProviderFactoryClass={APACHES_BOOKIE}\n", "set saslJaasFile"),
        ("saslJaasClientAllowedIds=(\n", "no regular expression"),
    ],
)
def test_what_could_not_protect_a_bookie_is_refused(text: str, said: str) -> None:
    """The start stops, and the text names the key."""
    with pytest.raises(ConfigurationError, match=said):
        bookie(text)


def test_no_option_holds_a_password() -> None:
    """So none can be shown."""
    both = {**BookieAuthenticationOptions.model_fields, **ClientAuthenticationOptions.model_fields}
    assert not [name for name in both if "password" in name]
