"""
Clients that say who they are to bookies that ask, on real sockets, with TLS and without: who is served, what the others
are told, and what somebody between them learns.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from quire.bookie.server.admission.entrance import OUTSIDE_FRAME_BYTES_MAX
from quire.client import api
from quire.conf.client import ClientOptions
from quire.metadata.store import ServiceInfo
from quire.protocol import v3
from quire.protocol.errors import OK, Security, Status
from quire.protocol.messages import Auth, AuthReply
from quire.security.authentication import SaslOfBookie
from quire.security.jaas import MODULE
from tests.client.whole.recording import Proxy
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.security.authority import Authority

# SPDX-License-Identifier: Apache-2.0

SECRET = "what nobody may hear"
SHAPE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "password": b"the ledger's own"}
Work = Callable[[api.Client], Awaitable[None]]


def jaas(where: Path, user: str = "ledgers", password: str = SECRET, name: str = "jaas.conf") -> str:
    """A file for both sides in which one user is known, and this one is the client's."""
    path = where / name
    path.write_text(
        f'Bookie {{ {MODULE} required user_ledgers="{SECRET}" user_other="another"; }};\n'
        f'BookKeeper {{ {MODULE} required username="{user}" password="{password}"; }};\n'
    )
    path.chmod(0o600)
    return str(path)


def asking(where: Path, **more: object) -> RealCluster:
    """Three bookies that serve `ledgers` and no other."""
    options = {"authentication": "sasl", "jaas_file": jaas(where), "jaas_allowed": "ledgers", **more}
    return RealCluster(where / "cluster", 3, **options)


def who(file: str, **more: object) -> ClientOptions:
    return ClientOptions.model_validate({"authentication": "sasl", "jaas_file": file, **more})


def with_client(cluster: RealCluster, work: Work, options: ClientOptions) -> None:
    async def story() -> None:
        client = await api.connect(reactor, cluster.uri, options)
        try:
            await work(client)
        finally:
            await client.close()

    run(story)


async def goes(client: api.Client) -> None:
    """A ledger is written, read, and recovered from its writer."""
    writer = await client.create_ledger(**SHAPE)
    await writer.append_many([b"entry"] * 50)
    reader = await client.open_ledger(writer.id, SHAPE["password"])
    assert [entry.data for entry in await reader.read(0, 49)] == [b"entry"] * 50


def refused(said: str) -> Work:
    async def work(client: api.Client) -> None:
        """An append and an open fail with -24, whose text says what to do."""
        writer = await client.create_ledger(**SHAPE)
        with pytest.raises(Security, match=said):
            await writer.append(b"entry")
        another = await client.create_ledger(**SHAPE)
        with pytest.raises(Security):
            await client.open_ledger(another.id, SHAPE["password"])

    return work


def counted(cluster: RealCluster) -> dict[str, int]:
    """The sums of the bookies' entrances."""
    found: dict[str, int] = {}
    for bookie in cluster.bookies:
        assert bookie is not None
        assert bookie.listener.entrance is not None
        for name, _meaning, count in bookie.listener.entrance.counts():
            found[name] = found.get(name, 0) + count
    return found


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("tls", [False, True])
def test_who_proves_a_password_is_served(tmp_path: Path, protocol: str, tls: bool) -> None:
    """Every connection of either generation proves it once, inside TLS where that is on."""
    authority = Authority(tmp_path / "tls")
    ours = {"tls": True, **authority.issue("bookie").keys} if tls else {}
    theirs = {"tls": True, "tls_trust": authority.trust} if tls else {}
    with asking(tmp_path, **ours) as cluster:
        with_client(cluster, goes, who(jaas(tmp_path), protocol=protocol, **theirs))
        found = counted(cluster)
    assert found["authentications"] >= 3
    assert found["authentications_failed"] == found["not_authenticated"] == 0
    assert found.get("tls_handshakes", found["authentications"]) == found["authentications"]


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3"])
def test_no_token_reaches_a_bookie_at_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """The name in its certificate is looked at first; the address that it has is the one that goes."""
    authority = Authority(tmp_path / "tls")
    begun: list[SaslOfBookie] = []
    begin = SaslOfBookie.begin
    monkeypatch.setattr(SaslOfBookie, "begin", lambda provider: begun.append(provider) or begin(provider))
    work = goes if host == "127.0.0.1" else refused("TLS")
    with asking(tmp_path, tls=True, **authority.issue("bookie", host).keys) as cluster:
        with_client(cluster, work, who(jaas(tmp_path), tls=True, tls_trust=authority.trust))
    assert bool(begun) == (host == "127.0.0.1")


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize(
    ("user", "password"),
    [("ledgers", "wrong"), ("nobody", SECRET), ("other", "another")],
    ids=["wrong password", "unknown", "not allowed"],
)
def test_who_proves_none_is_told_so(tmp_path: Path, protocol: str, user: str, password: str) -> None:
    """All three alike, and no log of either side has a password."""
    events: list[LogEvent] = []
    file = jaas(tmp_path, user, password, "client.conf")
    globalLogPublisher.addObserver(events.append)
    try:
        with asking(tmp_path) as cluster:
            with_client(cluster, refused("did not let us in"), who(file, protocol=protocol))
            found = counted(cluster)
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert found["authentications"] == 0
    assert found["authentications_failed"] >= 3
    said = "\n".join(formatEvent(event) for event in events)
    assert f"user '{user}' is unknown or not allowed, or the password is wrong" in said
    assert SECRET not in said + repr(events)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_who_says_nothing_is_told_to(tmp_path: Path, protocol: str) -> None:
    """With the client's key that is missing."""
    with asking(tmp_path) as cluster:
        options = ClientOptions.model_validate({"protocol": protocol})
        with_client(cluster, refused("clientAuthProviderFactoryClass"), options)
        assert counted(cluster)["not_authenticated"] >= 3


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_bookies_that_do_not_ask_yet(tmp_path: Path, protocol: str) -> None:
    """A client that would say who it is is served: clients are changed before bookies."""
    with RealCluster(tmp_path / "cluster", 3) as cluster:
        with_client(cluster, goes, who(jaas(tmp_path), protocol=protocol))


