"""
The matrix of security: {Java, quire client} x {Java, quire bookie} x what a bookie asks for and a client shows x
{V2, V3}.  Each cell writes, reads and recovers, or is refused with the code of its row, by what a bookie says in the
clear and by what the client fails with.

A proxy stands between the client and the bookie, registered in its place, and keeps the frames.  What two Apaches say
to each other of START_TLS and AUTH is compared with `tests/vectors/wire_security.jsonl`; `CAPTURE=1` in the environment
writes that file.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from quire.client import api
from quire.conf.client import ClientOptions
from quire.metadata.store import ServiceInfo
from quire.metadata.uri import open_store
from quire.protocol.errors import BookieHandleNotAvailable, LedgerError, Security, UnauthorizedAccess
from quire.tools.local_cluster.cluster import quire
from tests.client.whole.recording import Half, Proxy
from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256
from tests.interop.secured import Secrets, code_of, in_words
from tests.protocol.samples import VECTORS
from tests.protocol.security_samples import Frame, rows_of, shapes, spoken, statuses
from tests.reactor import reactor, run

TEXT_LINES = lines()[:300]
ONE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1, "password": b"x"}
SHAPE = {"ensemble": 1, "write": 1, "ack": 1}
PROTOCOLS = ("v2", "v3")
SERVED = 0
LOST, UNTRUSTED, UNAUTHORIZED = BookieHandleNotAvailable.code, Security.code, UnauthorizedAccess.code
LATE = -23  # BookKeeper's code of an answer that did not come
# Java's client with TLS and a password sends its first token beside START_TLS, in the clear, before or behind it: our
# bookies end such a connection either way; between two Apaches it depends on which comes first.
RACE = -1000
EUA, EBADREQ, EIO = "EUA", "EBADREQ", "EIO"

ROLES = "tls certificate role"


class Row(NamedTuple):
    """
    What a bookie asks for, what a client shows, and the code that each client's read fails with: ours, Java's over V2,
    Java's over V3, on a bookie of ours, then on one of Apache's.
    """

    asked: str
    shown: str
    ours: tuple[int, int, int]
    javas: tuple[int, int, int]
    told: tuple[str, str] = ("", "")  # by a bookie of ours and of Apache's, in the clear


ALL = (SERVED, SERVED, SERVED)
TABLE = [
    Row("", "", ALL, ALL),
    Row("", "tls", (UNTRUSTED,) * 3, (UNTRUSTED,) * 3, (EBADREQ, EBADREQ)),
    Row("tls", "tls", ALL, ALL),
    # Apache's bookies have no `tlsRequired`: they serve both.
    Row("tls", "", (UNTRUSTED, UNAUTHORIZED, UNAUTHORIZED), ALL, (EUA, "")),
    Row("tls certificate", "tls certificate", ALL, ALL),
    Row("tls certificate", "tls", (UNTRUSTED, LOST, LOST), (UNTRUSTED, LOST, LOST)),
    Row("password", "password", ALL, ALL),
    # Apache's bookies do not answer a wrong password, and V2 has no status for it.
    Row("password", "wrong", (UNTRUSTED, LOST, UNAUTHORIZED), (UNTRUSTED, LATE, LATE), (EUA, "")),
    Row("password", "", (UNTRUSTED, UNAUTHORIZED, UNAUTHORIZED), (UNTRUSTED, UNAUTHORIZED, UNAUTHORIZED), (EUA, EUA)),
    Row("tls password", "tls password", (SERVED, LOST, RACE), (SERVED, LOST, RACE)),
    Row("tls password", "tls wrong", (UNTRUSTED, LOST, RACE), (UNTRUSTED, LOST, RACE)),
    Row("tls password", "tls", (UNTRUSTED, UNAUTHORIZED, UNAUTHORIZED), (UNAUTHORIZED,) * 3),
    Row(ROLES, "tls certificate role", ALL, ALL),
    Row(ROLES, "tls certificate other", (UNAUTHORIZED,) * 3, (UNAUTHORIZED,) * 3),
]
CELLS = [
    pytest.param(
        row,
        javas_bookie,
        javas_client,
        protocol,
        id=f"asked {row.asked or 'nothing'}, shown {row.shown or 'nothing'}: {'java' if javas_client else 'quire'} on "
        f"{'java' if javas_bookie else 'quire'}, {protocol}",
    )
    for asked in dict.fromkeys(row.asked for row in TABLE)
    for javas_bookie in (False, True)
    for row in TABLE
    if row.asked == asked
    for javas_client in (False, True)
    for protocol in PROTOCOLS
]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return Secrets(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module")
def zookeeper(secrets: Secrets) -> Iterator[peer.ZooKeeper]:
    """In which all bookies are registered at one root, and their proxies each at one of its own."""
    server = peer.ZooKeeper(secrets.folder / "zookeeper")
    try:
        quire(["metadata", "init", "--metadata", server.uri(root="/bookies")])
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def java(secrets: Secrets, zookeeper: peer.ZooKeeper) -> Iterator[peer.JavaClient]:
    with secrets.java():
        client = peer.JavaClient(zookeeper.uri(), secrets.folder / "client", password="x")
    with client:
        yield client


@pytest.fixture(scope="module")
def captured() -> Iterator[dict[str, list[Frame]]]:
    """By scenario."""
    found: dict[str, list[Frame]] = {}
    yield found
    if os.environ.get("CAPTURE"):
        rows = [json.dumps({"scenario": name, **row}) for name, frames in found.items() for row in rows_of(frames)]
        (VECTORS / "wire_security.jsonl").write_text("\n".join([*rows, ""]))


class Side:
    """One bookie that asks for something, behind a proxy; our client that shows that, and a ledger which it wrote."""

    def __init__(self, secrets: Secrets, zookeeper: peer.ZooKeeper, asked: str, javas: bool) -> None:
        self.secrets, self.key = secrets, (asked, javas)
        self.bookie = f"{'java' if javas else 'quire'}-{asked.replace(' ', '-') or 'plain'}"
        self.uri = zookeeper.uri(root=f"/{self.bookie}")
        with ExitStack() as started:
            self.proxy = Proxy(self._start(zookeeper.uri(root="/bookies"), started))
            run(self._begin)
            started.callback(run, self._end)
            while self.code(1 << 40, asked, "v3") == LOST:  # before it is registered one of Apache's closes connections
                pass
            self.right = started.enter_context(Ours(self.uri, **self.our_keys(asked, "v3")))
            self.given = self.right.write(TEXT_LINES, **ONE)
            self.close = started.pop_all().close

    def _start(self, root: str, started: ExitStack) -> int:
        """The bookie's port."""
        asked, javas = self.key
        folder, keys = self.secrets.folder / self.bookie, self.secrets.bookie(asked, javas)
        if not javas:
            return started.enter_context(Bookies(folder, root, 1, **keys, bookieId=self.bookie)).all[0].port
        with self.secrets.java():
            apaches = peer.JavaBookie(folder, root, {**keys, "bookieId": self.bookie})
        started.callback(apaches.stop)
        return apaches.port

    async def _begin(self) -> None:
        await self.proxy.start()
        self._store = await open_store(reactor, self.uri)
        await self._store.init_cluster()
        await self._store.register_bookie(self.bookie, ServiceInfo.of("127.0.0.1", self.proxy.port))

    async def _end(self) -> None:
        await self._store.close()
        await self.proxy.stop()

    def our_keys(self, shown: str, protocol: str) -> dict[str, Any]:
        # a bookie of Apache's does not answer a wrong password: the connection's time ends that
        return {"protocol": protocol, "connect_timeout_ms": 2000, **self.secrets.our_client(shown)}

    def code(self, ledger: int, shown: str, protocol: str) -> int:
        """Of a read of its first entry by our client; 0: it was read."""

        async def story() -> int:
            options = ClientOptions.model_validate(self.our_keys(shown, protocol))
            client = await api.connect(reactor, self.uri, options)
            pool = api.BookiePool(reactor, client.store, options)
            found = (await pool.read(self.bookie, ledger, 0)).code
            await pool.close()
            await client.close()
            return found

        return run(story)


