"""
What kazoo is given to wait for its sockets, and to make them; who is not let in, by a real server or by us: each is
told at once, and why; and a server's answers that are altered on the way.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from kazoo.exceptions import (
    APIError,
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionClosedRequireSaslError,
)
from twisted.internet.threads import deferToThread

from quire.conf.parts.stores import StoreOptions
from quire.metadata.tree import BadVersion, Check, Create, Delete, NodeExists, NoNode, Write
from quire.metadata.uri import open_store
from quire.metadata.zk.client import FOR_ALL, RECONNECTING, Client, Handler, committed
from quire.metadata.zk.session import ZooKeeperSession
from quire.protocol.errors import MetadataTooLarge, MetaStore, MetaStoreRefused
from quire.security.zookeeper import ZooKeeperSecurity
from tests.metadata.made import HERE, ledger
from tests.metadata.proxy import Proxy
from tests.metadata.stories import failing
from tests.metadata.zk.guarded import acls, told
from tests.reactor import reactor, run
from tests.security.authority import Authority, Pair

# SPDX-License-Identifier: Apache-2.0

NEVER_MS = 3_600_000  # who fails within this was told, and did not wait


def test_sockets_are_waited_for():
    """Those that are ready come back under what was asked; a peer's end makes one ready, a closed one fails."""
    handler = Handler()
    near, far = socket.socketpair()
    with near, far:
        assert handler.select([near], [], [], 0) == ([], [], [])
        assert handler.select([near], [far], [], 1) == ([], [far], [])
        far.send(b"x")
        assert handler.select([near, far], [], []) == ([near], [], [])
        near.recv(1)
        far.close()
        assert handler.select([near], [], [], 1)[0] == [near]
        with pytest.raises(ValueError, match="descriptor"):
            handler.select([far], [], [], 1)


def test_an_answer_is_told_where_it_comes():
    """No thread of kazoo's is between the one that reads the connection and the reactor."""
    handler, heard = Handler(), []
    handler.start()
    answer = handler.async_result()
    answer.rawlink(lambda result: heard.append(result.value))
    answer.set(7)
    assert heard == [7]
    handler.stop()


