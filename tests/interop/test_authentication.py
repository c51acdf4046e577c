"""
SASL DIGEST-MD5 beside Apache's: a ledger of three copies, all of them awaited, on a bookie of ours and two of Apache's
that ask who comes, written and read by both clients.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.client import api
from quire.conf.client import ClientOptions
from quire.conf.parts.authentication import APACHES_BOOKIE, APACHES_CLIENT
from quire.protocol.errors import OK, Security
from quire.security.jaas import MODULE
from quire.tools.local_cluster.cluster import quire
from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.reactor import reactor, run

PROTOCOLS = ("v2", "v3")
TEXT_LINES = lines()
SHAPE = {"ensemble": 3, "write": 3, "ack": 3}
PASSWORD = 'secret "\\ é'  # with what has to be escaped, and what is in Latin-1
KEYS = {"bookieAuthProviderFactoryClass": APACHES_BOOKIE, "saslJaasClientAllowedIds": "hd"}


def jaas(folder: Path, password: str = PASSWORD) -> Path:
    """The same file for all, in which the client's password is this one."""
    known, given = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (PASSWORD, password))
    path = folder / f"jaas-{len(password)}.conf"
    path.write_text(
        f'Bookie {{ {MODULE} required user_hd="{known}"; }};\n'
        f'BookKeeper {{ {MODULE} required username="hd" password="{given}"; }};\n',
        encoding="utf-8",
    )
    path.chmod(0o600)
    return path


@contextmanager
def java_reads(path: Path) -> Iterator[None]:
    """Java processes that begin meanwhile take names and passwords from this file, and say who they are."""
    options = (
        f"-Djava.security.auth.login.config={path} -Dfile.encoding=UTF-8 -Dzookeeper.sasl.client=false "
        f"-Dorg.apache.bookkeeper.conf.readsystemproperties=true -DclientAuthProviderFactoryClass={APACHES_CLIENT}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", options)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl")


@pytest.fixture(scope="module")
def metadata(folder: Path) -> Iterator[str]:
    zookeeper = peer.ZooKeeper(folder / "zookeeper")
    try:
        quire(["metadata", "init", "--metadata", zookeeper.uri()])
        yield zookeeper.uri()
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def apaches(metadata: str, folder: Path) -> Iterator[list[str]]:
    """The ids of two bookies of Apache's."""
    found: list[peer.JavaBookie] = []
    try:
        with java_reads(jaas(folder)):
            for number in range(2):
                found.append(peer.JavaBookie(folder / f"java-{number}", metadata, KEYS))
        yield [bookie.id for bookie in found]
    finally:
        for bookie in found:
            bookie.stop()


@pytest.fixture(scope="module")
def quires(metadata: str, folder: Path) -> Iterator[list[str]]:
    """That of ours."""
    with Bookies(folder, metadata, 1, **KEYS, saslJaasFile=str(jaas(folder))) as found:
        yield found.ids


@pytest.fixture(scope="module")
def bookies(apaches: list[str], quires: list[str]) -> list[str]:
    return [*quires, *apaches]


@pytest.fixture(scope="module")
def java(metadata: str, bookies: list[str], folder: Path) -> Iterator[peer.JavaClient]:
    with java_reads(jaas(folder)):  # and no Java process that begins later
        client = peer.JavaClient(metadata, folder / "client", password="x", timeout=10)
    with client:
        wait_for_bookies(client, len(bookies))
        yield client


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ledgers_go_both_ways(java: peer.JavaClient, metadata: str, folder: Path, protocol: str) -> None:
    """Written by either, read by the other, on bookies of both kinds: the same SHA-256."""
    with Ours(metadata, protocol=protocol, authentication="sasl", jaas_file=str(jaas(folder))) as ours:
        mine = ours.write(TEXT_LINES, password=b"x", ack_quorum=3)
        assert java.call("read", ledger=mine, protocol=protocol)["sha256"] == sha256(TEXT_LINES)
        written = java.call("lines", file=TEXT, protocol=protocol, **SHAPE)
        assert (written["entries"], written["failed"]) == (len(TEXT_LINES), 0)
        assert sha256(ours.read(written["ledger"], b"x")) == sha256(TEXT_LINES)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_java_client_with_a_wrong_password(metadata: str, bookies: list[str], folder: Path, protocol: str) -> None:
    """Is served by nobody."""
    with (
        java_reads(jaas(folder, "wrong")),
        peer.JavaClient(metadata, folder / "wrong", password="x", timeout=5, protocol=protocol) as client,
    ):
        wait_for_bookies(client, len(bookies))
        assert client.call("lines", file=TEXT, to=10, **SHAPE)["failed"] > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_java_client_that_does_not_say_who_it_is(
    metadata: str, bookies: list[str], folder: Path, protocol: str
) -> None:
    """Neither is that."""
    with peer.JavaClient(metadata, folder / "silent", password="x", timeout=5, protocol=protocol) as client:
        wait_for_bookies(client, len(bookies))
        assert client.call("lines", file=TEXT, to=10, **SHAPE)["failed"] > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("given", [None, "wrong"])
def test_our_client_is_told_why_by_both(
    metadata: str, bookies: list[str], folder: Path, protocol: str, given: str | None
) -> None:
    """-24 of a bookie of either kind, of Apache's when the time to connect is over; and with the right one, none."""

    async def codes(options: ClientOptions) -> list[int]:
        client = await api.connect(reactor, metadata, options)
        try:
            pool = api.BookiePool(reactor, client.store, options)
            found = [(await pool.read(bookie, 1 << 40, 0)).code for bookie in bookies]
            await pool.close()
            return found
        finally:
            await client.close()

    asked = {"protocol": protocol, "connect_timeout_ms": 2000}
    right = {"authentication": "sasl", "jaas_file": str(jaas(folder))}
    wrong = {} if given is None else {**right, "jaas_file": str(jaas(folder, given))}
    assert run(lambda: codes(ClientOptions.model_validate({**asked, **wrong}))) == [Security.code] * len(bookies)
    for code in run(lambda: codes(ClientOptions.model_validate({**asked, **right}))):
        assert code not in (Security.code, OK)
