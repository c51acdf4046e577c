"""
`quire bookie` and `quire cookie` as processes: the daemon's life with SIGTERM and SIGKILL, its exit statuses, and the
commands beside it.
"""

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookie.fakes.wires import KEY, adds, read
from tests.tools.command import environment, warm

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 60
RESIDENT_MAX = 80e6


class Cluster:
    """A directory with a SQLite store and the configuration of one bookie; every process started here is ended here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uri = f"sqlite://{path}/metadata.db"
        self.conf = path / "bookie.conf"
        self.started: list[subprocess.Popen[bytes]] = []
        self.write_conf()
        self.quire("metadata", "init", "--metadata", self.uri)

    def write_conf(self, more: str = "") -> None:
        self.conf.write_text(
            f"metadataServiceUri={self.uri}\nbookiePort=0\nbookieId=one\nadvertisedAddress=127.0.0.1\n"
            "listeningInterface=127.0.0.1\n"
            f"journalDirectories={self.path}/journal\nledgerDirectories={self.path}/ledgers\njournalSegmentSizeMB=1\n"
            "dbStorage_writeCacheMaxSizeMb=4\n"
            f"diskUsageThreshold=0.999\ndiskUsageWarnThreshold=0.999\n{more}"
        )

    def quire(self, *arguments: str, status: int = 0, **environment: str) -> str:
        """Runs a command to its end; standard output, or standard error when it is to fail."""
        done = warm().run(list(arguments), b"", {**os.environ, "QUIRE_METADATA": self.uri, **environment})
        assert done.code == status, (arguments, done)
        return done.err if status else done.out

    def start(
        self, *more: str, module: tuple[str, ...] = ("quire.tools", "bookie", "start"), **environment: str
    ) -> "Process":
        command = [sys.executable, "-m", *module, "--conf", str(self.conf), *more]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.started.append(process)
        return Process(process)

    def start_with_files(self, limit: int) -> "Process":
        """One that may have so many files open; its limit is lower still before it raises it."""
        program = f"""
            import resource, runpy, sys
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, {limit}))
            sys.argv = ["bookie", "--conf", {str(self.conf)!r}]
            runpy.run_module("quire.tools.daemons.bookie", run_name="__main__")
        """
        command = [sys.executable, "-c", textwrap.dedent(program)]
        self.started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return Process(self.started[-1])

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


class Process:
    """A bookie's process and what it said."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid

    def ready(self) -> re.Match[str]:
        """Its ready line: id, host, port and metrics' URL."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(WAIT_S), "no ready line"
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"ready (\S+) (\S+):(\d+) (http://\S+/metrics)\n", line)
        assert found, (line, self.failed() if not line else "")
        self.port = int(found[3])
        self.metrics = found[4]
        return found

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Sends a signal; (exit status, what it had logged)."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, log = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, log.decode()

    def failed(self) -> str:
        """Its log when it ends by itself."""
        return self.ended()[1]

    def ask(self, *frames: bytes) -> list[bytes]:
        """Sends V2 frames over a new connection; one answer for each."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S) as peer, peer.makefile("rb") as stream:
            peer.sendall(b"".join(frames))
            return [stream.read(int.from_bytes(stream.read(4), "big")) for _ in frames]


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


