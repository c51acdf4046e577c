"""
One TCP connection to a bookie: bytes in and out, time-outs, and the end of everything that waits when it ends.

Knows: how a connection of either generation lives and dies, and how TLS is put on it.  `opening` is how it begins, over
V3 also where V2 follows; `link_v2` and `link_v3` add how answers find their requests.
Does not know: which bookies exist, who was meant and when to connect again (`on_demand_link`), what an answer means.

Safety: a connection is given to no caller, so nothing is asked of it, before the other side has said who it is.

Rules (wire.md 10.2): an answer that does not decode closes the connection; a connection
that ends fails everything outstanding with -8; an answer to nothing that waits is ignored; every request has a
time-out.  One sweep per connection finds what is overdue, and it runs only while something waits.
"""

import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from typing import Protocol as Shape

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.client.connections.add_channel import AddChannel, Carrier
from quire.client.connections.opening import SECURITY, Opening
from quire.conf.client import ClientOptions
from quire.metadata.clock import Clock, Timer
from quire.protocol.errors import BookieHandleNotAvailable, ClientClosed, Timeout, WireError
from quire.protocol.frames import Receiver, send_at_once, send_unjoined
from quire.protocol.messages import Reply
from quire.security.exchange import Provider
from quire.security.refusals import TlsRefused

if TYPE_CHECKING:
    from quire.security.stream import SecureStream

# SPDX-License-Identifier: Apache-2.0

LOST = BookieHandleNotAvailable.code
TIMED_OUT = Timeout.code
CLOSED = ClientClosed.code
SWEEPS_PER_TIMEOUT = 8
SILENCE_FACTOR = 3  # a connection that brought no byte for this many time-outs, while requests expired on it, is closed
RECEIVE_BYTES = 1 << 18  # taken from the socket at once; also what may lie before it until it counts as full
# Than the frame option: our bookies take frames 16 KiB larger by default, and around an entry that filled a V2 add
# every answer but V2's to a read is larger.
ANSWER_BYTES_MORE = 17 << 10

Up = Callable[["Link"], None]
Down = Callable[["Link", int, str], None]
Secure = Callable[[Any, "Link"], "SecureStream"]  # puts TLS on the connection's TCP transport, still to begin

A = TypeVar("A")


class Transport(Shape):
    """A TCP connection's sending side, and how much is taken from it at once."""

    bufferSize: int

    def write(self, data: bytes, /) -> Any: ...

    def abortConnection(self) -> Any: ...

    def setTcpNoDelay(self, enabled: bool, /) -> Any: ...

    def setTcpKeepAlive(self, enabled: bool, /) -> Any: ...

    def registerProducer(self, producer: Any, streaming: bool, /) -> Any: ...

    def unregisterProducer(self) -> Any: ...


class PendingRequest(Generic[A]):
    """One request that is not an add: who waits, until when, and how to make its answer from a code alone."""

    __slots__ = ("blank", "deadline", "deferred")

    def __init__(self, deferred: Deferred[A], deadline: float, blank: Callable[[int], A]) -> None:
        self.deferred = deferred
        self.deadline = deadline
        self.blank = blank

    def end(self, code: int) -> None:
        self.deferred.callback(self.blank(code))


