"""
The options by which an etcd is reached that does not trust everybody: TLS, a name and a password.

Knows: each option's key, default and meaning, and which of them need each other.
Does not know: what is in the files (`quire.security.etcd`).

Safety: a configuration that asks for a part of TLS without what the server's certificate is checked against is refused.
"""

from typing import Self

from pydantic import model_validator

from quire.conf.options import optional
from quire.conf.parts.authentication import JaasOptions

# SPDX-License-Identifier: Apache-2.0


class EtcdOptions(JaasOptions):
    """Security of connections to etcd, for any process that opens a metadata store."""

    etcd_section: str | None = optional(
        "etcdSection",
        "section of saslJaasFile with username and password for etcd; unset: it does not say who it is (our own key)",
    )
    etcd_tls_trust: str | None = optional(
        "etcdTlsTrustStore",
        "PEM file with the authorities whose certificates are accepted of etcd's servers; unset: connections to them "
        "are not encrypted (our own key)",
    )
    etcd_tls_certificate: str | None = optional(
        "etcdTlsCertificatePath",
        "PEM file with the certificate that etcd is shown, and after it those between it and its authority's (our own "
        "key)",
    )
    etcd_tls_key: str | None = optional(
        "etcdTlsKeyStore", "PEM file with the private key of that certificate, without a password (our own key)"
    )

    @property
    def secures_etcd(self) -> bool:
        """True if any of this is asked for."""
        return bool(self.etcd_section or self.etcd_tls_trust)

    @model_validator(mode="after")
    def _known_to_etcd(self) -> Self:
        if self.etcd_section and self.jaas_file is None:
            raise ValueError("etcdSection is set: set saslJaasFile, the file with that section, too")
        if (self.etcd_tls_certificate is None) != (self.etcd_tls_key is None):
            raise ValueError("etcdTlsCertificatePath and its key (etcdTlsKeyStore) go together: one is not set")
        if self.etcd_tls_certificate and self.etcd_tls_trust is None:
            raise ValueError(
                "etcdTlsCertificatePath is set, but TLS to etcd is not on: set etcdTlsTrustStore, the authorities of "
                "its servers"
            )
        return self
