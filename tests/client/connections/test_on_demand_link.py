"""
Connections over real sockets: hosts that refuse, accept and close, send rubbish, stop reading, stay silent or come
back.
"""

from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import LogLevel, globalLogPublisher

from quire.client.connections.on_demand_link import address_in
from quire.client.connections.pool import BookiePool
from quire.conf.client import ClientOptions
from quire.metadata.store import ServiceInfo
from quire.protocol import wire
from quire.protocol.errors import Security, Status
from quire.protocol.messages import AddRun, AuthReply, BookieInfo, InfoReply, Read, ReadReply, Request
from quire.security.authentication import SaslOfBookie
from quire.security.digest_md5 import Users
from quire.security.jaas import MODULE
from tests.client.fakes.scripted import Addresses, Listener, Net, batch, body, make_pool
from tests.reactor import reactor, run


class Host(Protocol):
    """A bookie's end of a socket, as the test wants it."""

    def __init__(self, heard: Callable[["Host", bytes], None], greeted: Callable[["Host"], None]) -> None:
        self.requests = wire.Requests()
        self._heard = heard
        self._greeted = greeted

    def connectionMade(self) -> None:
        self._greeted(self)

    def dataReceived(self, data: bytes) -> None:
        self._heard(self, data)


class Waiting:
    """An `AddSink` that can be waited for."""

    def __init__(self) -> None:
        self.acked_ids = 0
        self.failure: tuple[int, str] | None = None
        self._waiters: list[tuple[int, Deferred[None]]] = []

    def acked(self, channel: object, first: int, count: int, code: int) -> None:
        assert code == 0
        self.acked_ids += count
        self._tell()

    def failed(self, channel: object, code: int, reason: str) -> None:
        self.failure = (code, reason)
        self._tell()

    def until(self, ids: int) -> Deferred[None]:
        """Fires with that many acknowledged, or with the failure."""
        done: Deferred[None] = Deferred()
        self._waiters.append((ids, done))
        self._tell()
        return done

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for ids, done in waiters:
            if self.failure is not None or self.acked_ids >= ids:
                done.callback(None)
            else:
                self._waiters.append((ids, done))


def heard(host: Host, data: bytes, bookie: str | None = None) -> list[Request]:
    """The requests that it got; with a name it answers which bookie it is."""
    requests = host.requests.feed(data)
    for request in requests:
        if isinstance(request, BookieInfo):
            host.transport.write(wire.answer(request, InfoReply(Status.EOK, request.txn, bookie=bookie)))
    return [request for request in requests if not isinstance(request, BookieInfo)]


def answer_all(host: Host, data: bytes, bookie: str | None = None) -> None:
    """A bookie that has everything."""
    for request in heard(host, data, bookie):
        if isinstance(request, AddRun):
            host.transport.write(wire.add_acks(request, Status.EOK))
        elif isinstance(request, Read):
            found = ReadReply(
                Status.EOK, request.ledger, request.entry, body(request.ledger, request.entry), txn=request.txn
            )
            host.transport.write(wire.answer(request, found))


def silent(host: Host, data: bytes = b"") -> None:
    """Hears and says nothing, except that it is there."""
    heard(host, data)


@asynccontextmanager
async def cluster_of_one(heard=answer_all, greeted=silent, **options):
    """(bookie id, pool, port)."""
    factory = Factory.forProtocol(Host)
    factory.buildProtocol = lambda _address: Host(heard, greeted)
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    # addresses takes the place of a store
    pool = BookiePool(reactor, Addresses(), ClientOptions(**options))  # type: ignore[arg-type]
    try:
        yield f"127.0.0.1:{port.getHost().port}", pool, port
    finally:
        await pool.close()
        await maybeDeferred(port.stopListening)


def test_adds_and_reads_over_a_real_socket():
    """Ten megabytes of adds on each generation, then reads."""

    async def story():
        for protocol in ("v2", "v3"):
            async with cluster_of_one(protocol=protocol) as (bookie, pool, _port):
                sink = Waiting()
                channel = pool.add_channel(bookie, 1, sink)
                for first in range(0, 1000, 100):
                    channel.send(batch(1, first, 100, size=10_000))
                await sink.until(1000)
                assert channel.outstanding_bytes == 0
                assert (await pool.read(bookie, 1, 5)).body == body(1, 5)

    run(story)


