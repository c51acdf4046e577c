"""The gate in front of the admin paths: closed, but for what is said."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from quire.bookie.admin.gate import TOKEN_NAME, Gate, Keys, keys_of, names_of
from quire.bookie.admin.http import Answer, Asked, Head
from quire.conf.parts.http import HttpOptions
from quire.conf.properties import ConfigurationError
from quire.security.rights import Rights, parse
from quire.security.tokens import make_token_file, tokens_in

# SPDX-License-Identifier: Apache-2.0

ADMIN, METRICS = "admin-admin-admin-admin", "metrics-metrics-metrics"
GET, PUT = ("GET", "/data"), ("PUT", "/data")
STATE = "/api/v1/bookie/state"
READS = ("/healthz", "/heartbeat", "/api/v1/bookie/is_ready")


class Scene:
    """A gate with a path of each kind, and what reached them."""

    def __init__(self, keys: Keys, names: tuple[str, ...] = (), bookie: str = "") -> None:
        self.reached: list[tuple[str, str]] = []
        ways = [("GET", path) for path in (*READS, "/metrics", STATE)] + [GET, PUT, ("PUT", "/healthz")]
        self.gate = Gate([{way: self._reach(way)} for way in ways], keys, names, bookie)

    def _reach(self, way: tuple[str, str]) -> Callable[[Asked], Answer]:
        def answer(asked: Asked) -> Answer:
            self.reached.append(way)
            return Answer(200, b"")

        return answer

    def ask(self, method: str, path: str, role: str | None = None, **headers: str) -> Answer:
        head = Head(method, path, {}, {"host": "127.0.0.1:8000", **headers}, True, role)
        refused = self.gate.refusal(head)
        if refused is not None:
            assert set(json.loads(refused.body)) == {"error", "next"}
            return refused
        found = self.gate.serve(Asked(method, path, b""))
        assert isinstance(found, Answer)
        return found

    def status(self, method: str, path: str, token: str = "", **headers: str) -> int:
        shown = {"authorization": f"Bearer {token}"} if token else {}
        return self.ask(method, path, **shown, **headers).status


def written(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def options(directory: Path, **more: object) -> HttpOptions:
    return HttpOptions.model_validate(
        {
            "admin_token_file": written(directory / "admin", f"{ADMIN}\n"),
            "metrics_token_file": written(directory / "metrics", f"{METRICS}\n"),
            **more,
        }
    )


def test_without_a_token_only_health_is_read(tmp_path: Path) -> None:
    """All else is 401: metrics, data, changes, a change at a health path, and what does not exist."""
    scene = Scene(keys_of(options(tmp_path)))
    assert [scene.status(method, path) for path in READS for method in ("GET", "HEAD")] == [200] * 6
    closed = [("GET", "/metrics"), GET, ("HEAD", "/data"), PUT, ("PUT", "/healthz"), ("GET", "/nowhere")]
    reached = len(scene.reached)
    for method, path in closed:
        found = scene.ask(method, path)
        assert found.status == 401
        assert found.headers == (("WWW-Authenticate", 'Bearer realm="quire"'),)
        assert scene.status(method, path, "wrong-wrong-wrong-wrong") == 401
    for bad in ("", "Bearer", f"Basic {ADMIN}", f"Bearer {ADMIN} x", f"Bearer {ADMIN[:-1]}", f"Bearer {ADMIN}x"):
        assert scene.ask("GET", "/data", authorization=bad).status == 401, bad
    assert len(scene.reached) == reached


def test_each_token_opens_its_own(tmp_path: Path) -> None:
    """That of the metrics reads them and nothing else; the other opens everything."""
    scene = Scene(keys_of(options(tmp_path)))
    assert scene.status("GET", "/metrics", METRICS) == scene.status("HEAD", "/metrics", METRICS) == 200
    assert [scene.status(*way, METRICS) for way in (GET, PUT, ("PUT", "/metrics"), ("GET", "/no"))] == [403] * 4
    assert scene.reached == [("GET", "/metrics")] * 2
    assert [scene.status(*way, ADMIN) for way in (GET, PUT, ("GET", "/metrics"))] == [200] * 3
    assert scene.ask("GET", "/data", authorization=f"bEARER  {ADMIN}").status == 200


def test_only_what_is_given_for_get_is_reached_by_get(tmp_path: Path) -> None:
    """HEAD is a GET; another method is 405 with those that there are; an unknown path is 404 for who may ask."""
    scene = Scene(keys_of(options(tmp_path)))
    assert scene.status("HEAD", "/data", ADMIN) == 200
    assert scene.reached == [GET]
    for method in ("POST", "DELETE", "OPTIONS", "get"):
        found = scene.ask(method, "/data", authorization=f"Bearer {ADMIN}")
        assert (found.status, found.headers) == (405, (("Allow", "GET, HEAD, PUT"),))
    assert scene.status("GET", "/nowhere", ADMIN) == 404
    assert scene.reached == [GET]


def test_other_names_are_refused(tmp_path: Path) -> None:
    """Addresses, localhost and its own names are taken, with or without a port; a page's own name is not."""
    scene = Scene(keys_of(options(tmp_path)), ("Bookie-1", "proxy.example."))
    for host in (
        "127.0.0.1",
        "10.0.0.5:8000",
        "[::1]:8000",
        "LOCALHOST:1",
        "bookie-1:8000",
        "proxy.example",
        "bookie-1.",
    ):
        assert scene.status("GET", "/healthz", host=host) == 200, host
    for host in (
        "evil.example",
        "bookie-1.evil.example:8000",
        "127.0.0.1.evil.example",
        "",
        "a@localhost",
        "localhost:x",
    ):
        found = scene.ask("GET", "/healthz", host=host, authorization=f"Bearer {ADMIN}")
        assert found.status == 403, host
        assert b"adminHosts" in found.body
    assert scene.gate.refusal(Head("GET", "/healthz", {}, {}, True)).status == 400  # type: ignore[union-attr]
    assert scene.gate.refusal(Head("GET", "/healthz", {}, {}, False)) is None, "HTTP/1.0 names no host"
    assert {"proxy", "b"} < names_of(options(tmp_path, admin_hosts="proxy"), "b")


