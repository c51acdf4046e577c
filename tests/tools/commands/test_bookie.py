"""
`quire bookie` and `quire cookie` as processes: the daemon's life with SIGTERM and SIGKILL, its exit statuses, and the
commands beside it.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.commands.bookie import as_cells
from tests.bookie.fakes.wires import KEY, adds, read
from tests.tools.bookie_process import BY_COMMAND, WAIT_S, Cluster
from tests.tools.command import COMMAND, environment

# SPDX-License-Identifier: Apache-2.0

RESIDENT_MAX = 80e6


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that leave no process and no data behind."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.end()


def test_the_life_of_a_bookie(cluster: Cluster) -> None:
    """
    Started, written to, listed, killed, started again with everything it had acknowledged, stopped cleanly; small all
    the time.
    """
    bookie = cluster.start(module=BY_COMMAND)
    assert bookie.ready()[1] == "one"
    ok, fenced = bookie.ask(adds(b"a"), read(-1, ledger=8, fence=True, master_key=KEY))
    assert (ok[4:8], fenced[4:8]) == (bytes(4), b"\0\0\0\2")
    numbers = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", bookie.get().decode(), re.M)}
    assert numbers["quire_journal_syncs_total"] >= 1
    assert numbers["process_resident_memory_bytes"] < RESIDENT_MAX
    rows = [json.loads(line) for line in cluster.quire("bookie", "list", "--json").splitlines()]
    address = f"127.0.0.1:{bookie.port}"
    assert rows == [
        {"bookie": "one", "state": "writable", "address": address, "metrics": bookie.metrics, "draining": False}
    ]

    assert bookie.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = cluster.start()
    again.ready()
    (found,) = again.ask(read(0))  # alone: it may have to be read from the disk, and other answers may overtake it
    refused, late = again.ask(adds(b"x", ledger=8), adds(b"b", first=1))
    assert found[4:8] == bytes(4)
    assert found.endswith(b"a")
    assert refused[4:8] == (104).to_bytes(4, "big")
    assert late[4:8] == bytes(4)

    status, log = again.end()
    assert status == 0, log
    assert "one has stopped" in log
    third = cluster.start("--stop-with-stdin", module=BY_COMMAND)
    third.ready()
    assert third.ask(read(1))[0].endswith(b"b")
    assert third.process.stdin is not None
    third.process.stdin.close()
    assert third.process.wait(WAIT_S) == 0


def test_detached_with_a_pid_file(cluster: Cluster) -> None:
    """
    `--daemon` returns when the bookie serves; one that can't says why; a second one is refused; `stop` waits for the
    end and the file goes with the process.
    """
    pidfile, log = cluster.path / "pid", cluster.path / "log"
    arguments = (
        "bookie",
        "start",
        "--conf",
        str(cluster.conf),
        "--daemon",
        "--pidfile",
        str(pidfile),
        "--log",
        str(log),
    )
    assert cluster.quire(*arguments).startswith("ready one 127.0.0.1:")
    try:
        assert "which is a running bookie" in cluster.quire(*arguments, status=1)
        for more, code, reason in (
            ((str(cluster.path / "none" / "pid"),), 1, "none/pid: No such file or directory"),
            ((str(cluster.path / "other"),), 1, "another bookie runs on this directory"),
            ((str(cluster.path / "other"), "--metadata", "what://ever"), 2, "metadata URI 'what://ever'"),
        ):
            line = cluster.quire(*arguments, "--pidfile", *more, status=code).splitlines()[-1]
            assert "bookie did not start: " in line
            assert reason in line
        second = cluster.start("--pidfile", str(cluster.path / "other"), module=BY_COMMAND)
        assert "another bookie runs on this directory" in second.failed()
        assert json.loads(cluster.quire("bookie", "readonly", "one", "on", "--json"))["read_only"] is True
        assert "read-only" in cluster.quire("bookie", "list")
        info = json.loads(cluster.quire("bookie", "info", "one", "--json"))
        assert info["total_bytes"] > 0
        assert info["read_only_reasons"] == ["an operator said so"]
        assert cluster.quire("bookie", "info", "one").rstrip().endswith("an operator said so")
        assert "it runs, here or elsewhere; stop it first" in cluster.quire(
            "bookie", "format", "--conf", str(cluster.conf), "--yes", status=1
        )
        assert "one is up" in cluster.quire("cookie", "delete", "--yes", "one", status=1)
    finally:
        cluster.quire("bookie", "stop", "--pidfile", str(pidfile))
    assert not pidfile.exists()
    assert "one serves at 127.0.0.1:" in log.read_text()
    assert "one has stopped" in log.read_text()
    assert "no bookie runs under it" in cluster.quire("bookie", "stop", "--pidfile", str(pidfile), status=1)
    pidfile.write_text(f"{os.getpid()}\n")
    assert "no running bookie" in cluster.quire("bookie", "stop", "--pidfile", str(pidfile), status=1), (
        "we are no bookie, so we are not signalled"
    )


def test_a_start_and_a_stop_without_standard_output(cluster: Cluster) -> None:
    """Are done all the same, and their status says so."""
    quire, pidfile = shlex.join([*COMMAND, "bookie"]), cluster.path / "pid"
    start = f"{quire} start --conf {cluster.conf} --daemon --pidfile {pidfile} <&- >&-"
    stop = f"{quire} stop --pidfile {pidfile} >&-"
    ends = [
        subprocess.run(["sh", "-c", each], check=False, capture_output=True, timeout=WAIT_S) for each in (start, stop)
    ]
    assert [(end.returncode, end.stderr) for end in ends] == [(0, b"")] * 2
    assert not pidfile.exists()


def test_emptied_files_are_named_with_the_next_step(cluster: Cluster) -> None:
    """
    The token that was made for its HTTP port, what a directory is, a cookie, a mark: a check says what a start says,
    and the step that is named helps.
    """
    cluster.start().ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    conf, ledgers = ("--conf", str(cluster.conf)), cluster.path / "ledgers/current"
    for path, said in (
        (cluster.path / "journal/admin.token", "has no token in it: `openssl rand"),
        (ledgers / "quire.place", f"If no disks were exchanged, `rm {ledgers}/quire.place`"),
        (ledgers / "VERSION", f"`cp {cluster.path}/journal/current/VERSION {ledgers}/VERSION`"),
        (ledgers / "quire.mark", "quire bookie rebuild-index --conf FILE"),
    ):
        whole = path.read_bytes()
        path.write_bytes(b"")
        status = 2 if path.name == "admin.token" else 1  # it belongs to the configuration
        checked = cluster.quire("bookie", "check", *conf, status=status)
        for text in (cluster.start().failed(), *([checked] if path.name != "quire.mark" else [])):
            assert str(path) in text, text
            assert said in text, text
            assert "exchanged: " not in text
        path.write_bytes(whole)
    (ledgers / "quire.place").write_bytes(b"")
    (ledgers / "quire.place").unlink()
    (ledgers / "VERSION").write_bytes(cluster.quire("cookie", "show", "one").encode())
    (ledgers / "quire.mark").unlink()
    cluster.quire("bookie", "rebuild-index", *conf)
    cluster.quire("bookie", "check", *conf)
    cluster.start().ready()


def test_cookies_and_format(cluster: Cluster) -> None:
    """
    The cookie is shown, lost, made again; format ends the bookie, and its id is let in again with --restore only.
    """
    assert json.loads(cluster.quire("bookie", "check", "--conf", str(cluster.conf), "--json"))["new"] is True
    assert not (cluster.path / "ledgers").exists(), "a check changes nothing"
    cluster.start().ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    shown = json.loads(cluster.quire("cookie", "show", "one", "--json"))
    assert shown["ledger_directories"] == [f"{cluster.path}/ledgers"]
    assert cluster.quire("cookie", "show", "one").startswith('5\nbookieHost: "one"\n')
    cluster.quire("cookie", "delete", "--yes", "one")
    assert "CookieNotFound" in cluster.quire("cookie", "show", "one", status=1)
    assert "quire cookie create one" in cluster.start().failed()
    assert "quire cookie create one" in cluster.quire("bookie", "check", "--conf", str(cluster.conf), status=1)
    cluster.quire("cookie", "create", "one", "--conf", str(cluster.conf))
    assert "CookieExists" in cluster.quire("cookie", "create", "one", "--conf", str(cluster.conf), status=1)
    assert json.loads(cluster.quire("cookie", "show", "one", "--json"))["incarnation"] == shown["incarnation"]
    assert cluster.start().ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    assert "give --yes" in cluster.quire("bookie", "format", "--conf", str(cluster.conf), status=1)
    assert (
        json.loads(cluster.quire("bookie", "format", "--conf", str(cluster.conf), "--yes", "--json"))["cookie_removed"]
        is True
    )
    assert not (cluster.path / "ledgers" / "current").exists()
    assert cluster.quire("bookie", "list") == ""
    assert "one was formatted at" in cluster.start().failed()
    assert "one was formatted at" in cluster.quire("bookie", "check", "--conf", str(cluster.conf), status=1)
    assert cluster.start("--restore", module=BY_COMMAND).ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    again = json.loads(cluster.quire("cookie", "show", "one", "--json"))["incarnation"]
    assert again not in (None, shown["incarnation"])


def test_a_check_tries_the_ports(cluster: Cluster) -> None:
    """One that another process has would stop the start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key in ("bookiePort", "prometheusStatsHttpPort"):
            said = cluster.quire("bookie", "check", "--conf", str(cluster.conf), status=1, **{f"BK_{key}": str(port)})
            assert f"127.0.0.1:{port} can't be listened on: Address already in use; {key} sets the port" in said
    assert json.loads(cluster.quire("bookie", "check", "--conf", str(cluster.conf), "--json"))["new"] is True
    bookie = cluster.start()
    own = {"BK_bookiePort": bookie.ready()[3], "BK_prometheusStatsHttpPort": bookie.metrics.split(":")[2].split("/")[0]}
    found = json.loads(cluster.quire("bookie", "check", "--conf", str(cluster.conf), "--json", **own))
    assert (found["new"], found["running"]) == (False, True), "those that it listens on itself are no hindrance"


