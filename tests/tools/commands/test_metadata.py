"""`quire metadata`: the cluster as the metadata store knows it, in stores of its own."""

import re
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.bookie.upkeep.store_notes import bytes_of, plain
from quire.log.api import connect
from quire.metadata.ledgers.layout import Layout
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetaStore
from quire.tools.commands.metadata import accept_state
from quire.tools.local_cluster.cluster import LocalCluster, free_ports
from tests.reactor import reactor, run
from tests.tools.command import COMMAND, WAIT_S, environment, ok, refused, warm

# SPDX-License-Identifier: Apache-2.0

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def test_init_makes_a_cluster_once(empty_store: str) -> None:
    """A second one is refused and names the cluster that is there; --if-missing finds that one."""
    made = ok("metadata", "init", "--json", metadata=empty_store).document
    assert re.fullmatch(UUID, made["cluster"])
    assert made["created"] is True
    assert made["cluster"] in refused(1, "metadata", "init", metadata=empty_store)
    again = ok("metadata", "init", "--if-missing", "--json", metadata=empty_store).document
    assert again == made | {"created": False}


def test_show(empty_store: str) -> None:
    """Counts of a new cluster, as text and as one document."""
    made = ok("metadata", "init", "--json", metadata=empty_store).document
    shown = ok("metadata", "show", "--json", metadata=empty_store).document
    assert shown["cluster"] == made["cluster"]
    assert (shown["writable"], shown["read_only"], shown["known"], shown["ledgers"]) == (0, 0, 0, 0)
    assert made["cluster"] in ok("metadata", "show", metadata=empty_store).out


def test_no_cluster_yet(empty_store: str) -> None:
    """The error names the command that makes one, with the same URI."""
    line = refused(1, "metadata", "show", metadata=empty_store)
    assert f"`quire metadata init --metadata {empty_store}`" in line
    assert line.startswith("quire: NoCluster: ")


def test_destroy_asks_for_the_id(empty_store: str) -> None:
    """A wrong one changes nothing; the right one, given or typed, removes everything."""
    made = ok("metadata", "init", "--json", metadata=empty_store).document
    assert "nothing was removed" in refused(1, "metadata", "destroy", "--cluster", "not-this-one", metadata=empty_store)
    assert ok("metadata", "show", "--json", metadata=empty_store).document["cluster"] == made["cluster"]
    done = ok("metadata", "destroy", metadata=empty_store, stdin=made["cluster"].upper().encode() + b"\n")
    assert "The cluster's id" in done.err
    assert "NoCluster" in refused(1, "metadata", "show", metadata=empty_store)
    again = ok("metadata", "init", "--json", metadata=empty_store).document
    assert again["cluster"] != made["cluster"]


def test_destroy_refuses_while_there_are_logs(empty_store: str) -> None:
    """It names one; told to, it removes them with the rest."""
    made = ok("metadata", "init", "--json", metadata=empty_store).document

    async def with_log() -> None:
        logs = await connect(reactor, empty_store)
        await logs.create("orders")
        await logs.close()

    run(with_log)
    line = refused(1, "metadata", "destroy", "--cluster", made["cluster"], metadata=empty_store)
    assert "'orders' is one; nothing was removed" in line
    assert ok("metadata", "show", "--json", metadata=empty_store).document["cluster"] == made["cluster"]
    ok("metadata", "destroy", "--cluster", made["cluster"], "--with-logs", metadata=empty_store)
    ok("metadata", "init", metadata=empty_store)
    run(with_log)


def test_destroy_refuses_while_a_bookie_is_up(tmp_path: Path) -> None:
    """Its ledgers would be gone under its feet."""
    with LocalCluster(tmp_path, 1) as cluster:
        shown = ok("metadata", "show", "--json", metadata=cluster.uri).document
        assert (shown["writable"], shown["known"]) == (1, 1)
        line = refused(1, "metadata", "destroy", "--cluster", shown["cluster"], metadata=cluster.uri)
        assert "WrongCluster" in line
        cluster.stop()
        assert (
            ok("metadata", "destroy", "--cluster", shown["cluster"], "--json", metadata=cluster.uri).document[
                "destroyed"
            ]
            is True
        )


