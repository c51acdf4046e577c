"""
Secrets that are planted in a run of real bookies and clients, and looked for in everything that people or other
programs see of it: logs of every level with their tracebacks, errors, reprs of what is alive, answers and metrics.
"""

import gc
import logging
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from twisted.logger import LogEvent, eventAsText, globalLogPublisher

from quire.bookie.admin.http import Head
from quire.bookie.index.ledger_table import LedgerRow
from quire.client import api
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.conf.properties import ConfigurationError, Property, options, parse
from quire.metadata.formats import ledger_codec
from quire.metadata.store import TOKEN_PROPERTY, ServiceInfo
from quire.metadata.uri import open_store
from quire.protocol import v2
from quire.protocol.digest import mac_key, master_key
from quire.protocol.errors import LedgerError, MetadataSerialization, MetaStoreRefused
from quire.protocol.messages import AddRun, Read, WriteLac
from quire.security.digest_md5 import ZOOKEEPER, digest_of
from quire.security.jaas import MODULE, account, users
from quire.security.opening import credentials
from quire.security.rights import parse as parse_rights
from quire.security.tokens import Tokens
from quire.tools.failures import explained
from quire.tools.terminal.bookie_http import Shown, token_of
from tests.metadata.zk.guarded import USERS, Guarded
from tests.reactor import reactor, run
from tests.real_cluster import RealCluster
from tests.security.authority import Authority, Pair

# SPDX-License-Identifier: Apache-2.0

PASSWORD = b"planted-ledger-password"
WRONG = b"planted-wrong-password"
KEY_PASSWORD = b"planted-key-password"
USER, USERS_PASSWORD, WRONG_USERS = "ledgers", "planted-users-password", "planted-users-wrong-password"
ADMIN, METRICS, GUESSED = "planted-admin-token", "planted-metrics-token", "planted-guessed-token"
RAW = [PASSWORD, WRONG, KEY_PASSWORD, ADMIN.encode(), METRICS.encode(), GUESSED.encode()]
RAW += [text.encode() for text in (USERS_PASSWORD, WRONG_USERS)]
RAW += [digest_of(USER, text) for text in (USERS_PASSWORD, WRONG_USERS)]
RAW += [USERS["quire"].encode(), *(digest_of("quire", text, ZOOKEEPER) for text in (USERS["quire"], WRONG_USERS))]
RAW += [derive(each) for derive in (master_key, mac_key) for each in (PASSWORD, WRONG)]
WAIT_S = 60


def marks(raw: bytes) -> set[str]:
    """How a secret would look in a text."""
    return {repr(raw)[2:-1], raw.hex(), raw.decode("latin-1"), repr(list(raw))[1:-1]}


MARKS = {mark for raw in RAW for mark in marks(raw)}


