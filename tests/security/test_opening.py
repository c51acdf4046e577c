"""TLS costs nothing where it is off, and what is missing is said where it is on."""

import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError
from quire.security.context import load
from quire.security.opening import credentials, http_credentials
from quire.security.stream import SecureStream
from tests.security.authority import Authority
from tests.security.wires import Side, bookie_options, carry, client_options

# SPDX-License-Identifier: Apache-2.0


def test_off_and_on(tmp_path: Path) -> None:
    """None, or what the files hold."""
    assert credentials(ClientOptions(), Clock().seconds) is None
    assert credentials(client_options(tls_trust=Authority(tmp_path).trust), Clock().seconds) is not None


def test_the_http_port_has_the_same_terms(tmp_path: Path) -> None:
    """Who is revoked does not come in there either, and what the versions and times say holds."""
    authority = Authority(tmp_path)
    bookie, client, other = (authority.issue(name) for name in ("bookie", "client", "other"))
    pem = tmp_path / "http.pem"
    pem.write_bytes(Path(bookie.key).read_bytes() + Path(bookie.certificate).read_bytes())
    files = {"http_tls": True, "http_certificate": str(pem), "http_trust": authority.trust}
    terms = {"tls_revocations": authority.revoked(client), "tls_protocols": "TLSv1.3", "tls_refresh_s": 7}
    for options in (
        bookie_options(**bookie.keys, **files, **terms),
        AutoRecoveryOptions.model_validate({"metadata_uri": "memory://x", **files, **terms}),
    ):
        shows = {"tls_trust": authority.trust, "tls_client_certificates": True}
        for pair, version, refusal in (
            (other, "TLSv1.3", None),
            (other, "TLSv1.2", "the handshake failed"),
            (client, "TLSv1.3", "is revoked"),
        ):
            served, asking = Side(), Side()
            made = http_credentials(options, Clock().seconds)
            assert made is not None
            context = load(client_options(**shows, **pair.keys, tls_protocols=version)).context
            both = made.serve(served.tcp, served), SecureStream(asking.tcp, asking, context, client=True)
            for each in both:
                each.begin()
            carry(asking, served)
            assert served.is_secured == (refusal is None)
            assert refusal is None or refusal in str(served.lost)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.delitem(sys.modules, "quire.security.credentials", raising=False)
    monkeypatch.delitem(sys.modules, "quire.security.stream", raising=False)
    monkeypatch.setitem(sys.modules, "service_identity", None)
    with pytest.raises(ConfigurationError, match=r"pip install .*\[tls\]"):
        credentials(client_options(tls_trust=Authority(tmp_path).trust), Clock().seconds)


def test_openssl_is_not_loaded_without_tls() -> None:
    """By a client or a bookie's parts."""
    code = (
        "import sys; sys.modules['OpenSSL'] = None\n"
        "import quire.client.api, quire.bookie.lifecycle.bookie\n"
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
