"""
Clients and bookies over TLS, on real sockets: who is served, what the others are told and how soon, what somebody
between them sees, and certificates that change under load.
"""

import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from quire.client import api
from quire.conf.client import ClientOptions
from quire.metadata.store import ServiceInfo
from quire.protocol import v3, wire
from quire.protocol.errors import Security, Status
from quire.protocol.messages import Force, Read, StartTls
from tests.client.whole.recording import Change, Proxy
from tests.protocol.security_samples import answer
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.security.authority import Authority

# SPDX-License-Identifier: Apache-2.0

ENTRY = b"what nobody between may read "
PASSWORD = b"the ledger's own password"
SHAPE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "password": PASSWORD}
SOON_S = 60.0  # against what hangs; a refusal takes milliseconds


class World:
    """A cluster over TLS, its authority, and clients; everything is ended after the test."""

    def __init__(self, path: Path, **bookies: object) -> None:
        self.path = path
        self.authority = Authority(path / "tls")
        self.bookie = self.authority.issue("bookie")
        options = {**self.bookie.keys, "tls": True, "tls_trust": self.authority.trust, **bookies}
        self.cluster = RealCluster(path / "cluster", 3, **options)

    def options(self, **more: object) -> ClientOptions:
        return ClientOptions.model_validate({"tls": True, "tls_trust": self.authority.trust, **more})

    def shown(self, name: str = "client") -> dict[str, object]:
        """A certificate of a client."""
        return {**self.authority.issue(name).keys, "tls_client_certificates": True}

    def with_client(self, work: "Callable[[api.Client], Awaitable[None]]", options: ClientOptions) -> None:
        async def story() -> None:
            client = await api.connect(reactor, self.cluster.uri, options)
            try:
                await work(client)
            finally:
                await client.close()

        run(story)


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, **getattr(request, "param", {}))
    with made.cluster:
        yield made


async def goes(client: api.Client) -> None:
    """A ledger is written, read, and recovered from its writer."""
    writer = await client.create_ledger(**SHAPE)
    await writer.append_many([ENTRY] * 50)
    reader = await client.open_ledger(writer.id, PASSWORD)
    assert [entry.data for entry in await reader.read(0, 49)] == [ENTRY] * 50


async def refused(client: api.Client) -> None:
    """An append and an open fail with -24, whose text says what to do, long before any time-out."""
    began = time.monotonic()
    writer = await client.create_ledger(**SHAPE)
    with pytest.raises(Security, match="TLS"):
        await writer.append(ENTRY)
    another = await client.create_ledger(**SHAPE)
    with pytest.raises(Security, match="can't fence"):
        await client.open_ledger(another.id, PASSWORD)
    with pytest.raises(Security):
        await client.open_ledger(another.id, PASSWORD, recover=False)
    assert time.monotonic() - began < SOON_S


MUTUAL = {"tls_client_certificates": True}
OPEN = {"tls_required": False}


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("world", [{}, MUTUAL, OPEN, {**MUTUAL, **OPEN}], indirect=True, ids=str)
def test_who_has_what_is_asked_for_is_served(world: World, protocol: str) -> None:
    """Both protocols, with and without clients' certificates, required or not."""
    world.with_client(goes, world.options(protocol=protocol, **world.shown()))


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("world", [{}, MUTUAL], indirect=True, ids=str)
def test_a_client_without_tls_is_refused(world: World, protocol: str) -> None:
    """At once, in its own words."""
    world.with_client(refused, ClientOptions.model_validate({"protocol": protocol}))


def test_a_refused_client_reads_why_whatever_it_still_sends(world: World) -> None:
    """Requests that were on their way do not reset the connection before the refusal is read."""
    target = world.cluster.bookies[0]
    assert target is not None

    first, *late = [v3.pack_request(Read(1, 0, txn=txn, version=3)) for txn in range(1, 50)]

    def talk() -> bytes:
        with socket.create_connection(("127.0.0.1", target.port), timeout=SOON_S) as peer:
            peer.sendall(first)
            peer.recv(1, socket.MSG_PEEK)  # the refusal has come
            for frame in late:
                peer.sendall(frame)
            peer.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: peer.recv(1 << 16), b""))

    async def story() -> bytes:
        return await deferToThread(talk)

    assert getattr(answer(run(story)), "status", None) == Status.EUA


@pytest.mark.parametrize("world", [OPEN], indirect=True)
def test_a_client_without_tls_is_served_where_that_is_allowed(world: World) -> None:
    """`tlsRequired=false`, for the days on which clients change."""
    world.with_client(goes, ClientOptions())