def test_more_connections_than_descriptors(cluster: Cluster) -> None:
    """
    Idle ones go, checkpoints and new segments go on, no directory counts as failed, and it stays writable; the log says
    how the limit is divided.
    """
    cluster.write_conf("flushInterval=20\n")
    bookie = cluster.start_with_files(200)
    bookie.ready()

    def checkpoints() -> int:
        with urllib.request.urlopen(bookie.metrics, timeout=WAIT_S) as answer:
            found = re.search(rb"quire_checkpoints_total (\d+)", answer.read())
        assert found
        return int(found[1])

    idle: list[socket.socket] = []
    try:
        for entry in range(5):
            idle += [socket.create_connection(("127.0.0.1", bookie.port), WAIT_S) for _ in range(60)]
            before = checkpoints()  # the add's own may be over at its answer, and then none follows
            (ok,) = bookie.ask(adds(bytes(500_000), first=entry))
            assert ok[4:8] == bytes(4)
            while checkpoints() == before:
                bookie.ask(read(entry))
        with urllib.request.urlopen(
            bookie.metrics.replace("/metrics", "/api/v1/bookie/state/readonly"), timeout=WAIT_S
        ) as answer:
            assert json.loads(answer.read()) == {"readOnly": False, "reasons": []}
    finally:
        for each in idle:
            each.close()
    status, log = bookie.end()
    assert status == 0, log
    assert (
        "200 files may be open: 20 in each index and table, 8 entry logs in each ledger directory, 48 connections"
        in log
    )
    assert "connectionsMax" in log
    assert not list(cluster.path.rglob("quire.lost"))


def test_too_few_descriptors(cluster: Cluster) -> None:
    """The start says how many a bookie needs, and where that is set."""
    bookie = cluster.start_with_files(120)
    assert re.search(
        r"may have 120 files open, and a bookie with these directories needs \d+.* LimitNOFILE=", bookie.failed()
    )
    assert bookie.process.returncode == 1


def test_the_life_of_a_bookie(cluster: Cluster) -> None:
    """
    Started, written to, listed, killed, started again with everything it had acknowledged, stopped cleanly; small all
    the time.
    """
    bookie = cluster.start()
    assert bookie.ready()[1] == "one"
    ok, fenced = bookie.ask(adds(b"a"), read(-1, ledger=8, fence=True, master_key=KEY))
    assert (ok[4:8], fenced[4:8]) == (bytes(4), b"\0\0\0\2")
    with urllib.request.urlopen(bookie.metrics, timeout=WAIT_S) as answer:
        numbers = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", answer.read().decode(), re.M)}
    assert numbers["quire_journal_syncs_total"] >= 1
    assert numbers["process_resident_memory_bytes"] < RESIDENT_MAX
    rows = [json.loads(line) for line in cluster.quire("bookie", "list", "--json").splitlines()]
    assert rows == [
        {"bookie": "one", "state": "writable", "address": f"127.0.0.1:{bookie.port}", "metrics": bookie.metrics}
    ]

    assert bookie.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = cluster.start()
    again.ready()
    (found,) = again.ask(read(0))  # by itself: it may have to be read from the disk, and other answers may overtake it
    refused, late = again.ask(adds(b"x", ledger=8), adds(b"b", first=1))
    assert found[4:8] == bytes(4)
    assert found.endswith(b"a")
    assert refused[4:8] == (104).to_bytes(4, "big")
    assert late[4:8] == bytes(4)

    status, log = again.end()
    assert status == 0, log
    assert "one has stopped" in log
    third = cluster.start("--stop-with-stdin")
    third.ready()
    assert third.ask(read(1))[0].endswith(b"b")
    assert third.process.stdin is not None
    third.process.stdin.close()
    assert third.process.wait(WAIT_S) == 0


