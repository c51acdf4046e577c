"""What a session with ZooKeeper is given by its options, and the files that it can't be given."""

import ssl
from pathlib import Path

import pytest

from quire.conf.parts.zookeeper import ZooKeeperOptions
from quire.conf.properties import ConfigurationError
from quire.security.digest_md5 import ZOOKEEPER, digest_of
from quire.security.zookeeper import ZooKeeperSecurity, refusal
from tests.metadata.zk.guarded import private, section
from tests.security.authority import Authority
from tests.security.test_secrets import KEY_PASSWORD, encrypted, noted

# SPDX-License-Identifier: Apache-2.0


def made(**options: object) -> ZooKeeperSecurity:
    return ZooKeeperSecurity(ZooKeeperOptions.model_validate(options))


def jaas(path: Path) -> dict[str, str]:
    return {
        "jaas_file": private(path, section("Client", username="hd", password="secret")),
        "zk_sasl_section": "Client",
    }


def test_nothing_is_asked_for_unless_it_is_set() -> None:
    """Znodes are open, connections are not encrypted, nobody says its name."""
    found = made()
    assert (found.with_acl, found.tls, found.login, found.who) == (False, None, None, "a session without a name")


def test_a_login_is_for_zookeeper(tmp_path: Path) -> None:
    """Its proof is of a digest that no bookie knows."""
    found = made(**jaas(tmp_path / "jaas"))
    assert found.login is not None
    assert (found.login.user, found.who) == ("hd", "the user hd")
    exchange = found.login.begin()
    assert exchange.step(b"") == b""
    answer = exchange.step(b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess')
    assert b'realm="zk-sasl-md5"' in answer
    assert b'digest-uri="zookeeper/zk-sasl-md5"' in answer
    assert digest_of("hd", "secret", ZOOKEEPER) != digest_of("hd", "secret")


def test_what_gives_a_password_away_is_logged(tmp_path: Path) -> None:
    """No TLS, and a file that everybody can read."""
    options = jaas(tmp_path / "jaas")
    authority = Authority(tmp_path / "tls")
    with noted() as lines:
        made(**options, zk_tls_trust=authority.trust)
    assert not lines
    (tmp_path / "jaas").chmod(0o644)
    with noted() as lines:
        made(**options)
    assert any("everybody on this machine can read" in line for line in lines)
    assert any("without TLS" in line for line in lines)


def test_a_key_that_everybody_can_read_is_logged(tmp_path: Path) -> None:
    """Once, and not at each connection; of one with a password it is the file of that."""
    authority = Authority(tmp_path)
    pair = authority.issue("c")
    key = Path(pair.key)
    options = {"zk_tls_trust": authority.trust, "zk_tls_certificate": pair.certificate, "zk_tls_key": pair.key}
    key.chmod(0o644)
    with noted() as lines:
        found = made(**options)
        assert found.tls is not None
        found.tls.context()
    assert sum(f"chmod o-r {key}" in line for line in lines) == 1
    encrypted(pair, KEY_PASSWORD)
    key.chmod(0o644)
    password = private(tmp_path / "password", KEY_PASSWORD.decode())
    with noted() as lines:
        made(**options, zk_tls_key_password_file=password)
    assert not lines


def test_a_certificate_is_checked_for_its_authority_and_its_name(tmp_path: Path) -> None:
    """Of the file's authorities alone: the machine's are not asked."""
    authority = Authority(tmp_path)
    found = made(zk_tls_trust=authority.trust)
    assert found.tls is not None
    context = found.tls.context()
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1


def test_files_are_read_for_each_connection(tmp_path: Path) -> None:
    """New ones serve connections made from then on."""
    authority = Authority(tmp_path)
    found = made(zk_tls_trust=authority.trust)
    assert found.tls is not None
    before = found.tls.context().get_ca_certs()
    Path(authority.trust).write_bytes(Path(Authority(tmp_path / "new").trust).read_bytes())
    assert found.tls.context().get_ca_certs() != before
    Path(authority.trust).unlink()
    with pytest.raises(ConfigurationError, match="zkTlsTrustStore"):
        found.tls.context()


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
    """Each is named with its key; a key without its password asks nobody at a terminal."""
    authority = Authority(tmp_path)
    pair, other = authority.issue("own"), authority.issue("other")
    locked = encrypted(authority.issue("locked"), KEY_PASSWORD)
    absent, empty = str(tmp_path / "absent"), private(tmp_path / "empty", "nothing")
    wrong = private(tmp_path / "wrong", "not it")
    trust = {"zk_tls_trust": authority.trust}
    own = {**trust, "zk_tls_certificate": pair.certificate, "zk_tls_key": pair.key}
    known = jaas(tmp_path / "jaas")
    of_locked = {**own, "zk_tls_certificate": locked.certificate, "zk_tls_key": locked.key}
    for options, words in (
        ({"zk_tls_trust": absent}, f"{absent} (zkTlsTrustStore): No such file"),
        ({"zk_tls_trust": empty}, f"{empty} (zkTlsTrustStore) can't be used"),
        ({**own, "zk_tls_certificate": absent}, f"{absent} (zkTlsCertificatePath): No such file"),
        ({**own, "zk_tls_key": absent}, f"{absent} (zkTlsKeyStore): No such file"),
        ({**own, "zk_tls_key": other.key}, f"{other.key} (zkTlsKeyStore) can't be used"),
        (of_locked, "the key's password (zkTlsKeyStorePasswordPath) is missing or wrong"),
        ({**of_locked, "zk_tls_key_password_file": wrong}, "is missing or wrong"),
        ({**of_locked, "zk_tls_key_password_file": absent}, f"{absent} (zkTlsKeyStorePasswordPath): No such file"),
        ({**known, "zk_sasl_section": "Other"}, "has no section Other; its sections: Client"),
        ({**known, "jaas_file": absent}, f"{absent}: No such file"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            made(**options)
        assert words in str(refused.value)
    right = private(tmp_path / "right", KEY_PASSWORD.decode() + "\n")
    assert made(**of_locked, zk_tls_key_password_file=right).tls is not None


def test_a_refusal_names_the_keys_of_zookeeper() -> None:
    """Where the words are those of TLS with bookies."""
    for reason, words in (
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "set zkTlsCertificatePath and zkTlsKeyStore"),
        ("TLSV1_ALERT_CERTIFICATE_EXPIRED", "replace it (zkTlsCertificatePath)"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "ours are TLSv1.2 and TLSv1.3"),
        ("WRONG_VERSION_NUMBER", "is this its secureClientPort?"),
    ):
        error = ssl.SSLError(1, reason)
        error.reason = reason
        assert words in refusal(error)
        assert " tls" not in refusal(error)
        assert "(tls" not in refusal(error)
