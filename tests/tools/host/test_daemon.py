"""The process of a host: it starts and stops its bookies, shows them on one page, and refuses what can't work."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.security.jaas import MODULE
from tests.reactor import between_looks
from tests.tools.command import ok
from tests.tools.host.process import WAIT_S, HostProcess, is_gone

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store with a cluster in it."""
    made = f"sqlite://{tmp_path_factory.mktemp('store')}/metadata.db"
    ok("metadata", "init", "--metadata", made)
    return made


@pytest.fixture
def host(tmp_path: Path, uri: str) -> Iterator[HostProcess]:
    made = HostProcess(tmp_path, uri, tmp_path.name)
    yield made
    made.end()


def test_one_page_shows_all_bookies_and_a_stop_ends_them(host: HostProcess, uri: str) -> None:
    """The service manager is told when all serve; each sample has its bookie; SIGTERM stops all, with status 0."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(host.directory / "notify"))
        manager.settimeout(WAIT_S)
        said = host.begin(NOTIFY_SOCKET=str(host.directory / "notify")).ready()
        assert manager.recv(100) == b"READY=1"
        names = [f"{host.directory.name}-{number}" for number in (0, 1)]
        assert (said["ready"], [each["bookie"] for each in said["bookies"]]) == (host.directory.name, names)
        status, text = host.get("/metrics")
        assert status == 200
        for name in names:
            for metric in ("quire_journal_syncs_total", "quire_host_bookie_up", "process_resident_memory_bytes"):
                assert re.search(rf'^{metric}{{bookie="{name}"}} ', text, re.MULTILINE), metric
        assert re.search(r"^quire_host_bookies 2.0$", text, re.MULTILINE)
        assert host.get("/healthz") == (200, "OK\n")
        assert host.get("/heartbeat") == (200, "OK\n")
        assert host.get("/api/v1/bookie/state")[0] == 404
        listed = ok("bookie", "list", "--metadata", uri, "--json").rows
        assert [row["bookie"] for row in listed if row["state"] == "writable"] == names
        assert host.stop() == 0
        assert manager.recv(100) == b"STOPPING=1"
    assert all(map(is_gone, (each["pid"] for each in said["bookies"])))
    log = host.log.read_text()
    for name in names:
        assert f"{name} has stopped" in log
    assert [row["state"] for row in ok("bookie", "list", "--metadata", uri, "--json").rows] == ["down"] * 2


def test_a_service_manager_that_can_t_be_told(host: HostProcess) -> None:
    """As where a container has inherited the variable without the socket: all serve and stop, and the log says it."""
    nowhere = host.directory / "nowhere"
    pids = [each["pid"] for each in host.begin(NOTIFY_SOCKET=str(nowhere)).ready()["bookies"]]
    assert host.get("/healthz") == (200, "OK\n")
    assert host.stop() == 0
    assert all(map(is_gone, pids))
    log = host.log.read_text()
    for state in ("READY=1", "STOPPING=1"):
        assert f"{state} was not told to the service manager at NOTIFY_SOCKET={nowhere}" in log


def test_a_bookie_that_is_killed_comes_back(host: HostProcess) -> None:
    """Meanwhile the page says which one is away; the others are not touched."""
    host.begin().ready()
    first, second = host.pids()
    os.kill(second, signal.SIGKILL)
    while host.get("/healthz")[0] == 200:
        between_looks()
    while host.get("/healthz")[0] == 503:
        between_looks()
    text = host.get("/metrics")[1]
    assert f'quire_host_bookie_restarts_total{{bookie="{host.directory.name}-1"}} 1.0' in text
    assert f'quire_host_bookie_restarts_total{{bookie="{host.directory.name}-0"}} 0.0' in text
    assert not is_gone(first)
    assert "ended with signal 9" in host.log.read_text()
    assert host.stop(signal.SIGINT) == 0


def test_it_hands_sighup_on(host: HostProcess) -> None:
    """Each of its bookies reads its users again, and all go on."""
    users = host.directory / "users"

    def write(password: str) -> None:
        users.write_text(f'Bookie {{ {MODULE} required user_hd="{password}"; }};')
        users.chmod(0o600)

    write("one")
    with host.conf.open("a") as conf:
        conf.write(f"bookieAuthProviderFactoryClass=sasl\nsaslJaasFile={users}\nsaslJaasClientAllowedIds=hd\n")
    said = host.begin().ready()
    write("another")
    assert host.process is not None
    host.process.send_signal(signal.SIGHUP)
    # by the first answer the host has handed it on, so each of them has it by the second, and heeds it by the third
    _, _, (_status, text) = [host.get("/metrics") for _ in range(3)]
    for each in said["bookies"]:
        assert f'quire_access_reloads_total{{bookie="{each["bookie"]}"}} 1.0' in text
    assert host.get("/healthz") == (200, "OK\n")
    assert host.stop() == 0


def test_no_bookie_outlives_its_host(host: HostProcess) -> None:
    """Also when that is killed: their standard input closes."""
    host.begin().ready()
    pids = host.pids()
    assert host.stop(signal.SIGKILL) == -signal.SIGKILL
    while not all(map(is_gone, pids)):
        between_looks()


def test_a_bookie_that_can_t_serve_ends_the_start(host: HostProcess) -> None:
    """The others stop, the exit status is 1, and the last line names the bookie and its reason."""
    blocked = host.directory / "ledgers" / "bookie-1"
    blocked.parent.mkdir()
    blocked.write_text("a file, not a directory")
    host.begin()
    assert host.ended() == 1
    last = host.log.read_text().strip().splitlines()[-1]
    assert last.startswith(f"quire: bookie {host.directory.name}-1 ended with status 1 before it served: ")
    assert str(blocked) in last


@pytest.mark.parametrize(
    ("more", "variables", "code", "said"),
    [
        (("--bookies", "0"), {}, 2, "--bookies: hostBookies=0 is not allowed: 1 to 64"),
        ((), {"BK_bookieId": ""}, 2, "bookiePort=0 gives a bookie another port at each start"),
        ((), {"BK_hostBookys": "2"}, 2, "unknown key 'hostBookys'"),
        (("--metadata", "what://ever"), {}, 2, "before it served: metadata URI 'what://ever'"),
        ((), {"BK_prometheusStatsHttpAddress": "192.0.2.1"}, 1, "prometheusStatsHttpPort gives the host's page"),
    ],
)
def test_starts_that_are_refused(
    host: HostProcess, more: tuple[str, ...], variables: dict[str, str], code: int, said: str
) -> None:
    """Status 2 for what can't work, 1 for what is not to be had; the last line says what and where."""
    host.begin(*more, **variables)
    assert host.ended() == code
    assert said in host.log.read_text().strip().splitlines()[-1]


