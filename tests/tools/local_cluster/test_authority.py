"""The certificates of `quire local --tls`."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import Property, options
from quire.tools.local_cluster.authority import LocalAuthority
from tests.security.wires import DIRECTORIES, Pair

# SPDX-License-Identifier: Apache-2.0


def found(keys: dict[str, str]) -> list[Property]:
    return [Property(key, value, "here") for key, value in keys.items()]


def test_a_bookie_and_a_client_know_each_other(tmp_path: Path) -> None:
    """By the keys that it gives, with certificates on both sides, for the host it was made for and no other."""
    authority = LocalAuthority(tmp_path / "tls", "127.0.0.1")
    authority.make()
    client = options(ClientOptions, found(authority.client_keys()))[0]
    directories = {
        "metadataServiceUri": str(DIRECTORIES["metadata_uri"]),
        "journalDirectories": "/j",
        "ledgerDirectories": "/l",
    }
    bookie = options(BookieOptions, found({**directories, **authority.bookie_keys()}))[0]
    assert bookie.tls_client_certificates
    pair = Pair(bookie, client)
    assert pair.client.is_secured
    assert pair.bookie.is_secured
    assert not Pair(bookie, client, "10.1.1.1").client.is_secured


def test_the_authoritys_key_is_kept_nowhere(tmp_path: Path) -> None:
    """Two keys are there, for nobody else to read, and neither is the authority's."""
    LocalAuthority(tmp_path, "127.0.0.1").make()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["bookie.key", "bookie.pem", "ca.pem", "client.key", "client.pem"]
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    for name in ("bookie.key", "client.key"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
        key = load_pem_private_key((tmp_path / name).read_bytes(), None)
        assert key.public_key() != authority.public_key()


def test_a_second_start_keeps_them(tmp_path: Path) -> None:
    """So that clients of the first go on."""
    LocalAuthority(tmp_path, "127.0.0.1").make()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    LocalAuthority(tmp_path, "127.0.0.1").make()
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
