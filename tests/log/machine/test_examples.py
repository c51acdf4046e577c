"""The examples of replicas run as processes: whoever leads is killed, and another one goes on with the same state."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import environment, ok
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
WAIT_S = 120.0  # only what hangs takes so long


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster of three bookies."""
    with LocalCluster(tmp_path_factory.mktemp("examples"), 3, options=SMALL) as cluster:
        yield cluster.uri


class Running:
    """A process of an example, and what its lines say."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.ready = self.line()["ready"]

    def line(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the example has ended"
        return json.loads(line)

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def several(name: str, *arguments: list[str]) -> Iterator[list[Running]]:
    """Processes of an example, begun at the same time; those that still run are killed."""
    with ExitStack() as stack:
        with ThreadPoolExecutor() as threads:
            running = list(threads.map(lambda some: Running(str(EXAMPLES / name), *some), arguments))
        for each in running:
            stack.callback(each.kill)
        yield running


def eventually(work: Any) -> Any:
    """What it gives, once it gives something."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = work()
        if found is not None:
            return found
    raise AssertionError("it takes too long")


def test_the_register(uri: str) -> None:
    """Put, get, compare-and-set; from the others the address of the one to ask."""
    ok("log", "create", "register", metadata=uri)
    with several("register.py", *([uri, "register", name] for name in ("one", "two", "three"))) as running:
        state: dict[str, str] = {}

        def lead(line: str) -> tuple[Running, Any]:
            def asked() -> tuple[Running, Any] | None:
                for each in running:
                    found = each.ask(line)
                    if "ask" not in found and "error" not in found:
                        return each, found
                return None

            found: tuple[Running, Any] = eventually(asked)
            return found

        for number in range(3):
            leader, found = lead(f"put k{number} v")
            assert found["done"] is True
            state[f"k{number}"] = "v"
            follower = next((each for each in running if each is not leader), None)
            if follower is not None:
                assert follower.ask("get k0") == {"ask": leader.ready}
            assert leader.ask(f"cas k{number} x y")["done"] is False
            assert leader.ask(f"cas k{number} v w")["done"] is True
            assert leader.ask(f"cas new{number} - first")["done"] is True
            assert "error" in leader.ask("put")
            state |= {f"k{number}": "w", f"new{number}": "first"}
            assert {key: leader.ask(f"get {key}")["value"] for key in state} == state
            assert leader.ask("get none") == {"value": None}
            running.remove(leader)
            leader.kill()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is asked may not be sent again by itself with another method."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def http(address: str, method: str, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, JSON, and to where it is sent; 0 when nobody answers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://{address}{path}", data, named, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(request, timeout=WAIT_S) as answered:
            return answered.status, json.loads(answered.read()), None
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body else None, error.headers["Location"]
    except OSError:
        return 0, None, None


def test_the_configuration_store(uri: str) -> None:
    """Versions, conditions, prefixes and watches over HTTP; the others send clients on; a kill costs nothing."""
    ok("log", "create", "config", metadata=uri)
    with several("config_store.py", *([uri, "config", "127.0.0.1:0"] for _ in range(3))) as running:

        def lead(*request: Any, **headers: str) -> tuple[str, int, Any]:
            def asked() -> tuple[str, int, Any] | None:
                for each in running:
                    code, found, _place = http(each.ready, *request, **headers)
                    if code not in {0, 307, 503}:
                        return each.ready, code, found
                return None

            found: tuple[str, int, Any] = eventually(asked)
            return found

        for number in range(2):
            key = f"/keys/color{number}"
            leader, code, found = lead("PUT", key, b"blue")
            assert code == 200
            version = found["version"]
            others = [each.ready for each in running if each.ready != leader]
            for other in others:
                assert http(other, "GET", key)[::2] == (307, f"http://{leader}{key}")
                assert http(other, "GET", f"{key}?after={version - 1}")[:2] == (
                    200,
                    {"value": "blue", "version": version},
                )
            with ThreadPoolExecutor() as threads:
                watched = [threads.submit(http, each.ready, "GET", f"{key}?after={version}") for each in running]
                assert lead("PUT", key, b"red", If_Match=str(version + 1))[1:] == (412, {"version": version})
                assert lead("PUT", key, b"red", If_None_Match="*")[1:] == (412, {"version": version})
                assert lead("PUT", key, b"red", If_Match=str(version))[1:] == (200, {"version": version + 3})
                red = {"value": "red", "version": version + 3}
                assert [each.result()[:2] for each in watched] == [(200, red)] * len(running)
            assert lead("GET", key)[1:] == (200, red)
            assert lead("GET", "/keys?prefix=col")[2][f"color{number}"] == red
            assert lead("GET", "/keys?prefix=x")[1:] == (200, {})
            assert lead("GET", "/keys/none")[1] == 404
            assert lead("DELETE", "/keys/none")[1] == 404
            assert lead("PUT", key, b"\xff")[1] == 400
            assert lead("PUT", key, b"x", If_Match="red")[1] == 400
            assert lead("POST", key, b"x")[1] == 405
            assert http(leader, "GET", "/state")[1]["role"] == "leading"
            (first,) = [each for each in running if each.ready == leader]
            running.remove(first)
            first.kill()
            assert lead("GET", key)[1:] == (200, red)
        code, found = lead("DELETE", "/keys/color0")[1:]
        assert code == 200
        assert lead("GET", "/keys/color0")[1] == 404
