"""
Certificates' roles beside Apache's: its client on our bookies, with a role for each right and with none; and our client
on a bookie of Apache's whose `authorizedRoles` does not have its role.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from twisted.internet.task import deferLater

from quire.client import api
from quire.conf.client import ClientOptions
from quire.conf.parts.authentication import APACHES_ROLES
from quire.conf.parts.tls import APACHES
from quire.protocol.errors import UnauthorizedAccess
from quire.tools.local_cluster.cluster import quire
from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.reactor import reactor, run
from tests.security.authority import Authority, Pair

PROTOCOLS = ("v2", "v3")
TEXT_LINES = lines()
SHAPE = {"ensemble": 3, "write": 3, "ack": 2}
REFUSED = UnauthorizedAccess.code
RIGHTS = """
role Maker add,read,fence
role Writer add
role Reader read
"""


class World:
    """An authority, and what is in the files of those who have its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "tls")
        rights = folder / "rights"
        rights.write_text(RIGHTS)
        rights.chmod(0o640)
        self.rights = str(rights)
        self.pairs: dict[str, Pair] = {}

    def pair(self, role: str) -> Pair:
        """Its key in the one form that Java reads."""
        if role not in self.pairs:
            pair = self.pairs[role] = self.authority.issue(role, unit=f"0:{role},Other;1:Cluster1")
            key = load_pem_private_key(Path(pair.key).read_bytes(), None)
            Path(pair.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return self.pairs[role]

    def of_bookie(self, role: str = "Bookie") -> dict[str, str]:
        pair = self.pair(role)
        return {
            "tlsProviderFactoryClass": APACHES,
            "tlsProvider": "JDK",
            "tlsClientAuthentication": "true",
            "tlsCertificatePath": pair.certificate,
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": pair.key,
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": self.authority.trust,
        }

    def of_client(self, role: str) -> dict[str, str]:
        pair = self.pair(role)
        return {
            "tlsProviderFactoryClass": APACHES,
            "tlsProvider": "JDK",
            "tlsClientAuthentication": "true",
            "tlsCertificatePath": pair.certificate,
            "clientKeyStoreType": "PEM",
            "clientKeyStore": pair.key,
            "clientTrustStoreType": "PEM",
            "clientTrustStore": self.authority.trust,
        }

    def ours(self, role: str, protocol: str) -> dict[str, Any]:
        keys = {"tls": True, "tls_trust": self.authority.trust, "tls_client_certificates": True, "protocol": protocol}
        return {**keys, **self.pair(role).keys}

    @contextmanager
    def java(self, metadata: str, role: str, protocol: str) -> Iterator[peer.JavaClient]:
        """Apache's client with a certificate of this role."""
        keys = " ".join(f"-D{key}={value}" for key, value in self.of_client(role).items())
        with pytest.MonkeyPatch.context() as patch:
            reads = "-Dorg.apache.bookkeeper.conf.readsystemproperties=true -Dzookeeper.sasl.client=false"
            patch.setenv("JAVA_TOOL_OPTIONS", f"{reads} {keys}")
            client = peer.JavaClient(
                metadata, self.folder / f"java-{role}-{protocol}", password="x", timeout=10, protocol=protocol
            )
        with client:
            wait_for_bookies(client, 3)
            yield client


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("roles"))


@pytest.fixture(scope="module")
def metadata(world: World) -> Iterator[str]:
    zookeeper = peer.ZooKeeper(world.folder / "zookeeper")
    try:
        quire(["metadata", "init", "--metadata", zookeeper.uri()])
        yield zookeeper.uri()
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def bookies(metadata: str, world: World) -> Iterator[list[str]]:
    """Three of ours, which have rights for some."""
    keys = {**world.of_bookie(), "rightsFile": world.rights}
    del keys["tlsProvider"]
    with Bookies(world.folder, metadata, 3, **keys) as found:
        yield found.ids


def code_of(java: peer.JavaClient, command: str, **options: object) -> int:
    """0, or Java's number for what went wrong."""
    try:
        found = java.call(command, **options)
    except peer.PeerError as error:
        return error.code
    return REFUSED if found.get("failed") else 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_javas_client_by_role(world: World, metadata: str, bookies: list[str], protocol: str) -> None:
    """
    With all three rights it writes, reads and recovers; with one it does that; with a role that has none it is refused
    everything.  A refusal is -102 there, and replaces no bookie.
    """
    with Ours(metadata, **world.ours("Maker", protocol)) as ours, world.java(metadata, "Maker", protocol) as maker:
        made = ours.write(TEXT_LINES, password=b"x")
        assert maker.call("read", ledger=made)["sha256"] == sha256(TEXT_LINES)
        written = maker.call("lines", file=TEXT, **SHAPE)
        assert written["failed"] == 0
        assert sha256(ours.read(written["ledger"], b"x")) == sha256(TEXT_LINES)
        left = ours.create(password=b"x")
        ours.append(left, TEXT_LINES[:10])
        for role, may in (("Writer", (True, False)), ("Reader", (False, True)), ("Nobody", (False, False))):
            with world.java(metadata, role, protocol) as java:
                before = set(ours.ledger_ids())
                assert (code_of(java, "lines", file=TEXT, to=10, **SHAPE) == 0) == may[0]
                (ledger,) = set(ours.ledger_ids()) - before
                assert len(ours.metadata(ledger).fragments) == 1
                assert code_of(java, "read", ledger=made) == (0 if may[1] else REFUSED)
                assert code_of(java, "recover", ledger=left.id) == REFUSED
        assert maker.call("recover", ledger=left.id)["last"] == 9


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_client_on_a_bookie_of_apaches(metadata: str, world: World, protocol: str) -> None:
    """A role of its list is served, another is told -102."""
    keys = {**world.of_bookie("Maker"), "bookieAuthProviderFactoryClass": APACHES_ROLES, "authorizedRoles": "Maker,A"}
    bookie = peer.JavaBookie(world.folder / f"apaches-{protocol}", metadata, keys)

    async def code(role: str) -> int:
        options = ClientOptions.model_validate(world.ours(role, protocol))
        client = await api.connect(reactor, metadata, options)
        while bookie.id not in (await client.store.known_bookies()).writable:  # before that it closes connections
            await deferLater(reactor, 0.02)
        pool = api.BookiePool(reactor, client.store, options)
        found = (await pool.read(bookie.id, 1 << 40, 0)).code
        await pool.close()
        await client.close()
        return found

    try:
        assert run(lambda: code("Nobody")) == REFUSED
        assert run(lambda: code("Maker")) != REFUSED
    finally:
        bookie.stop()