def test_no_one_listens_there():
    """-8 quickly, with the address in the reason."""

    async def story():
        async with cluster_of_one() as (bookie, pool, port):
            await maybeDeferred(port.stopListening)
            sink = Waiting()
            pool.add_channel(bookie, 1, sink)
            await sink.until(1)
            assert sink.failure is not None
            assert sink.failure[0] == -8
            assert bookie in sink.failure[1]
            assert (await pool.read(bookie, 1, 0)).code == -8

    run(story)


@pytest.mark.parametrize("host", ["", ".", "a..b", "a" * 64, "\ud800"], ids=ascii)
def test_an_address_that_names_no_host(host):
    """It is refused at once, which a resolver does not do, and nobody at this machine's port is asked."""

    async def story():
        async with cluster_of_one() as (_bookie, _, port):
            addresses = Addresses()
            addresses.known["a"] = ServiceInfo.of(host, port.getHost().port)
            pool = BookiePool(reactor, addresses, ClientOptions())  # type: ignore[arg-type]  # as above
            sink = Waiting()
            pool.add_channel("a", 1, sink)
            await sink.until(1)
            assert sink.failure is not None
            assert "names no host" in sink.failure[1]
            await pool.close()

    run(story)


def test_a_host_that_accepts_and_closes():
    """Reads and adds fail with the code for an unreachable bookie."""

    async def story():
        async with cluster_of_one(greeted=lambda host: host.transport.abortConnection()) as (bookie, pool, _port):
            assert (await pool.read(bookie, 1, 0)).code == -8
            sink = Waiting()
            pool.add_channel(bookie, 1, sink).send(batch(1, 0, 1))
            await sink.until(1)
            assert sink.failure is not None
            assert sink.failure[0] == -8

    run(story)


def test_a_host_that_speaks_another_protocol():
    """An HTTP server, say: the length it seems to announce is refused at once."""

    async def story():
        async with cluster_of_one(
            heard=lambda host, _data: host.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        ) as (bookie, pool, _port):
            assert (await pool.read(bookie, 1, 0)).code == -8
            assert (await pool.info(bookie)).code == -8

    run(story)


def test_a_connection_that_is_cut_in_the_middle_of_a_frame():
    """The read fails with the code for an unreachable bookie."""

    def half(host: Host, data: bytes) -> None:
        for request in heard(host, data):
            found = ReadReply(Status.EOK, request.ledger, request.entry, body(1, 0), txn=request.txn)
            host.transport.write(wire.answer(request, found)[:-3])
            host.transport.loseConnection()

    async def story():
        async with cluster_of_one(heard=half) as (bookie, pool, _port):
            assert (await pool.read(bookie, 1, 0)).code == -8

    run(story)


def test_a_host_that_stops_reading_shows_as_a_full_socket_and_then_times_out():
    """Back-pressure is visible before the time-out; what waits here is counted."""

    def deaf(host: Host, data: bytes) -> None:
        heard(host, data)
        host.transport.pauseProducing()

    async def story():
        async with cluster_of_one(heard=deaf, add_timeout_ms=400) as (bookie, pool, _port):
            sink = Waiting()
            channel = pool.add_channel(bookie, 1, sink)
            for first in range(0, 400, 100):
                channel.send(batch(1, first, 100, size=50_000))
            assert channel.outstanding_bytes == 20_000_000
            await sink.until(1)
            assert sink.failure is not None
            assert sink.failure[0] == -23
            assert not channel.writable

    run(story)


def test_a_silent_host_costs_the_time_out_and_no_more():
    """A read without answer fails when the read time-out is over."""

    async def story():
        async with cluster_of_one(heard=silent, read_timeout_ms=200, long_poll_ms=100) as (bookie, pool, _port):
            began = reactor.seconds()
            assert (await pool.read(bookie, 1, 0)).code == -23
            assert 0.15 < reactor.seconds() - began < 5

    run(story)


