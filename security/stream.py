"""
TLS on a TCP connection that exists: what stands between its transport and the protocol that owned it.

Knows: when the other side is known and bytes may pass, how to say why they may not, and which role a certificate
gives its owner: where Apache's bookies look for it, in the subject's first OU.

    OU=0:Superuser,Client;1:Cluster1        the role is Superuser

Values stand between `;`, each a number, `:` and names between `,`.  Those of value 0 are roles, and the first counts.

Does not know: what is sent; which files were read (`context`).

Twisted's TLS layer does the work.  It hands on one record of 16 KiB at a time, in both directions; here what came
together is one piece again, as the protocols above want it, and the records of one write leave together, at once where
the owner says that nothing else of this turn follows.

Safety: nothing is written before the handshake is over and the other side's name is right (`secured` tells the owner),
and nothing after a failure: what is written then goes nowhere.  The layer forwards unknown attributes to the plain
transport below, so it is given to nobody: who asks a stream for something that it lacks gets an error, not plaintext.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Protocol

from cryptography import x509
from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import extract_patterns, verify_hostname, verify_ip_address
from twisted.internet.interfaces import (
    IHandshakeListener,
    IOpenSSLClientConnectionCreator,
    IOpenSSLServerConnectionCreator,
)
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer  # type: ignore[import-untyped]  # it has no annotations

from quire.protocol.frames import AT_ONCE_BYTES_MAX, send_at_once
from quire.security.context import Finding
from quire.security.refusals import TlsRefused, of_certificate, of_errors

# SPDX-License-Identifier: Apache-2.0

UNIT = "2.5.4.11"  # OU, organizationalUnitName
VALUE = re.compile("([0-9]+):(.*)")
ROLES = "0"
AROUND_BYTES = 512  # at least what encryption adds to the records of one piece
PIECE_BYTES = AT_ONCE_BYTES_MAX - AROUND_BYTES  # that are encrypted together
HANDSHAKE_BYTES_MAX = 1 << 14  # of a client: OpenSSL would keep 128 KiB; three certificates of RSA 4096 are 6 KiB


class Owner(Protocol):
    """The protocol of a connection that TLS was put on."""

    def secured(self) -> None:
        """The other side is who it should be; from now on bytes may be written."""
        ...

    def dataReceived(self, data: bytes) -> None: ...

    def connectionLost(self, reason: Failure) -> None:
        """`TlsRefused` when one side did not trust the other."""
        ...


class Layer(TLSMemoryBIOProtocol):
    """
    Twisted's, which tells its stream when all that came with one read is there, gives it the records of one write, and
    leaves nothing behind.
    """

    _gathers = False  # what is encrypted stays in OpenSSL's memory for now
    handshake_left: int | None = None  # bytes that it may still have; None: any number

    def sealed(self, data: bytes) -> Iterator[bytes]:
        """Encrypts bytes, into pieces that are sent one after the other; none once the connection is over."""
        view = memoryview(data)
        for start in range(0, len(data), PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            self._gathers = True
            try:
                self.write(piece)  # type: ignore[no-untyped-call]
            finally:
                self._gathers = False
            most = len(piece) + AROUND_BYTES
            try:
                while True:
                    found = self._tlsConnection.bio_read(most)
                    yield found
                    if len(found) < most:
                        break
            except SSL.WantReadError:  # nothing (more) is there
                continue

    def _flushSendBIO(self) -> None:
        if not self._gathers:
            super()._flushSendBIO()  # type: ignore[no-untyped-call]

    def dataReceived(self, bytes: bytes) -> None:  # Twisted's name for it
        some, rest = bytes, b""
        if self.handshake_left is not None and not self._handshakeDone:
            some, rest = bytes[: self.handshake_left], bytes[self.handshake_left :]
            self.handshake_left -= len(some)
        if some:
            super().dataReceived(some)  # type: ignore[no-untyped-call]
        if self._lostTLSConnection:
            return
        if rest and not self._handshakeDone:
            refused = TlsRefused(f"its handshake has more than {HANDSHAKE_BYTES_MAX} bytes; send fewer certificates")
            self.failVerification(Failure(refused))  # type: ignore[no-untyped-call]
            return
        if rest:
            super().dataReceived(rest)  # type: ignore[no-untyped-call]
        stream: SecureStream = self.wrappedProtocol
        stream.deliver()

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]
        if reason is not None:
            # Its traceback holds a frame that holds it, and OpenSSL's connection with it.
            reason.cleanFailure()  # type: ignore[no-untyped-call]


@implementer(IHandshakeListener)
class SecureStream(TwistedProtocol):
    """The owner's transport once begun.  `host`: whom the certificate must be for; None: any that is signed."""

    def __init__(
        self,
        tcp: Any,
        owner: Owner,
        context: SSL.Context,
        *,
        client: bool,
        sent_name: str = "",
        host: str | None = None,
    ) -> None:
        self.tls = SSL.Connection(context, None)
        self._tcp = tcp
        self._owner = owner
        self._host = host
        self._up = False
        self._pieces: list[bytes] = []
        if client and sent_name and not is_address(sent_name):
            self.tls.set_tlsext_host_name(sent_name.encode("idna"))
        self._layer = Layer(CLIENTS if client else SERVERS, self)  # type: ignore[no-untyped-call]
        self._layer.handshake_left = None if client else HANDSHAKE_BYTES_MAX

    def begin(self) -> None:
        """Everything that arrives from now on is TLS.  The owner's producer must not be registered any more."""
        self._tcp.protocol = self._layer
        self._layer.makeConnection(self._tcp)  # type: ignore[no-untyped-call]

    @property
    def role(self) -> str | None:
        """The role in the other side's certificate; None: it has none, or none was asked for."""
        certificate = self.tls.get_peer_certificate()
        return None if certificate is None else role_of(certificate.to_cryptography().subject)

    # what the layer calls

    def handshakeCompleted(self) -> None:
        try:
            self._check_host()
        except TlsRefused:
            self._layer.failVerification(Failure())  # type: ignore[no-untyped-call]
            return
        self._up = True
        self._owner.secured()

    def dataReceived(self, data: bytes) -> None:
        self._pieces.append(data)

    def deliver(self) -> None:
        """Hands on what came with one read, in one piece."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self._owner.dataReceived(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.deliver()
        self._up = False
        if isinstance(reason.value, SSL.Error):
            reason = Failure(TlsRefused(self._told(reason.value)))  # type: ignore[no-untyped-call]
        del self.tls  # some 50 KiB that the collector knows nothing of, and the owner still holds its stream
        self._owner.connectionLost(reason)

    def _told(self, error: SSL.Error) -> str:
        found = self.tls.get_app_data()
        if isinstance(found, Finding):
            return of_certificate(*found)
        return of_errors(error.args[0] if error.args and isinstance(error.args[0], list) else [])

    def _check_host(self) -> None:
        host = self._host
        if host is None:
            return
        try:
            if is_address(host):
                verify_ip_address(self.tls, host)
            else:
                verify_hostname(self.tls, host)
        except (VerificationError, CertificateError):
            certificate = self.tls.get_peer_certificate()
            try:
                names = ", ".join(map(str, extract_patterns(certificate))) if certificate is not None else ""
            except CertificateError:
                names = ""
            raise TlsRefused(
                f"its certificate is for {names or 'no host'}, and not for {host}; it needs one that names the "
                "host or address that it announces, or advertisedAddress has to be a name in its certificate"
            ) from None

    # the owner's transport

    def write(self, data: bytes) -> None:
        if self._up:
            for piece in self._layer.sealed(data):
                self._tcp.write(piece)

    def write_at_once(self, data: bytes) -> None:
        """As `write`, by `send_at_once`."""
        if self._up:
            for piece in self._layer.sealed(data):
                send_at_once(self._tcp, piece)

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self._layer.registerProducer(producer, streaming)  # type: ignore[no-untyped-call]

    def unregisterProducer(self) -> None:
        self._layer.unregisterProducer()  # type: ignore[no-untyped-call]

    def pauseProducing(self) -> None:
        self._tcp.pauseProducing()

    def resumeProducing(self) -> None:
        self._tcp.resumeProducing()

    def loseConnection(self) -> None:
        """Sends what was written, and our end of TLS; does not wait for the other side's end."""
        self._up = False
        self._layer.loseConnection()  # type: ignore[no-untyped-call]
        self._tcp.loseConnection()

    def abortConnection(self) -> None:
        self._up = False
        self._layer.abortConnection()  # type: ignore[no-untyped-call]


def is_address(host: str) -> bool:
    """True if this is an IP address and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@implementer(IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator)
class Made:
    """Twisted asks who makes a connection's side of TLS: its stream has."""

    def clientConnectionForTLS(self, layer: Layer) -> SSL.Connection:
        return self._of(layer)

    def serverConnectionForTLS(self, layer: Layer) -> SSL.Connection:
        return self._of(layer)

    def _of(self, layer: Layer) -> SSL.Connection:
        stream: SecureStream = layer.wrappedProtocol
        return stream.tls


def _factory(client: bool) -> TLSMemoryBIOFactory:
    # The clock is that of Twisted's own buffering layer, which is not used here.
    return TLSMemoryBIOFactory(Made(), client, Factory(), clock=object())  # type: ignore[arg-type]


CLIENTS, SERVERS = _factory(True), _factory(False)


def role_of(subject: x509.Name) -> str | None:
    """None: it gives none."""
    units = [each.value for each in subject if each.oid.dotted_string == UNIT]
    if not units or not isinstance(units[0], str):
        return None
    names = ""
    for part in units[0].split(";"):
        value = VALUE.fullmatch(part)
        if value is not None and value[1] == ROLES:
            names = value[2]  # the last one, as there
    return names.split(",")[0].strip() or None
