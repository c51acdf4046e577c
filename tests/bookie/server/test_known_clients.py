"""Connections whose clients are known, by a certificate's role or by a name, and what each may do on them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quire.bookie.server.admission.entrance import OUTSIDE_FRAME_BYTES_MAX, OUTSIDE_S_MAX
from quire.bookie.server.listener import Listener
from quire.protocol import schema, v2, v3
from quire.protocol.errors import Status
from quire.protocol.messages import BOOKIE_ID, AddAcks, Auth, AuthReply, BookieInfo, Read, ReadReply, Reply, StartTls
from quire.security.authentication import SaslOfBookie
from quire.security.context import load
from quire.security.credentials import Credentials
from quire.security.digest_md5 import ClientsSide, Users, digest_of
from quire.security.rights import Rights, parse, rights_of, watch
from quire.security.stream import SecureStream
from quire.security.watched import Watched
from tests.bookie.fakes.wires import KEY, Client, Scene, adds, adds3, batch_read, read, read3
from tests.bookie.server.test_listener import log_lines
from tests.security.authority import Authority
from tests.security.wires import Side, client_options

# SPDX-License-Identifier: Apache-2.0

START = StartTls(77, priority=5)
WHO = v3.pack_request(BookieInfo(BOOKIE_ID, 2))
DISKS = v3.pack_request(BookieInfo(3, 3))
TEXT = (
    "role Writer add\nrole Reader read\nrole Fencer read,fence\nrole Seven read ledgers 7\nrole Eight read ledgers 8\n"
)


class Asking(Scene):
    """A bookie that serves those to whom a file gives rights, over TLS by certificates."""

    def __init__(self, path: Path, text: str = TEXT, **more: object) -> None:
        self.authority = Authority(path)
        keys = {"tls_trust": self.authority.trust, "tls_client_certificates": True, **more}
        super().__init__(**self.authority.issue("bookie").keys, tls=True, **keys)
        credentials = Credentials(self.options, self.clock.seconds)
        rights = Rights(parse(text, "rights").values())
        self.listener = Listener(self.clock, self.options, self.service, credentials, None, rights)
        self.listener.startFactory()

    def counted(self) -> dict[str, int]:
        assert self.listener.entrance is not None
        return {name: value for name, _meaning, value in self.listener.entrance.counts()}


class Shown:
    """The far end of one connection over TLS, whose certificate has this OU."""

    def __init__(self, scene: Asking, unit: str | None) -> None:
        self.client = scene.connect()
        assert self.client.ask(v3.pack_request(START)).status is Status.EOK  # type: ignore[union-attr]
        pair = scene.authority.issue("client", unit=unit)
        options = client_options(**pair.keys, tls_trust=scene.authority.trust, tls_client_certificates=True)
        self.side = Side()
        self._stream = SecureStream(self.side.tcp, self.side, load(options).context, client=True)
        self._stream.begin()
        self.carry()
        assert self.side.is_secured

    def carry(self) -> None:
        while self.side.tcp.value() or self.client.wire.value():
            data = self.side.tcp.value()
            self.side.tcp.clear()
            if data:
                self.client.wire.protocol.dataReceived(data)  # type: ignore[attr-defined]
            data = self.client.take()
            if data and self.side.lost is None:
                self.side.tcp.protocol.dataReceived(data)  # type: ignore[attr-defined]

    def send(self, data: bytes) -> bytes:
        """Sends it; what comes."""
        self._stream.write(data)
        self.carry()
        return self.heard()

    def heard(self) -> bytes:
        data = b"".join(self.side.pieces)
        self.side.pieces.clear()
        return data

    def ask(self, data: bytes) -> list[Reply]:
        """The answers, in the generation of which they are."""
        heard = self.send(data)
        return (v3.Replies() if heard[4:5] == b"\x0a" else v2.Replies()).feed(heard)

    def statuses(self, data: bytes) -> list[Status]:
        return [reply.status for reply in self.ask(data)]


@pytest.mark.parametrize("unit", [None, "0:Nobody;1:Writer", "1:Writer", "Writer", "0:writer"])
def test_a_certificate_to_which_no_right_belongs(tmp_path: Path, unit: str | None) -> None:
    """
    The handshake succeeds; then a second answer to START_TLS, EIO with nothing but its header, as Apache's; then each
    V3 request is refused with EUA in the same form, and the connection goes on.
    """
    scene = Asking(tmp_path)
    with log_lines() as lines:
        shown = Shown(scene, unit)
        assert shown.heard() == v3.bare(START, Status.EIO)
        answers = shown.send(adds3(8, b"a", b"b") + read3(10, 0) + WHO + v3.pack_request(Auth("sasl", b"", 11)))
    at, txns = 0, []
    while at < len(answers):
        end = at + 4 + int.from_bytes(answers[at : at + 4], "big")
        answer = schema.parsed(schema.Response, answers[at + 4 : end])
        assert answer is not None
        assert [field.name for field, _value in answer.ListFields()] == ["header", "status"]
        assert answer.status == Status.EUA.v3
        txns.append(answer.header.txnId)
        at = end
    assert txns == [8, 9, 10, 2, 11]
    assert not shown.client.closed
    assert scene.service.tally.add_entries == scene.service.tally.reads == 0
    found = scene.counted()
    assert (found["tls_handshakes"], found["without_right"], found["not_authenticated"]) == (1, 1, 4)
    said = {None: "no role", "0:Nobody;1:Writer": "the role 'Nobody'", "0:writer": "the role 'writer'"}
    assert f"its certificate has {said.get(unit, 'no role')}, to which no right belongs here" in lines[0]
    assert len(lines) == 2


def test_adds_and_reads_of_v2_without_any_right(tmp_path: Path) -> None:
    """Are refused with 102, large ones too, and the connection goes on; what V2 can't refuse ends it."""
    scene = Asking(tmp_path)
    shown = Shown(scene, "0:Nobody")
    shown.heard()
    acks, answer = shown.ask(adds(b"a" * 3 * OUTSIDE_FRAME_BYTES_MAX, b"b") + read(0))
    assert isinstance(acks, AddAcks)
    assert isinstance(answer, ReadReply)
    assert (acks.count, acks.status, answer.status) == (2, Status.EUA, Status.EUA)
    assert shown.send(batch_read(0) + read(0)) == b""
    assert shown.client.closed
    assert scene.service.tally.add_entries == scene.service.tally.reads == scene.service.tally.batch_reads == 0
    assert scene.counted()["not_authenticated"] == 3  # what came behind the end is not looked at