def test_a_host_that_keeps_silent_about_a_password(tmp_path):
    """
    As Apache's where it is wrong: -24 when the time to connect is over, and the text says why; one warning does for
    several tries.
    """
    file = tmp_path / "jaas.conf"
    file.write_text(f'BookKeeper {{ {MODULE} required username="a" password="b"; }};')
    challenge = SaslOfBookie(Users({}, [])).begin().step(b"")
    sink, again = Waiting(), Waiting()
    warnings = []

    def challenging(host, data):
        for request in host.requests.feed(data):
            if not request.payload:
                host.transport.write(wire.answer(request, AuthReply("sasl", challenge, txn=request.txn)))

    async def story():
        options = {"authentication": "sasl", "jaas_file": str(file), "connect_timeout_ms": 200}
        async with cluster_of_one(heard=challenging, **options) as (bookie, pool, _port):
            for each in (sink, again):
                pool.add_channel(bookie, 1, each)
                await each.until(1)

    def take(event):
        if event["log_level"] is LogLevel.warn and "can't be reached" in event["log_format"]:
            warnings.append(event["reason"])

    globalLogPublisher.addObserver(take)
    try:
        run(story)
    finally:
        globalLogPublisher.removeObserver(take)
    assert sink.failure is not None
    assert again.failure == sink.failure
    assert len(warnings) == 1
    assert sink.failure[0] == Security.code
    assert "keep silent where the user's name or password" in sink.failure[1]


def test_a_host_that_comes_back_is_found_again():
    """On the same port, with the next request, after at most the reconnect wait."""

    async def story():
        async with cluster_of_one(reconnect_wait_ms_max=50) as (bookie, pool, port):
            assert (await pool.read(bookie, 1, 0)).code == 0
            number = port.getHost().port
            await maybeDeferred(port.stopListening)
            factory = port.factory
            await pool.close()
            # as above
            fresh = BookiePool(reactor, Addresses(), ClientOptions(reconnect_wait_ms_max=50))  # type: ignore[arg-type]
            assert (await fresh.read(bookie, 1, 0)).code == -8
            again = reactor.listenTCP(number, factory, interface="127.0.0.1")
            sink = Waiting()
            fresh.add_channel(bookie, 1, sink).send(batch(1, 0, 5))
            await sink.until(5)
            assert sink.acked_ids == 5
            await fresh.close()
            await maybeDeferred(again.stopListening)

    run(story)


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_two_bookies_exchange_their_addresses(protocol, telling):
    """
    A bookie is looked for where the store says that it is now, though another one answers where it was.  While the
    store is behind, the one that answers there is not taken for it, if bookies say who they are.
    """
    names = ["a", "b"]  # who is at the one port, and at the other
    hosts: list[Host] = []
    reads: list[str] = []

    def bookie_at(place: int) -> Callable[[Host, bytes], None]:
        def hear(host: Host, data: bytes) -> None:
            hosts.append(host)
            for request in heard(host, data, names[place] if telling else None):
                reads.append(names[place])
                if request.entry == 0:
                    host.transport.write(
                        wire.answer(request, ReadReply(Status.ENOENTRY, request.ledger, request.entry, txn=request.txn))
                    )
                else:  # now they exchange their places
                    names.reverse()
                    for each in hosts:
                        each.transport.abortConnection()

        return hear

    async def story():
        async with (
            cluster_of_one(heard=bookie_at(0)) as (_, _, one),
            cluster_of_one(heard=bookie_at(1)) as (_, _, other),
        ):
            addresses = Addresses()
            # as above
            options = ClientOptions(protocol=protocol, reconnect_wait_ms_max=20)
            pool = BookiePool(reactor, addresses, options)  # type: ignore[arg-type]
            for port in (one, other):
                addresses.known["a"] = ServiceInfo.of("127.0.0.1", port.getHost().port)
                assert (await pool.read("a", 1, 0)).code == -13
                assert (await pool.read("a", 1, 1)).code == -8
            assert reads == ["a"] * 4
            if telling:
                assert (await pool.read("a", 1, 0)).code == -8
                assert reads == ["a"] * 4
            await pool.close()

    run(story)


def test_a_clock_that_was_set_back_keeps_no_bookie_away():
    """After a refusal the wait is at most what the options allow, whatever the clock says now."""
    net = Net()
    net.advance(10_000)
    pool = make_pool(net)
    pool.add_channel("host:3181", 1, Listener())
    net.refuse()
    net.rightNow -= 5_000
    pool.add_channel("host:3181", 1, Listener())
    net.turn(1.0)
    assert net.asked == 1


def test_addresses_in_ids():
    """Ids of the form host:port, IPv6 among them; others hold no address."""
    assert address_in("10.0.0.1:3181") == ("10.0.0.1", 3181)
    assert address_in("bookie-1.example.org:3181") == ("bookie-1.example.org", 3181)
    assert address_in("::1:3181") == ("::1", 3181)
    for none in ("bookie-1", "a:b", ":1", "a:", "a:70000", "a:" + "1" * 5000):
        assert address_in(none) is None
