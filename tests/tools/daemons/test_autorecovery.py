"""AutoRecovery's daemon: its process, what it serves, and the starts that it refuses."""

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.security.tokens import make_token_file
from tests.reactor import between_looks
from tests.tools.bookie_process import WAIT_S, Cluster
from tests.tools.command import environment
from tests.tools.http import get

# SPDX-License-Identifier: Apache-2.0

MODULE = "quire.tools.daemons.autorecovery"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store with a cluster in it, and a bookie's configuration that AutoRecovery shares."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


def started(cluster: Cluster, *more: str, **variables: str) -> subprocess.Popen[bytes]:
    """One with the bookie's file."""
    command = [sys.executable, "-m", MODULE, "--conf", str(cluster.conf), *more]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment() | variables)
    cluster.started.append(process)
    return process


def ready(process: subprocess.Popen[bytes]) -> str:
    """Its ready line."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(WAIT_S), "no ready line"
    return process.stdout.readline().decode().strip()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, log = process.communicate(timeout=WAIT_S)
    return process.returncode, log.decode()


def test_it_serves_and_stops(cluster: Cluster) -> None:
    """
    Under the bookie's id, with metrics and the admin paths for who has the token that is set; SIGTERM ends it with
    status 0, its vote given back.
    """
    token = cluster.path / "token"
    make_token_file(str(token))
    process = started(cluster, BK_adminTokenFile=str(token))
    found = re.fullmatch(r"ready one (http://127\.0\.0\.1:\d+)/metrics", ready(process))
    assert found
    assert b"quire_autorecovery_auditor" in get(f"{found[1]}/metrics", token)
    assert get(f"{found[1]}/healthz") == b"OK\n"
    while json.loads(cluster.quire("autorecovery", "status", "--json"))["auditor"] is None:
        between_looks()
    assert get(f"{found[1]}/api/v1/autorecovery/who_is_auditor", token) == b"Auditor: one"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{found[1]}/api/v1/bookie/state", token)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(f"{found[1]}/metrics")
    process.send_signal(signal.SIGTERM)
    status, log = ended(process)
    assert status == 0, log
    assert "one takes part in AutoRecovery" in log
    assert json.loads(cluster.quire("autorecovery", "status", "--json"))["candidates"] == 0


def test_a_bookie_with_the_same_file_runs_beside_it(cluster: Cluster) -> None:
    """A port that is taken is told with the key that gives it another; with that key both serve."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, log = ended(started(cluster, BK_prometheusStatsHttpPort=port))
        assert status == 1
        assert "autoRecoveryHttpPort gives AutoRecovery another port" in log.strip().splitlines()[-1]
        process = started(
            cluster, "--json", "--stop-with-stdin", BK_prometheusStatsHttpPort=port, BK_autoRecoveryHttpPort="0"
        )
        said = json.loads(ready(process))
        assert (said["ready"], said["pid"]) == ("one", process.pid)
        status, log = ended(process)  # standard input closes
        assert status == 0, log


def test_a_store_that_is_away_is_no_reason_to_end(cluster: Cluster) -> None:
    """It says that it waits, at the log and over HTTP, and a stop ends the wait with status 0."""
    token = cluster.path / "token-of-its-own"
    make_token_file(str(token))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"zk://127.0.0.1:{silent.getsockname()[1]}/ledgers"
        process = started(cluster, "--metadata", uri, BK_zkTimeout="1000", BK_adminTokenFile=str(token))
        assert process.stderr is not None
        url, waits = "", False
        while not waits:
            line = process.stderr.readline().decode()
            assert line, "it ended"
            port = re.search(r"HttpServer starting on (\d+)", line)
            url = f"http://127.0.0.1:{port[1]}" if port else url
            waits = "AutoRecovery waits for the metadata store" in line
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(f"{url}/healthz")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(f"{url}/api/v1/autorecovery/status", token)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{url}/api/v1/autorecovery/status")
        assert get(f"{url}/heartbeat") == b"OK\n"
        process.send_signal(signal.SIGTERM)
        status, log = ended(process)
        assert status == 0, log


def test_detached_with_a_pid_file(cluster: Cluster) -> None:
    """`--daemon` returns when it takes part; a second one is refused; `stop` waits for the end."""
    pidfile, log = cluster.path / "pid", cluster.path / "autorecovery.log"
    arguments = ("autorecovery", "start", "--conf", str(cluster.conf), "--daemon")
    arguments += ("--pidfile", str(pidfile), "--log", str(log))
    assert cluster.quire(*arguments).startswith("ready one http://127.0.0.1:")
    try:
        assert "which is a running AutoRecovery" in cluster.quire(*arguments, status=1)
    finally:
        cluster.quire("autorecovery", "stop", "--pidfile", str(pidfile))
    assert not pidfile.exists()
    assert "one takes part in AutoRecovery" in log.read_text()
    assert "no AutoRecovery runs under it" in cluster.quire("autorecovery", "stop", "--pidfile", str(pidfile), status=1)
    pidfile.write_text(f"{os.getpid()}\n")
    assert "no running AutoRecovery" in cluster.quire("autorecovery", "stop", "--pidfile", str(pidfile), status=1)


def test_starts_that_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Status 2 for what can't work, 1 for a cluster that is not there; the last line says what and what to do."""
    for more, variables, code, said in (
        ((), {"BK_repairLedgersAtOnce": "0"}, 2, "repairLedgersAtOnce=0 is not allowed: 1 to 1000"),
        ((), {"BK_autoRecoveryHttpPrt": "1"}, 2, "the nearest one is autoRecoveryHttpPort"),
        (("--metadata", "what://ever"), {}, 2, "metadata URI 'what://ever'"),
        (("--metadata", f"sqlite://{tmp_path}/other.db"), {}, 1, "quire metadata init"),
    ):
        status, log = ended(started(cluster, *more, **variables))
        assert (status, said in log.strip().splitlines()[-1]) == (code, True), log


def test_python_without_assertions_is_refused(cluster: Cluster) -> None:
    """AutoRecovery under `python -O` ends with status 2 and the reason."""
    command = [sys.executable, "-O", "-m", MODULE, "--conf", str(cluster.conf)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "python -O" in done.stderr


def test_the_daemon_carries_neither_a_command_line_library_nor_a_bookies_storage() -> None:
    """They cost memory for the life of the process."""
    modules = f"{MODULE}, quire.tools.daemons.recovering, quire.replication.autorecovery.running"
    heavy = ("typer", "rich", "rocksdict", "prometheus_client", "quire.bookie.storage.storage")
    program = f"import sys, {modules}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "[]\n"
