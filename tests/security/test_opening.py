"""TLS costs nothing where it is off, and what is missing is said where it is on."""

import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError
from quire.security.opening import credentials
from tests.security.authority import Authority
from tests.security.wires import client_options

# SPDX-License-Identifier: Apache-2.0


def test_off_and_on(tmp_path: Path) -> None:
    """None, or what the files hold."""
    assert credentials(ClientOptions(), Clock().seconds) is None
    assert credentials(client_options(tls_trust=Authority(tmp_path).trust), Clock().seconds) is not None


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.delitem(sys.modules, "quire.security.credentials", raising=False)
    monkeypatch.delitem(sys.modules, "quire.security.stream", raising=False)
    monkeypatch.setitem(sys.modules, "service_identity", None)
    with pytest.raises(ConfigurationError, match=r"quire\[tls\]"):
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