def test_who_has_no_certificate(tmp_path: Path) -> None:
    """Where TLS may be left out: nothing is served in the clear, and the time is short."""
    scene = Asking(tmp_path, tls_required=False)
    client = scene.connect().send(adds(b"a") + read(0))
    assert [reply.status for reply in client.replies()] == [Status.EUA] * 2  # type: ignore[union-attr]
    assert scene.service.tally.add_entries == scene.service.tally.reads == 0
    assert scene.counted()["not_authenticated"] == 2
    scene.clock.pump([1.0] * int(OUTSIDE_S_MAX + 2))
    assert client.wire.aborted


ASKED: dict[str, Callable[[], bytes]] = {
    "add v2": lambda: adds(b"b", first=1),
    "add v3": lambda: adds3(5, b"b", first=1),
    "recovery add v2": lambda: adds(b"b", first=1, recovery=True),
    "recovery add v3": lambda: adds3(5, b"b", first=1, recovery=True),
    "read v2": lambda: read(0),
    "read v3": lambda: read3(5, 0),
    "batch read": lambda: batch_read(0, count_max=1),
    "fence v2": lambda: read(0, fence=True, master_key=KEY),
    "fence v3": lambda: read3(5, 0, fence=True, master_key=KEY),
    "batch fence": lambda: batch_read(0, count_max=1, fence=True, master_key=KEY),
    "disks": lambda: DISKS,
    "who": lambda: WHO,
}
MAY = {
    "Writer": {"add v2", "add v3", "who"},
    "Reader": {"read v2", "read v3", "batch read", "who"},
    "Seven": {"read v2", "read v3", "batch read", "who"},
    "Eight": {"who"},
    "Fencer": {"read v2", "read v3", "batch read", "who", "fence v2", "fence v3", "batch fence"}
    | {"recovery add v2", "recovery add v3"},
}


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize("asked", ASKED)
def test_role_by_operation(tmp_path: Path, role: str, asked: str) -> None:
    """Of ledger 7: served, or refused with EUA in the generation of the request, and the connection goes on."""
    scene = Asking(tmp_path, TEXT + "role Maker all\n")
    assert Shown(scene, "0:Maker").statuses(adds(b"a")) == [Status.EOK]
    shown = Shown(scene, f"0:{role}")
    before = scene.service.tally.add_entries, scene.service.tally.fences
    assert shown.statuses(ASKED[asked]()) == [Status.EOK if asked in MAY[role] else Status.EUA]
    assert scene.counted()["rights_refusals"] == (asked not in MAY[role])
    if asked not in MAY[role]:
        assert (scene.service.tally.add_entries, scene.service.tally.fences) == before
    assert not shown.client.closed