@pytest.mark.parametrize("world", [MUTUAL], indirect=True)
@pytest.mark.parametrize("fault", ["none", "foreign", "expired"])
def test_clients_certificates_that_are_not_good(world: World, fault: str) -> None:
    """The client is told by the bookie, before anything of a ledger is sent."""
    pairs = {
        "none": None,
        "foreign": Authority(world.path / "other", "other").issue("foreign"),
        "expired": world.authority.issue("old", expired=True),
    }
    pair = pairs[fault]
    shown = {} if pair is None else {**pair.keys, "tls_client_certificates": True}
    world.with_client(refused, world.options(**shown))


def test_a_client_that_trusts_another_authority(world: World) -> None:
    """It refuses the bookies."""
    other = Authority(world.path / "other", "other")
    world.with_client(refused, ClientOptions(tls=True, tls_trust=other.trust))


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_reader_that_is_refused(world: World, protocol: str) -> None:
    """A closed ledger is opened from its metadata; each read fails with -24."""
    ledgers: list[int] = []

    async def write(client: api.Client) -> None:
        writer = await client.create_ledger(**SHAPE)
        await writer.append(ENTRY)
        await writer.close()
        ledgers.append(writer.id)

    async def read(client: api.Client) -> None:
        reader = await client.open_ledger(ledgers[0], PASSWORD)
        with pytest.raises(Security):
            await reader.read(0, 0)

    world.with_client(write, world.options())
    world.with_client(read, ClientOptions.model_validate({"protocol": protocol}))


def test_a_client_with_tls_does_not_fall_back(tmp_path: Path) -> None:
    """Bookies without TLS are not spoken to."""
    authority = Authority(tmp_path / "tls")
    world = World(tmp_path, tls=False, tls_trust=None, tls_certificate=None, tls_key=None)
    with world.cluster:
        world.with_client(refused, ClientOptions(tls=True, tls_trust=authority.trust))


def test_bookies_say_that_they_serve_tls(world: World) -> None:
    """In what they announce, as Apache's do."""

    async def look(client: api.Client) -> None:
        info = await client.store.service_info(world.cluster.ids[0])
        assert info is not None
        assert info.endpoints[0].extensions == ("tls",)

    world.with_client(look, world.options())


# -- somebody between


def between(world: World, change: dict[str, Change], options: ClientOptions, host: str = "127.0.0.1") -> Proxy:
    """A client reaches every bookie through one proxy, and is refused; what the proxy saw."""
    target = world.cluster.bookies[0]
    assert target is not None
    proxy = Proxy(target.port)
    proxy.change.update(change)

    async def through(client: api.Client) -> None:
        port = await proxy.start()

        async def moved(_bookie: str) -> ServiceInfo:
            return ServiceInfo.of(host, port)

        client.store.service_info = lambda bookie: Deferred.fromCoroutine(moved(bookie))  # type: ignore[method-assign]
        try:
            await refused(client)
        finally:
            await proxy.stop()

    world.with_client(through, options)
    return proxy


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_nobody_between_learns_anything(world: World, protocol: str) -> None:
    """A proxy that only records sees START_TLS, its answer and TLS: neither entry, password nor key."""
    target = world.cluster.bookies[0]
    assert target is not None
    proxy = Proxy(target.port)

    async def through(client: api.Client) -> None:
        port = await proxy.start()
        first = world.cluster.ids[0]
        asked = client.store.service_info

        async def moved(bookie: str) -> ServiceInfo | None:
            return ServiceInfo.of("127.0.0.1", port) if bookie == first else await asked(bookie)

        client.store.service_info = lambda bookie: Deferred.fromCoroutine(moved(bookie))  # type: ignore[method-assign]
        await goes(client)
        await proxy.stop()

    world.with_client(through, world.options(protocol=protocol))
    assert proxy.seen["client"].startswith(v3.pack_request(StartTls(0)) + b"\x16\x03")
    assert proxy.seen["bookie"].startswith(wire.refusal(StartTls(0), Status.EOK) + b"\x16\x03")
    assert len(proxy.seen["client"]) > 50 * len(ENTRY)
    searched(proxy)


def searched(proxy: Proxy) -> None:
    """Nothing of a ledger passed in the clear."""
    for secret in (ENTRY, PASSWORD, api.Digest(api.DigestType.MAC, PASSWORD).master_key):
        assert secret not in proxy.everything


def instead(old: bytes, new: bytes) -> Change:
    return lambda data: data.replace(old, new) if old in data else data


