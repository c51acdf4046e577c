"""
What a bookie of either kind asks of its clients, and what a client of either kind shows, as keys of their
configurations: the rows of the matrix (`test_security_matrix`).

Knows: the certificates, names and passwords of one test.  Does not know: who is served.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from quire.conf.parts.authentication import APACHES_BOOKIE, APACHES_CLIENT, APACHES_ROLES
from quire.conf.parts.tls import APACHES
from quire.security.jaas import MODULE
from tests.interop import peer
from tests.protocol.security_samples import PASSWORD, USER
from tests.security.authority import Authority, Pair

ROLE = "Maker"  # that has rights

Keys = dict[str, str]


class Secrets:
    """An authority, its certificates and a JAAS file, all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "tls")
        self.pairs: dict[str, Pair] = {}
        known, wrong = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (PASSWORD, "wrong"))
        jaas = folder / "users"
        jaas.write_text(
            f'Bookie {{ {MODULE} required user_{USER}="{known}"; }};\n'
            f'Right {{ {MODULE} required username="{USER}" password="{known}"; }};\n'
            f'Wrong {{ {MODULE} required username="{USER}" password="{wrong}"; }};\n',
            encoding="utf-8",
        )
        jaas.chmod(0o600)
        self.jaas = str(jaas)

    def pair(self, role: str) -> Pair:
        """A certificate with this role; its key in the one form that Java reads."""
        if role not in self.pairs:
            pair = self.pairs[role] = self.authority.issue(role, unit=f"0:{role},Other;1:Cluster1")
            key = load_pem_private_key(Path(pair.key).read_bytes(), None)
            Path(pair.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return self.pairs[role]

    def bookie(self, asked: str, javas: bool) -> Keys:
        """
        Of a bookie that asks for this: words of `tls`, `certificate`, `password`, `role`.  Apache's takes the file of
        passwords from `java`.
        """
        words, keys = asked.split(), Keys()
        if "tls" in words:
            pair = self.pair("Bookie")
            keys |= {
                "tlsProviderFactoryClass": APACHES,
                "tlsClientAuthentication": str("certificate" in words).lower(),
                "tlsCertificatePath": pair.certificate,
                "tlsKeyStoreType": "PEM",
                "tlsKeyStore": pair.key,
                "tlsTrustStoreType": "PEM",
                "tlsTrustStore": self.authority.trust,
            }
        if "password" in words:
            keys |= {"bookieAuthProviderFactoryClass": APACHES_BOOKIE, "saslJaasClientAllowedIds": USER}
            if not javas:
                keys["saslJaasFile"] = self.jaas
        if "role" in words:
            keys |= {"bookieAuthProviderFactoryClass": APACHES_ROLES, "authorizedRoles": ROLE}
        return keys | ({"tlsProvider": "JDK"} if javas and "tls" in words else {})

    def java_client(self, shown: str, role: str = "") -> Keys:
        """
        Of Apache's client that shows `tls`, `certificate` (of this role, or of `role` or `other`), `password` or
        `wrong`.
        """
        words, keys = shown.split(), Keys()
        if "tls" in words:
            keys |= {
                "tlsProviderFactoryClass": APACHES,
                "tlsProvider": "JDK",
                "clientTrustStoreType": "PEM",
                "clientTrustStore": self.authority.trust,
            }
        if "certificate" in words:
            pair = self.pair(role or _role(words))
            keys |= {
                "tlsClientAuthentication": "true",
                "tlsCertificatePath": pair.certificate,
                "clientKeyStoreType": "PEM",
                "clientKeyStore": pair.key,
            }
        if "password" in words or "wrong" in words:
            section = "Right" if "password" in words else "Wrong"
            keys |= {"clientAuthProviderFactoryClass": APACHES_CLIENT, "saslJaasClientSectionName": section}
        return keys

    def our_client(self, shown: str, role: str = "") -> dict[str, Any]:
        """The same of ours."""
        words, keys = shown.split(), dict[str, Any]()
        if "tls" in words:
            keys |= {"tls": True, "tls_trust": self.authority.trust}
        if "certificate" in words:
            keys |= {"tls_client_certificates": True, **self.pair(role or _role(words)).keys}
        if "password" in words or "wrong" in words:
            section = "Right" if "password" in words else "Wrong"
            keys |= {"authentication": "sasl", "jaas_file": self.jaas, "jaas_client_section": section}
        return keys

    @contextmanager
    def java(self) -> Iterator[None]:
        """Java processes that begin meanwhile take names and passwords from the file."""
        options = f"-Djava.security.auth.login.config={self.jaas} -Dfile.encoding=UTF-8 -Dzookeeper.sasl.client=false"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", options)
            yield


def in_words(keys: Mapping[str, str]) -> dict[str, str]:
    """As options of a command of the Java driver."""
    return {f"conf.{key}": value for key, value in keys.items()}


def code_of(java: peer.JavaClient, command: str, **options: object) -> int:
    """0, or Java's number for what went wrong."""
    try:
        found = java.call(command, **options)
    except peer.PeerError as error:
        return error.code
    return int(found["code"]) if found.get("failed") else 0


def _role(words: list[str]) -> str:
    return ROLE if "role" in words else "Nobody" if "other" in words else "Client"