def test_a_store_that_is_down_is_named_in_bounded_time(tmp_path: Path) -> None:
    """An error with its address, not a hang and not a traceback; all commands wait at the same time."""
    commands = ("metadata show", "ledger list", "ledger read 0", "bookie list", "bench write")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    conf = tmp_path / "client.conf"
    conf.write_text("zkTimeout=1000\n")
    pipe, given = subprocess.PIPE, environment(f"zk://{address}/ledgers") | {"QUIRE_CONF": str(conf)}
    started = [
        subprocess.Popen([*COMMAND, *words.split()], stdout=pipe, stderr=pipe, env=given, text=True)
        for words in commands
    ]
    try:
        for words, process in zip(commands, started, strict=True):
            output, errors = process.communicate(timeout=WAIT_S)
            assert (process.returncode, output) == (1, ""), words
            assert "Traceback" not in errors, words
            assert address in errors.splitlines()[-1], words
            assert "MetaStore" in errors.splitlines()[-1], words
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    """The error has its path."""
    path = tmp_path / "metadata.db"
    path.write_bytes(b"this is text, not a database, and long enough to be looked at " * 100)
    line = refused(1, "ledger", "list", metadata=f"sqlite://{path}")
    assert str(path) in line


def test_a_foreign_database(tmp_path: Path) -> None:
    """A SQLite file of another program holds no cluster, and is left as it was."""
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as other:
        other.execute("create table photos (name text)")
    other.close()
    line = refused(1, "metadata", "show", metadata=f"sqlite://{path}")
    assert str(path) in line


class Reported(MemoryStore):
    """Each acceptance meets a note that a bookie wrote just before, as long as there are some."""

    def __init__(self, notes: list[dict[str, object]]) -> None:
        super().__init__(reactor, MemoryCluster("accepting"))
        self.notes = notes

    async def report(self) -> None:
        """Writes the next note in the place of what is there."""
        assert await super().swap_set_back(await self.read_set_back(), bytes_of(self.notes.pop(0)))

    def swap_set_back(self, old: bytes, new: bytes) -> Deferred[bool]:
        return Deferred.fromCoroutine(self._swap(old, new))

    async def _swap(self, old: bytes, new: bytes) -> bool:
        if self.notes:
            await self.report()
        return await super().swap_set_back(old, new)


def note(ledgers: int, unknown: int) -> dict[str, object]:
    bookies = {"b1": {"changes": 1, "ledgers": ledgers, "unknown": unknown}}
    return {"number": 1, "accepted": False, "ledgers": ledgers, "bookies": bookies}


def test_an_acceptance_goes_on_while_bookies_report_what_changes_nothing() -> None:
    """A newer ledger that the store knows; not one more that it does not know, which no operator has seen."""

    async def story(notes: list[dict[str, object]]) -> bytes:
        store = Reported(notes)
        cluster = await store.init_cluster()
        await store.report()
        await accept_state(store, cluster, unheard=False)
        return await store.read_set_back()

    assert run(lambda: story([note(7, 2), note(8, 2), note(9, 2)])) == bytes_of({**note(9, 2), "accepted": True})
    with pytest.raises(MetaStore, match=r"reported something new to .* nothing was accepted"):
        run(lambda: story([note(7, 2), note(8, 3)]))


def test_an_acceptance_raises_each_of_many_counters() -> None:
    """In Apache's layout of etcd, whose counters go up by puts alone; what is shown is the highest id."""

    async def story() -> None:
        store = MemoryStore(reactor, MemoryCluster("counters"), layout=Layout.APACHE_ETCD)
        cluster = await store.init_cluster()
        ids = [await store.new_ledger_id() for _ in range(3)]
        seen = (await store.progress()).position.behind([ids[0] + 7, ids[2] + 1])
        bookies = {"b1": {"changes": 1, "ledgers": plain(seen), "unknown": 2}}
        noted = {"number": 1, "accepted": False, "ledgers": plain(seen), "bookies": bookies}
        assert await store.swap_set_back(b"", bytes_of(noted))
        shown = await accept_state(store, cluster, unheard=False)
        assert (shown["ledgers_seen"], shown["next_ledger"]) == (max(seen), max(seen))
        assert (await store.progress()).position == seen

    run(story)


@pytest.mark.parametrize("words", ["metadata show", "metadata init", "bookie list", "ledger list"])
def test_the_session_timeout_of_the_client_s_file(tmp_path: Path, words: str) -> None:
    """How long an unreachable store is tried: also where the address comes with --metadata, and no client is made."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    conf = tmp_path / "client.conf"
    conf.write_text("zkTimeout=1000\n")
    uri = f"zk://127.0.0.1:{port}/ledgers"
    done = warm().run([*words.split(), "--metadata", uri], b"", environment() | {"QUIRE_CONF": str(conf)})
    assert (done.code, done.raw) == (1, b"")
    assert f"ZooKeeper at {uri} did not answer within 1 s" in done.err