def test_detached_with_a_pid_file(cluster: Cluster) -> None:
    """
    `--daemon` returns when the bookie serves; a second one is refused; `stop` waits for the end and the file goes with
    the process.
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
        second = cluster.start("--pidfile", str(cluster.path / "other"))
        assert "another bookie runs on this directory" in second.failed()
        assert json.loads(cluster.quire("bookie", "readonly", "one", "on", "--json"))["read_only"] is True
        assert "read-only" in cluster.quire("bookie", "list")
        assert json.loads(cluster.quire("bookie", "info", "one", "--json"))["total_bytes"] > 0
        assert "it runs, here or elsewhere; stop it first" in cluster.quire(
            "bookie", "format", "--conf", str(cluster.conf), "--yes", status=1
        )
        assert "one is up" in cluster.quire("cookie", "delete", "one", status=1)
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


def test_its_log_is_put_aside_when_it_is_full(tmp_path: Path) -> None:
    """Old files are few; what the interpreter itself writes goes to the new one.  A device is written to as it is."""
    program = """
        import os, sys
        from twisted.logger import Logger
        from quire.tools.daemons import bookie as bookie_daemon
        path = sys.argv[1]
        bookie_daemon.begin_logging(bookie_daemon.log_file(path, 1000, 2))
        log = Logger(namespace="test")
        for number in range(100):
            log.info("line {number} of some words", number=number)
        os.write(2, b"by hand\\n")
        log.info("the last one")
        print(bookie_daemon.log_file("/dev/null") is sys.stderr)
        """
    log = tmp_path / "bookie.log"
    log.write_text("from before\n")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(log)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bookie.log", "bookie.log.1", "bookie.log.2"]
    assert all(path.stat().st_size < 1100 for path in tmp_path.iterdir())
    assert log.read_text().splitlines()[-2] == "by hand"
    assert log.read_text().endswith("the last one\n")
    assert "line 98 of" in log.read_text() + (tmp_path / "bookie.log.1").read_text()


def test_cookies_and_format(cluster: Cluster) -> None:
    """The cookie is shown, lost, made again; format makes the bookie a new one."""
    assert json.loads(cluster.quire("bookie", "check", "--conf", str(cluster.conf), "--json"))["new"] is True
    assert not (cluster.path / "ledgers").exists(), "a check changes nothing"
    cluster.start().ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    shown = json.loads(cluster.quire("cookie", "show", "one", "--json"))
    assert shown["ledger_directories"] == [f"{cluster.path}/ledgers"]
    assert cluster.quire("cookie", "show", "one").startswith('5\nbookieHost: "one"\n')
    cluster.quire("cookie", "delete", "one")
    assert "CookieNotFound" in cluster.quire("cookie", "show", "one", status=1)
    assert "quire cookie create one" in cluster.start().failed()
    assert "quire cookie create one" in cluster.quire("bookie", "check", "--conf", str(cluster.conf), status=1)
    cluster.quire("cookie", "create", "one", "--conf", str(cluster.conf))
    assert "CookieExists" in cluster.quire("cookie", "create", "one", "--conf", str(cluster.conf), status=1)
    assert cluster.start().ready()
    cluster.started[-1].terminate()
    assert cluster.started[-1].wait(WAIT_S) == 0
    assert "add --yes" in cluster.quire("bookie", "format", "--conf", str(cluster.conf), status=2)
    assert (
        json.loads(cluster.quire("bookie", "format", "--conf", str(cluster.conf), "--yes", "--json"))["cookie_removed"]
        is True
    )
    assert not (cluster.path / "ledgers" / "current").exists()
    assert cluster.quire("bookie", "list") == ""


def test_a_check_tries_the_ports(cluster: Cluster) -> None:
    """One that somebody else has would stop the start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key in ("bookiePort", "prometheusStatsHttpPort"):
            said = cluster.quire("bookie", "check", "--conf", str(cluster.conf), status=1, **{f"BK_{key}": str(port)})
            assert f"127.0.0.1:{port} can't be listened on: Address already in use" in said
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

        def open_store(reactor, place, *, session_timeout_ms):
            print("session timeout", session_timeout_ms)
            return opened(reactor, place, session_timeout_ms=session_timeout_ms)

        uri.open_store = open_store
        main()
        """
    for command in (("bookie", "check"), ("cookie", "create", "two"), ("bookie", "format", "--yes")):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *command, "--conf", str(shared.conf)],
            env={**environment(shared.uri), "BK_zkTimeout": "7000"},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.stdout.splitlines()[:1] == ["session timeout 7000"], done.stderr


def test_its_process_has_a_clock_that_is_never_set_and_one_heap(shared: Cluster) -> None:
    """Both before anything waits and any thread runs."""
    program = """
        import sys
        from quire.metadata import clock
        from quire.tools.daemons import bookie as bookie_daemon
        clock.steady = lambda reactor: print("steady", reactor.running)
        bookie_daemon.share_memory = lambda: print("one heap")
        bookie_daemon.main(sys.argv[1:])
        """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(program),
        "--conf",
        str(shared.conf),
        "--metadata",
        f"sqlite://{shared.path}/other.db",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "steady False\none heap\n")


def test_configurations_that_are_refused(shared: Cluster) -> None:
    """Status 2, and the line says where and what."""
    for more, said in (
        ("bookiePrt=1\n", "unknown key 'bookiePrt'; the nearest one is bookiePort"),
        ("flushInterval=0\n", "flushInterval=0 is not allowed: at least 10 ms"),
    ):
        shared.write_conf(more)
        bookie = shared.start(module=("quire.tools.daemons.bookie",))
        status, log = bookie.ended()
        assert (status, said in log) == (2, True), log
    shared.write_conf()
    status, log = shared.start("--metadata", "what://ever", module=("quire.tools.daemons.bookie",)).ended()
    assert (status, "metadata URI 'what://ever'" in log) == (2, True), log


def test_starts_that_fail_say_why(shared: Cluster) -> None:
    """Status 1, and the reason is the last line: no cluster there; a port that is taken."""
    status, log = shared.start(
        "--metadata", f"sqlite://{shared.path}/other.db", module=("quire.tools.daemons.bookie",)
    ).ended()
    assert (status, "quire metadata init" in log.strip().splitlines()[-1]) == (1, True), log
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        shared.conf.write_text(shared.conf.read_text().replace("bookiePort=0\n", ""))
        status, log = shared.start(module=("quire.tools.daemons.bookie",), BK_bookiePort=port).ended()
        shared.write_conf()
        assert (status, "Address already in use" in log.strip().splitlines()[-1]) == (1, True), log


def test_python_without_assertions_is_refused(shared: Cluster) -> None:
    """A bookie under `python -O` ends with status 2 and the reason."""
    done = subprocess.run(
        [sys.executable, "-O", "-m", "quire.tools.daemons.bookie", "--conf", str(shared.conf)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "python -O" in done.stderr


def test_the_daemon_carries_no_command_line_library() -> None:
    """typer and rich cost memory for the life of the process."""
    modules = (
        "quire.tools.daemons.bookie, quire.bookie.lifecycle.bookie, quire.bookie.storage.storage, quire.metadata.uri"
    )
    program = (
        f"import sys, {modules}; print([name for name in ('typer', 'rich', 'prometheus_client', 'kazoo') if "
        "name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S
        ).stdout
        == "[]\n"
    )


def test_threads_share_one_heap(tmp_path: Path) -> None:
    """In glibc's own words; threads with heaps of their own would keep what others could use."""
    program = """if True:
        import ctypes, sys, threading
        from quire.tools.daemons.bookie import share_memory

        share_memory()
        together = threading.Barrier(5)
        fill = lambda: (together.wait(), [bytes(10_000) for _ in range(100)], together.wait())
        threads = [threading.Thread(target=fill) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        c = ctypes.CDLL(None)
        c.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(c.fopen(sys.argv[1].encode(), b"w"))
        c.malloc_info(0, file)
        c.fclose(file)
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "heaps")], check=True, timeout=WAIT_S)
    assert (tmp_path / "heaps").read_text().count("<heap nr=") == 1


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
    assert "`quire bookie list`" in shared.quire("bookie", "info", "nobody:1", status=1)
    assert "`quire bookie list`" in shared.quire("bookie", "readonly", "nobody:1", "on", status=1)
    assert "neither on nor off" in shared.quire("bookie", "readonly", "nobody:1", "maybe", status=2)