def test_who_listens_learns_no_password_and_can_not_say_it_again(tmp_path: Path) -> None:
    """What a client sent is not taken from another connection: the bookie's part of it is new."""
    with asking(tmp_path) as cluster:
        target = cluster.bookies[0]
        assert target is not None
        proxy = Proxy(target.port)

        async def through(client: api.Client) -> None:
            port = await proxy.start()
            asked, first = client.store.service_info, cluster.ids[0]

            async def moved(bookie: str) -> ServiceInfo | None:
                return ServiceInfo.of("127.0.0.1", port) if bookie == first else await asked(bookie)

            client.store.service_info = lambda bookie: Deferred.fromCoroutine(moved(bookie))  # type: ignore[method-assign]
            await goes(client)
            await proxy.stop()

        with_client(cluster, through, who(jaas(tmp_path), protocol="v3"))
        assert b'username="ledgers"' in proxy.seen["client"]
        assert SECRET.encode() not in proxy.everything
        adds = target.service.tally.add_entries
        answers = raw(target.port, proxy.seen["client"])
        assert [answer.status for answer in answers if isinstance(answer, AuthReply)] == [Status.EOK, Status.EUA]
        assert len(answers) == 2
        assert target.service.tally.add_entries == adds


@pytest.mark.parametrize("begun", [b"", v3.pack_request(Auth("sasl", b"", 1, version=3))], ids=["first", "second"])
def test_a_token_that_is_too_large(tmp_path: Path, begun: bytes) -> None:
    """The connection ends without an answer to it."""
    large = v3.pack_request(Auth("sasl", bytes(OUTSIDE_FRAME_BYTES_MAX), 2, version=3))
    with asking(tmp_path) as cluster:
        answers = raw(cluster.ports[0], begun + large)
    assert len(answers) == bool(begun)


class Long:
    """A client's provider whose first token is too large."""

    name = "sasl"
    complete = False

    def begin(self) -> "Long":
        return self

    def step(self, _token: bytes) -> bytes:
        return bytes(OUTSIDE_FRAME_BYTES_MAX)


def test_a_token_that_is_too_large_inside_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is that taken, though whoever sends it has come through the handshake."""
    authority = Authority(tmp_path / "tls")
    monkeypatch.setattr("quire.client.connections.pool.of_client", lambda _options: Long())
    with asking(tmp_path, tls=True, **authority.issue("bookie").keys) as cluster:

        async def lost(client: api.Client) -> None:
            pool = api.BookiePool(reactor, client.store, options)
            assert (await pool.force(cluster.ids[0], 1)) != OK
            await pool.close()

        options = ClientOptions(tls=True, tls_trust=authority.trust)
        with_client(cluster, lost, options)
        target = cluster.bookies[0]
        assert target is not None
        assert target.listener.malformed == 1
        assert counted(cluster)["tls_handshakes"] == 1


class Raw(Protocol):
    """Sends what it is given, and keeps what comes until the bookie ends the connection."""

    def __init__(self, data: bytes, ended: "Deferred[bytes]") -> None:
        self._data = data
        self._ended = ended
        self._heard = b""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._data)  # type: ignore[call-arg]  # as Twisted's are annotated

    def dataReceived(self, data: bytes) -> None:
        self._heard += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._ended.callback(self._heard)


def raw(port: int, data: bytes) -> list[object]:
    """The answers to these bytes on a connection of their own, which the bookie ends."""

    async def story() -> bytes:
        ended: Deferred[bytes] = Deferred()
        factory = Factory()
        factory.noisy = False
        factory.buildProtocol = lambda _address: Raw(data, ended)  # type: ignore[method-assign]
        factory.startedConnecting = lambda _connector: None  # type: ignore[attr-defined]
        factory.clientConnectionLost = lambda *_: None  # type: ignore[attr-defined]
        factory.clientConnectionFailed = lambda _connector, why: ended.errback(why)  # type: ignore[attr-defined]
        reactor.connectTCP("127.0.0.1", port, factory)  # type: ignore[attr-defined]
        return await ended

    return list(v3.Replies().feed(run(story)))
