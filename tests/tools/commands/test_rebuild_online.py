"""
`quire bookie rebuild-index --online` on real bookie processes: beside writers and readers, and when RocksDB's own files
are damaged.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from quire.client import connect as connect_blocking
from quire.client.api import Client, connect
from quire.protocol.errors import NoSuchEntry, NoSuchLedgerExists, Read
from quire.tools.commands import directories
from quire.tools.local_cluster.cluster import LocalBookie, LocalCluster
from tests.reactor import reactor, run
from tests.tools.command import COMMAND, environment, ok, quire
from tests.tools.commands.test_bookie import Cluster
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

LEDGERS = 400
ENTRIES = 20
BESIDE = 40  # batches that are written while the index is rebuilt


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.write_conf("allowLoopback=true\nflushInterval=50\nlogSizeLimit=400000\n")
    yield made
    made.end()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 3, options={**SMALL, "flushInterval": "200"}) as made:
        yield made


def test_beside_a_writer(one: Cluster) -> None:
    """
    Every acknowledged entry is read afterwards, also after SIGKILL; a second time too; the files are in order, and a
    stopped bookie can do it as well.
    """
    bookie = one.start()
    bookie.ready()
    place = one.path / "ledgers" / "current" / "quire.index"
    written = 0
    with (
        connect_blocking(one.uri) as client,
        client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer,
    ):
        for turn in range(2):
            asked = [*COMMAND, "bookie", "rebuild-index", "--online", "one", "--json"]
            with subprocess.Popen(asked, stdout=subprocess.PIPE, env=environment(one.uri)) as rebuilding:
                for _ in range(BESIDE):
                    writer.append_many([payload(entry) for entry in range(written, written + 1000)])
                    written += 1000
                assert rebuilding.stdout is not None
                state = json.load(rebuilding.stdout)
            assert rebuilding.returncode == 0
            assert (state["problem"], [each["done"] for each in state["directories"]]) == (None, [True])
            assert place.exists() == (turn == 0)
    assert bookie.end(signal.SIGKILL)[0] == -signal.SIGKILL
    again = one.start()
    again.ready()
    with connect_blocking(one.uri) as client, client.open_ledger(writer.id) as reader:
        assert [entry.data for entry in reader] == [payload(entry) for entry in range(written)]
    assert f"{written} entries" in one.quire("bookie", "rebuild-index", "--online", "one")
    assert place.exists()
    assert again.end()[0] == 0
    assert "problems: 0" in one.quire("bookie", "check", "--conf", str(one.conf))
    assert f"{written} entries of 1 ledgers" in one.quire("bookie", "rebuild-index", "--conf", str(one.conf))
    assert not place.exists()
    assert "problems: 0" in one.quire("bookie", "check", "--conf", str(one.conf))


def payload(entry: int) -> bytes:
    return b"%d" % entry * 50


def test_wrong_command_lines(one: Cluster) -> None:
    """Missing and contradicting options are usage errors, and an unknown bookie names the next command."""
    assert "--online ID" in one.quire("bookie", "rebuild-index", status=2)
    assert "--ledgers is for a stopped bookie" in one.quire(
        "bookie", "rebuild-index", "--online", "one", "--ledgers", status=2
    )
    assert "`quire bookie list`" in one.quire("bookie", "rebuild-index", "--online", "unknown:1", status=1)


def test_a_bookie_that_was_started_again_has_not_done_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it says is that nothing runs and nothing went wrong: it knows of nothing."""
    begun = {
        "path": "/ledgers",
        "logs": 5,
        "logs_read": 1,
        "entries": 7,
        "taken_over": 0,
        "limbo": 0,
        "problems": [],
        "done": False,
    }
    answers = [
        {"running": True, "problem": None, "directories": [begun]},
        {"running": False, "problem": None, "directories": []},
    ]
    monkeypatch.setattr(directories, "REBUILD_LOOK_S", 0.0)
    with pytest.raises(typer.Exit) as ended:
        directories.rebuild_online("one", lambda command=None: answers.pop(0), wait=True, json_wanted=True)
    assert ended.value.exit_code == 1
    assert "was started again meanwhile" in capsys.readouterr().err


