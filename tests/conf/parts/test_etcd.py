"""The options by which a guarded etcd is reached: keys, and what stops the start."""

import pytest

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=etcd://a:2379/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
LOGIN = "saslJaasFile=/jaas\netcdSection=Etcd\n"
TLS = "etcdTlsTrustStore=/ca.pem\n"
CERTIFICATE = "etcdTlsCertificatePath=/own.pem\netcdTlsKeyStore=/own.key\n"


@pytest.mark.parametrize("model", [BookieOptions, ClientOptions])
def test_one_file_is_for_bookies_and_clients(model: type[BookieOptions | ClientOptions]) -> None:
    """All of it, and nothing of it."""
    found = options(model, parse(f"{BASE}{LOGIN}{TLS}{CERTIFICATE}", "bookie.conf"), READERS)[0]
    assert (found.jaas_file, found.etcd_section) == ("/jaas", "Etcd")
    assert (found.etcd_tls_trust, found.etcd_tls_certificate, found.etcd_tls_key) == ("/ca.pem", "/own.pem", "/own.key")
    assert found.secures_etcd
    assert not options(model, parse(BASE, "bookie.conf"), READERS)[0].secures_etcd


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("etcdSection=Etcd\n", "set saslJaasFile"),
        (CERTIFICATE, "set etcdTlsTrustStore"),
        (f"{TLS}etcdTlsCertificatePath=/own.pem\n", "etcdTlsKeyStore"),
        (f"{TLS}etcdTlsKeyStore=/own.key\n", "etcdTlsCertificatePath"),
    ],
)
def test_what_lacks_its_other_half(text: str, words: str) -> None:
    """The error names the key to set."""
    with pytest.raises(ConfigurationError, match=words):
        options(ClientOptions, parse(text, "client.conf"))
