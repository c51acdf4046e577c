"""
A real ZooKeeper that asks who comes: SASL on both of its ports, TLS with clients' certificates on one of them.

    with Guarded(directory) as guarded:
        StoreOptions(**guarded.known("quire"), **guarded.shown)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from twisted.logger import LogEvent, eventAsText, globalLogPublisher

from quire.conf.parts.stores import StoreOptions
from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.metadata.zk.client import Client
from quire.security.jaas import MODULE
from quire.security.zookeeper import ZooKeeperSecurity
from quire.tools.local_cluster.guarded import free_port
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests.metadata.stories import Place
from tests.metadata.zk.znodes import tree
from tests.reactor import reactor
from tests.security.authority import Authority, Pair

# SPDX-License-Identifier: Apache-2.0

USERS = {"quire": 'the "password\\ of quire', "other": "the password of another one"}
OURS, OPEN = ("sasl:quire:31",), ("world:anyone:31",)  # access lists
START_S = 150.0  # TLS is much to load for a Java on a busy machine
SASL = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def private(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


def section(name: str, **options: str) -> str:
    """Of a file of JAAS."""
    words = " ".join(f'{key}="{escaped(value)}"' for key, value in options.items())
    return f"{name} {{ {MODULE} required {words}; }};\n"


def in_one_file(pair: Pair, path: Path) -> str:
    """A certificate and its key, as Java takes them."""
    key = load_pem_private_key(Path(pair.key).read_bytes(), None)
    both = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + Path(pair.certificate).read_bytes()
    path.write_bytes(both)
    return str(path)


class Guarded:
    """`plain` and `secure` are addresses; `authority` has signed the server's certificate and signs clients'."""

    def __init__(self, directory: Path, certificate: Pair | None = None) -> None:
        """`certificate`: the server's, else a good one of the authority."""
        self.directory = directory
        self.authority = Authority(directory / "tls")
        pair = certificate or self.authority.issue("server")
        port = free_port()
        self.secure = f"127.0.0.1:{port}"
        users = {f"user_{name}": password for name, password in USERS.items()}
        jaas = private(directory / "server.jaas", section("Server", **users))
        self._server = ZooKeeper(
            directory / "zookeeper",
            tick_ms=250,
            sync=False,
            start_s=START_S,
            settings=[
                SASL,
                f"secureClientPort={port}",
                "secureClientPortAddress=127.0.0.1",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={in_one_file(pair, directory / 'server.pem')}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={self.authority.trust}",
                "ssl.trustStore.type=PEM",
                "ssl.clientAuth=need",
            ],
            jvm=[f"-Djava.security.auth.login.config={jaas}"],
        )
        self.plain = self._server.address

    def known(self, user: str, password: str | None = None) -> dict[str, str]:
        """Options of a session that says it is this user."""
        given = USERS[user] if password is None else password
        name = f"{user}-{abs(hash(given))}.jaas"
        path = private(self.directory / name, section("Client", username=user, password=given))
        return {"jaas_file": path, "zk_sasl_section": "Client"}

    @property
    def trusting(self) -> dict[str, str]:
        """Options of a session over TLS that shows no certificate."""
        return {"zk_tls_trust": self.authority.trust}

    @cached_property
    def shown(self) -> dict[str, str]:
        """Options of a session over TLS that does."""
        pair = self.authority.issue("client")
        return {**self.trusting, "zk_tls_certificate": pair.certificate, "zk_tls_key": pair.key}

    @cached_property
    def stranger(self) -> dict[str, str]:
        """Options of a session over TLS that shows another certificate of the same authority."""
        pair = self.authority.issue("stranger")
        return {**self.trusting, "zk_tls_certificate": pair.certificate, "zk_tls_key": pair.key}

    def stop(self) -> None:
        self._server.stop()

    def __enter__(self) -> "Guarded":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class GuardedPlace(Place):
    """A root on such a server; handles are the user quire's, and make znodes for that one alone."""

    kind = "zookeeper"

    def __init__(self, guarded: Guarded, number: int) -> None:
        self.root = f"/guarded-{number}/ledgers"
        super().__init__(f"zk://{guarded.plain}{self.root}")
        self._guarded = guarded

    async def make(self) -> None:
        """A cluster."""
        await (await self.open_at(self._guarded.plain)).init_cluster()

    async def open_at(self, address: str, **options: object) -> MetadataStore:
        """A handle of another address, or with options in place of quire's."""
        chosen = options or {**self._guarded.known("quire"), "zk_acl": True}
        security = StoreOptions.model_validate(chosen)
        store = await open_store(reactor, f"zk://{address}{self.root}", session_timeout_ms=10_000, security=security)
        self.opened.append(store)
        return store


def acls(guarded: Guarded, path: str) -> dict[str, tuple[str, ...]]:
    """path -> access list of everything at and below a znode, as the user quire sees them; this blocks."""
    security = ZooKeeperSecurity(StoreOptions.model_validate(guarded.known("quire")))
    client = Client([guarded.plain], 10.0, security, lambda _state: None, lambda _server, _trouble: None, 1_000_000)
    client.start()
    try:
        return {name: tuple(acl) for name, (_, _, _, acl) in tree(client, path).items()}
    finally:
        client.stop()
        client.close()


@contextmanager
def told(level: str = "error") -> Iterator[list[str]]:
    """What is logged at this level."""
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        if event["log_level"].name == level:
            lines.append(eventAsText(event))

    globalLogPublisher.addObserver(note)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(note)
