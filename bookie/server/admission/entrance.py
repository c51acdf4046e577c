"""
The way of a connection up to where its requests are served: START_TLS and the handshake, or the decision that it may
go without, then authentication where clients need it (wire.md 9.2, 9.3), and the question what its client may do.

Knows: which request may come first, what may stand behind it, and how the others are refused.
Does not know: how a connection is encrypted, what a token means (`quire.security`), what requests mean (`service`) and
need (`judge`).

A connection is outside until it is admitted.  One with a good certificate, to which no right belongs, is told so as
Apache's bookies tell it, by a second answer to START_TLS, and is refused each request as if it had not authenticated;
it may wait for a right, and goes before those who are served.

Safety: of a connection outside nothing but START_TLS and AUTH is done.  Whatever follows START_TLS in the clear was
sent by nobody who is known, so one byte of it ends the connection, and nothing of it is served after the handshake.
Each connection has one try to authenticate, and none after the first failure.
Whoever was let in by a user or a right that is gone from its file is not served from then on.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from quire.bookie.server.admission.judge import Judge, Serve
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import Peer
from quire.protocol import wire
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun, Auth, AuthReply, Read, Request, StartTls
from quire.security.exchange import Exchange, NotAuthenticated, Provider
from quire.security.watched import Watched

if TYPE_CHECKING:
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0

OUTSIDE_S_MAX = 10.0  # a handshake takes milliseconds; also until START_TLS where TLS is required
JUDGED_AT_ONCE = 500  # connections, after rights have changed: some 5 ms
OUTSIDE_FRAME_BYTES_MAX = 4096  # START_TLS has 15, tokens some 300


class Arriving(Peer, Protocol):
    """A connection that is outside, or was."""

    started: StartTls | None  # with which TLS was put on, or is being put on
    exchange: Exchange | None  # the authentication that it has begun

    @property
    def role(self) -> str | None:
        """Returns the role of its certificate, once the handshake is over; None: there is none."""
        ...

    @property
    def pure(self) -> bool:
        """True if nothing came beside the whole requests that are being served."""
        ...

    def close(self) -> None: ...

    def dismiss(self) -> None:
        """Closes the connection so that the other side reads its last answer, whatever it still sends."""
        ...

    def secure(self, credentials: "Credentials") -> None:
        """Puts TLS on from the next byte on; `Entrance.secured` follows, or the connection's end."""
        ...

    def admit(self, serve: Serve | None) -> None:
        """Serves what comes from now on, or gives it to `serve`."""
        ...

    def refuse(self, serve: Serve) -> None:
        """Gives what comes from now on to `serve`, which serves nothing of it; its frames may be large."""
        ...

    def serve(self, requests: Sequence[Request]) -> None:
        """Serves requests that came after it was admitted."""
        ...


