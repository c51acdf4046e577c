"""
An old backup of the metadata store put back under bookies with newer ledgers, as processes: a SQLite file and
ZooKeeper's data directory.

Two rounds of garbage collection cost nothing, each command that is asked names the store and the next command; ids are
not given twice; and the command lets go.
"""

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.bookie.upkeep.store_guard import LOOK_S
from quire.client import connect
from quire.client.api import connect as connect_api
from quire.protocol.errors import OK
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import between_looks, reactor, run
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL
from tests.tools.http import get

# SPDX-License-Identifier: Apache-2.0

ENTRIES = 20


def written(uri: str, close: bool = True) -> int:
    """A ledger on both bookies."""
    with connect(uri) as client:
        writer = client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        writer.append_many([b"entry %d" % number for number in range(ENTRIES)])
        if close:
            writer.close()
        return writer.id


def held(uri: str, bookies: list[str], ledgers: list[int]) -> int:
    """How many copies of their entries the bookies still give, whatever the metadata says."""

    async def story() -> int:
        client = await connect_api(reactor, uri)
        try:
            answers = [
                await client.pool.read(bookie, ledger, entry)
                for bookie in bookies
                for ledger in ledgers
                for entry in range(ENTRIES)
            ]
        finally:
            await client.close()
        return sum(answer.code == OK for answer in answers)

    return run(story)


def stopped(cluster: LocalCluster, change: Callable[[], None]) -> None:
    """Everything is down while the metadata's files are changed."""
    cluster.stop()
    change()
    cluster.start()


def online(cluster: LocalCluster, backup: Path) -> None:
    """SQLite's own way, under everything that runs; the bookies' sessions go with it, and they register again."""
    with sqlite3.connect(backup) as old, sqlite3.connect(cluster.directory / "metadata.db") as new:
        old.backup(new)
    old.close()
    new.close()
    running = {bookie.id for bookie in cluster.bookies if bookie.pid is not None}
    until(
        lambda: {
            row["bookie"]
            for row in ok("bookie", "list", "--json", metadata=cluster.uri).rows
            if row["state"] == "writable"
        },
        lambda up: up == running,
    )


def files_of(cluster: LocalCluster) -> Path:
    return cluster.directory / ("zookeeper/data" if cluster.metadata == "zookeeper" else "metadata.db")


def save(cluster: LocalCluster, backup: Path) -> None:
    files = files_of(cluster)
    if files.is_dir():
        shutil.copytree(files, backup)
    else:  # with what its processes left in the write-ahead log, when they ended at the same moment
        with sqlite3.connect(files) as old, sqlite3.connect(backup) as new:
            old.backup(new)
        old.close()
        new.close()


def put_back(cluster: LocalCluster, backup: Path) -> None:
    files = files_of(cluster)
    if files.is_dir():
        shutil.rmtree(files)
        shutil.copytree(backup, files)
    else:
        for end in ("-wal", "-shm"):
            Path(f"{files}{end}").unlink(missing_ok=True)
        shutil.copy(backup, files)


