"""
An authority for a cluster on this machine, with one certificate for its bookies and one for its clients.

    DIR/tls/ca.pem          the authority
    DIR/tls/bookie.pem, bookie.key, client.pem, client.key

Knows: how they are made, and the keys by which bookies and clients find them.
Does not know: processes.  The authority's own key is kept nowhere, so nobody can make a third certificate.
"""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quire.conf.parts.tls import APACHES

# SPDX-License-Identifier: Apache-2.0

DAYS = 3650
NAMES = ("bookie", "client")


class LocalAuthority:
    """The files below `directory`; `make` writes them unless they are there."""

    def __init__(self, directory: Path, host: str) -> None:
        self._directory = directory
        self._host = host

    def bookie_keys(self) -> dict[str, str]:
        """Returns keys of a bookie's configuration: TLS is required, and clients show a certificate."""
        return {
            "tlsProviderFactoryClass": APACHES,
            "tlsCertificatePath": self._path("bookie.pem"),
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": self._path("bookie.key"),
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self._path("ca.pem"),
            "tlsClientAuthentication": "true",
        }

    def client_keys(self) -> dict[str, str]:
        """Returns keys of a client's configuration."""
        return {
            "tlsProviderFactoryClass": APACHES,
            "tlsCertificatePath": self._path("client.pem"),
            "clientKeyStoreType": "PEM",
            "clientKeyStore": self._path("client.key"),
            "clientTrustStoreType": "PEM",
            "clientTrustStore": self._path("ca.pem"),
            "tlsClientAuthentication": "true",
            "tlsHostnameVerificationEnabled": "true",
        }

    def make(self) -> None:
        if Path(self._path("ca.pem")).exists():
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("a quire cluster on this machine")
        own = x509.BasicConstraints(ca=True, path_length=0)
        begun = _begun(name, key, _uses(signs_certificates=True)).issuer_name(name).add_extension(own, critical=True)
        authority = begun.sign(key, hashes.SHA256())
        for kind in NAMES:
            self._issue(kind, key, authority)
        self._write("ca.pem", authority.public_bytes(Encoding.PEM))  # last: then all are there

    def _issue(self, kind: str, authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(self._host))])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        made = _begun(_name(kind), key, _uses()).issuer_name(authority.subject).add_extension(issuer, critical=False)
        made = made.add_extension(hosts, critical=False).add_extension(uses, critical=False)
        certificate = made.sign(authority_key, hashes.SHA256())
        self._write(f"{kind}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self._write(f"{kind}.pem", certificate.public_bytes(Encoding.PEM))

    def _path(self, name: str) -> str:
        return str(self._directory / name)

    def _write(self, name: str, data: bytes) -> None:
        """For its owner's eyes only."""
        with open(os.open(self._path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _uses(signs_certificates: bool = False) -> x509.KeyUsage:
    """Python takes no authority from 3.13 on that does not say what its key is for."""
    nothing = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        **nothing,
        decipher_only=False,
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
    )


def _begun(name: x509.Name, key: ec.EllipticCurvePrivateKey, uses: x509.KeyUsage) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(uses, critical=True)
    )
