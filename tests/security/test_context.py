"""What is read of PEM files, and what is said of those that can't be used."""

from pathlib import Path
from random import Random

import pytest
from twisted.logger import capturedLogs

from quire.conf.properties import ConfigurationError
from quire.security.context import files_of, load
from tests.security.authority import Authority
from tests.security.wires import bookie_options, client_options

# SPDX-License-Identifier: Apache-2.0

OF_A_CURVE_THAT_NOBODY_SERVES = b"""-----BEGIN PRIVATE KEY-----
MHkCAQAwEAYHKoZIzj0CAQYFK4EEACAEYjBgAgEBBB0AZ89ouw1xbQ9K3sKpcaG1
twzoH+NF2c7311CO3aE8AzoABOor/3enrNojOAJRAjbpACUKiFXxNtHiCFbpKeZL
PNUYM8ES25no5LMDDRR0ykmIfB1nuU7VH9zN
-----END PRIVATE KEY-----
"""


def test_the_end_of_the_own_certificate_is_known(tmp_path: Path) -> None:
    """For the metric; a client without a certificate has none."""
    authority = Authority(tmp_path)
    assert load(bookie_options(**authority.issue("b").keys)).expires > 1_700_000_000
    assert load(client_options(tls_trust=authority.trust)).expires == 0


def test_a_key_with_a_password(tmp_path: Path) -> None:
    """The password is in a file, with a line end; a wrong one, and none, are refused without being shown."""
    from cryptography.hazmat.primitives import serialization

    authority = Authority(tmp_path)
    pair = authority.issue("b")
    key = serialization.load_pem_private_key(Path(pair.key).read_bytes(), None)
    Path(pair.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )
    password = tmp_path / "password"
    password.write_bytes(b"open sesame\n")
    load(bookie_options(**pair.keys, tls_key_password_file=str(password)))
    password.write_bytes(b"close sesame\n")
    for options in (bookie_options(**pair.keys, tls_key_password_file=str(password)), bookie_options(**pair.keys)):
        with pytest.raises(ConfigurationError, match="password is missing or wrong") as failed:
            load(options)
        assert "sesame" not in str(failed.value)


@pytest.mark.parametrize("key", ["tls_certificate", "tls_key", "tls_trust", "tls_revocations"])
@pytest.mark.parametrize("what", ["nothing", "junk", "missing"])
def test_a_file_that_can_not_be_used_is_named(tmp_path: Path, key: str, what: str) -> None:
    """With the key of the option; an empty file, bytes that are no PEM, none at all."""
    authority = Authority(tmp_path)
    options = bookie_options(
        **authority.issue("b").keys,
        tls_trust=authority.trust,
        tls_client_certificates=True,
        tls_revocations=authority.revoked(),
    )
    load(options)
    path = Path(getattr(options, key))
    if what == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if what == "nothing" else b"-----BEGIN NONSENSE-----\nMTIz\n-----END NONSENSE-----\n")
    with pytest.raises(ConfigurationError, match=str(path)):
        load(options)


@pytest.mark.parametrize("key", ["tls_certificate", "tls_key", "tls_trust", "tls_revocations"])
def test_any_bytes_are_used_or_named(tmp_path: Path, key: str) -> None:
    """A bit of a good file is turned over: what the libraries raise about that is an error of the configuration."""
    authority = Authority(tmp_path)
    options = bookie_options(
        **authority.issue("b").keys,
        tls_trust=authority.trust,
        tls_client_certificates=True,
        tls_revocations=authority.revoked(),
    )
    path = Path(getattr(options, key))
    good, rng = path.read_bytes(), Random(0)
    refused = []
    for _ in range(150):
        at, bit = rng.randrange(len(good)), 1 << rng.randrange(8)
        path.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
        try:
            load(options)
        except ConfigurationError as failure:
            refused.append(str(failure))
    assert refused
    assert all(str(path) in each for each in refused)


@pytest.mark.parametrize("key", ["tls_certificate", "tls_trust", "tls_revocations"])
def test_a_file_that_is_half_written_is_named(tmp_path: Path, key: str) -> None:
    """Not used as far as it goes: who is of an authority still to come would be shut out until the next look."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    options = bookie_options(
        **authority.issue("b").keys,
        tls_trust=authority.trust,
        tls_client_certificates=True,
        tls_revocations=authority.revoked(),
    )
    path = Path(getattr(options, key))
    first, second = path.read_bytes(), Path(other.revoked() if key == "tls_revocations" else other.trust).read_bytes()
    path.write_bytes(first + second)
    load(options)
    for cut in (3, 30, len(second) // 2, len(second) - 10):
        path.write_bytes(first + second[:cut])
        with pytest.raises(ConfigurationError, match=f"{path} .*is not whole"):
            load(options)


def test_a_key_that_is_whole_and_not_served(tmp_path: Path) -> None:
    """Of a curve that the library does not know."""
    pair = Authority(tmp_path).issue("b")
    Path(pair.key).write_bytes(OF_A_CURVE_THAT_NOBODY_SERVES)
    with pytest.raises(ConfigurationError, match=f"{pair.key} .*can't be used"):
        load(bookie_options(**pair.keys))


def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    """Both files are named."""
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    with pytest.raises(ConfigurationError, match="is not the key of the first certificate"):
        load(bookie_options(tls_certificate=one.certificate, tls_key=other.key))


def test_cipher_suites_by_their_standard_names(tmp_path: Path) -> None:
    """Of both versions; names that OpenSSL does not know are left out, and stop the start where all are such."""
    own = Authority(tmp_path).issue("b").keys
    load(bookie_options(**own, tls_ciphers="TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))
    with capturedLogs() as events:
        load(bookie_options(**own, tls_ciphers="TLS_AES_256_GCM_SHA384,TLS_AES_OLD,SSL_RSA_WITH_RC4_128_MD5"))
    assert [event["unknown"] for event in events] == ["TLS_AES_OLD, SSL_RSA_WITH_RC4_128_MD5"]
    for names in ("NONSENSE", "TLS_AES_NONSENSE"):
        with pytest.raises(ConfigurationError, match="tlsEnabledCipherSuites"):
            load(bookie_options(**own, tls_ciphers=names))


def test_the_files_that_are_watched(tmp_path: Path) -> None:
    """Those that are read."""
    authority = Authority(tmp_path)
    pair = authority.issue("b")
    assert files_of(bookie_options(**pair.keys, tls_trust=authority.trust)) == [
        pair.certificate,
        pair.key,
        authority.trust,
    ]


def test_the_key_of_a_clients_file_is_named(tmp_path: Path) -> None:
    """By the name that a client's file has for it, and the bookie's that does there, too."""
    authority = Authority(tmp_path)
    gone = str(tmp_path / "gone.pem")
    for options, named in (
        (client_options(tls_trust=gone), "clientTrustStore or tlsTrustStore"),
        (
            client_options(
                tls_trust=authority.trust,
                tls_certificate=authority.issue("c").certificate,
                tls_key=gone,
                tls_client_certificates=True,
            ),
            "clientKeyStore or tlsKeyStore",
        ),
    ):
        with pytest.raises(ConfigurationError) as failed:
            load(options)
        assert str(failed.value) == f"{gone} ({named}): No such file or directory"
