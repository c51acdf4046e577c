"""`quire doctor` as a command: its exit statuses, its text and its document."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.metadata.tree_store import MetadataStore
from quire.metadata.uri import open_store
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import reactor, run
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies; nobody repairs."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3, options=SMALL) as made:
        yield made


def test_what_is_wrong_with_a_cluster(cluster: LocalCluster) -> None:
    """A bookie is stopped, and comes back: status 1, both times with the next command of what is found."""
    lost = cluster.ids[0]
    cluster.stop_bookie(lost)
    done = quire("doctor", metadata=cluster.uri)
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert f"warning  {lost}: it is known, and away" in lines
    at = lines.index(f"warning  {lost}: it is known, and away")
    step = f"start it: `quire bookie start`; if it is lost: `quire decommission {lost}`"
    assert lines[at + 1] == f"        next: {step}"
    cluster.restart(lost)
    document = quire("doctor", "--json", metadata=cluster.uri).document
    assert (document["metadata"], document["errors"]) == (cluster.uri, 0)
    found = {each["about"]: each for each in document["findings"]}
    assert lost not in found
    assert found["repair"] == {
        "check": "repair",
        "severity": "warning",
        "about": "repair",
        "problem": "there is no auditor: nobody looks for bookies that are lost",
        "next": "quire autorecovery start --conf FILE",
        "made": True,
    }


def test_a_healthy_cluster(cluster: LocalCluster) -> None:
    """Once somebody audits, the status is 0."""

    async def audited() -> tuple[MetadataStore, int]:
        store = await open_store(reactor, cluster.uri)  # type: ignore[arg-type]
        return store, await store.auditing.vote(cluster.ids[0])

    store, _ = run(audited)
    done = quire("doctor", metadata=cluster.uri)
    run(store.close)
    assert (done.code, done.out, done.err) == (0, "errors: 0, warnings: 0, notes: 0\n", "")


def test_a_store_without_a_cluster(empty_store: str) -> None:
    """Status 1, and the command that makes one."""
    done = quire("doctor", "--json", metadata=empty_store)
    assert done.code == 1
    first, *rest = done.document["findings"]
    assert (first["severity"], first["next"]) == ("error", f"quire metadata init --metadata '{empty_store}'")
    assert [each["made"] for each in rest if each["about"] == "the rest"] == [False]


def test_a_cluster_without_bookies(empty_store: str) -> None:
    """It is told from one that can't be opened."""
    ok("metadata", "init", metadata=empty_store)
    done = quire("doctor", metadata=empty_store)
    assert done.code == 1
    assert "bookies: 0 of them writable" in done.out


def test_wrong_usage(empty_store: str, tmp_path: Path) -> None:
    """No store is named, or the token's file is not there: status 2."""
    assert "no metadata store is named" in refused(2, "doctor")
    assert "--token-file" in refused(2, "doctor", "--token-file", tmp_path / "none", metadata=empty_store)