class Link(Protocol, Carrier):
    """
    A connection of one generation.  `up` is called once, when the other side has said who it is; `down(link, code,
    reason)` once when the connection ended, before that or after.  `name` is for the log: bookie, address, generation.
    `secure`: how TLS is put on it, where TLS is on; `provider`: of authentication, where the client has one.
    """

    generation = 0
    decoder: Receiver[Reply]  # what comes in becomes answers

    def __init__(
        self,
        clock: Clock,
        options: ClientOptions,
        name: str,
        serial: int,
        up: Up,
        down: Down,
        secure: Secure | None = None,
        provider: Provider | None = None,
    ) -> None:
        self.clock = clock
        self.name = name
        self.serial = serial  # no two connections of a process share one
        self.bookie: str | None = None  # the id that the other side gave; None: it gave none, as Apache's bookies do
        self.incarnation = None  # of its directories (D19); None: it gave none
        self.heard = 0  # bytes received since it is up
        self.sent = 0  # bytes of requests
        self.writable = False  # False while the socket's buffer is full
        self._options = options
        self._up = up
        self._down = down
        self._answer_bytes_max = options.frame_bytes_max + ANSWER_BYTES_MORE
        self._secure = secure
        self._opening: Opening | None = Opening(self, self._answer_bytes_max, secure is not None, provider)
        self._ended = False
        self._end: tuple[int, str] | None = None
        self.heard_at = clock.seconds()  # no byte came since, though something was, or should have been, answered
        self._doubted = False  # a request expired since the last byte came
        self._sweep_call: Timer | None = None
        self._sweep_seconds = min(options.add_timeout_ms, options.read_timeout_ms) / 1000 / SWEEPS_PER_TIMEOUT
        self._log = Logger()

    @property
    def is_unproven(self) -> bool:
        """True if it waits for the other side's word on who we are."""
        return self._opening is not None and self._opening.is_unproven

    # what the generations add

    @abstractmethod
    def take(self, reply: Reply) -> None:
        """Hands one answer to the request that waits for it; ignores it when none does."""

    @abstractmethod
    def channels(self) -> list[AddChannel]:
        """The channels that joined and did not leave."""

    @abstractmethod
    def expire(self, now: float) -> int:
        """Ends the requests whose time is over with -23; how many."""

    @abstractmethod
    def waiting(self) -> bool:
        """True if anything waits for an answer."""

    @abstractmethod
    def drain(self) -> list[PendingRequest[Any]]:
        """Forgets and gives back every request that waits."""

    # the connection

    def connectionMade(self) -> None:
        transport = cast(Transport, self.transport)
        transport.bufferSize = RECEIVE_BYTES
        send_unjoined(transport)
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        handle = getattr(transport, "socket", None)  # none under a test's transport
        if handle is not None and self._options.tcp_user_timeout_ms and hasattr(socket, "TCP_USER_TIMEOUT"):
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._options.tcp_user_timeout_ms)
        transport.registerProducer(self, True)
        if self._opening is not None:
            self._opening.begin()

    def dataReceived(self, data: bytes) -> None:
        if self._opening is not None:
            self._opening.received(data)
            return
        self.heard += len(data)
        self.heard_at = self.clock.seconds()
        self._doubted = False
        decoder = self.decoder
        for reply in decoder.feed(data):
            self.take(reply)
        if decoder.failure is not None:
            self.malformed(decoder.failure)

    # its beginning (`opening`)

    def say(self, data: bytes) -> None:
        cast(Transport, self.transport).write(data)

    def secure(self) -> None:
        assert self._secure is not None
        tcp = cast(Transport, self.transport)
        tcp.unregisterProducer()
        stream = self._secure(tcp, self)
        self.transport = cast(Any, stream)
        stream.begin()
        stream.registerProducer(self, True)

    def secured(self) -> None:
        if self._opening is not None and not self._ended:
            self._opening.secured()

    def is_open(self, bookie: str | None, incarnation: str | None) -> None:
        self.bookie, self.incarnation = bookie, incarnation
        self._opening = None
        self.heard_at = self.clock.seconds()
        self.writable = True
        self._up(self)

    def malformed(self, failure: WireError) -> None:
        self._log.warn(
            "closing the connection to {name}: its answer does not decode: {failure}", name=self.name, failure=failure
        )
        self.end(LOST, f"{self.name} sent what does not decode: {failure}")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.writable = False
        code, text = self._end or (LOST, f"the connection to {self.name} was lost: {reason.getErrorMessage()}")
        if self._end is None and isinstance(reason.value, TlsRefused):
            code, text = SECURITY, f"{self.name}: TLS failed: {reason.value}"
        self._finish(code, text)

    def end(self, code: int, reason: str) -> None:
        """Closes at once; everything outstanding fails with `code`."""
        if self._end is None and not self._ended:
            self._end = (code, reason)
            self._finish(code, reason)
            cast(Transport, self.transport).abortConnection()

    def _finish(self, code: int, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        self.writable = False
        if self._sweep_call is not None:
            self._sweep_call.cancel()
            self._sweep_call = None
        self._down(self, code, reason)
        for channel in self.channels():
            channel.fail(code, reason)
        for waiting in self.drain():
            waiting.end(code)

    def write(self, data: bytes, at_once: bool = False) -> None:
        """One piece of whole frames; the sweep is on from now on.  `at_once`: not in the reactor's next turn."""
        if self._ended:
            return
        self.sent += len(data)
        if at_once:
            send_at_once(self.transport, data)
        else:
            cast(Transport, self.transport).write(data)
        if self._sweep_call is None:
            if not self._doubted:
                self.heard_at = self.clock.seconds()
            self._sweep_call = self.clock.callLater(self._sweep_seconds, self._sweep)

    def deadline(self, more_ms: int = 0) -> float:
        """When a request sent now is overdue; `more_ms` on top of the usual time."""
        return self.clock.seconds() + (self._options.read_timeout_ms + more_ms) / 1000

    def _sweep(self) -> None:
        self._sweep_call = None
        now = self.clock.seconds()
        overdue = self.expire(now)
        for channel in self.channels():
            why = channel.stuck(now, self._options.add_timeout_ms / 1000)
            if why is not None:
                overdue += 1
                channel.fail(TIMED_OUT, f"{self.name}: {why}")
        self._doubted = self._doubted or overdue > 0
        if self._ended:  # one of those called back and closed the client
            return
        if overdue and (now - self.heard_at) * 1000 > SILENCE_FACTOR * max(
            self._options.add_timeout_ms, self._options.read_timeout_ms
        ):
            self.end(TIMED_OUT, f"{self.name} has sent nothing for {now - self.heard_at:.1f} s")
        elif self.waiting():
            self._sweep_call = self.clock.callLater(self._sweep_seconds, self._sweep)

    # as an IPushProducer: the transport says when its buffer is full

    def pauseProducing(self) -> None:
        self.writable = False

    def resumeProducing(self) -> None:
        self.writable = not self._ended

    def stopProducing(self) -> None:
        self.writable = False
