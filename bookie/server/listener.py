"""
Connections: bytes in, requests to the service, answers out.

Knows: how one connection is read, paused and ended.
Does not know: what a request means (`service`), how it looks on the wire (`protocol.wire`), how many connections there
may be (`connection_limits`), how long strangers wait (`lobby`).

Safety: what one peer sends can close that peer's connection and no other, except that when all together make us hold
too much, one of those that hold most is closed.  Each thing that they make us hold has a `budget`: connections and
unfinished frames (`connection_limits`), what waits for the journal (`parking`), answers that are not taken
(`UnsentAnswers`; nothing is read from a peer that does not take its own), reads (`reads`) and long polls.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.bookie.server.admission.connection_limits import ConnectionLimits, UnsentAnswers, is_large
from quire.bookie.server.admission.entrance import OUTSIDE_FRAME_BYTES_MAX, Entrance
from quire.bookie.server.admission.judge import Judge, Serve
from quire.bookie.server.admission.lobby import leave
from quire.bookie.server.complaints import Complaints
from quire.bookie.server.contract import ReadRequest, WriteRequest
from quire.bookie.server.reads import FIRST_ANSWER_BYTES
from quire.bookie.server.service import Service
from quire.bookie.server.transport import Transport, Wire, peer_name, socket_options, source_of
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Clock
from quire.protocol.frames import send_at_once, send_unjoined
from quire.protocol.messages import AddRun, Request, StartTls
from quire.protocol.wire import Requests
from quire.security.exchange import Exchange, Provider
from quire.security.refusals import TlsRefused
from quire.security.rights import Rights
from quire.security.watched import Watched

if TYPE_CHECKING:
    from quire.security.credentials import Credentials
    from quire.security.stream import SecureStream

# SPDX-License-Identifier: Apache-2.0

SWEEP_S = 1.0  # how often deadlines are looked at
LATE_REST_S = 0.02  # until more that are late are ended
PAUSE_ALARM_S = 2.0  # peers give up at 5 s
CLOSE_S = 5.0  # how long a closing connection may take to flush its last answers
STRANGERS_RECEIVE_BYTES = 1 << 15  # taken from the socket at once before anything was given
RECEIVE_BYTES = 1 << 18  # taken from the socket at once; also the answers held before reading stops


class Connection(Protocol):
    """One client.  As a producer of answers it learns from the transport when the peer does not take them."""

    log = Logger()
    __slots__ = (  # ten thousand of them may be open
        "_clock",
        "_entrance",
        "_listener",
        "_partial",
        "_reading",
        "_requests",
        "_serve",
        "_service",
        "_stream",
        "_wire",
        "alive",
        "answer_bytes",
        "choked",
        "copies",
        "exchange",
        "given_bytes",
        "held",
        "is_ours",
        "is_refused",
        "last_active",
        "lone",
        "outside_since",
        "parked",
        "partial_since",
        "paused_alarmed",
        "paused_since",
        "peer",
        "reads_under_way",
        "settled",
        "source",
        "started",
        "was_served",
    )

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._service = listener.service
        self._entrance = entrance = listener.entrance
        self._serve: Serve = listener.service.serve if entrance is None else self._enter
        outside = entrance is not None and entrance.is_strict
        self._requests = Requests(OUTSIDE_FRAME_BYTES_MAX if outside else listener.options.frame_bytes_max)
        self.outside_since: float | None = None  # while it must be admitted soon
        self.started: StartTls | None = None
        self._stream: SecureStream | None = None
        self.exchange: Exchange | None = None
        self.was_served = False
        self._partial = listener.limits.partial
        self._clock = listener.clock
        self._reading = True
        self.peer = self.source = "?"
        self.alive = self.lone = self.settled = self.is_refused = self.is_ours = False
        self.last_active = 0.0
        self.partial_since: float | None = None
        self.paused_since: float | None = None
        self.paused_alarmed = self.choked = False  # choked: the peer does not take its answers
        self.given_bytes = 0  # of answers
        self.parked: deque[tuple[float, WriteRequest]] = deque()  # what found no room, in order
        self.copies: deque[AddRun] | None = None  # of a repair, which wait for their turn
        self.held: deque[tuple[float, ReadRequest]] = deque()  # reads that wait for their turn
        self.reads_under_way = 0
        self.answer_bytes = FIRST_ANSWER_BYTES  # of the last answer with a body, or of one to come

    def connectionMade(self) -> None:
        transport = cast(Transport, self.transport)
        self._wire: Wire = transport
        self.peer, self.source = peer_name(transport.getPeer()), source_of(transport.getPeer())
        self.alive = True
        self.last_active = self._clock.seconds()
        if self._entrance is not None and self._entrance.is_strict:
            self.outside_since = self.last_active
        transport.bufferSize = STRANGERS_RECEIVE_BYTES
        if hasattr(transport, "getHandle"):  # a socket below it
            socket_options(transport.getHandle())
        send_unjoined(transport)
        transport.registerProducer(self, True)
        self._listener.opened(self)

    def dataReceived(self, data: bytes) -> None:
        if not self.alive:
            return
        now = self._clock.seconds()
        requests = self._requests
        found = requests.feed(data)
        if found:
            self.last_active = now
            self.lone = len(found) == 1
        try:
            self._serve(self, found)
        except Exception:
            # A half-served request must not be continued: this connection is over, the others go on.
            failure, what = Failure(), "a request could not be served"  # type: ignore[no-untyped-call]
            self._listener.complaints.report(self.peer, "faults of this bookie", what, failure)
            self.close()
            return
        if requests.failure is not None:
            self._listener.malformed += 1
            self._listener.complaints.report(self.peer, "what they sent", str(requests.failure))
            self.close()
            return
        if not self.was_served and found and self.outside_since is None and self.alive and not self.is_refused:
            self.was_served = True
            self._listener.limits.unserved.release(self)
        partial, partial_bytes = self._partial, requests.held
        if not partial_bytes:
            self.partial_since = None
        elif found or self.partial_since is None:
            self.partial_since = now
        if not self.settled:  # a large frame has a deadline, so it must not wait for many turns
            cast(Transport, self.transport).bufferSize = RECEIVE_BYTES if is_large(self) else STRANGERS_RECEIVE_BYTES
        more = partial_bytes - partial.held.get(self, 0)
        if more and self.alive:
            if partial.change(self, more) and more > 0:
                self._listener.limits.trim(self.source)
            if self._service.parking.pending.is_full:
                self.flow()

    @property
    def frame_bytes(self) -> int:
        return self._requests.awaited

    # from outside to being served (`entrance`)

    def _enter(self, _peer: object, found: Sequence[Request]) -> None:
        assert self._entrance is not None
        self._entrance.serve(self, found)

    def serve(self, requests: Sequence[Request]) -> None:
        self._serve(self, requests)

    @property
    def role(self) -> str | None:
        return None if self._stream is None else self._stream.role

    @property
    def pure(self) -> bool:
        return not self._requests.held and self._requests.failure is None

    def secure(self, credentials: "Credentials") -> None:
        self.outside_since = self._clock.seconds()
        self._requests = Requests(OUTSIDE_FRAME_BYTES_MAX)
        tcp = self._wire
        tcp.unregisterProducer()
        self._wire = self._stream = stream = credentials.serve(tcp, self)
        stream.begin()
        stream.registerProducer(self, True)

    def secured(self) -> None:
        assert self._entrance is not None
        self._entrance.secured(self)

    def admit(self, serve: Serve | None) -> None:
        self.refuse(serve or self._service.serve)
        self.is_refused = False

    def refuse(self, serve: Serve) -> None:
        self.outside_since, self.is_refused, self._serve = None, True, serve
        self._requests.widen(self._listener.options.frame_bytes_max)

    def send(self, data: bytes) -> None:
        """Sends answers, whole frames.  Nothing happens once the connection is gone."""
        if self.alive:
            self._wire.write(data)
            self._listener.unsent.gave(self, len(data))

    def send_at_once(self, data: bytes) -> None:
        """Sends answers without waiting for the reactor's next turn."""
        if self.alive:
            send_at_once(self._wire, data)
            self._listener.unsent.gave(self, len(data))

    def settle(self) -> None:
        """Lets a connection that was given what it asked for out of the lobby, so that strangers delay it no more."""
        self.settled = True
        if self.alive:
            transport = cast(Transport, self.transport)
            transport.bufferSize = RECEIVE_BYTES
            leave(transport)

    def flow(self) -> None:
        """Reads unless it is choked or has too much that waits; after a stop, only below half its limit."""
        parking = self._service.parking
        pending, own = parking.pending, parking.pending.held.get(self, 0)
        most = pending.connection_limit
        crowded = pending.is_full and (own > 0 or (is_large(self) and parking.shuts_out(self)))
        wanted = not self.choked and not crowded and own < (most if self._reading else most // 2 + 1)
        if wanted == self._reading or not self.alive:
            return
        self._reading = wanted
        if wanted:
            if self.partial_since is not None and self.paused_since is not None:
                self.partial_since += self._clock.seconds() - self.paused_since
            self.paused_since, self.paused_alarmed = None, False
            self._wire.resumeProducing()
        else:
            self.paused_since = self._clock.seconds()
            self._listener.pauses += 1
            self._wire.pauseProducing()

    def close(self) -> None:
        """Ends the connection after the answers already given are flushed, by force if that takes long."""
        if self.alive:
            self._flush()
            self._wire.loseConnection()

    def dismiss(self) -> None:
        if self._stream is not None:
            self.close()
        elif self.alive:
            self._flush()
            self._wire.resumeProducing()  # bytes sent to a closed socket would reset the connection
            cast(Transport, self.transport).loseWriteConnection()

    def _flush(self) -> None:
        self.gone()
        self._listener.closing(self)
        self._wire.unregisterProducer()

    def abort(self) -> None:
        """Ends the connection at once."""
        self.gone()
        self._wire.abortConnection()

    def gone(self) -> None:
        """Ends serving and sending."""
        if self.alive:
            self.alive = False
            self._requests = Requests()  # a frame that was not whole will never be
            self._service.lost(self)
            self._listener.limits.gone(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if isinstance(reason.value, TlsRefused) and self._entrance is not None:
            self._entrance.refused(self, str(reason.value))
        self.gone()
        self._listener.closed(self)
        self._stream = self.exchange = None
        del self._serve, self._wire  # what holds it is held by it, and the collector takes long for thousands at once

    # IPushProducer: the transport's view of the answers

    def pauseProducing(self) -> None:
        if not self.choked:  # the transport says so again at each write
            self.choked = True
            self._listener.unsent.blocked.change(self, cast(Transport, self.transport).bufferSize)
            self.flow()

    def resumeProducing(self) -> None:
        self.choked = False
        if self.paused_since is not None and is_large(self):
            self.paused_since = self._clock.seconds()  # the time until now was its own doing
        self._listener.unsent.took(self)
        self.flow()
        self._service.reads.advance(self)

    def stopProducing(self) -> None:
        self.choked = True


class Listener(Factory):
    """All connections of a bookie."""

    log = Logger()
    noisy = False

    def __init__(
        self,
        clock: Clock,
        options: BookieOptions,
        service: Service,
        credentials: "Credentials | None" = None,
        provider: Provider | None = None,
        rights: Rights | None = None,
        files: Sequence[Watched] = (),
    ) -> None:
        """`credentials`, `provider`, `rights`: where TLS, authentication, rights are on; `files`: of the latter two."""
        self.clock = clock
        self.options = options
        self.service = service
        self.accepted = 0
        self.malformed = 0
        self.pauses = 0
        self.complaints = Complaints(clock, self.log)
        self.limits = ConnectionLimits(clock, options, self.complaints)
        judge = None if rights is None else Judge(rights, service.serve, self.complaints)
        required = options.tls_required is not False
        parts = (clock.callLater, credentials, required, provider, judge, self.complaints, files)
        self.entrance = Entrance(*parts) if credentials or provider else None
        self._open: dict[Connection, None] = {}  # also those that only flush their last answers
        self.unsent = UnsentAnswers(clock, service.reads.blocked, self.complaints, self._open)
        self._closing: dict[Connection, None] = {}  # of these the latter, oldest first
        self._drained: Deferred[None] | None = None
        self._sweep = LoopingCall(self._look)
        self._sweep.clock = cast(Any, clock)

    def buildProtocol(self, addr: object) -> Connection:
        return Connection(self)

    def startFactory(self) -> None:
        self._sweep.start(SWEEP_S, now=False)

    def stopFactory(self) -> None:
        if self._sweep.running:
            self._sweep.stop()

    def reload(self) -> None:
        """Reads the files of TLS, users and rights again, where there are any."""
        if self.entrance is not None:
            self.entrance.refresh(self.connections, forced=True)

    @property
    def connections(self) -> Collection[Connection]:
        """Returns the open connections, without those that only flush their last answers."""
        return cast(Collection[Connection], self.limits.open.held.keys())

    @property
    def in_lobby(self) -> int:
        """Returns how many of these were given nothing yet."""
        return sum(not each.settled for each in self.connections)

    def opened(self, connection: Connection) -> None:
        self.accepted += 1
        self._open[connection] = None
        if len(self._open) > self.options.connections_max and self._closing:
            self._force(next(iter(self._closing)))
        self.limits.opened(connection)

    def closing(self, connection: Connection) -> None:
        """Lets a connection flush its last answers for `CLOSE_S`, while there is room."""
        self._closing[connection] = None
        self.clock.callLater(CLOSE_S, self._force, connection)

    def _force(self, connection: Connection) -> None:
        if connection in self._closing:
            del self._closing[connection]
            connection.abort()

    def closed(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._closing.pop(connection, None)
        self.unsent.took(connection)
        if self._drained is not None and not self._open:
            drained, self._drained = self._drained, None
            drained.callback(None)

    def close_all(self) -> Deferred[None]:
        """Closes every connection; fires when all have ended (`CLOSE_S` at most)."""
        if not self._open:
            return succeed(None)
        drained = self._drained = Deferred()
        for connection in list(self.connections):
            connection.close()
        return drained

    def _look(self) -> None:
        """Does what is due each second; an error in one part keeps no other from its turn."""
        complaints = self.complaints.sweep, self.service.complaints.sweep
        for part in (*complaints, self._refresh, self._report_pauses, self._end_late):
            try:
                part()
            except Exception:
                self.complaints.failed("a look at the connections", None, Failure())  # type: ignore[no-untyped-call]

    def _refresh(self) -> None:
        if self.entrance is not None:
            self.entrance.refresh(self.connections)

    def _report_pauses(self) -> None:
        """Logs pauses so long that peers will take them for death."""
        now = self.clock.seconds()
        for connection in self.connections:
            since = connection.paused_since
            if since is not None and not connection.paused_alarmed and now - since >= PAUSE_ALARM_S:
                connection.paused_alarmed = True
                peer, pause = connection.peer, now - since
                why = "it does not take its answers" if connection.choked else self._why_pending(connection)
                self.log.warn("nothing was read from {peer} for {pause:.1f} s: {why}", peer=peer, pause=pause, why=why)

    def _end_late(self) -> None:
        """Ends late connections, so few in a turn that the others are served meanwhile."""
        if self.limits.late() and self._sweep.running:
            self.clock.callLater(LATE_REST_S, self._end_late)

    def _why_pending(self, connection: Connection) -> str:
        pending = self.service.parking.pending
        size = pending.held.get(connection, 0)
        own = f"{size} bytes of what it sent wait for the journal"
        if size >= pending.connection_limit // 2:
            return f"{own} (connectionPendingSizeMB)"
        return f"{own}, {pending.total} of all connections (pendingSizeMB)"