def served(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.num_tickets = 0  # it sends nothing that was not asked for
    return context


def test_what_a_record_of_tls_holds_besides_is_there(tmp_path):
    """The descriptor has nothing more to read then, and no wait for it would end."""
    authority = Authority(tmp_path)
    near, far = socket.socketpair()
    with near, far:
        accepted = []
        thread = threading.Thread(
            target=lambda: accepted.append(served(authority.issue("a")).wrap_socket(far, server_side=True))
        )
        thread.start()
        client = ssl.create_default_context(cafile=authority.trust).wrap_socket(near, server_hostname="localhost")
        thread.join()
        handler = Handler()
        assert handler.select([client], [], [], 0) == ([], [], [])
        accepted[0].sendall(b"two")
        assert handler.select([client], [], []) == ([client], [], [])
        assert client.recv(1) == b"t"
        for _ in range(2):
            assert handler.select([client], [], [], 0)[0] == [client]
        assert client.recv(2) == b"wo"
        assert handler.select([client], [], [], 0) == ([], [], [])
        client.close()
        accepted[0].close()


@contextmanager
def listening(pair: Pair) -> Iterator[int]:
    """The port of one that speaks TLS with this certificate, and nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context, ended = served(pair), threading.Event()

        def serve() -> None:
            while not ended.is_set():
                peer, _ = listener.accept()
                with peer:
                    try:
                        context.wrap_socket(peer, server_side=True).recv(1)
                    except OSError:  # it was refused
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


async def refusal(address: str, **options: object) -> str:
    """Why nobody is let in."""
    security = StoreOptions.model_validate(options)
    opening = open_store(reactor, f"zk://{address}/ledgers", session_timeout_ms=NEVER_MS, security=security)
    return str(await failing(opening, MetaStoreRefused))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("expired", "certificate has expired; it needs a new certificate from its authority"),
        ("of another host", "not valid for '127.0.0.1'; use a name of its certificate"),
        ("of another authority", "add its authority to our file of authorities (zkTlsTrustStore)"),
    ],
)
def test_a_server_whose_certificate_is_not_good(tmp_path: Path, fault: str, words: str) -> None:
    """It is refused before anything is sent; the error says what is wrong, and where that is said."""
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    pair = {
        "expired": lambda: authority.issue("a", expired=True),
        "of another host": lambda: authority.issue("a", "another.example"),
        "of another authority": lambda: other.issue("a"),
    }[fault]()
    with listening(pair) as port:
        said = run(lambda: refusal(f"127.0.0.1:{port}", zk_tls_trust=authority.trust))
    assert f"ZooKeeper at zk://127.0.0.1:{port}/ledgers: its certificate is refused" in said
    assert words in said
    assert "docs/security.md 10" in said


def test_who_is_not_let_in(guarded, zookeeper, tmp_path):
    """A wrong password, no certificate, one of another authority, and a password where none is asked for."""
    other = Authority(tmp_path).issue("stranger")
    wrong = guarded.known("quire", "not that")
    for address, options, words in (
        (guarded.plain, wrong, f"section Client (zkSaslSection) of {wrong['jaas_file']} (saslJaasFile)"),
        (guarded.plain, guarded.known("quire", ""), "it does not let the user quire in: compare name and password"),
        (guarded.secure, {**guarded.shown, **wrong}, "it does not let the user quire in: compare name and password"),
        (guarded.secure, guarded.trusting, "we showed none; set zkTlsCertificatePath and zkTlsKeyStore"),
        (
            guarded.secure,
            {**guarded.trusting, "zk_tls_certificate": other.certificate, "zk_tls_key": other.key},
            "our certificate is not accepted",
        ),
        (zookeeper.address, guarded.known("quire"), "it lets nobody prove a password"),
    ):
        assert words in run(lambda address=address, options=options: refusal(address, **options))


def test_tls_at_a_port_without_it(guarded):
    """It is tried as long as one that is away, and what may be wrong is told then."""

    async def story():
        security = StoreOptions.model_validate(guarded.shown)
        opening = open_store(reactor, f"zk://{guarded.plain}/ledgers", session_timeout_ms=1000, security=security)
        return str(await failing(opening, MetaStoreRefused))

    assert "did not answer within 1 s: it ended the connection before it was encrypted" in run(story)


def test_each_connection_proves_the_password(guarded, guarded_place):
    """After a connection was cut the session is the same user as before, and so are its znodes."""

    async def story():
        proxy = Proxy(reactor, int(guarded.plain.rpartition(":")[2]))
        await proxy.start()
        try:
            store = await guarded_place.open_at(f"127.0.0.1:{proxy.port}")
            await store.init_cluster()
            proxy.drop()
            assert await store.new_ledger_id() == 0
            await store.write_cookie("a:1", b"x", -2)
        finally:
            await guarded_place.close()
            await proxy.stop()
        found = await deferToThread(acls, guarded, f"{guarded_place.root}/cookies")
        assert set(found.values()) == {("sasl:quire:31",)}
        assert len(found) == 2

    run(story)


def test_files_that_go_bad_later(tmp_path):
    """They are read for each connection, and who waits for one is told which."""
    trust = Path(Authority(tmp_path).trust)
    security = StoreOptions(zk_tls_trust=str(trust))

    async def story():
        session = ZooKeeperSession(reactor, ["127.0.0.1:1"], "zk://nowhere", 1.0, security)
        trust.unlink()
        error = await failing(session.start(), MetaStoreRefused)
        await session.close()
        return str(error)

    assert f"{trust} (zkTlsTrustStore): No such file" in run(story)


def test_one_good_server_is_enough(guarded, tmp_path):
    """Beside one whose certificate is of another authority, whichever is asked first."""

    async def story(port):
        security = StoreOptions.model_validate(guarded.shown)
        uri = f"zk://127.0.0.1:{port};{guarded.secure}/ledgers"
        for _ in range(4):
            store = await open_store(reactor, uri, session_timeout_ms=NEVER_MS, security=security)
            assert store.tree.id
            await store.close()

    with listening(Authority(tmp_path).issue("a")) as port:
        run(lambda: story(port))


def framed(body: bytes) -> bytes:
    """One frame, as ZooKeeper sends it."""
    return struct.pack(">i", len(body)) + body


ODD: dict[str, Callable[[bytes], bytes]] = {
    "of another request": lambda frame: frame[:4] + struct.pack(">i", 77_777) + frame[8:],
    "of a proof nobody asked for": lambda frame: frame[:4] + struct.pack(">i", -4) + frame[8:],
    "that was refused": lambda frame: frame[:4] + struct.pack(">i", -4) + frame[8:16] + struct.pack(">i", -115),
    "too short for a head": lambda _frame: framed(b"abc"),
    "of a negative length": lambda _frame: struct.pack(">i", -5),
    "twice": lambda frame: frame + frame,
    "of an unknown event": lambda frame: framed(struct.pack(">iqi", -1, 1, 0) + b"\0\0\0\1") + frame,
}


def odd_once(proxy: Proxy, alter: Callable[[bytes], bytes], about: bytes = b"") -> None:
    """The next answer with these bytes in it is altered."""
    left = [alter]
    proxy.alter = lambda frame: left.pop()(frame) if left and about in frame else frame


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_answer_is_a_connection_that_was_dropped(lossy, kind):
    """What was asked for is asked again, in the same session, which keeps what it made; and the log says so once."""
    proxy, store = lossy

    async def story():
        await store.init_cluster()
        await store.register_bookie("a:1", HERE)
        session, (number, made) = store.tree.id, await store.create_new_ledger(ledger())
        for _ in range(2):
            odd_once(proxy, ODD[kind])
            for _ in range(3):
                assert await store.read_ledger(number) == made
        assert store.tree.id == session
        assert "a:1" in (await store.bookies()).writable

    with told() as lines:
        run(story)
    assert len(lines) == 1
    assert "an error that is not foreseen" in lines[0]


@pytest.mark.parametrize("left", [16, 17, 20])
def test_an_answer_that_can_t_be_decoded_fails_its_call_alone(lossy, left):
    """The connection goes on: the answer's frame was whole."""
    proxy, store = lossy

    async def story():
        await store.init_cluster()
        number, made = await store.create_new_ledger(ledger())
        odd_once(proxy, lambda frame: framed(frame[4 : 4 + left]), b"BookieMetadata")
        error = await failing(store.read_ledger(number), MetaStore)
        assert "its answer can't be read" in str(error)
        assert await store.read_ledger(number) == made

    with told() as lines:
        run(story)
    assert lines == []


def test_a_thread_that_ended_runs_again(zookeeper, monkeypatch):
    """Nobody asked it to end: a new session begins, the log says so, and calls are answered again."""

    async def story():
        proxy, expired = Proxy(reactor, zookeeper.port), []
        await proxy.start()
        monkeypatch.setitem(RECONNECTING, "max_tries", 1)  # kazoo ends its loop then; ours tries for ever
        session = ZooKeeperSession(reactor, [f"127.0.0.1:{proxy.port}"], "zk://proxied", 30.0)
        session.on_expired = lambda: expired.append(session.id)
        await session.start()
        before = session.id
        odd_once(proxy, ODD["too short for a head"])
        assert await session.exists("/zookeeper") is not None
        assert expired == [session.id]
        assert session.id != before
        await session.close()
        await proxy.stop()

    with told() as lines:
        run(story)
    assert "the thread of its connection ended (its loop returned)" in lines[-1]


def test_a_request_that_can_t_be_written_fails_alone(lossy):
    """The connection goes on, and so does what was asked for beside it."""
    _, store = lossy

    async def story():
        await store.init_cluster()
        number, made = await store.create_new_ledger(ledger())
        session = store.tree
        bad, good = session.set("/zookeeper", b"", 1 << 40), store.read_ledger(number)
        assert "a request can't be written" in str(await failing(bad, MetaStore))
        assert await good == made

    with told() as lines:
        run(story)
    assert lines == []


def test_a_name_that_is_unknown(zookeeper):
    """The error of a session that does not begin says so; beside a good server it is a line of the log."""

    async def story(hosts, timeout_s):
        session = ZooKeeperSession(reactor, hosts, "zk://x", timeout_s)
        try:
            await session.start()
        finally:
            await session.close()

    with told() as lines:
        with pytest.raises(MetaStore, match=r"the name nobody\.invalid can't be resolved") as caught:
            run(lambda: story(["nobody.invalid:2181"], 1.0))
        assert not isinstance(caught.value, MetaStoreRefused)
        run(lambda: story(["nobody.invalid:2181", zookeeper.address], 30.0))
    assert len(lines) == 2


def test_what_is_too_large_is_not_sent(lossy):
    """It fails at once, with its size and what to change; the connection goes on, and what is asked for beside it."""
    proxy, store = lossy

    async def story():
        await store.init_cluster()
        number, made = await store.create_new_ledger(ledger())
        (connection,) = proxy.connections
        large = store.tree.set("/zookeeper", bytes(1_000_001), -1)
        beside = store.read_ledger(number)
        error = str(await failing(large, MetadataTooLarge))
        assert "1000049 bytes is above the 1000000 that are sent (zkRequestBytesMax)" in error
        assert "jute.maxbuffer" in error
        assert await beside == made
        assert await store.tree.exists("/zookeeper") is not None
        assert proxy.connections == [connection]

    with told() as lines:
        run(story)
    assert lines == []


def test_what_is_large_and_loses_its_connection_for_another_reason(lossy):
    """As beside servers that begin again one by one: it is done as soon as they answer."""
    proxy, store = lossy
    lost = iter((True,) * 4)
    proxy.lose = lambda: next(lost, False)

    async def story():
        for large in (
            lambda: store.tree.set("/zookeeper", bytes(600 << 10), -1),
            lambda: store.tree.transact([Write("/zookeeper", bytes(600 << 10), -1)]),
        ):
            before = proxy.lost
            await large()
            assert proxy.lost - before == 4
            assert len((await store.tree.get("/zookeeper"))[0]) == 600 << 10
            await store.tree.set("/zookeeper", b"", -1)
            again = iter((True,) * 4)
            proxy.lose = lambda again=again: next(again, False)
        proxy.lose = lambda: False

    run(story)


def test_what_the_server_finds_too_large_is_tried_thrice(zookeeper):
    """Where the option is above what it takes: the error says so, long before the time is over; others are answered."""

    async def story():
        options = StoreOptions(zk_request_bytes_max=4 << 20)
        session = ZooKeeperSession(reactor, [zookeeper.address], "zk://here", NEVER_MS / 1000, options)
        await session.start()
        for large in (
            lambda: session.set("/zookeeper", bytes(2 << 20), -1),
            lambda: session.transact([Write("/zookeeper", bytes(2 << 20), -1)]),
        ):
            error = str(await failing(large(), MetadataTooLarge))
            assert "ended the connection 2 times" in error
            assert "jute.maxbuffer" in error
        assert await session.exists("/zookeeper") is not None
        await session.close()

    run(story)


def test_errors_are_ours():
    """What the state of a znode makes of an operation, what its list forbids, and whatever else there is."""
    security = ZooKeeperSecurity(StoreOptions())
    client = Client(["127.0.0.1:1"], 1.0, security, lambda _state: None, lambda _server, _trouble: None, 1_000_000)

    def of(error, retried=False):
        return client.error_of("ZooKeeper at zk://a", "/b", error, retried)

    for theirs, ours in ((NoNodeError, NoNode), (NodeExistsError, NodeExists), (BadVersionError, BadVersion)):
        assert type(of(theirs())) is ours
        assert of(theirs(), True).retried
    for theirs, words in (
        (NoAuthError, "the access list of /b, or of the znode above it, does not let a session without a name do that"),
        (InvalidACLError, "for /b it wants to know who we are, and we are a session without a name to it"),
        (SessionClosedRequireSaslError, "see whether SASL is on in it"),
    ):
        assert type(of(theirs())) is MetaStoreRefused
        assert words in str(of(theirs()))
    assert type(of(APIError())) is MetaStore
    assert "APIError() for /b" in str(of(APIError()))


def test_each_step_is_one_call() -> None:
    """In their order, with versions; a claim is ephemeral, a numbered node sequential, a shared one open to all."""
    client = Mock()
    steps = [
        Create("/a", b"x", claim=True),
        Create("/b", numbered=True, shared=True),
        Write("/c", b"y", 3),
        Delete("/d", -1),
        Check("/e"),
    ]
    assert committed(steps, client) is client.transaction.return_value.commit_async.return_value
    assert client.transaction.return_value.method_calls == [
        call.create("/a", b"x", None, True, False),
        call.create("/b", b"", FOR_ALL, False, True),
        call.set_data("/c", b"y", 3),
        call.delete("/d", -1),
        call.check("/e", -1),
        call.commit_async(),
    ]
