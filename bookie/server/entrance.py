"""
What a connection goes through before its requests are served: START_TLS and the handshake, or the decision that it may
go without (wire.md 9.3).

Knows: which request may come first, and what may stand behind it.
Does not know: how a connection is encrypted (`quire.security`), what requests mean (`service`).

A connection is outside until it is admitted.  A provider of authentication will have its place here: what it asks and
what it is told goes through `serve` after `secured`, and `secured` then leaves the admission to it.

Safety: of a connection outside nothing but START_TLS is done.  Whatever follows that in the clear was sent by nobody
who is known, so one byte of it ends the connection, and nothing of it is served after the handshake.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from quire.bookie.server.complaints import Complaints
from quire.protocol import wire
from quire.protocol.errors import Status
from quire.protocol.messages import Request, StartTls

if TYPE_CHECKING:
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0

OUTSIDE_S_MAX = 10.0  # a handshake takes milliseconds; also until START_TLS where TLS is required
OUTSIDE_FRAME_BYTES_MAX = 4096  # where TLS is required: START_TLS has 15


class Arriving(Protocol):
    """A connection that is outside."""

    peer: str

    @property
    def pure(self) -> bool:
        """Whether nothing came beside the whole requests that are being served."""
        ...

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def secure(self, credentials: "Credentials") -> None:
        """Everything from the next byte on is TLS; `Entrance.secured` follows, or the connection's end."""
        ...

    def admit(self) -> None:
        """What comes from now on is served."""
        ...


class Entrance:
    """That of one bookie."""

    def __init__(self, credentials: "Credentials", required: bool, complaints: Complaints) -> None:
        self.credentials = credentials
        self.required = required
        self.handshakes = 0
        self.handshakes_failed = 0
        self.turned_away = 0  # they spoke without TLS where it is required
        self._complaints = complaints

    def serve(
        self, connection: Arriving, requests: Sequence[Request], admitted: Callable[[Sequence[Request]], None]
    ) -> None:
        """What came of a connection outside.  `admitted` serves requests of one that may go without TLS."""
        if not requests:
            return
        first = requests[0]
        if isinstance(first, StartTls):
            if len(requests) > 1 or not connection.pure:
                self.handshakes_failed += 1
                self._turn_away(
                    connection, "more bytes came with START_TLS, before TLS was on: somebody put them there"
                )
                return
            connection.send(wire.refusal(first, Status.EOK))
            connection.secure(self.credentials)
        elif self.required:
            self.turned_away += 1
            connection.send(wire.refusal(first, Status.EUA))
            self._turn_away(
                connection,
                "it speaks without TLS, which is required here (tlsRequired); turn TLS on in that client "
                "(docs/security.md)",
            )
        else:
            connection.admit()
            admitted(requests)

    def secured(self, connection: Arriving) -> None:
        """The handshake is over, and a certificate that was asked for is good."""
        self.handshakes += 1
        connection.admit()

    def refused(self, connection: Arriving, reason: str) -> None:
        """One side does not trust the other; the connection has ended."""
        self.handshakes_failed += 1
        self._complaints.report(connection.peer, "TLS that failed", f"TLS failed: {reason}")

    def counts(self) -> list[tuple[str, str, int]]:
        """For the metrics: names, meanings, numbers since the start."""
        return [
            ("tls_handshakes", "connections that TLS is on", self.handshakes),
            ("tls_handshakes_failed", "connections of which one side did not trust the other", self.handshakes_failed),
            ("tls_turned_away", "connections that spoke without TLS where it is required", self.turned_away),
            ("tls_reloads", "times that the files of TLS were read again", self.credentials.reloads),
        ]

    def gauges(self) -> list[tuple[str, str, float]]:
        """The same of what is so now."""
        credentials = self.credentials
        return [
            ("tls_files_broken", "1 while the files of TLS can't be used as they are", int(bool(credentials.broken))),
            ("tls_certificate_expires", "when the certificate in use ends, seconds since 1970", credentials.expires),
        ]

    def _turn_away(self, connection: Arriving, reason: str) -> None:
        self._complaints.report(connection.peer, "what came before TLS", reason)
        connection.close()
