"""
Authorities made on the spot, with certificates that are good, and others with one fault each, as PEM files in a test's
directory.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

# SPDX-License-Identifier: Apache-2.0

LOOPBACK = ("127.0.0.1", "localhost")


class Pair(NamedTuple):
    """The files of one certificate."""

    certificate: str
    key: str

    @property
    def keys(self) -> dict[str, str]:
        """As options of a bookie, or of a client that shows it."""
        return {"tls_certificate": self.certificate, "tls_key": self.key}


class Authority:
    """One authority.  `trust`: the file with its certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._authority = trustme.CA(organization_name=name)
        directory.mkdir(parents=True, exist_ok=True)
        self.trust = str(directory / f"{name}.pem")
        self._authority.cert_pem.write_to_path(self.trust)

    def issue(self, name: str, *hosts: str, expired: bool = False, unit: str | None = None) -> Pair:
        """A certificate in files of this name, for these hosts, with this OU; over files that are there already."""
        until = datetime.now(UTC) - timedelta(days=1) if expired else None
        made = self._authority.issue_cert(
            *(hosts or LOOPBACK), common_name=name, organization_unit_name=unit, not_after=until
        )
        pair = Pair(str(self._directory / f"{name}.crt"), str(self._directory / f"{name}.key"))
        Path(pair.key).touch(mode=0o600)
        Path(pair.key).write_bytes(made.private_key_pem.bytes())
        Path(pair.certificate).write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return pair

    def revoked(self, *pairs: Pair, out_of_date: bool = False) -> str:
        """The file with a list of these certificates."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(x509.load_pem_x509_certificate(self._authority.cert_pem.bytes()).subject)
            .last_update(now - timedelta(days=2))
            .next_update(now + timedelta(days=-1 if out_of_date else 1))
        )
        for pair in pairs:
            serial = x509.load_pem_x509_certificate(Path(pair.certificate).read_bytes()).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            )
        key = load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        path = self._directory / f"{self._name}.crl"
        path.write_bytes(
            builder.sign(key, hashes.SHA256()).public_bytes(  # type: ignore[arg-type]  # it is an elliptic curve's
                Encoding.PEM
            )
        )
        return str(path)
