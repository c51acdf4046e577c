"""
How a client of etcd says who it is, and over which connections: from options to what its client needs.

Knows: what is in the files.  Does not know: sessions, gRPC, which itself checks a certificate for its authority, its
time and the name in the metadata's URI.

Safety: of authorities only those of the file count, not the machine's.  A password goes over TLS, or a warning says
that it does not.
"""

from dataclasses import dataclass, field

from twisted.logger import Logger

from quire.conf.parts.etcd import EtcdOptions
from quire.security.jaas import Account, account
from quire.security.watched import content_of, warn_of_readers

# SPDX-License-Identifier: Apache-2.0

log = Logger()


@dataclass(frozen=True, slots=True)
class Pems:
    """The contents of the files of TLS: authorities; a certificate and its key, if it is to be shown."""

    trust: bytes
    certificate: bytes | None
    key: bytes | None = field(repr=False)


class EtcdSecurity:
    """The security that options ask for; `ConfigurationError`: bad files."""

    def __init__(self, options: EtcdOptions) -> None:
        self.login: Account | None = None
        self.tls: Pems | None = None
        if options.etcd_tls_trust is not None:
            certificate, key = options.etcd_tls_certificate, options.etcd_tls_key
            self.tls = Pems(
                content_of(options.etcd_tls_trust, "etcdTlsTrustStore"),
                None if certificate is None else content_of(certificate, "etcdTlsCertificatePath"),
                None if key is None else content_of(key, "etcdTlsKeyStore"),
            )
            if key is not None:
                warn_of_readers(key)
        if options.etcd_section is not None:
            assert options.jaas_file is not None
            self.login = account(options.jaas_file, options.etcd_section)
            warn_of_readers(options.jaas_file)
            if self.tls is None:
                log.warn("etcd is told our password without TLS: who listens has it; set etcdTlsTrustStore")
