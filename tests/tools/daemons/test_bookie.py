"""A bookie's daemon: its process, its log, its limits, and the starts that it refuses."""

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bookie.fakes.wires import adds, read
from tests.reactor import between_looks
from tests.tools.bookie_process import WAIT_S, Cluster

# SPDX-License-Identifier: Apache-2.0

SHIPPED = Path(__file__).parents[2] / "conf" / "shipped"


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
    Idle ones go, checkpoints and new segments go on, nothing is given up, and it stays writable; the log says how the
    limit is divided.
    """
    cluster.write_conf("flushInterval=20\n")
    bookie = cluster.start_with_files(200)
    bookie.ready()

    def checkpoints() -> int:
        found = re.search(rb"quire_checkpoints_total (\d+)", bookie.get())
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
        assert json.loads(bookie.get("/api/v1/bookie/state/readonly")) == {"readOnly": False, "reasons": []}
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


@pytest.mark.parametrize(("name", "honoured"), [("bk_server.conf", 18), ("bookkeeper.conf", 52)])
def test_files_of_apache_and_pulsar_start_a_bookie(cluster: Cluster, name: str, honoured: int) -> None:
    """As they are shipped, but for the places of this machine: it serves, and one line says what is not honoured."""
    cluster.conf.write_text((SHIPPED / name).read_text())
    own = {
        "BK_metadataServiceUri": cluster.uri,
        "BK_bookiePort": "0",
        "BK_bookieId": "one",
        "BK_advertisedAddress": "127.0.0.1",
        "BK_listeningInterface": "127.0.0.1",
        "BK_journalDirectories": f"{cluster.path}/journal",
        "BK_ledgerDirectories": f"{cluster.path}/ledgers",
        "BK_diskUsageThreshold": "0.999",
        "BK_diskUsageWarnThreshold": "0.999",
        "BK_prometheusStatsHttpPort": "0",
        "BK_BOOKIE_MEM_OPTS": "-Xms1g",
        "BK_CLUSTER_NAME": "c",
    }
    bookie = cluster.start(**own)
    bookie.ready()
    (ok,) = bookie.ask(adds(b"body"))
    assert ok[4:8] == bytes(4)
    (found,) = bookie.ask(read(0))
    assert found.endswith(b"body")
    assert b"quire_" in bookie.get()
    status, log = bookie.end()
    assert status == 0, log
    (line,) = (line for line in log.splitlines() if "keys of the configuration: " in line)
    assert "BK_BOOKIE_MEM_OPTS, BK_CLUSTER_NAME (a variable of Apache's scripts" in line
    assert int(line.partition("configuration: ")[2].partition(" ")[0]) >= honoured


def test_the_http_port_of_apaches_keys(cluster: Cluster) -> None:
    """`httpServerEnabled` moves it to httpServerHost and httpServerPort; a port that is taken is named by that key."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        keys = f"httpServerEnabled=true\nhttpServerHost=127.0.0.1\nhttpServerPort={taken.getsockname()[1]}\n"
        cluster.write_conf(keys + "prometheusStatsHttpPort=1\n")
        assert "httpServerPort sets the port" in cluster.start().failed()
    cluster.write_conf("httpServerEnabled=true\nhttpServerPort=0\nprometheusStatsHttpPort=1\n")
    bookie = cluster.start()
    assert bookie.ready()[4].startswith("http://0.0.0.0:")
    bookie.metrics = bookie.metrics.replace("0.0.0.0", "127.0.0.1")
    assert b"quire_" in bookie.get()
    assert bookie.end()[0] == 0


def test_it_has_a_metric_of_its_sanity_when_it_is_asked(cluster: Cluster) -> None:
    """With the key; the first try is made after a minute."""
    cluster.write_conf("sanityCheckMetricsEnabled=true\n")
    bookie = cluster.start()
    bookie.ready()
    assert b"\nbookie_SERVER_SANITY -1.0\n" in bookie.get()
    assert bookie.end()[0] == 0


def test_its_index_is_compacted_when_it_is_asked(cluster: Cluster) -> None:
    """The stores of the index are named; one is compacted while the bookie serves, and the log says when it is done."""
    bookie = cluster.start()
    bookie.ready()
    path, store = "/api/v1/bookie/entry_location_compact", f"{cluster.path}/ledgers/current/runs"
    assert json.loads(bookie.get(path)) == {store: False}
    found = bookie.get(path, json.dumps({"entryLocationRocksDBCompact": True, "entryLocations": store}).encode())
    assert json.loads(found) == f"Triggered entry Location RocksDB: {store} compact on bookie:one."
    with pytest.raises(urllib.error.HTTPError) as refused:
        bookie.get(path, b'{"entryLocationRocksDBCompact": true, "entryLocations": "/nowhere"}')
    assert json.loads(refused.value.read()) == {"error": "no index is at /nowhere", "next": f"name some of {store}"}
    while json.loads(bookie.get(path)) != {store: False}:
        between_looks()
    status, log = bookie.end()
    assert (status, log.count(f"the index of {cluster.path}/ledgers/current is compacted")) == (0, 1)


