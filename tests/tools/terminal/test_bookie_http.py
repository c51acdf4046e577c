"""What commands ask of a bookie's admin address, and what they say when it does not answer."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import typer

from quire.metadata.store import Endpoint, ServiceInfo
from quire.protocol.errors import BookieHandleNotAvailable
from quire.tools.terminal.bookie_http import answer_of, said_by

# SPDX-License-Identifier: Apache-2.0


def announced(port: int) -> ServiceInfo:
    return ServiceInfo((Endpoint("httpserver", "127.0.0.1", port, "http"),))


@contextmanager
def serving(status: int, body: bytes) -> Iterator[tuple[ServiceInfo, list[tuple[str, str, bytes]]]]:
    """An admin address with one answer to everything; yields what it announces, and the requests it gets."""
    asked: list[tuple[str, str, bytes]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            self.send_response(status)
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


def test_a_status_that_can_not_be_read_is_none() -> None:
    """No bookie, no address, nothing that listens, or no JSON."""
    assert said_by("b:1", None, "/x") is None
    assert said_by("b:1", ServiceInfo.of("127.0.0.1", 3181), "/x") is None
    with refusing() as found:
        assert said_by("b:1", found, "/x") is None
    with serving(200, b"no document") as (found, _asked):
        assert said_by("b:1", found, "/x") is None
