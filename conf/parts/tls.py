"""
The options of encrypted connections, as a bookie has them and as a client has them.

Knows: each option's BookKeeper key, default, range and meaning, and what is missing where TLS is on.
Does not know: what is in the files (`quire.security.context`).

Safety: a configuration that asks for a part of TLS without TLS itself is refused, and so is one in which a check would
have nothing to check against.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, field_validator, model_validator

from quire.conf.options import Part, listed, option, optional

# SPDX-License-Identifier: Apache-2.0

APACHES = "org.apache.bookkeeper.tls.TLSContextFactory"
APACHES_OLD = "org.apache.bookkeeper.security.SSLContextFactory"  # in its files up to 4.10
CONVERT = "openssl pkcs12 -in FILE -nodes"
TOO_OLD = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"})
FileType = Annotated[str, BeforeValidator(lambda value: str(value).upper())]


def spoken(value: object) -> object:
    """The versions of a list without those that are too old to be spoken."""
    names = listed(value)
    return tuple(name for name in names if name not in TOO_OLD) if isinstance(names, tuple) else names


class TlsTerms(Part):
    """TLS of every port of a process that speaks it, that of HTTP too."""

    tls_revocations: str | None = optional(
        "tlsRevocationList",
        "PEM file with the lists of revoked certificates of every authority in the chain, none of them "
        "out of date; unset: revocation is not checked (our own key)",
    )
    tls_protocols: tuple[Literal["TLSv1.2", "TLSv1.3"], ...] = option(
        "tlsEnabledProtocols",
        ("TLSv1.2", "TLSv1.3"),
        "versions that are spoken, comma-separated: TLSv1.2, TLSv1.3; older ones are left out",
    )
    tls_ciphers: tuple[str, ...] = option(
        "tlsEnabledCipherSuites",
        (),
        "cipher suites by their standard names, comma-separated; empty: OpenSSL's own choice",
    )
    tls_refresh_s: int = option(
        "tlsCertFilesRefreshDurationSeconds",
        300,
        "how often the files are looked at; changed ones serve connections made from then on; 0: only a "
        "bookie's SIGHUP makes it look",
        unit="s",
        ge=0,
    )

    _spoken = field_validator("tls_protocols", mode="before")(spoken)
    _listed = field_validator("tls_ciphers", mode="before")(listed)

    def _check_versions(self) -> None:
        """Refuses TLS of which no version is left."""
        if not self.tls_protocols:
            raise ValueError("tlsEnabledProtocols names no version that is spoken: add TLSv1.2 or TLSv1.3")


class TlsOptions(TlsTerms):
    """TLS as both sides have it; the keys are a bookie's."""

    tls: bool = option(
        "tlsProviderFactoryClass",
        False,
        f"connections are encrypted: {APACHES}, as BookKeeper has it, or true; docs/security.md",
    )
    tls_certificate: str | None = optional(
        "tlsCertificatePath", "PEM file with the own certificate, and after it those between it and its authority's"
    )
    tls_key: str | None = optional("tlsKeyStore", "PEM file with the private key of that certificate")
    tls_key_type: FileType = option("tlsKeyStoreType", "PEM", "PEM, the one type that is read")
    tls_key_password_file: str | None = optional(
        "tlsKeyStorePasswordPath", "file with the password of the private key; unset: it has none"
    )
    tls_trust: str | None = optional(
        "tlsTrustStore", "PEM file with the authorities whose certificates are accepted of the other side"
    )
    tls_trust_type: FileType = option("tlsTrustStoreType", "PEM", "PEM, the one type that is read")
    tls_client_certificates: bool = option(
        "tlsClientAuthentication", False, "a bookie asks its clients for a certificate; a client shows its own"
    )

    @field_validator("tls", mode="before")
    @classmethod
    def _provider(cls, value: object) -> object:
        return value in (APACHES, APACHES_OLD) or value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        asked = self.tls_client_certificates or self.tls_revocations
        if asked and not self.tls:
            raise ValueError(
                "tlsClientAuthentication or tlsRevocationList is set, but TLS is not on: set tlsProviderFactoryClass="
                f"{APACHES} too, or remove the line"
            )
        if not self.tls:
            return self  # what a file says of certificates is of no matter
        self._check_versions()
        for kind in (self.tls_key_type, self.tls_trust_type):
            if kind != "PEM":
                raise ValueError(
                    f"files of type {kind} are not read, PEM is: `{CONVERT}` shows a PKCS12 file's parts (keytool "
                    "-importkeystore makes one of a JKS file); then set tlsKeyStoreType or tlsTrustStoreType to PEM"
                )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("a certificate (tlsCertificatePath) and its key (tlsKeyStore) go together: one is not set")
        return self


class BookieTlsOptions(TlsOptions):
    """A bookie's."""

    tls_required: bool | None = option(
        "tlsRequired", None, "whether a connection without TLS is refused; unset: where TLS is on, it is (our own key)"
    )

    @model_validator(mode="after")
    def _served(self) -> Self:
        if self.tls and self.tls_certificate is None:
            raise ValueError("TLS is on without a certificate: set tlsCertificatePath and tlsKeyStore")
        if self.tls_client_certificates and self.tls_trust is None:
            raise ValueError("tlsClientAuthentication is on: set tlsTrustStore, the authorities of the clients")
        if self.tls_required and not self.tls:
            raise ValueError(f"tlsRequired is set, but TLS is not on: set tlsProviderFactoryClass={APACHES} too")
        return self


class ClientTlsOptions(TlsOptions):
    """A client's.  In a file that a bookie reads too, the client inside uses the bookie's, unless its own are there."""

    tls_key: str | None = optional(
        ("clientKeyStore", "tlsKeyStore"), "PEM file with the private key of that certificate"
    )
    tls_key_type: FileType = option(("clientKeyStoreType", "tlsKeyStoreType"), "PEM", "PEM, the one type that is read")
    tls_key_password_file: str | None = optional(
        ("clientKeyStorePasswordPath", "tlsKeyStorePasswordPath"),
        "file with the password of the private key; unset: it has none",
    )
    tls_trust: str | None = optional(
        ("clientTrustStore", "tlsTrustStore"),
        "PEM file with the authorities whose certificates are accepted of bookies",
    )
    tls_trust_type: FileType = option(
        ("clientTrustStoreType", "tlsTrustStoreType"), "PEM", "PEM, the one type that is read"
    )
    tls_verify_host: bool = option(
        "tlsHostnameVerificationEnabled",
        True,
        "a bookie's certificate must name the host or address that it is reached at; false: any "
        "certificate of the authority will do, a stolen one of another machine too",
    )

    @model_validator(mode="after")
    def _connected(self) -> Self:
        if self.tls and self.tls_trust is None:
            raise ValueError("TLS is on without authorities: set clientTrustStore (or tlsTrustStore)")
        if self.tls_client_certificates and self.tls_certificate is None:
            raise ValueError("tlsClientAuthentication is on: set tlsCertificatePath and clientKeyStore, what is shown")
        return self