def test_detached_with_a_pid_file(host: HostProcess) -> None:
    """`--daemon` returns when all serve; a second one is refused; `stop` waits for the end of all."""
    pidfile, log = host.directory / "pid", host.directory / "daemon.log"
    arguments = ["host", "start", "--conf", str(host.conf), "--daemon", "--pidfile", str(pidfile), "--log", str(log)]
    command = [sys.executable, "-m", "quire.tools", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert re.fullmatch(rf"ready {re.escape(host.directory.name)} http://127\.0\.0\.1:\d+/metrics\n", done.stdout)
    again = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    ok("host", "stop", "--pidfile", str(pidfile))
    assert again.returncode == 1
    assert "which is a running host of bookies" in again.stderr
    assert not pidfile.exists()
    assert f"{host.directory.name}-1 has stopped" in log.read_text()


def test_each_bookie_has_a_configuration_for_commands_on_it_alone(host: HostProcess) -> None:
    """`quire host bookies` writes them; `quire bookie check` reads one."""
    rows = ok("host", "bookies", "--conf", str(host.conf), "--json").rows
    assert [row["bookie"] for row in rows] == [f"{host.directory.name}-{number}" for number in (0, 1)]
    assert rows[1]["ledgers"] == [str(host.directory / "ledgers" / "bookie-1")]
    assert ok("bookie", "check", "--conf", rows[1]["conf"], "--json").document["bookie"] == rows[1]["bookie"]
    assert ok("host", "bookies", "--conf", str(host.conf)).out.count("bookie.conf") == 2