class Entrance:
    """
    The entrance of one bookie, which has TLS, authentication or both.  `required`: of TLS, where it is on.  `judge`: of
    what clients may do; None: whoever is let in may do everything.  `files`: in which `provider` and `judge` have users
    and rights; `later`: calls something after so many seconds.
    """

    def __init__(
        self,
        later: Callable[..., object],
        credentials: "Credentials | None",
        required: bool,
        provider: Provider | None,
        judge: Judge | None,
        complaints: Complaints,
        files: Sequence[Watched] = (),
    ) -> None:
        self.credentials = credentials
        self._later = later
        self._files = files
        self.handshakes = 0
        self.handshakes_failed = 0
        self.turned_away = 0  # they spoke without TLS where it is required
        self.authentications = 0
        self.authentications_failed = 0
        self.not_authenticated = 0  # requests of those who are not, or not yet
        self.without_right = 0  # good certificates to which no right belongs
        self._tls_required = required and credentials is not None
        self._provider = provider
        self._judge = judge
        self._complaints = complaints

    @property
    def is_strict(self) -> bool:
        """True if no connection is admitted without a handshake, of TLS or of authentication."""
        return self._tls_required or self._provider is not None or self._judge is not None

    def serve(self, connection: Arriving, requests: Sequence[Request]) -> None:
        """Serves what came of a connection outside: START_TLS and AUTH alone, until it is admitted."""
        if not requests:
            return
        if self.credentials is not None and connection.started is None and connection.exchange is None:
            first = requests[0]
            if isinstance(first, StartTls):
                self._start_tls(connection, first, len(requests) == 1)
                return
            if self._tls_required:
                self._demand_tls(connection, first)
                return
        provider = self._provider
        if provider is None and self._admits(connection):
            connection.serve(requests)
            return
        for number, request in enumerate(requests, 1):
            if provider is None or not isinstance(request, Auth) or request.plugin != provider.name:
                self._demand_to_be_known(connection, request)
            elif self._authenticate(connection, request, provider) and self._admits(connection):
                connection.serve(requests[number:])
                return
            if not connection.alive:
                return

    def secured(self, connection: Arriving) -> None:
        """Goes on after a handshake, whose certificate is good if one was asked for."""
        self.handshakes += 1
        if self._provider is None and not self._admits(connection):
            self._refuse_certificate(connection)

    def refused(self, connection: Arriving, reason: str) -> None:
        """Counts a connection that ended because one side does not trust the other."""
        self.handshakes_failed += 1
        self._complaints.report(connection.peer, "TLS that failed", f"TLS failed: {reason}")

    def _admits(self, connection: Arriving) -> bool:
        """Admits a client that is known by now; False: it was asked for a certificate alone, which gives no right."""
        if self._judge is None:
            connection.admit(None)
            return True
        user, role = "" if connection.exchange is None else connection.exchange.user, connection.role
        grant = self._judge.grant(user, role)
        if not grant and self._provider is None:
            return False
        said = [f"{kind} {name[:64]!r}" for kind, name in (("user", user), ("role", role)) if name]
        connection.admit(self._judge.serving(grant, " with ".join(said), connection.peer))
        return True

    # files that change

    def refresh(self, connections: Collection[Arriving], forced: bool = False) -> None:
        """Reads files again that have changed, where it is time to look, or all (`forced`); for these, too."""

        def read(file: Watched) -> bool:
            return file.reload() if forced else file.refresh()

        if self.credentials is not None:
            read(self.credentials.files)
        changed = [read(file) for file in self._files]
        if any(changed):
            self._judge_again(list(connections))

    def _judge_again(self, connections: Sequence[Arriving]) -> None:
        """Ends connections of users that are gone, and gives the others their rights of now; so many a turn."""
        for connection in connections[:JUDGED_AT_ONCE]:
            if not connection.alive or connection.outside_since is not None:
                continue
            if connection.exchange is not None and not connection.exchange.stands:
                reason = f"its user {connection.exchange.user[:64]!r} is gone, or has another password"
                self._complaints.report(connection.peer, "users who are gone", reason)
                connection.close()
            elif self._judge is not None and not self._admits(connection):
                connection.refuse(partial(self._refuse_all, connection))
        if len(connections) > JUDGED_AT_ONCE:
            self._later(0, self._judge_again, connections[JUDGED_AT_ONCE:])

    # TLS

    def _start_tls(self, connection: Arriving, request: StartTls, is_alone: bool) -> None:
        assert self.credentials is not None
        if is_alone and connection.pure:
            connection.send(wire.refusal(request, Status.EOK))
            connection.started = request
            connection.secure(self.credentials)
            return
        self.handshakes_failed += 1
        self._turn_away(connection, "more bytes came with START_TLS, before TLS was on: somebody put them there")

    def _demand_tls(self, connection: Arriving, request: Request) -> None:
        self.turned_away += 1
        connection.send(wire.refusal(request, Status.EUA))
        self._turn_away(
            connection,
            "it speaks without TLS, which is required here (tlsRequired); turn TLS on in that client "
            "(docs/security.md)",
        )

    def _refuse_certificate(self, connection: Arriving) -> None:
        self.without_right += 1
        role = connection.role
        has = "no role" if role is None else f"the role {role[:64]!r}"
        reason = f"its certificate has {has}, to which no right belongs here (authorizedRoles, rightsFile)"
        self._complaints.report(connection.peer, "certificates without a right", reason, closing=False)
        assert connection.started is not None
        connection.send(wire.bare(connection.started, Status.EIO))
        connection.refuse(partial(self._refuse_all, connection))

    def _refuse_all(self, connection: Arriving, _peer: object, requests: Sequence[Request]) -> None:
        for request in requests:
            if connection.alive:
                self._demand_to_be_known(connection, request)

    def _turn_away(self, connection: Arriving, reason: str) -> None:
        self._complaints.report(connection.peer, "what came before TLS", reason)
        connection.dismiss()

    # authentication

    def _authenticate(self, connection: Arriving, request: Auth, provider: Provider) -> bool:
        """Takes one token; True if the client is known with it."""
        if connection.exchange is None:
            connection.exchange = provider.begin()
        try:
            token = connection.exchange.step(request.payload)
        except NotAuthenticated as failure:
            self.authentications_failed += 1
            self._complaints.report(connection.peer, "authentication that failed", f"not authenticated: {failure}")
            connection.send(wire.refusal(request, Status.EUA))
            connection.dismiss()
            return False
        connection.send(wire.answer(request, AuthReply(provider.name, token, Status.EOK, request.txn)))
        self.authentications += connection.exchange.complete
        return connection.exchange.complete

    def _demand_to_be_known(self, connection: Arriving, request: Request) -> None:
        """Refuses a request as Apache's do: over V3 the connection goes on, over V2 only after an add or a read."""
        self.not_authenticated += 1
        if self._provider is not None:
            kind = "what came before authentication"
            reason = (
                "it asks without having authenticated, which is required here (bookieAuthProviderFactoryClass); set "
                "clientAuthProviderFactoryClass in that client (docs/security.md)"
            )
        else:
            kind = "want of any right"
            reason = (
                "it asks without a certificate to which a right belongs (authorizedRoles, rightsFile); give that "
                "client one with such a role (docs/security.md, 9)"
            )
        self._complaints.report(connection.peer, kind, reason, closing=False)
        if wire.came_by_v2(request) and not isinstance(request, AddRun | Read):
            connection.close()
            return
        if isinstance(request, StartTls):  # a bookie without TLS, or too late
            connection.send(wire.refusal(request, Status.EBADREQ))
        else:
            connection.send(wire.bare(request, Status.EUA))

    # what is counted

    def counts(self) -> list[tuple[str, str, int]]:
        """Returns names, meanings and numbers since the start, for the metrics."""
        found = []
        if self.credentials is not None:
            found += [
                ("tls_handshakes", "connections that TLS is on", self.handshakes),
                (
                    "tls_handshakes_failed",
                    "connections of which one side did not trust the other",
                    self.handshakes_failed,
                ),
                ("tls_turned_away", "connections that spoke without TLS where it is required", self.turned_away),
                ("tls_reloads", "times that the files of TLS were read again", self.credentials.files.reloads),
            ]
        if self._provider is not None:
            found += [
                ("authentications", "connections whose client has proved who it is", self.authentications),
                ("authentications_failed", "connections whose client could not", self.authentications_failed),
            ]
        if self._provider is not None or self._judge is not None:
            found.append(
                ("not_authenticated", "requests of who is not known, or not yet, refused", self.not_authenticated)
            )
        if self._judge is not None:
            found += [
                ("without_right", "connections with a good certificate that gives no right", self.without_right),
                ("rights_refusals", "requests refused because their client lacks a right", self._judge.refusals),
            ]
        if self._files:
            reloads = sum(file.reloads for file in self._files)
            found.append(("access_reloads", "times that files of users and rights were read again", reloads))
        return found

    def gauges(self) -> list[tuple[str, str, float]]:
        """Returns names, meanings and numbers of now, for the metrics."""
        found: list[tuple[str, str, float]] = []
        credentials = self.credentials
        if credentials is not None:
            broken = int(bool(credentials.files.broken))
            found += [
                ("tls_files_broken", "1 while the files of TLS can't be used as they are", broken),
                (
                    "tls_certificate_expires",
                    "when the certificate in use ends, seconds since 1970",
                    credentials.expires,
                ),
            ]
        if self._files:
            broken = sum(file.broken is not None for file in self._files)
            found.append(("access_files_broken", "files of users and rights that can't be used as they are", broken))
        return found
