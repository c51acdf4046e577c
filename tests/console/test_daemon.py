"""The console as a process: what it prints, whom it lets in, what it refuses to begin with."""

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.security.tokens import make_token_file
from quire.tools.local_cluster.authority import LocalAuthority
from tests.tools.command import environment, ok, refused

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60


@contextmanager
def console(home: Path, uri: str, *options: object) -> Iterator[dict[str, str]]:
    """
    A running console of a user with that home; its ready line, and at its end `log`.  It stops when its standard input
    closes.
    """
    command = [sys.executable, "-m", "quire.tools", "console", "--json", "--port", "0", "--stop-with-stdin"]
    given = {**environment(uri), "HOME": str(home)}
    ready: dict[str, str] = {}
    process = subprocess.Popen(
        [*command, *map(str, options)], env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready |= json.loads(process.stdout.readline())
        yield ready
    finally:
        process.stdin.close()
        status = process.wait(WAIT_S)
        assert process.stderr is not None
        log = ready["log"] = process.stderr.read().decode()
        process.stdout.close()
        process.stderr.close()
    assert status == 0, log
    assert "Traceback" not in log, log


def basic(password: str) -> str:
    """The header with which a browser shows a password."""
    return f"Basic {b64encode(f'me:{password}'.encode()).decode()}"


def status(url: str, password: str = "", **headers: str) -> int:
    shown = {"Authorization": basic(password)} if password else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={**shown, **headers}), timeout=WAIT_S) as found:
            return int(found.status)
    except urllib.error.HTTPError as failure:
        with failure:
            return failure.code


def shown(url: str, token_file: str) -> str:
    """The page at an address."""
    headers = {"Authorization": basic(Path(token_file).read_text().strip())}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=WAIT_S) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite://{tmp_path_factory.mktemp('store')}/metadata.db"
    ok("metadata", "init", metadata=made)
    return made


def test_it_makes_a_token_and_lets_nobody_in_without(tmp_path: Path, uri: str) -> None:
    """For the eyes of its user; the health is open, a name that is not its own is refused."""
    with console(tmp_path, uri) as ready:
        assert ready["token_file"] == str(tmp_path / ".config/quire/admin.token")
        assert os.stat(ready["token_file"]).st_mode & 0o777 == 0o600
        token = Path(ready["token_file"]).read_text().strip()
        assert ready["ready"].startswith("http://127.0.0.1:")
        assert [status(ready["ready"]), status(ready["ready"], "x" * 64), status(ready["ready"], token)] == [
            401,
            401,
            200,
        ]
        assert status(f"{ready['ready']}healthz") == 200
        assert status(ready["ready"], token, Host="evil.example") == 403
        assert status(ready["ready"], token, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}) == 403


def test_a_file_of_tokens_is_taken(tmp_path: Path, uri: str) -> None:
    """By the option, or adminTokenFile of the configuration."""
    file, conf = tmp_path / "token", tmp_path / "client.conf"
    make_token_file(str(file))
    conf.write_text(f"metadataServiceUri={uri}\nadminTokenFile={file}\n")
    for options in (["--token-file", file], ["--conf", conf]):
        with console(tmp_path, uri, *options) as ready:
            assert ready["token_file"] == str(file)
            assert status(ready["ready"], file.read_text().strip()) == 200
    assert not (tmp_path / ".config").exists()


def test_a_password_is_in_no_log(tmp_path: Path, uri: str) -> None:
    """That of a ledger, in a request that is served and in one that is refused; nor the token."""
    with console(tmp_path, uri) as ready:
        token = Path(ready["token_file"]).read_text().strip()
        for path, shown_token, wanted in (("ledger?id=3", token, 404), ("ledger", "x" * 64, 401), ("x", token, 404)):
            headers = {"Authorization": basic(shown_token)}
            request = urllib.request.Request(f"{ready['ready']}{path}", b"password=open+sesame", headers)
            with pytest.raises(urllib.error.HTTPError) as refused_with:
                urllib.request.urlopen(request, timeout=WAIT_S)
            with refused_with.value as answer:
                assert answer.code == wanted
                assert b"sesame" not in answer.read()
    assert "401" in ready["log"]
    assert "sesame" not in ready["log"]
    assert token not in ready["log"]


def test_what_can_not_work_is_refused(tmp_path: Path, uri: str) -> None:
    """With one line each: no cluster, no store, no token, a port that is taken."""
    nothing = f"sqlite://{tmp_path}/none.db"
    assert "quire metadata init" in refused(1, "console", "--port", 0, metadata=nothing)
    assert "no metadata store is named" in refused(2, "console")
    assert "No such file" in refused(2, "console", "--token-file", tmp_path / "none", metadata=uri)
    with console(tmp_path, uri) as ready:
        port = ready["ready"].rstrip("/").rpartition(":")[2]
        assert "--port names another" in refused(
            1, "console", "--port", port, "--token-file", ready["token_file"], metadata=uri
        )


def test_its_port_over_tls(tmp_path: Path, uri: str) -> None:
    """With the keys of a bookie's HTTP port; and with an authority a certificate is asked for, instead of a token."""
    authority = LocalAuthority(tmp_path / "tls", "127.0.0.1")
    authority.make()
    files = {
        name: tmp_path / "tls" / name for name in ("ca.pem", "bookie.pem", "bookie.key", "client.pem", "client.key")
    }
    whole = tmp_path / "http.pem"
    whole.write_bytes(files["bookie.key"].read_bytes() + files["bookie.pem"].read_bytes())
    conf, keys = tmp_path / "console.conf", f"httpServerTlsEnable=true\nhttpServerKeyStorePath={whole}\n"
    context = ssl.create_default_context(cafile=str(files["ca.pem"]))

    def code(ready: dict[str, str], token: str = "") -> int:
        shown = {"Authorization": basic(token)} if token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(ready["ready"], headers=shown), context=context, timeout=WAIT_S
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as failure:
            with failure:
                return failure.code

    conf.write_text(keys)
    with console(tmp_path, uri, "--conf", conf) as ready:
        assert ready["ready"].startswith("https://")
        assert [code(ready), code(ready, Path(ready["token_file"]).read_text().strip())] == [401, 200]
    conf.write_text(f"{keys}httpServerTrustStorePath={files['ca.pem']}\n")
    with console(tmp_path, uri, "--conf", conf) as ready:
        assert ready["token_file"] is None
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            code(ready)
        context.load_cert_chain(files["client.pem"], files["client.key"])
        assert code(ready) == 200
