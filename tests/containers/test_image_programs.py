"""Programs of the image that need no container: what variables make of a file, and how health is asked."""

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from release.__main__ import ROOT

# SPDX-License-Identifier: Apache-2.0

BIN = ROOT / "deploy" / "image" / "bin"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def run(name: str, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program of the image with these variables and no others."""
    environment: Mapping[str, str] = {"PATH": PATH, **variables}
    return subprocess.run(
        [BIN / name, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip


def apply(file: Path, *words: object, **variables: str) -> dict[str, str]:
    ended = run("apply-config-from-env.py", *words, file, **variables)
    assert ended.returncode == 0, ended.stderr
    target = file / "bookkeeper.conf" if file.is_dir() else file
    lines = [line for line in target.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_keys_with_and_without_a_prefix(tmp_path: Path) -> None:
    """The prefix is stronger; names that are no keys, and those of scripts, are left alone."""
    file = tmp_path / "bookkeeper.conf"
    file.write_text("# a file\nbookiePort=1\n#gcWaitTime=5\nother=x\n")
    found = apply(
        file, bookiePort="3181", gcWaitTime="7", zkServers="", HOME="/h", PULSAR_MEM="-Xmx1g", BK_BOOKIE_EXTRA_OPTS="x",
        journalDirectories="/a", PULSAR_PREFIX_journalDirectories="/b", BK_bookieId="one\ntwo", BK_passwd="a\\b",
    )  # fmt: skip
    assert found == {
        "bookiePort": "3181", "gcWaitTime": "7", "other": "x", "zkServers": "", "journalDirectories": "/b",
        "bookieId": "one two", "passwd": "a\\\\b",
    }  # fmt: skip
    assert file.read_text().startswith("# a file\nbookiePort=3181\ngcWaitTime=7\nother=x\n")
    assert apply(file, "--prefix", "BOOKIE_", BOOKIE_bookiePort="4", PULSAR_PREFIX_other="y") == found | {
        "bookiePort": "4"
    }


def test_a_directory_means_its_files(tmp_path: Path) -> None:
    """As Apache's image has it."""
    for name in ("bookkeeper.conf", "bk_server.conf", "log4j.properties"):
        (tmp_path / name).write_text("bookiePort=1\n")
    assert apply(tmp_path, BK_bookiePort="2") == {"bookiePort": "2"}
    assert (tmp_path / "bk_server.conf").read_text() == "bookiePort=2\n"
    assert (tmp_path / "log4j.properties").read_text() == "bookiePort=1\n"
    refused = run("apply-config-from-env.py", tmp_path / "none.conf")
    assert (refused.returncode, "none.conf: No such file" in refused.stderr) == (1, True)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()
        self.wfile.write(b"read-only")

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server of health on a free port: 200 for /healthz, 503 for all else."""
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("secured", [False, True])
def test_health_is_asked_where_the_process_answers(secured: bool, tmp_path: Path) -> None:
    """By the file or the environment, which is stronger; over TLS, too."""
    with serving(tls() if secured else None) as port:
        file = tmp_path / "bookkeeper.conf"
        file.write_text(f"httpServerEnabled=true\n#httpServerPort=1\nhttpServerPort={port}\n")
        known = {"BOOKIE_CONF": str(file), "BK_httpServerTlsEnable": str(secured).lower()}
        assert run("healthcheck", "/healthz", **known).returncode == 0
        file.write_text("httpServerPort=1\n")
        known |= {"BK_httpServerEnabled": "true", "PULSAR_PREFIX_httpServerPort": port}
        assert run("healthcheck", "/healthz", **known).returncode == 0
        ill = run("healthcheck", **known)
        assert (ill.returncode, "503" in ill.stderr, "read-only" in ill.stderr) == (1, True, True)
        gone = run("healthcheck", **known | {"PULSAR_PREFIX_httpServerPort": "1"})
        assert (gone.returncode, "port 1: " in gone.stderr) == (1, True)


def test_a_port_that_nobody_knows_is_said() -> None:
    """With the key that names one."""
    ended = run("healthcheck")
    assert (ended.returncode, "prometheusStatsHttpPort is 0" in ended.stderr) == (1, True)