@pytest.mark.parametrize("kind", ["sqlite", "sqlite online", "zookeeper"])
def test_an_old_backup_costs_no_entry(tmp_path: Path, kind: str) -> None:
    """Bookies of a store that was set back refuse garbage collection until an operator accepts."""
    with LocalCluster(tmp_path / "cluster", 2, "zookeeper" if kind == "zookeeper" else "sqlite", SMALL) as cluster:
        old = written(cluster.uri)
        stopped(cluster, lambda: save(cluster, tmp_path / "backup"))
        new = [written(cluster.uri), written(cluster.uri, close=False)]
        if kind == "sqlite online":
            online(cluster, tmp_path / "backup")
        else:
            stopped(cluster, lambda: put_back(cluster, tmp_path / "backup"))
        uri, bookies = cluster.uri, cluster.ids
        for bookie in bookies * 2:
            said = quire("bookie", "gc", bookie, metadata=uri)
            assert said.code == 1
            assert uri in said.err
            assert "quire metadata set-back" in said.err
        copies = 2 * ENTRIES
        assert held(uri, bookies, [old, *new]) == 3 * copies

        info = ok("bookie", "info", bookies[0], "--json", metadata=uri).document["store"]
        assert (info["behind"], info["metadata"], info["unknown_ledgers"]) == (True, uri, 2)
        metrics = next(
            row["metrics"] for row in ok("bookie", "list", "--json", metadata=uri).rows if row["bookie"] == bookies[0]
        )
        token_file = cluster.bookie(bookies[0]).directory / "journal" / "admin.token"
        assert b"quire_metadata_store_behind 1.0" in get(metrics, token_file)

        newer = written(uri)
        assert newer > max(new), "no id is given twice"
        shown = until(
            lambda: ok("metadata", "set-back", "--json", metadata=uri).document, lambda found: counts(found) == [2, 2]
        )
        assert (shown["set_back"], shown["accepted"], shown["unheard"], shown["metadata"]) == (True, False, [], uri)
        assert "nothing was accepted" in refused(1, "metadata", "set-back", "--accept", "--cluster", "x", metadata=uri)
        assert held(uri, bookies, new) == 2 * copies
        done = ok("metadata", "set-back", "--accept", "--cluster", shown["cluster"], "--json", metadata=uri).document
        assert done["accepted"]
        assert done["next_ledger"] > newer
        for bookie in bookies:
            # binds this turn's
            until(
                lambda bookie=bookie: quire("bookie", "gc", bookie, metadata=uri).code,  # type: ignore[misc]
                lambda code: code == 0,
            )
        assert held(uri, bookies, new) == 0
        assert held(uri, bookies, [old, newer]) == 2 * copies
        assert not ok("metadata", "set-back", "--json", metadata=uri).document["set_back"]
        assert "nothing to accept" in refused(
            1, "metadata", "set-back", "--accept", "--cluster", shown["cluster"], metadata=uri
        )


def counts(found: dict[str, Any]) -> list[int | None]:
    return [seen["unknown_ledgers"] for seen in found["bookies"].values()]


def until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """Looks until it is as wanted."""
    deadline = time.monotonic() + 12 * LOOK_S
    while not wanted(found := look()):
        assert time.monotonic() < deadline, found
        between_looks()
    return found


def test_bookies_that_were_not_heard(tmp_path: Path) -> None:
    """One that is down is named, and left out only when the command says so."""
    with LocalCluster(tmp_path / "cluster", 2, "sqlite", SMALL) as cluster:
        written(cluster.uri)
        stopped(cluster, lambda: save(cluster, tmp_path / "backup"))
        new = written(cluster.uri)
        up, down = cluster.ids
        ok("bookie", "gc", up, metadata=cluster.uri)  # it has seen what the store was like by then
        cluster.stop_bookie(down)
        online(cluster, tmp_path / "backup")
        quire("bookie", "gc", up, metadata=cluster.uri)
        shown = until(
            lambda: ok("metadata", "set-back", "--json", metadata=cluster.uri).document,
            lambda found: counts(found) == [1],
        )
        assert shown["unheard"] == [down]
        accept = ("metadata", "set-back", "--accept", "--cluster", shown["cluster"])
        line = refused(1, *accept, metadata=cluster.uri)
        assert down in line
        assert "whether the store is up" not in line, "it is"
        assert "1 ledgers that the store does not know" in ok("metadata", "set-back", metadata=cluster.uri).out
        ok(*accept, "--unheard", metadata=cluster.uri)
        cluster.restart(down)
        for bookie in (up, down):
            until(
                lambda bookie=bookie: quire("bookie", "gc", bookie, metadata=cluster.uri).code, lambda code: code == 0
            )  # type: ignore[misc]  # binds this turn's
        written(cluster.uri)
        quire("bookie", "gc", up, metadata=cluster.uri)
        assert held(cluster.uri, [up], [new]) == 0