def secrets_in(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


@contextmanager
def noted() -> Iterator[list[str]]:
    """Every event of the log, whatever its level, as text with its traceback, and the fields that it was made of."""
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        lines.append(eventAsText(event, includeTraceback=True))
        lines.append(repr({name: value for name, value in event.items() if name != "log_source"}))

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, root = Handler(), logging.getLogger()
    level = root.level
    globalLogPublisher.addObserver(note)  # type: ignore[arg-type]  # a function is an observer
    root.addHandler(handler)
    root.setLevel(1)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(note)  # type: ignore[arg-type]
        root.removeHandler(handler)
        root.setLevel(level)


def reprs() -> Iterator[str]:
    """Of everything of ours that is alive."""
    for each in gc.get_objects():
        if str(type(each).__module__).startswith("quire."):
            with suppress(Exception):  # it is changed by the reactor's thread meanwhile, or only half made
                yield repr(each)


def encrypted(pair: Pair, password: bytes) -> Pair:
    """The same certificate, its key under a password."""
    key = load_pem_private_key(Path(pair.key).read_bytes(), None)
    kind = PrivateFormat.PKCS8
    Path(pair.key).write_bytes(key.private_bytes(Encoding.PEM, kind, BestAvailableEncryption(password)))
    return pair


def secret_file(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def jaas(path: Path, password: str = USERS_PASSWORD) -> str:
    """A file for both sides."""
    bookie = f'Bookie {{ {MODULE} required user_{USER}="{USERS_PASSWORD}"; }};'
    return secret_file(
        path, f'{bookie}\nBookKeeper {{ {MODULE} required username="{USER}" password="{password}"; }};\n'
    )


def asked(port: int, path: str, token: str, more: str = "") -> str:
    """The whole answer to a GET."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
        peer.sendall(request.encode())
        return b"".join(iter(lambda: peer.recv(65_536), b"")).decode("latin-1")


def said(error: BaseException) -> list[str]:
    """What a program and a person are told."""
    return [repr(error), *traceback.format_exception(error), str(explained(error))]


def test_the_marks_are_found() -> None:
    """In a repr, a hex dump and a text, so that what is not found below is not there."""
    for text in (
        f"{PASSWORD!r}",
        f"x {master_key(PASSWORD)!r}",
        master_key(WRONG).hex(),
        f"{[*PASSWORD]}",
        f"<{ADMIN}>",
    ):
        assert secrets_in(text), text
    assert not secrets_in("nothing planted")
    with noted() as lines:
        globalLogPublisher({"log_format": "{x}", "x": ADMIN})  # type: ignore[arg-type]
        logging.getLogger("other").debug("%s", METRICS)
    assert len({mark for line in lines for mark in secrets_in(line)}) == 2


@pytest.mark.parametrize(("protocol", "who"), [("v2", "anybody"), ("v3", "anybody"), ("v2", "users"), ("v3", "users")])
def test_no_secret_is_seen_anywhere(tmp_path: Path, protocol: str, who: str) -> None:
    """
    Ledgers with a password, written, read, recovered, and asked for with a wrong one; frames with a key that are cut
    off; good, wrong and misplaced tokens; users with good and wrong passwords, where bookies ask for them; TLS with a
    key under a password, read again while it is right and wrong.
    """
    authority = Authority(tmp_path / "tls")
    pair = encrypted(authority.issue("bookie"), KEY_PASSWORD)
    key_password = Path(secret_file(tmp_path / "key-password", KEY_PASSWORD.decode()))
    keys = {
        **pair.keys,
        "tls": True,
        "tls_required": False,
        "tls_key_password_file": str(key_password),
        "admin_token_file": secret_file(tmp_path / "admin", ADMIN),
        "metrics_token_file": secret_file(tmp_path / "metrics", METRICS),
    }
    client_keys: dict[str, object] = {"tls": True, "tls_trust": authority.trust, "protocol": protocol}
    wrong = ClientOptions.model_validate(client_keys)
    if who == "users":
        keys |= {"authentication": "sasl", "jaas_file": jaas(tmp_path / "jaas"), "jaas_allowed": USER}
        bad = {"authentication": "sasl", "jaas_file": jaas(tmp_path / "wrong", WRONG_USERS)}
        wrong = ClientOptions.model_validate(client_keys | bad)
        client_keys |= {"authentication": "sasl", "jaas_file": keys["jaas_file"]}
    chosen = ClientOptions.model_validate(client_keys)
    seen: list[str] = []

    async def story(cluster: RealCluster) -> None:
        client = await api.connect(reactor, cluster.uri, chosen)
        try:
            shape = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
            writer = await client.create_ledger(**shape, password=PASSWORD, digest="MAC")
            await writer.append_many([b"an entry"] * 10)
            reader = await client.open_ledger(writer.id, PASSWORD)
            await reader.read(0, 3)
            seen.extend(reprs())
            for work in (
                lambda: client.open_ledger(writer.id, WRONG),
                lambda: writer.append(b"after the fence"),
                lambda: client.open_ledger(writer.id + 1, WRONG),
            ):
                with pytest.raises(LedgerError) as refused:
                    await work()
                seen.extend(said(refused.value))
            # another password for a ledger that the bookies know: they refuse the key
            answer = await client.pool.read(cluster.ids[0], writer.id, -1, master_key(WRONG), 0)
            seen.append(repr(answer))
            found = await client.store.read_ledger(writer.id)
            seen.extend([repr(found), str(found.value)])
        finally:
            await client.close()

    async def turned_away(cluster: RealCluster) -> None:
        client = await api.connect(reactor, cluster.uri, wrong)
        try:
            writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2, password=PASSWORD)
            with pytest.raises(LedgerError) as refused:
                await writer.append(b"an entry")
            seen.extend([*said(refused.value), *reprs()])
        finally:
            await client.close()

    with noted() as lines, RealCluster(tmp_path / "cluster", 2, **keys) as cluster:
        run(lambda: story(cluster))
        if who == "users":
            run(lambda: turned_away(cluster))
        bookie = cluster.bookies[0]
        assert bookie is not None
        for key in (PASSWORD, WRONG):
            frame = v2.pack_read(Read(0, 0, master_key=master_key(key), fence=True))
            for sent in (frame, frame[:-1], frame[:8] + b"\xff" * 30 + master_key(key)):
                with socket.create_connection(("127.0.0.1", bookie.port), WAIT_S) as peer:
                    peer.sendall(sent)
                    peer.shutdown(socket.SHUT_WR)
                    seen.append(repr(b"".join(iter(lambda: peer.recv(65_536), b""))))
        for path in ("/metrics", "/healthz", "/api/v1/bookie/state", "/api/v1/bookie/gc", "/api/v1/nothing"):
            answers = [asked(bookie.http_port, path, token) for token in (ADMIN, METRICS, GUESSED)]
            answers += [
                asked(bookie.http_port, path, ADMIN, "Host: evil\r\n"),
                asked(bookie.http_port, path, ADMIN, "x\r\n"),
            ]
            assert all(each.startswith("HTTP/1.1 ") for each in answers)
            seen.extend(answers)
        key_password.write_bytes(WRONG)
        run(lambda: _done(bookie.reload))
        assert "quire_tls_files_broken 1.0" in asked(bookie.http_port, "/metrics", ADMIN)
        (tmp_path / "admin").write_text(f"{GUESSED} and more")
        seen.append(asked(bookie.http_port, "/metrics", ADMIN))
        assert seen[-1].startswith("HTTP/1.1 401 ")
        seen.extend(reprs())
    assert any("tlsKeyStore" in line for line in lines)
    assert any("opens nothing" in line for line in lines)
    assert any("401 Unauthorized" in line for line in lines)
    assert len(seen) > 500  # of this test alone, in a process of its own
    assert len(lines) > 20
    assert not [(secrets_in(text), text[:500]) for text in [*lines, *seen] if secrets_in(text)]


async def _done(work: object) -> None:
    work()  # type: ignore[operator]


def test_no_secret_of_a_login_to_zookeeper_is_seen(tmp_path: Path) -> None:
    """The right password, a wrong one, and a key under a password, read while that is right and while it is wrong."""
    seen: list[str] = []
    key_password = Path(secret_file(tmp_path / "key-password", KEY_PASSWORD.decode()))

    async def opened(uri: str, chosen: ClientOptions) -> None:
        store = await open_store(reactor, uri, session_timeout_ms=60_000, security=chosen)
        try:
            await store.init_cluster()
            seen.extend(reprs())
        finally:
            await store.close()

    with noted() as lines, Guarded(tmp_path / "guarded") as guarded:
        pair = encrypted(guarded.authority.issue("locked"), KEY_PASSWORD)
        shown = {**guarded.trusting, "zk_tls_certificate": pair.certificate, "zk_tls_key": pair.key}
        shown["zk_tls_key_password_file"] = str(key_password)
        uri = f"zk://{guarded.secure}/planted"
        right = ClientOptions.model_validate({**shown, **guarded.known("quire"), "zk_acl": True})
        run(lambda: opened(uri, right))
        wrong = ClientOptions.model_validate({**shown, **guarded.known("quire", WRONG_USERS)})
        for kind in (MetaStoreRefused, ConfigurationError):
            with pytest.raises(kind) as refused:
                run(lambda: opened(uri, wrong))
            seen.extend([*said(refused.value), *reprs()])
            key_password.write_bytes(WRONG)
        seen.append(repr(right))
    assert any("compare name and password" in line for line in lines)
    assert len(seen) > 100  # of this test alone, in a process of its own
    assert not [(secrets_in(text), text[:500]) for text in [*lines, *seen] if secrets_in(text)]


def test_no_repr_has_one(tmp_path: Path) -> None:
    """Of what is alive for a moment only."""
    key = master_key(PASSWORD)
    made: list[object] = [
        AddRun(1, 0, [PASSWORD], key, frames=key),
        Read(1, 0, master_key=key, fence=True),
        WriteLac(1, 0, key, b""),
        LedgerRow(key),
        LogOptions(password=PASSWORD),
        Property("passwd", PASSWORD.decode(), "a file"),
        Head("GET", "/", {}, {"authorization": f"Bearer {ADMIN}"}, True),
        Shown(ADMIN),
        Tokens(secret_file(tmp_path / "t", ADMIN), "key"),
    ]
    for each in made:
        for text in (repr(each), str(each), repr([each])):
            assert not secrets_in(text), text


def test_no_error_of_what_was_read_has_one(tmp_path: Path) -> None:
    """Of metadata, configurations, files of tokens, keys and passwords that are damaged; their tracebacks included."""
    authority = Authority(tmp_path)
    pair = encrypted(authority.issue("bookie"), KEY_PASSWORD)
    wrong = secret_file(tmp_path / "wrong", WRONG.decode())
    tls = {"tls": True, "tls_trust": authority.trust, "tls_client_certificates": True, **pair.keys}
    head = b"BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: OPEN\n"
    announced = ServiceInfo.of("127.0.0.1", 1, http=("127.0.0.1", 1), properties={TOKEN_PROPERTY: wrong})
    base = "metadataServiceUri=memory://x\njournalDirectories=/j\nledgerDirectories=/l\n"
    planted = PASSWORD.decode()
    found: list[str] = []
    for text in (b'password: "%s', b"password: %s", b'password: "%s" x: y', b'"%s"'):
        with pytest.raises(MetadataSerialization) as damaged:
            ledger_codec.decode(head + text % PASSWORD + b"\n")
        found += said(damaged.value)
    for line in (
        f"passwd={planted}\npasswd={planted}2",
        f"httpServerKeyStorePassword={planted}\nhttpServerKeyStorePassword={planted}2",
        f"authorizedRoles=x\npasswd={planted}",
        f"bookiePort=x\npasswd={planted}",
    ):
        with pytest.raises(ConfigurationError) as refused:
            options(BookieOptions, parse(f"{base}{line}\n", "bookie.conf"))
        found += said(refused.value)
    found += options(BookieOptions, parse(f"{base}passwd={planted}\n", "bookie.conf"))[1]
    for more in ({}, {"tls_key_password_file": wrong}):
        with pytest.raises(ConfigurationError) as refused:
            credentials(ClientOptions.model_validate({**tls, **more}), reactor.seconds)  # type: ignore[attr-defined]
        found += said(refused.value)
    for text in (f"{ADMIN} {METRICS}", f"{METRICS}\n{ADMIN}:x"):
        with pytest.raises(ConfigurationError) as refused:
            Tokens(secret_file(tmp_path / "t", text), "adminTokenFile")
        found += said(refused.value)
    found.append(repr(token_of(announced)))
    good = Path(jaas(tmp_path / "jaas")).read_text()
    found += [repr(users(str(tmp_path / "jaas"), "Bookie").keys()), repr(account(str(tmp_path / "jaas"), "BookKeeper"))]
    for text in (
        good.replace('";', ";"),
        good.replace('="', "=${"),
        good.replace(" required", ""),
        good[:-3],
    ):
        with pytest.raises(ConfigurationError) as refused:
            account(secret_file(tmp_path / "bad", text), "BookKeeper")
        found += said(refused.value)
    for line in (f"role a {ADMIN}", f"{ADMIN} a all", f"role {ADMIN} add,x", f"role a add ledgers {ADMIN}", ADMIN):
        with pytest.raises(ConfigurationError) as refused:
            parse_rights(f"{line}\n", "rights")
        found += said(refused.value)
    assert len(found) > 40
    assert not [text for text in found if secrets_in(text)]
