"""
From PEM files to what OpenSSL needs for new connections of one side.

Knows: what is in the files, and which checks each side asks of OpenSSL.
Does not know: when files are read again (`credentials`), connections, host names (`stream`).

Safety: everything is read and checked before anything of it is used, so what is returned is whole; an error names the
file and never shows what is in it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL, crypto
from twisted.logger import Logger

from quire.conf.options import key_of
from quire.conf.parts.tls import BookieTlsOptions, TlsOptions
from quire.conf.properties import ConfigurationError
from quire.security.watched import content_of, warn_of_readers

# SPDX-License-Identifier: Apache-2.0

VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
BEGIN, END = b"-----BEGIN ", re.compile(rb"-----END [^\r\n]+?-----")  # of each part of a PEM file
REVOCATION_LIST = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
SUBJECT_MAX = 200  # characters
OF_TLS_1_3 = re.compile(r"TLS_(?:AES|CHACHA20)_")  # the rest of the names are of TLS 1.2

# What the libraries raise of a certificate's bytes.
UNREADABLE = (ValueError, TypeError, x509.InvalidVersion, UnsupportedAlgorithm, SSL.Error, crypto.Error)

T = TypeVar("T")
log = Logger()


class Finding(NamedTuple):
    """A fault that OpenSSL's verification found in the other side's certificate, or in one of its authorities'."""

    number: int
    depth: int  # 0: its own
    subject: str
    expiry: str


class Loaded(NamedTuple):
    """A context, and when the own certificate ends: seconds since 1970, 0 without one."""

    context: SSL.Context
    expires: float


def load(options: TlsOptions) -> Loaded:
    """Reads the files as they are now; `ConfigurationError` names the one that can't be used."""
    context = SSL.Context(SSL.TLS_METHOD)
    versions = sorted(VERSIONS[name] for name in options.tls_protocols)
    context.set_min_proto_version(versions[0])
    context.set_max_proto_version(versions[-1])
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)  # each connection is verified
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    _choose_ciphers(context, options.tls_ciphers)
    is_bookie = isinstance(options, BookieTlsOptions)
    expires = _identify(context, options) if is_bookie or options.tls_client_certificates else 0.0
    if options.tls_client_certificates or not is_bookie:
        _verify(context, options, is_bookie)
    return Loaded(context, expires)


def files_of(options: TlsOptions) -> list[str]:
    """The files that `load` reads."""
    return [
        path
        for path in (
            options.tls_certificate,
            options.tls_key,
            options.tls_key_password_file,
            options.tls_trust,
            options.tls_revocations,
        )
        if path is not None
    ]


def _choose_ciphers(context: SSL.Context, names: tuple[str, ...]) -> None:
    """Chooses those that OpenSSL knows, for a list may be of other versions; `ConfigurationError` if it knows none."""
    known = [name for name in names if _knows(name)]
    if names and not known:
        raise ConfigurationError(f"tlsEnabledCipherSuites: OpenSSL knows none of {', '.join(names)}")
    if len(known) < len(names):
        unknown = ", ".join(name for name in names if name not in known)
        log.warn("tlsEnabledCipherSuites: {unknown} are left out, for OpenSSL does not have them", unknown=unknown)
    _choose(context, known)


def _choose(context: SSL.Context, names: Iterable[str]) -> None:
    newer = [name for name in names if OF_TLS_1_3.match(name)]
    older = [name for name in names if not OF_TLS_1_3.match(name)]
    if newer:
        context.set_tls13_ciphersuites(":".join(newer).encode())
    if older:
        context.set_cipher_list(":".join(older).encode())


def _knows(name: str) -> bool:
    """True if OpenSSL has the cipher suite of this name."""
    try:
        _choose(SSL.Context(SSL.TLS_METHOD), [name])
    except SSL.Error:
        return False
    return True