def test_commands_with_a_configuration_have_its_session_timeout(shared: Cluster) -> None:
    """zkTimeout is how long an unreachable store is tried, also by what looks after a stopped bookie."""
    program = """
        from quire.metadata import uri
        from quire.tools.main import main

        opened = uri.open_store

        def open_store(reactor, place, *, session_timeout_ms, **more):
            print("session timeout", session_timeout_ms)
            return opened(reactor, place, session_timeout_ms=session_timeout_ms, **more)

        uri.open_store = open_store
        main()
        """
    for command in (("bookie", "check"), ("cookie", "create", "one"), ("bookie", "format", "--yes")):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *command, "--conf", str(shared.conf)],
            env={**environment(shared.uri), "BK_zkTimeout": "7000"},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.stdout.splitlines()[:1] == ["session timeout 7000"], done.stderr


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of each command shows an example of it."""
    from quire.tools.main import status

    def text(*arguments: str) -> str:
        assert status([*arguments, "--help"]) == 0
        return capsys.readouterr().out

    for command in ("start", "stop", "list", "info", "check", "format", "readonly", "gc"):
        assert f"quire bookie {command}" in text("bookie", command)
    for command in ("show", "create", "delete"):
        assert f"quire cookie {command}" in text("cookie", command)


def test_commands_on_a_bookie_that_is_not_there(shared: Cluster) -> None:
    """The error names the command that lists bookies, and a wrong word is a usage error."""
    assert "`quire bookie list`" in shared.quire("bookie", "info", "unknown:1", status=1)
    assert "`quire bookie list`" in shared.quire("bookie", "readonly", "unknown:1", "on", status=1)
    assert "neither on nor off" in shared.quire("bookie", "readonly", "unknown:1", "maybe", status=2)


def test_a_bookie_that_says_less_of_its_garbage_is_shown_all_the_same() -> None:
    """As Apache's, which says only whether a round was asked for."""
    row = {"total_bytes": 100, "free_bytes": 50, "limbo": None, "lost": None, "store": None, "read_only_reasons": None}
    cells = as_cells(row | {"gc": {"is_in_force_gc": "false"}})
    assert (cells["used"], cells["logs"], cells["living"]) == ("50%", "?", "?")
    assert cells == as_cells(row | {"gc": None})