# -- names


class Named(Scene):
    """A bookie that asks for names and passwords, without TLS."""

    def __init__(self, text: str) -> None:
        super().__init__()
        users = Users({"hd": "testpwd"}, ["hd"])
        rights = Rights(parse(text, "rights").values())
        self.listener = Listener(self.clock, self.options, self.service, None, SaslOfBookie(users), rights)
        self.listener.startFactory()


@pytest.mark.parametrize("generation", [2, 3])
@pytest.mark.parametrize(("text", "may"), [("user hd add\n", True), ("user hd read\n", False), ("user x all\n", False)])
def test_a_name_has_the_rights_that_its_lines_give(generation: int, text: str, may: bool) -> None:
    """Once the password is proved, also in the same segment as the proof; without any, all is refused with EUA."""
    scene = Named(text)
    client = scene.connect()
    side = ClientsSide("hd", digest_of("hd", "testpwd"))

    def token(payload: bytes) -> bytes:
        return v2.pack_auth(Auth("sasl", payload)) if generation == 2 else v3.pack_request(Auth("sasl", payload, 5))

    challenge = client.ask(token(side.step(b"")))
    assert isinstance(challenge, AuthReply)
    add = adds(b"a") if generation == 2 else adds3(9, b"a")
    proof, answer = client.send(token(side.step(challenge.payload)) + add).replies()
    assert proof.status is Status.EOK  # type: ignore[union-attr]
    assert answer.status is (Status.EOK if may else Status.EUA)  # type: ignore[union-attr]
    assert scene.service.tally.add_entries == may
    assert not client.closed


def test_the_name_is_in_the_log() -> None:
    """With what is lacking, and nothing of the ledger."""
    scene = Named("user x all\n")
    client = scene.connect()
    side = ClientsSide("hd", digest_of("hd", "testpwd"))
    challenge = client.ask(v3.pack_request(Auth("sasl", side.step(b""), 5)))
    assert isinstance(challenge, AuthReply)
    with log_lines() as lines:
        client.send(v3.pack_request(Auth("sasl", side.step(challenge.payload), 6)) + adds3(9, b"a") + adds3(10, b"b"))
    (line,) = lines
    assert "user 'hd' has no right to add" in line


# -- files that change


class Changing(Asking):
    """Its rights are in a file that is looked at each minute."""

    def __init__(self, path: Path, text: str, **more: object) -> None:
        super().__init__(path, **more)
        self.file = path / "rights"
        self.file.write_text(text)
        keys = {"rights_file": str(self.file), "access_refresh_s": 60}
        options = self.options.model_copy(update=keys)
        rights = rights_of(options)
        assert rights is not None
        files = [watched for watched in [watch(rights, options, self.clock.seconds)] if watched is not None]
        credentials = Credentials(self.options, self.clock.seconds)
        self.listener = Listener(self.clock, self.options, self.service, credentials, None, rights, files)
        self.listener.startFactory()

    def gauge(self, name: str) -> float:
        assert self.listener.entrance is not None
        return {key: value for key, _meaning, value in self.listener.entrance.gauges()}[name]