def _identify(context: SSL.Context, options: TlsOptions) -> float:
    """The own certificate and its key; when it ends."""
    assert options.tls_certificate is not None
    assert options.tls_key is not None
    own, *chain = _parsed(options.tls_certificate, "tlsCertificatePath", x509.load_pem_x509_certificates)
    password, named = None, _named(options, "tls_key")
    if options.tls_key_password_file is not None:
        password = content_of(options.tls_key_password_file, _named(options, "tls_key_password_file")).rstrip(b"\r\n")
    key = _parsed(options.tls_key, named, lambda data: load_pem_private_key(data, password))
    warn_of_readers(options.tls_key_password_file or options.tls_key)
    with _usable(options.tls_certificate, "tlsCertificatePath"):
        context.use_certificate(own)
        for certificate in chain:
            context.add_extra_chain_cert(certificate)
        expires = own.not_valid_after_utc.timestamp()
    try:
        context.use_privatekey(key)  # type: ignore[arg-type]  # it checks the kind
        context.check_privatekey()
    except (SSL.Error, TypeError):
        raise ConfigurationError(
            f"{options.tls_key} ({named}) is not the key of the first certificate in {options.tls_certificate} "
            "(tlsCertificatePath)"
        ) from None
    return expires


def _verify(context: SSL.Context, options: TlsOptions, is_bookie: bool) -> None:
    """The other side's certificate is verified, or there is no connection."""
    assert options.tls_trust is not None
    store = context.get_cert_store()
    assert store is not None
    named = _named(options, "tls_trust")
    for authority in _parsed(options.tls_trust, named, x509.load_pem_x509_certificates):
        with _usable(options.tls_trust, named):
            store.add_cert(crypto.X509.from_cryptography(authority))
            if is_bookie:
                context.add_client_ca(authority)  # clients choose theirs by it
    if options.tls_revocations is not None:
        for each in _parsed(options.tls_revocations, "tlsRevocationList", _revocation_lists):
            with _usable(options.tls_revocations, "tlsRevocationList"):
                store.add_crl(each)
        store.set_flags(crypto.X509StoreFlags.CRL_CHECK | crypto.X509StoreFlags.CRL_CHECK_ALL)
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _note)


def _note(connection: SSL.Connection, certificate: crypto.X509, number: int, depth: int, good: int) -> bool:
    """OpenSSL's finding on one certificate, kept for the message; it is OpenSSL that refuses."""
    if not good:
        connection.set_app_data(Finding(number, depth, *_described(certificate)))
    return bool(good)


def _described(certificate: crypto.X509) -> tuple[str, str]:
    """A certificate's subject, as a log may have it, and the day of its end; parts that can't be read are left out."""
    try:
        known = certificate.to_cryptography()
        subject = known.subject.rfc4514_string()[:SUBJECT_MAX]
        return printable(subject) or "without a name", known.not_valid_after_utc.date().isoformat()
    except UNREADABLE:  # whoever connects chose the bytes
        return "which can't be read", "an unknown day"


def printable(text: str) -> str:
    """Escapes every character that a log should not have: the text comes from an unknown peer."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _revocation_lists(data: bytes) -> list[x509.CertificateRevocationList]:
    found = [x509.load_pem_x509_crl(text) for text in REVOCATION_LIST.findall(data)]
    if not found:
        raise ValueError("no list in it")
    return found


def _named(options: TlsOptions, field: str) -> str:
    """The keys that a file of this side may say an option by."""
    return " or ".join(key_of(type(options).model_fields[field])["names"])


def _parsed(path: str, key: str, parse: Callable[[bytes], T]) -> T:
    data = content_of(path, key)
    cut = data[data.rfind(b"\n") + 1 :]
    begun = data.count(BEGIN) + bool(cut and BEGIN.startswith(cut))
    if begun > len(END.findall(data)):  # a library would take those before it, and say nothing
        raise ConfigurationError(
            f"{path} ({key}) can't be used: it is not whole, for a part of it has no end; copy it again"
        )
    with _usable(path, key, "its password is missing or wrong, or it" if key.endswith("KeyStore") else "it"):
        return parse(data)


@contextmanager
def _usable(path: str, key: str, what: str = "it") -> Iterator[None]:
    """Turns what two libraries raise about a file into one error; not all of it is told."""
    try:
        yield
    except Exception as failure:
        raise ConfigurationError(
            f"{path} ({key}) can't be used: {what} is no PEM file of the kind expected ({type(failure).__name__})"
        ) from None
