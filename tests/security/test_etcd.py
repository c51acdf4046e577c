"""What a client of etcd is given by its options, and the files that it can't be given."""

from pathlib import Path

import pytest

from quire.conf.parts.etcd import EtcdOptions
from quire.conf.properties import ConfigurationError
from quire.security.etcd import EtcdSecurity
from tests.metadata.zk.guarded import private, section
from tests.security.authority import Authority
from tests.security.test_secrets import noted

# SPDX-License-Identifier: Apache-2.0


def made(**options: object) -> EtcdSecurity:
    return EtcdSecurity(EtcdOptions.model_validate(options))


def login(path: Path) -> dict[str, str]:
    return {"jaas_file": private(path, section("Etcd", username="hd", password="secret")), "etcd_section": "Etcd"}


def test_nothing_is_asked_for_unless_it_is_set() -> None:
    """Connections are not encrypted, nobody says its name."""
    found = made()
    assert (found.tls, found.login) == (None, None)


def test_files_are_read(tmp_path: Path) -> None:
    """Authorities, our certificate with its key, our password; none of the secrets is shown."""
    authority = Authority(tmp_path / "tls")
    own = authority.issue("client")
    with noted() as lines:
        found = made(
            **login(tmp_path / "jaas"),
            etcd_tls_trust=authority.trust,
            etcd_tls_certificate=own.certificate,
            etcd_tls_key=own.key,
        )
    assert not lines
    assert found.login is not None
    assert (found.login.user, found.login.password) == ("hd", "secret")
    assert found.tls is not None
    assert found.tls.trust == Path(authority.trust).read_bytes()
    assert (found.tls.certificate, found.tls.key) == (Path(own.certificate).read_bytes(), Path(own.key).read_bytes())
    assert "PRIVATE" not in repr(found.tls)
    assert "secret" not in repr(found.login)


def test_a_password_without_tls_is_warned_of(tmp_path: Path) -> None:
    """For it goes over the wire as it is."""
    with noted() as lines:
        made(**login(tmp_path / "jaas"))
    assert any("without TLS" in line for line in lines)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """The error names the file and its key."""
    with pytest.raises(ConfigurationError, match="etcdTlsTrustStore"):
        made(etcd_tls_trust=str(tmp_path / "none"))