def test_what_is_meant_for_another_bookie_is_refused(tmp_path: Path) -> None:
    """Its port may have been that one's; a request that names no bookie is answered by the one that is there."""
    scene = Scene(keys_of(options(tmp_path)), bookie="bookie-1")
    assert scene.status("GET", "/healthz", bookie="bookie-1") == scene.status("GET", "/healthz") == 200
    assert scene.status("GET", "/healthz", bookie="bookie-2") == 421


def test_what_is_open_is_configured(tmp_path: Path) -> None:
    """Metrics too, or not even health."""
    scene = Scene(keys_of(options(tmp_path, admin_open="health, metrics")))
    assert [scene.status("GET", path) for path in ("/healthz", "/metrics", "/data")] == [200, 200, 401]
    assert scene.status("GET", STATE) == 401
    scene = Scene(keys_of(options(tmp_path, admin_open="state")))
    assert (scene.status("GET", STATE), scene.status("GET", "/healthz")) == (200, 401)
    scene = Scene(keys_of(options(tmp_path, admin_open="none")))
    assert [scene.status("GET", path) for path in ("/healthz", "/metrics", "/data")] == [401] * 3


def test_without_any_token_the_rest_is_closed_for_everybody() -> None:
    """It says what to set; no header opens it."""
    scene = Scene(keys_of(HttpOptions()))
    assert scene.status("GET", "/healthz") == 200
    for token in ("", ADMIN):
        assert scene.status("GET", "/data", token) == 403
    assert b"set adminTokenFile" in scene.ask(*PUT).body


def test_a_certificate_opens_all_unless_there_is_a_token(tmp_path: Path) -> None:
    """Who is connected has shown one; with a token set both are needed."""
    tls = {"http_tls": True, "http_certificate": "/k.pem", "http_trust": "/t.pem"}
    scene = Scene(keys_of(HttpOptions.model_validate(tls), str(tmp_path)))
    assert [scene.status(*way) for way in (GET, PUT)] == [200, 200]
    assert list(tmp_path.iterdir()) == [], "no file of a token is made"
    assert Scene(keys_of(options(tmp_path, **tls))).status(*GET) == 401