def test_a_stop_and_what_is_refused_while_it_runs(one: Cluster) -> None:
    """
    One at a time; a stop waits neither for its end nor for the garbage collection that waits for it, however slow it
    may go.
    """
    one.write_conf("allowLoopback=true\nflushInterval=50\ncompactionRateByEntries=1\n")
    bookie = one.start()
    bookie.ready()
    with (
        connect_blocking(one.uri) as client,
        client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer,
    ):
        writer.append_many([payload(entry) for entry in range(2000)])
    state = json.loads(one.quire("bookie", "rebuild-index", "--online", "one", "--no-wait", "--json"))
    assert (state["running"], state["problem"]) == (True, None)
    assert "already" in one.quire("bookie", "rebuild-index", "--online", "one", status=1)
    one.quire("bookie", "gc", "one", "--no-wait")
    assert bookie.end()[0] == 0
    again = one.start()
    again.ready()
    with connect_blocking(one.uri) as client, client.open_ledger(writer.id) as reader:
        assert [entry.data for entry in reader] == [payload(entry) for entry in range(2000)]


def damage_tables(bookie: LocalBookie) -> None:
    """
    A byte in each kilobyte of the tables of the index is another one, but for their ends, which RocksDB reads at a
    start.
    """
    for path in (bookie.directory / "ledgers" / "current" / "runs").glob("*.sst"):
        data = bytearray(path.read_bytes())
        for at in range(200, len(data) * 3 // 4, 1000):
            data[at] ^= 0xFF
        path.write_bytes(bytes(data))


async def codes_of(client: Client, bookie: str, ledgers: list[int], entry: int) -> list[int]:
    """What this one bookie answers for one entry of each ledger."""
    return [(await client.pool.read(bookie, ledger, entry)).code for ledger in ledgers]


def test_damaged_tables_are_mended_while_the_bookie_serves(three: LocalCluster) -> None:
    """
    Entries that gave errors are there again; a ledger whose entries the index could not list is never denied,
    and whole again after its copies were compared; then the bookie says "no" again where there is nothing.
    """
    bookie = three.bookies[0]

    async def write() -> tuple[Client, list[int]]:
        client = await connect(reactor, three.uri)
        ledgers = []
        for _ in range(LEDGERS // 50):
            writers = [await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) for _ in range(50)]
            for writer in writers:
                await writer.append_many([b"x" * 40] * ENTRIES)
                await writer.close()
                ledgers.append(writer.id)
        return client, ledgers

    client, ledgers = run(write)
    for _ in range(2):  # the second start puts what the first one found in RocksDB's log into tables
        assert three.stop_bookie(bookie.id)
        three.restart(bookie.id)
    bookie.end_now()
    damage_tables(bookie)
    three.restart(bookie.id)

    async def look() -> list[int]:
        return await codes_of(client, bookie.id, ledgers, ENTRIES - 1)

    assert Read.code in run(look), "nothing was damaged"
    done = quire("bookie", "rebuild-index", "--online", bookie.id, "--json", metadata=three.uri)
    assert done.code == 1
    (found,) = done.document["directories"]
    assert found["done"]
    assert 0 < found["limbo"] <= LEDGERS
    assert set(run(look)) == {0}

    async def until_whole() -> None:
        codes = {Read.code}
        while codes != {NoSuchEntry.code}:
            codes = set(await codes_of(client, bookie.id, ledgers, ENTRIES))
            assert codes <= {Read.code, NoSuchEntry.code}
            assert NoSuchLedgerExists.code not in codes

    run(until_whole)
    assert ok("bookie", "info", bookie.id, "--json", metadata=three.uri).document["limbo"] == 0
    run(client.close)