def test_who_has_no_right_goes_before_those_who_have(tmp_path: Path) -> None:
    """Whatever it asks, and however often its rights are looked at."""
    scene = Changing(tmp_path, "role Writer all\n", connections_max=3)
    writer, nobody, other = (Shown(scene, f"0:{role}") for role in ("Writer", "Nobody", "Writer"))
    for each in (writer, nobody, other):
        each.statuses(adds3(3, b"a"))
    assert nobody.statuses(adds3(4, b"a")) == [Status.EUA]
    scene.listener.reload()
    assert nobody.statuses(adds3(5, b"a")) == [Status.EUA]
    scene.connect()
    assert [each.client.wire.aborted for each in (writer, nobody, other)] == [False, True, False]


@pytest.mark.parametrize("how", ["time", "signal"])
def test_rights_that_change_hold_for_open_connections(tmp_path: Path, how: str) -> None:
    """Who lost a right is refused, who got one is served; a broken file changes nothing and is an alarm."""
    scene = Changing(tmp_path, "role Writer add\nrole Reader read\nrole Maker all\n")

    def look() -> None:
        if how == "time":
            scene.clock.pump([1.0] * 61)
        else:
            scene.listener.reload()

    writer, reader, nobody, maker = (Shown(scene, f"0:{role}") for role in ("Writer", "Reader", "Nobody", "Maker"))
    assert maker.statuses(adds3(3, b"a")) == writer.statuses(adds3(3, b"b", first=1)) == [Status.EOK]
    assert nobody.heard() == v3.bare(START, Status.EIO)
    scene.file.write_text("role Writer\n")
    look()
    assert scene.gauge("access_files_broken") == 1
    assert writer.statuses(adds3(4, b"c", first=2)) == reader.statuses(read3(5, 0)) == [Status.EOK]
    scene.file.write_text("role Writer read\nrole Nobody add\nrole Maker all\n")
    look()
    assert scene.gauge("access_files_broken") == 0
    assert scene.counted()["access_reloads"] == 1
    assert writer.statuses(adds3(4, b"d", first=3)) == [Status.EUA]
    assert writer.statuses(read3(5, 0)) == [Status.EOK]
    assert reader.send(read3(6, 0)) == v3.bare(Read(7, 0, txn=6, version=3), Status.EUA)
    assert nobody.statuses(adds3(4, b"d", first=3)) == maker.statuses(read3(5, 3)) == [Status.EOK]
    assert not any(shown.client.closed for shown in (writer, reader, nobody, maker))


def test_users_that_are_gone_go() -> None:
    """Whose name or password is another one now is closed after his answers; the others go on, with their rights."""
    scene = Scene()
    users = Users({"hd": "testpwd", "other": "testpwd"}, ["hd", "other"])
    changed: dict[str, str] = {}

    def take() -> None:
        if changed:
            users.become(changed, changed)

    files = [Watched("users", [], take, 0, scene.clock.seconds)]
    rights = Rights(parse("user hd add\nuser other add\n", "rights").values())
    scene.listener = Listener(scene.clock, scene.options, scene.service, None, SaslOfBookie(users), rights, files)

    def named(user: str) -> Client:
        client, side = scene.connect(), ClientsSide(user, digest_of(user, "testpwd"))
        challenge = client.ask(v3.pack_request(Auth("sasl", side.step(b""), 5)))
        assert isinstance(challenge, AuthReply)
        client.ask(v3.pack_request(Auth("sasl", side.step(challenge.payload), 6)))
        return client

    first, second = named("hd"), named("other")
    outside = scene.connect()
    changed |= {"hd": "a new one", "other": "testpwd"}
    with log_lines() as lines:
        scene.listener.reload()
    assert "user 'hd' is gone" in lines[1]
    assert first.closed
    assert not second.closed
    assert not outside.closed
    assert second.send(adds3(9, b"a")).replies()[0].status is Status.EOK  # type: ignore[union-attr]