@pytest.mark.parametrize(
    ("role", "may"),
    [("Watcher", ["GET", "HEAD"]), ("Chief", ["GET", "HEAD", "PUT"]), ("Changer", ["PUT"]), ("Reader", []), (None, [])],
)
def test_a_certificate_opens_what_its_role_may(tmp_path: Path, role: str | None, may: list[str]) -> None:
    """With rights: reading by inspect, changing by administer; health for everybody, metrics by their token, too."""
    text = "role Watcher inspect\nrole Chief all\nrole Changer administer\nrole Reader read\n"
    tls = {"http_tls": True, "http_certificate": "/k.pem", "http_trust": "/t.pem"}
    rights = Rights(parse(text, "rights").values())
    scene = Scene(keys_of(HttpOptions.model_validate(tls), str(tmp_path), rights))
    asked = [(method, "/data") for method in ("GET", "HEAD", "PUT")]
    answers = {method: scene.ask(method, path, role).status for method, path in asked}
    assert answers == {method: 200 if method in may else 403 for method, _path in asked}
    assert scene.ask("GET", "/healthz", role).status == 200
    assert scene.ask("PUT", "/healthz", role).status == (200 if "PUT" in may else 403)
    file = written(tmp_path / "metrics", f"{METRICS}\n")
    other = Scene(keys_of(HttpOptions.model_validate({**tls, "metrics_token_file": file}), None, rights))
    assert other.ask("GET", "/metrics", role, authorization=f"Bearer {METRICS}").status == 200
    assert other.ask("PUT", "/data", role, authorization=f"Bearer {METRICS}").status == (200 if "PUT" in may else 403)


def test_a_file_is_made_where_none_is_set(tmp_path: Path) -> None:
    """Once, for its owner's eyes; what is in it opens the gate."""
    keys = keys_of(HttpOptions(), str(tmp_path))
    path = tmp_path / TOKEN_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    (token,) = tokens_in(str(path), "")
    assert keys_of(HttpOptions(), str(tmp_path)).admin is not None
    assert tokens_in(str(path), "") == [token]
    assert Scene(keys).status("GET", "/data", token.decode()) == 200


def test_a_file_that_can_not_be_used_stops_the_start(tmp_path: Path) -> None:
    """Also one that was made here before; the key is named."""
    make_token_file(str(tmp_path / TOKEN_NAME))
    (tmp_path / TOKEN_NAME).chmod(0o644)
    with pytest.raises(ConfigurationError, match="adminTokenFile"):
        keys_of(HttpOptions(), str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"nowhere \(metricsTokenFile\)"):
        keys_of(options(tmp_path, metrics_token_file=str(tmp_path / "nowhere")))


def basic(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


def test_a_browser_shows_a_token_as_a_password(tmp_path: Path) -> None:
    """With any name, where the port has pages for one; it is asked for it. Elsewhere Basic is no token."""
    path = written(tmp_path / "admin", f"{ADMIN}\n")
    scene = Scene(keys_of(options(tmp_path, admin_token_file=path))._replace(browser=True))
    refused = scene.ask(*GET)
    assert (refused.status, dict(refused.headers)["WWW-Authenticate"][:6]) == (401, "Basic ")
    assert scene.ask(*GET, authorization=basic("anybody", ADMIN)).status == 200
    assert scene.ask(*GET, authorization=basic("", ADMIN)).status == 200
    assert scene.status(*GET, ADMIN) == 200
    for wrong in (basic("anybody", ADMIN[1:]), basic(ADMIN, ""), "Basic", "Basic !", f"Basic {ADMIN}", "Basic =", ""):
        assert scene.ask(*GET, authorization=wrong).status == 401, wrong
    for shown in (basic("anybody", "é"), basic("a", ADMIN)):
        assert Scene(keys_of(options(tmp_path, admin_token_file=path))).ask(*GET, authorization=shown).status == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ("GET", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),  # a link is followed
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("GET", {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
        ("PUT", {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"}, 200),
        ("PUT", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ("PUT", {"origin": "http://127.0.0.1:8001"}, 403),
        ("PUT", {"origin": "null"}, 403),
    ],
)
def test_a_page_of_another_site_is_refused(tmp_path: Path, method: str, headers: dict[str, str], status: int) -> None:
    """A browser would show what it was given for this one; without `browser` nothing but a header of ours is shown."""
    path = written(tmp_path / "admin", f"{ADMIN}\n")
    keys = keys_of(options(tmp_path, admin_token_file=path))
    shown = {"authorization": basic("anybody", ADMIN)}
    assert Scene(keys._replace(browser=True)).ask(method, "/data", **shown, **headers).status == status
    assert Scene(keys).status(method, "/data", ADMIN, **headers) == 200