class Sides:
    """One at a time: cells of the same one follow each other."""

    def __init__(self, secrets: Secrets, zookeeper: peer.ZooKeeper) -> None:
        self._world = secrets, zookeeper
        self._open: Side | None = None

    def at(self, asked: str, javas: bool) -> Side:
        if self._open is None or self._open.key != (asked, javas):
            self.close()
            self._open = Side(*self._world, asked, javas)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()


@pytest.fixture(scope="module")
def sides(secrets: Secrets, zookeeper: peer.ZooKeeper) -> Iterator[Sides]:
    made = Sides(secrets, zookeeper)
    yield made
    made.close()


@pytest.mark.parametrize(("row", "javas_bookie", "javas_client", "protocol"), CELLS)
def test_a_cell(
    row: Row,
    javas_bookie: bool,
    javas_client: bool,
    protocol: str,
    sides: Sides,
    java: peer.JavaClient,
    captured: dict[str, list[Frame]],
) -> None:
    """Served, or refused everything with the code of its row."""
    side = sides.at(row.asked, javas_bookie)
    codes = row.javas if javas_bookie else row.ours
    code = codes[0 if not javas_client else 1 if protocol == "v2" else 2]
    left = side.right.create(**ONE)
    side.right.append(left, TEXT_LINES[:10])
    side.proxy.connections.clear()
    if javas_client:
        javas_in_a_cell(side, java, row.shown, protocol, code, left.id)
    else:
        ours_in_a_cell(side, row.shown, protocol, code, left.id)
    connections = list(side.proxy.connections)
    if code == RACE:
        return
    no_status = javas_client and protocol == "v2" and "wrong" in row.shown.split()  # of V2's AUTH
    expected = "" if no_status or code in (SERVED, LATE) else row.told[javas_bookie]
    assert statuses(connections) & {EUA, EBADREQ, EIO} == ({expected} if expected else set())
    words = set(row.shown.split())
    if javas_client and javas_bookie and not ("tls" in words and words & {"password", "wrong"}):  # see RACE
        compared(f"asked {row.asked or 'nothing'}, shown {row.shown or 'nothing'}, {protocol}", connections, captured)


