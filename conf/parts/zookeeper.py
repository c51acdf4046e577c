"""
The options by which a ZooKeeper is reached that does not trust everybody: TLS, a name and a password, and what others
may do with the znodes that are made.

Knows: each option's key, default and meaning, and which of them need each other.
Does not know: what is in the files (`quire.security.zookeeper`).

Safety: a configuration that asks for access lists without saying who it is, or for a part of TLS without what the
server's certificate is checked against, is refused.
"""

from typing import Self

from pydantic import model_validator

from quire.conf.options import option, optional
from quire.conf.parts.authentication import JaasOptions

# SPDX-License-Identifier: Apache-2.0


class ZooKeeperOptions(JaasOptions):
    """Security of connections to ZooKeeper, for any process that opens a metadata store."""

    zk_acl: bool = option(
        "zkEnableSecurity",
        False,
        "the znodes that it makes may be read and changed by the user that it is for ZooKeeper, and nobody "
        "else; docs/security.md",
    )
    zk_request_bytes_max: int = option(
        "zkRequestBytesMax",
        1_000_000,
        "bytes; what is larger is not sent to ZooKeeper, which would end the connection for it: below "
        "jute.maxbuffer of its servers, which is 1048575 unless it is set there (our own key)",
        ge=10_000,
        le=(1 << 31) - 1,
    )
    zk_sasl_section: str | None = optional(
        "zkSaslSection",
        "section of saslJaasFile with username and password for ZooKeeper, Client in Apache's files; "
        "unset: it does not say who it is (our own key)",
    )
    zk_tls_trust: str | None = optional(
        "zkTlsTrustStore",
        "PEM file with the authorities whose certificates are accepted of ZooKeeper's servers; unset: "
        "connections to them are not encrypted (our own key)",
    )
    zk_tls_certificate: str | None = optional(
        "zkTlsCertificatePath",
        "PEM file with the certificate that ZooKeeper is shown, and after it those between it and its "
        "authority's (our own key)",
    )
    zk_tls_key: str | None = optional(
        "zkTlsKeyStore", "PEM file with the private key of that certificate (our own key)"
    )
    zk_tls_key_password_file: str | None = optional(
        "zkTlsKeyStorePasswordPath", "file with the password of that private key; unset: it has none (our own key)"
    )

    @property
    def secures_zookeeper(self) -> bool:
        """True if any of this is asked for."""
        return bool(self.zk_acl or self.zk_sasl_section or self.zk_tls_trust)

    @model_validator(mode="after")
    def _known_to_zookeeper(self) -> Self:
        if self.zk_sasl_section and self.jaas_file is None:
            raise ValueError("zkSaslSection is set: set saslJaasFile, the file with that section, too")
        if (self.zk_tls_certificate is None) != (self.zk_tls_key is None):
            raise ValueError("zkTlsCertificatePath and its key (zkTlsKeyStore) go together: one is not set")
        if self.zk_tls_certificate and self.zk_tls_trust is None:
            raise ValueError(
                "zkTlsCertificatePath is set, but TLS to ZooKeeper is not on: set zkTlsTrustStore, the authorities of "
                "its servers"
            )
        if self.zk_tls_key_password_file and self.zk_tls_key is None:
            raise ValueError("zkTlsKeyStorePasswordPath is set without zkTlsKeyStore, the key that it is for")
        if self.zk_acl and not (self.zk_sasl_section or self.zk_tls_certificate):
            raise ValueError(
                "zkEnableSecurity is set, but not who may use the znodes: set saslJaasFile and zkSaslSection, or show "
                "ZooKeeper a certificate (zkTlsCertificatePath)"
            )
        return self
