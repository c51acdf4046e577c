"""The options by which a guarded ZooKeeper is reached: keys, and what stops the start."""

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
SASL = "saslJaasFile=/jaas\nzkSaslSection=Client\n"
TLS = "zkTlsTrustStore=/ca.pem\n"
CERTIFICATE = "zkTlsCertificatePath=/own.pem\nzkTlsKeyStore=/own.key\n"


@pytest.mark.parametrize("model", [BookieOptions, ClientOptions])
def test_one_file_is_for_bookies_and_clients(model: type[BookieOptions | ClientOptions]) -> None:
    """All of it, and nothing of it."""
    text = f"{BASE}zkEnableSecurity=true\n{SASL}{TLS}{CERTIFICATE}zkTlsKeyStorePasswordPath=/secret\n"
    found = options(model, parse(text, "bookie.conf"), READERS)[0]
    assert (found.zk_acl, found.jaas_file, found.zk_sasl_section) == (True, "/jaas", "Client")
    assert (found.zk_tls_trust, found.zk_tls_certificate, found.zk_tls_key) == ("/ca.pem", "/own.pem", "/own.key")
    assert found.zk_tls_key_password_file == "/secret"
    assert found.secures_zookeeper
    plain = options(model, parse(f"{BASE}zkEnableSecurity=false\nsaslJaasFile=/jaas\n", "bookie.conf"), READERS)[0]
    assert not plain.secures_zookeeper


@pytest.mark.parametrize("text", [SASL, TLS, f"zkEnableSecurity=true\n{TLS}{CERTIFICATE}"])
def test_parts_of_it_are_enough(text: str) -> None:
    """A password alone, TLS alone, and lists for the subject of a certificate."""
    assert options(ClientOptions, parse(text, "client.conf"))[0].secures_zookeeper


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zkEnableSecurity=true\n", "set saslJaasFile and zkSaslSection"),
        (f"zkEnableSecurity=true\n{TLS}", "zkTlsCertificatePath"),
        ("zkEnableSecurity=true\nsaslJaasFile=/jaas\n", "set saslJaasFile and zkSaslSection"),
        ("zkSaslSection=Client\n", "set saslJaasFile"),
        (CERTIFICATE, "set zkTlsTrustStore"),
        (f"{TLS}zkTlsCertificatePath=/own.pem\n", "zkTlsKeyStore"),
        (f"{TLS}zkTlsKeyStore=/own.key\n", "zkTlsCertificatePath"),
        (f"{TLS}zkTlsKeyStorePasswordPath=/secret\n", "without zkTlsKeyStore"),
        ("zkEnableSecurity=perhaps\n", "zkEnableSecurity=perhaps is not allowed"),
    ],
)
def test_what_would_protect_nothing_is_refused(text: str, words: str) -> None:
    """With the key that is missing."""
    with pytest.raises(ConfigurationError) as refused:
        options(ClientOptions, parse(text, "client.conf"))
    assert words in str(refused.value)
