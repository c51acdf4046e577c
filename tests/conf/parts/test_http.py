"""The options of the HTTP port: closed where nothing is said, and what is refused because it could not protect."""

import pytest

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.properties import ConfigurationError, options, parse
from quire.conf.shared_file import READERS

# SPDX-License-Identifier: Apache-2.0

BASE = "metadataServiceUri=zk://a:2181/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
TLS = "httpServerTlsEnable=true\nhttpServerKeyStorePath=/k.pem\n"


def bookie(text: str) -> BookieOptions:
    return options(BookieOptions, parse(BASE + text, "bookie.conf"), READERS)[0]


def test_only_health_is_open_by_default() -> None:
    """Of a bookie, and of AutoRecovery with the same file."""
    assert bookie("").admin_open == ("health",)
    assert not bookie("").http_tls
    text = BASE + "adminTokenFile=/t\nadminOpenPaths=health,metrics\nadminHosts= a , b\n"
    for model in (BookieOptions, AutoRecoveryOptions):
        made, warnings = options(model, parse(text, "bookie.conf"), READERS)
        assert (made.admin_token_file, made.admin_open) == ("/t", ("health", "metrics"))
        assert made.admin_hosts == ("a", "b")
        assert warnings == []


def test_apaches_keys_turn_https_on() -> None:
    """With PEM files."""
    made = bookie(TLS + "httpServerTrustStorePath=/t.pem\n")
    assert (made.http_tls, made.http_certificate, made.http_trust) == (True, "/k.pem", "/t.pem")
    assert not bookie("httpServerTlsEnable=false\nhttpServerKeyStorePassword=\n").http_tls


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adminOpenPaths=everything\n", "adminOpenPaths"),
        ("adminOpenPaths=none,health\n", "none goes with nothing else"),
        ("adminTokenFile=/t\nmetricsTokenFile=/t\n", "are one file"),
        ("httpServerTlsEnable=true\n", "set httpServerKeyStorePath"),
        ("httpServerKeyStorePath=/k.pem\n", "httpServerTlsEnable=true"),
        ("httpServerTrustStorePath=/t.pem\n", "httpServerTlsEnable=true"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    """The key is named, and what to do."""
    with pytest.raises(ConfigurationError, match=said):
        bookie(text)