def test_only_permitted_users_start_it(cluster: Cluster) -> None:
    """Another one is told which; the status is that of a bad configuration."""
    cluster.write_conf("permittedStartupUsers=somebody,else\n")
    status, log = cluster.start().ended()
    assert status == 2
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert f"permittedStartupUsers=somebody,else does not name {name}" in log
    cluster.write_conf(f"permittedStartupUsers=somebody,{name}\n")
    bookie = cluster.start()
    bookie.ready()
    assert bookie.end()[0] == 0


def test_autorecovery_inside_a_bookie(cluster: Cluster) -> None:
    """
    With the key it takes part under the bookie's id, shows its numbers and answers its paths; without it the bookie
    answers them from the metadata store.  Where AutoRecovery can't begin the log says why, and the bookie serves.
    """
    cluster.write_conf("autoRecoveryDaemonEnabled=true\nrepairLedgersAtOnce=2\naddEntryTimeoutSec=7\n")
    bookie = cluster.start()
    bookie.ready()
    while "here" not in json.loads(bookie.get("/api/v1/autorecovery/status")):
        between_looks()
    while json.loads(bookie.get("/api/v1/autorecovery/status"))["here"]["auditor"] is not True:
        between_looks()
    assert bookie.get("/api/v1/autorecovery/who_is_auditor") == b"Auditor: one"
    assert b"\nquire_autorecovery_auditor 1.0\n" in bookie.get("/metrics")
    status, log = bookie.end()
    assert status == 0, log
    assert "keys of the configuration" not in log
    cluster.write_conf("repairLedgersAtOnce=2\n")
    bookie = cluster.start()
    bookie.ready()
    assert json.loads(bookie.get("/api/v1/autorecovery/status")) == {"enabled": True}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        bookie.get("/api/v1/autorecovery/who_is_auditor")
    status, log = bookie.end()
    assert status == 0, log
    cluster.write_conf("autoRecoveryDaemonEnabled=true\nensemblePlacementPolicy=com.acme.Own\n")
    bookie = cluster.start()
    bookie.ready()
    assert bookie.process.stderr is not None
    while b"AutoRecovery's start failed" not in (line := bookie.process.stderr.readline()):
        assert line, "it ended"
    assert b"com.acme.Own" in line
    assert bookie.end()[0] == 0


def test_a_file_that_autorecovery_reads_too_is_checked_whole(shared: Cluster) -> None:
    """A bad value of AutoRecovery ends the start, and the check that comes before it; with a good one none warns."""
    wrong = "repairLedgersAtOnce=0 is not allowed: 1 to 1000"
    shared.write_conf("autoRecoveryDaemonEnabled=true\nrepairLedgersAtOnce=0\n")
    status, log = shared.start().ended()
    assert (status, wrong in log) == (2, True), log
    assert wrong in shared.quire("bookie", "check", "--conf", str(shared.conf), status=2)
    shared.write_conf("autoRecoveryDaemonEnabled=true\nrepairLedgersAtOnce=2\naddEntryTimeoutSec=7\n")
    assert json.loads(shared.quire("bookie", "check", "--conf", str(shared.conf), "--json"))["bookie"] == "one"
    shared.write_conf()


def test_a_provider_that_its_own_client_has_not_stops_the_start(shared: Cluster) -> None:
    """Also of a bookie that has nobody to ask yet: the line would protect nothing."""
    shared.write_conf("clientAuthProviderFactoryClass=com.example.Mine\n")
    status, log = shared.start().ended()
    assert (status, "clientAuthProviderFactoryClass" in log) == (2, True), log
    shared.write_conf()


def test_too_few_descriptors(cluster: Cluster) -> None:
    """The start says how many a bookie needs, and where that is set."""
    bookie = cluster.start_with_files(120)
    assert re.search(
        r"may have 120 files open, and a bookie with these directories needs \d+.* LimitNOFILE=", bookie.failed()
    )
    assert bookie.process.returncode == 1


def test_its_process_has_a_clock_that_is_never_set_and_one_heap(shared: Cluster) -> None:
    """Both before anything waits and any thread runs."""
    program = """
        import sys
        from quire.metadata import clock
        from quire.tools.daemons import bookie as bookie_daemon, process
        clock.steady = lambda reactor: print("steady", reactor.running)
        process.share_memory = lambda: print("one heap")
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
        ("bookieAuthProviderFactoryClass=a.B\n", "bookieAuthProviderFactoryClass=a.B is not allowed: it is not served"),
        ("bookieAuthProviderFactoryClass=sasl\nsaslJaasFile=none.jaas\n", "none.jaas: No such file"),
    ):
        shared.write_conf(more)
        bookie = shared.start()
        status, log = bookie.ended()
        assert (status, said in log) == (2, True), log
    shared.write_conf()
    status, log = shared.start("--metadata", "what://ever").ended()
    assert (status, "metadata URI 'what://ever'" in log) == (2, True), log


def test_starts_that_fail_say_why(shared: Cluster) -> None:
    """Status 1, and the reason is the last line: no cluster there; a port that is taken."""
    status, log = shared.start("--metadata", f"sqlite://{shared.path}/other.db").ended()
    assert (status, "other.db holds no cluster" in log.strip().splitlines()[-1]) == (1, True), log
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        shared.conf.write_text(shared.conf.read_text().replace("bookiePort=0\n", ""))
        status, log = shared.start(BK_bookiePort=port).ended()
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