@pytest.mark.parametrize("world", [{}, OPEN], indirect=True, ids=str)
def test_a_proxy_that_strips_start_tls(world: World) -> None:
    """It answers that the bookie serves no TLS: the client ends there."""
    yes, no = (wire.refusal(StartTls(0), status) for status in (Status.EOK, Status.EBADREQ))
    proxy = between(world, {"bookie": instead(yes, no)}, world.options())
    assert proxy.changed > 0
    assert proxy.seen["client"].replace(v3.pack_request(StartTls(0)), b"") == b""
    searched(proxy)


@pytest.mark.parametrize("world", [{}, OPEN], indirect=True, ids=str)
def test_a_proxy_that_puts_a_frame_behind_start_tls(world: World) -> None:
    """The bookie ends the connection, without an answer and without serving the frame."""
    start, frame = v3.pack_request(StartTls(0)), v3.pack_request(Force(1, 5))

    async def counted() -> int:
        bookie = world.cluster.bookies[0]
        assert bookie is not None
        return bookie.service.tally.forces

    target = world.cluster.bookies[0]
    assert target is not None
    proxy = Proxy(target.port)
    proxy.change["client"] = instead(start, start + frame)

    async def through() -> None:
        await proxy.start()
        client = api.BookiePool(reactor, Nearby(proxy.port), world.options())  # type: ignore[arg-type]
        answer = await client.force(world.cluster.ids[0], 1)
        assert answer != 0
        await client.close()
        await proxy.stop()

    run(through)
    assert proxy.changed > 0
    assert proxy.seen["bookie"] == b""
    assert run(counted) == 0
    searched(proxy)


class Nearby:
    """A store in which every bookie is at one port."""

    def __init__(self, port: int) -> None:
        self._info = ServiceInfo.of("127.0.0.1", port)

    async def service_info(self, _bookie: str) -> ServiceInfo:
        return self._info


def test_a_proxy_that_puts_a_frame_behind_the_answer(world: World) -> None:
    """The client ends the connection before a handshake."""
    yes = wire.refusal(StartTls(0), Status.EOK)
    proxy = between(world, {"bookie": instead(yes, yes + yes)}, world.options())
    assert proxy.changed > 0
    assert b"\x16\x03" not in proxy.seen["client"]
    searched(proxy)


def test_a_bookie_at_another_host(world: World) -> None:
    """A certificate of the right authority for another address: not one byte of the client's follows the handshake."""
    world.authority.issue("bookie", "10.1.2.3")  # over the files of the bookies

    async def reload() -> None:
        for bookie in world.cluster.bookies:
            assert bookie is not None
            bookie.reload()

    run(reload)
    proxy = between(world, {}, world.options())
    assert b"\x16\x03" in proxy.seen["client"]
    searched(proxy)


# -- certificates that change


@pytest.mark.parametrize("world", [{**MUTUAL, "tls_refresh_s": 0}], indirect=True)
def test_certificates_change_under_load_and_no_append_fails(world: World) -> None:
    """
    Bookies get new ones of a new authority, after clients trust both; old connections go on, new ones use the new.  A
    broken file in between changes nothing.
    """
    old, new = world.authority, Authority(world.path / "new", "new")
    both = world.path / "both.pem"
    both.write_bytes(Path(old.trust).read_bytes() + Path(new.trust).read_bytes())
    rounds = 30

    async def load(client: api.Client) -> None:
        writer = await client.create_ledger(**SHAPE)
        for _ in range(rounds):
            await writer.append_many([ENTRY] * 20)
            await deferLater(reactor, 0, lambda: None)  # type: ignore[arg-type]
        assert writer.last_add_confirmed == rounds * 20 - 1

    async def rotate(client: api.Client) -> None:
        loads = [Deferred.fromCoroutine(load(client))]
        key = Path(world.bookie.key)
        for step in ("broken", "whole"):
            if step == "broken":
                key.write_bytes(b"half of a fi")
            else:
                fresh = new.issue("bookie")
                Path(world.bookie.certificate).write_bytes(Path(fresh.certificate).read_bytes())
                key.write_bytes(Path(fresh.key).read_bytes())
            for bookie in world.cluster.bookies:
                assert bookie is not None
                bookie.reload()
                connections = bookie.listener.connections
                for connection in list(connections):
                    assert connection.alive
            other = await api.connect(reactor, world.cluster.uri, world.options(tls_trust=str(both), **shown))
            loads.append(Deferred.fromCoroutine(load(other)))
            others.append(other)
        await gatherResults(loads, consumeErrors=True)  # type: ignore[arg-type]
        for other in others:
            await other.close()

    others: list[api.Client] = []
    shown = world.shown()
    world.with_client(rotate, world.options(tls_trust=str(both), **shown))
    only_new = world.options(tls_trust=new.trust, **shown)
    world.with_client(goes, only_new)
    world.with_client(refused, world.options(**shown))
