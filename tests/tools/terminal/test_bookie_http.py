"""What commands ask of a bookie's admin address, and what they say when it does not answer."""

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import typer

from quire.conf.properties import ConfigurationError
from quire.metadata.store import TOKEN_PROPERTY, BookieList, Endpoint, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable
from quire.tools.terminal import bookie_http
from quire.tools.terminal.bookie_http import answer_of, document_of, is_here, metrics_texts, said_by, token_of
from tests.security.authority import Authority
from tests.security.wires import client_options

# SPDX-License-Identifier: Apache-2.0


OWN, GIVEN = "own-own-own-own-own", "given-given-given-given"


def announced(port: int, token_file: object = None, host: str = "127.0.0.1") -> ServiceInfo:
    properties = {} if token_file is None else {TOKEN_PROPERTY: str(token_file)}
    return ServiceInfo((Endpoint("httpserver", host, port, "http"),), properties)


def written(path: Path, token: str) -> Path:
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path


Asked = list[tuple[str, str, bytes]]


@contextmanager
def serving(
    status: int, body: bytes, tokens: list[str | None] | None = None, **headers: str
) -> Iterator[tuple[ServiceInfo, Asked]]:
    """
    An admin address with one answer to everything; yields what it announces, and the requests it gets.  `tokens` gets
    what they show.
    """
    asked: Asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            if tokens is not None:
                tokens.append(self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield announced(server.server_port), asked
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def refusing() -> Iterator[ServiceInfo]:
    """An address that is taken, and at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield announced(taken.getsockname()[1])


def test_a_get_or_a_put_returns_the_answer() -> None:
    """With a document it is a PUT of that document as JSON."""
    with serving(200, b'{"running": true}') as (found, asked):
        assert answer_of("b:1", found, "/api/v1/bookie/gc") == b'{"running": true}'
        assert answer_of("b:1", found, "/api/v1/bookie/gc", {"forceMajor": True}) == b'{"running": true}'
        assert said_by("b:1", found, "/api/v1/bookie/gc") == {"running": True}
    assert [method for method, _path, _body in asked] == ["GET", "PUT", "GET"]
    assert {path for _method, path, _body in asked} == {"/api/v1/bookie/gc"}
    assert json.loads(asked[1][2]) == {"forceMajor": True}


def test_an_answer_that_is_no_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Something else has the port: the command ends with what was answered there."""
    with serving(200, b'{"running": true}') as (found, _asked):
        assert document_of("b:1", found, "/x", {}, needs=("running",)) == {"running": True}
    with serving(200, b'{"a": 1}') as (found, _asked), pytest.raises(typer.Exit):
        document_of("b:1", found, "/x", needs=("a", "b"))
    assert "which is not a JSON object with a and b:" in capsys.readouterr().err
    for body in (b"<html>welcome</html>", b"[1]", b"[" * 100_000):
        with serving(200, body) as (found, _asked), pytest.raises(typer.Exit):
            document_of("b:1", found, "/x")
        assert "which is not a JSON object:" in capsys.readouterr().err
        with serving(200, body) as (found, _asked):
            assert isinstance(said_by("b:1", found, "/x"), str)


@contextmanager
def saying(answer: bytes) -> Iterator[ServiceInfo]:
    """A port that answers whoever comes with these bytes, once, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _address = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield announced(server.getsockname()[1])
        finally:
            thread.join()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"",
        OK + b"Content-Length: 100\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"a: " + b"b" * 70_000 + b"\r\n\r\n",
        OK + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["ssh", "nothing", "cut off", "chunks", "long header", "many headers", "refusal"],
)
def test_what_is_no_whole_answer_is_printed(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Something else has the port, or the bookie ended: the command ends with a line."""
    with saying(answer) as found, pytest.raises(typer.Exit):
        document_of("b:1", found, "/x")
    assert "b:1" in capsys.readouterr().err
    with saying(answer) as found:
        assert isinstance(said_by("b:1", found, "/x"), str)


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever has the port: the command ends with its address."""
    monkeypatch.setattr(bookie_http, "ANSWER_BYTES_MAX", 1 << 20)
    with serving(200, bytes(1 << 20)) as (found, _asked):
        assert len(answer_of("b:1", found, "/x")) == 1 << 20
    with serving(200, bytes((1 << 20) + 1)) as (found, _asked):
        with pytest.raises(typer.Exit):
            answer_of("b:1", found, "/x")
        assert "it answers with more than 1 MiB" in capsys.readouterr().err
        assert isinstance(said_by("b:1", found, "/x"), str)


def test_a_bookie_that_is_down_or_has_no_address_is_named() -> None:
    """The error names the command that lists bookies, or says why nothing can be asked."""
    with pytest.raises(BookieHandleNotAvailable, match=r"b:1 is not up; `quire bookie list`"):
        answer_of("b:1", None, "/x")
    with pytest.raises(BookieHandleNotAvailable, match="b:1 announced no HTTP address"):
        answer_of("b:1", ServiceInfo.of("127.0.0.1", 3181), "/x")


def test_a_refusal_is_printed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with status 1 and the text of the bookie."""
    with serving(403, b"only from this machine\n") as (found, _asked), pytest.raises(typer.Exit) as ended:
        answer_of("b:1", found, "/x", {})
    assert ended.value.exit_code == 1
    assert "b:1 refused: only from this machine" in capsys.readouterr().err


def test_an_address_that_does_not_answer_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with the address and the next step."""
    with refusing() as found, pytest.raises(typer.Exit):
        answer_of("b:1", found, "/x")
    assert "run this on its own machine" in capsys.readouterr().err


@pytest.mark.parametrize("host", [".", "a..b", "a" * 64], ids=ascii)
def test_an_address_that_names_no_host(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As one that does not answer, and no token is looked for."""
    found = announced(8080, "/no/such/file", host)
    assert isinstance(said_by("b:1", found, "/x"), str)
    with pytest.raises(OSError, match="names no host"):
        metrics_texts(BookieList({"b:1": found}, {}))[0]()
    with pytest.raises(typer.Exit):
        answer_of("b:1", found, "/x")
    assert "names no host" in capsys.readouterr().err


def test_a_status_that_can_not_be_read_is_a_reason() -> None:
    """No bookie, no address, nothing that listens, or no JSON."""
    assert isinstance(said_by("b:1", None, "/x"), str)
    assert isinstance(said_by("b:1", ServiceInfo.of("127.0.0.1", 3181), "/x"), str)
    with refusing() as found:
        assert isinstance(said_by("b:1", found, "/x"), str)
    with serving(200, b"no document") as (found, _asked):
        assert isinstance(said_by("b:1", found, "/x"), str)


def test_a_token_that_was_given_is_shown_to_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option is stronger than the variable, and both than the announced file; a bad one is a wrong usage."""
    own, given = written(tmp_path / "own", OWN), written(tmp_path / "given", GIVEN)
    info = announced(1, own, "192.0.2.1")
    monkeypatch.setattr(bookie_http, "listening_users", lambda port: {0, 1})
    assert token_of(info, given).token == GIVEN
    monkeypatch.setenv("QUIRE_TOKEN_FILE", str(given))
    assert token_of(info).token == GIVEN
    assert token_of(announced(1, own), written(tmp_path / "third", OWN)).token == OWN
    given.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"given \(--token-file\)"):
        token_of(info)


def test_a_token_that_was_found_is_shown_to_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything read that is not a file of tokens for its owner's eyes; the reason is kept."""
    own = written(tmp_path / "own", OWN)
    monkeypatch.setattr(bookie_http, "listening_users", lambda port: {own.stat().st_uid})
    assert token_of(announced(1, own)).token == OWN
    far = token_of(announced(1, own, "192.0.2.1"))
    assert (far.token, far.why_not) == (None, "192.0.2.1 is not this machine, so no token is looked for")
    assert token_of(announced(1)).token is None
    own.write_text("root:x:0:0::/root:/bin/sh\n")
    assert token_of(announced(1, own)).token is None
    missing = token_of(announced(1, tmp_path / "missing"))
    assert missing.token is None
    assert "be the user whose bookie it is" in missing.why_not


def test_a_token_that_was_found_is_shown_to_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write metadata can announce another's file with a port of his own."""
    own = written(tmp_path / "own", OWN)
    mine = os.getuid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert bookie_http.listening_users(port) == {mine}
        assert token_of(announced(port, own)).token == OWN
        for users in ({0}, {mine, 0}):
            monkeypatch.setattr(bookie_http, "listening_users", lambda port, users=users: users)
            assert token_of(announced(port, own)).token == OWN
        for users in ({mine + 1}, {mine, mine + 1}, set()):
            monkeypatch.setattr(bookie_http, "listening_users", lambda port, users=users: users)
            other = token_of(announced(port, own))
            assert other.token is None
            assert f"somebody else than the owner of {own} may listen on port {port} here" in other.why_not
        monkeypatch.undo()
    assert bookie_http.listening_users(port) == set()


def test_a_system_that_does_not_say_who_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the address has to do."""
    monkeypatch.setattr(bookie_http, "SOCKETS", (str(tmp_path / "no such list"),))
    own = written(tmp_path / "own", OWN)
    assert bookie_http.listening_users(1) is None
    assert token_of(announced(1, own)).token == OWN


def test_what_is_here() -> None:
    """An address that can be bound, and a name that means such ones only."""
    assert is_here("127.0.0.1")
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert not is_here("no such name")


def test_the_token_goes_with_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a bookie of this machine its own; no proxy of the environment gets it, and no address that an answer names."""
    own = written(tmp_path / "own", OWN)
    shown: list[str | None] = []
    with refusing() as nobody:
        assert nobody.http is not None
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody.http.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        with serving(200, b"{}", shown) as (found, asked):
            assert found.http is not None
            with_token = announced(found.http.port, own)
            answer_of("b:1", with_token, "/x")
            answer_of("b:1", with_token, "/x", {})
            said_by("b:1", with_token, "/x")
            (text,) = metrics_texts(BookieList({"b:1": with_token, "c:1": ServiceInfo.of("h", 1)}, {}))
            assert text() == "{}"
            answer_of("b:1", found, "/x")
            assert shown == [f"Bearer {OWN}"] * 4 + [None]
            assert asked[3][1] == "/metrics"
            with serving(302, b"", Location=found.http.url("/y")) as (moved, _):
                assert moved.http is not None
                with pytest.raises(typer.Exit):
                    answer_of("b:1", announced(moved.http.port, own), "/x")
            assert len(shown) == 5


def test_why_no_token_was_shown_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Beside what the bookie said, which is a document."""
    body = json.dumps({"error": "this needs a token", "next": "send one"}).encode()
    with serving(401, body) as (found, _):
        assert found.http is not None
        with pytest.raises(typer.Exit):
            answer_of("b:1", announced(found.http.port, tmp_path / "missing"), "/x")
    said = capsys.readouterr().err
    assert "b:1 refused: this needs a token; send one (" in said
    assert "missing (adminTokenFile): No such file" in said


def test_addresses() -> None:
    """HTTPS where it is announced; an IPv6 address in brackets."""
    assert Endpoint("httpserver", "::1", 1, "https").url("/x") == "https://[::1]:1/x"
    assert Endpoint("httpserver", "h", 1, "http").url("/x") == "http://h:1/x"


def shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The version that both sides came to speak; `ssl.SSLError` of the client."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        with suppress(ssl.SSLWantReadError):
            one.do_handshake()
            return one.version()
        with suppress(ssl.SSLWantReadError):
            other.do_handshake()
    return None


def test_who_is_revoked_is_no_bookie_over_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's list and versions hold for commands, too."""
    authority = Authority(tmp_path)
    good, stolen = authority.issue("good"), authority.issue("stolen")
    options = {"tls_trust": authority.trust, "tls_revocations": authority.revoked(stolen), "tls_protocols": "TLSv1.2"}
    monkeypatch.setattr(bookie_http, "client_options", lambda: client_options(**options))
    for pair, refused in ((good, False), (stolen, True)):
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(pair.certificate, pair.key)
        if refused:
            with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
                shaken(bookie_http.tls_context(), server)
        else:
            assert shaken(bookie_http.tls_context(), server) == "TLSv1.2"


def test_why_a_bookie_says_nothing() -> None:
    """It refused, and no token was found; or it announced nothing; or nothing answers."""
    with serving(401, b'{"error": "no token", "next": "give --token-file"}') as (found, _asked):
        why = said_by("b:1", found, "/x")
    assert why == "it refused: no token; give --token-file (it announces no file of a token)"
    assert said_by("b:1", None, "/x") == "it announced no HTTP address"
    with refusing() as found:
        assert "gave no answer" in said_by("b:1", found, "/x")