def compared(name: str, connections: Sequence[Half], captured: dict[str, list[Frame]]) -> None:
    """What two Apaches said of START_TLS and AUTH, at their first connection, is as it was when it was captured."""
    frames = spoken(connections[0])
    if not frames:
        return
    captured[name] = frames
    if not os.environ.get("CAPTURE"):
        with open(VECTORS / "wire_security.jsonl", encoding="utf-8") as file:
            rows = [row for row in map(json.loads, file) if row["scenario"] == name]
        assert shapes(frames) == shapes([Frame(row["direction"], bytes.fromhex(row["frame"])) for row in rows])


def ours_in_a_cell(side: Side, shown: str, protocol: str, code: int, left: int) -> None:
    assert side.code(side.given, shown, protocol) == code
    with Ours(side.uri, **side.our_keys(shown, protocol)) as ours:
        if code == SERVED:
            assert sha256(ours.read(ours.write(TEXT_LINES, **ONE), b"x")) == sha256(TEXT_LINES)
            assert ours.read(left, b"x") == TEXT_LINES[:10]
            return
        with pytest.raises(LedgerError) as refused:
            ours.write(TEXT_LINES[:1], **ONE)
        assert refused.value.code == code
        with pytest.raises(LedgerError):
            ours.open(left, b"x")


def javas_in_a_cell(side: Side, java: peer.JavaClient, shown: str, protocol: str, code: int, left: int) -> None:
    words: dict[str, object] = {"metadata": side.uri, "protocol": protocol, **SHAPE}
    words |= in_words(side.secrets.java_client(shown))
    words["timeout"] = 1 if code in (LATE, RACE) else 10
    try:
        if code == SERVED:
            assert java.call("read", ledger=side.given, **words)["sha256"] == sha256(TEXT_LINES)
            written = java.call("lines", file=TEXT, to=len(TEXT_LINES), **words)
            assert written["failed"] == 0
            assert sha256(side.right.read(written["ledger"], b"x")) == sha256(TEXT_LINES)
            assert java.call("recover", ledger=left, **words)["last"] == 9
            return
        found = code_of(java, "read", ledger=side.given, recover="no", **words)
        if code == RACE:
            # a token behind START_TLS ends Apache's handshake, which its client may note before the connection's end
            theirs = {UNTRUSTED, LATE if "wrong" in shown.split() else SERVED}
            assert found in ({LOST, UNAUTHORIZED} | (theirs if side.key[1] else set()))
            return
        assert found == code
        assert code_of(java, "lines", file=TEXT, to=1, **words) < 0
        assert code_of(java, "recover", ledger=left, **words) < 0
    finally:
        java.call("leave", **words)
