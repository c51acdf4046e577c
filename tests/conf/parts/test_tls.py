"""The options of TLS: BookKeeper's keys for both sides, and what is refused because it could not protect."""

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.parts.tls import APACHES, TlsOptions
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
ON = f"tlsProviderFactoryClass={APACHES}\n"
OWN = "tlsCertificatePath=/c.pem\ntlsKeyStore=/k.pem\n"


def bookie(text: str) -> BookieOptions:
    return options(BookieOptions, parse(BASE + text, "bookie.conf"), READERS)[0]


def client(text: str) -> ClientOptions:
    return options(ClientOptions, parse(text, "bookie.conf"), READERS)[0]


def test_apaches_name_turns_it_on() -> None:
    """As its old one and true do; without the key, or with a blank one, nothing is encrypted."""
    assert bookie(ON + OWN).tls
    assert bookie("tlsProviderFactoryClass=org.apache.bookkeeper.security.SSLContextFactory\n" + OWN).tls
    assert bookie("tlsProviderFactoryClass=true\n" + OWN).tls
    assert not bookie("tlsProviderFactoryClass=\n").tls
    assert not bookie("").tls


def test_a_file_for_both_sides() -> None:
    """The client inside a bookie uses the bookie's key and authorities, unless the file has some of its own."""
    text = ON + OWN + "tlsTrustStore=/t.pem\ntlsClientAuthentication=true\n"
    both = client(text)
    assert (both.tls_key, both.tls_trust, both.tls_client_certificates) == ("/k.pem", "/t.pem", True)
    own = client(text + "clientKeyStore=/ck.pem\nclientTrustStore=/ct.pem\n")
    assert (own.tls_key, own.tls_trust) == ("/ck.pem", "/ct.pem")
    assert bookie(text + "clientKeyStore=/ck.pem\nclientTrustStore=/ct.pem\n").tls_trust == "/t.pem"


def test_versions_that_are_too_old_are_left_out() -> None:
    """The line of the start says which; a list without any other is refused where TLS is on, and only there."""
    text = "tlsEnabledProtocols=TLSv1.2,TLSv1.1,SSLv2Hello\n"
    found, (line,) = options(BookieOptions, parse(BASE + ON + OWN + text, "bookie.conf"), READERS)
    assert found.tls_protocols == ("TLSv1.2",)
    assert "tlsEnabledProtocols=TLSv1.2,TLSv1.1,SSLv2Hello (without TLSv1.1, SSLv2Hello: that is too old)" in line
    assert bookie(text).tls_protocols == ("TLSv1.2",)
    assert bookie("tlsEnabledProtocols=TLSv1.1\n").tls_protocols == ()
    with pytest.raises(ConfigurationError, match=r"tlsEnabledProtocols=TLSv1\.4 is not allowed"):
        bookie("tlsEnabledProtocols=TLSv1.4\n")


def test_what_is_not_read_of_files_stops_nothing_while_tls_is_off() -> None:
    """A type that is not read, a key without a certificate."""
    assert not bookie("tlsKeyStoreType=JKS\ntlsTrustStoreType=jks\ntlsKeyStore=null\n").tls
    assert not client("clientKeyStoreType=JKS\nclientKeyStore=null\n").tls


def test_versions_and_ciphers_are_lists() -> None:
    """As in a file, also as text from a program."""
    found = bookie(ON + OWN + "tlsEnabledProtocols=TLSv1.3\ntlsEnabledCipherSuites=A, B\n")
    assert (found.tls_protocols, found.tls_ciphers) == (("TLSv1.3",), ("A", "B"))
    assert ClientOptions(tls_protocols="TLSv1.3,TLSv1.2").tls_protocols == ("TLSv1.3", "TLSv1.2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tlsProviderFactoryClass=com.example.Mine\n", "tlsProviderFactoryClass"),
        ("tlsClientAuthentication=true\n", "TLS is not on"),
        ("tlsRevocationList=/r.pem\n", "TLS is not on"),
        ("tlsRequired=true\n", "TLS is not on"),
        (ON, "without a certificate"),
        (ON + "tlsCertificatePath=/c.pem\n", "go together"),
        (ON + OWN + "tlsClientAuthentication=true\n", "set tlsTrustStore"),
        (ON + OWN + "tlsKeyStoreType=JKS\n", "JKS are not read"),
        (ON + OWN + "tlsEnabledProtocols=TLSv1.1\n", "tlsEnabledProtocols names no version that is spoken"),
        ("httpServerTlsEnable=true\nhttpServerKeyStorePath=/k\ntlsEnabledProtocols=TLSv1.1\n", "names no version"),
    ],
)
def test_what_could_not_protect_a_bookie_is_refused(text: str, said: str) -> None:
    """The start stops, and the text names the key."""
    with pytest.raises(ConfigurationError, match=said):
        bookie(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [(ON, "without authorities"), (ON + "tlsTrustStore=/t\ntlsClientAuthentication=true\n", "is shown")],
)
def test_what_could_not_protect_a_client_is_refused(text: str, said: str) -> None:
    """A client that could verify nobody, or has nothing to show."""
    with pytest.raises(ConfigurationError, match=said):
        client(text)


def test_only_names_of_files_are_kept() -> None:
    """No option holds a password or a key, so none can be shown."""
    assert not [name for name in TlsOptions.model_fields if "password" in name and not name.endswith("_file")]
