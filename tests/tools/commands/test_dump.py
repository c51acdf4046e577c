"""`quire metadata dump` and `restore`: a cluster with a bookie goes on in another store."""

import gzip
import json
import stat
import time
from pathlib import Path

from quire.tools.local_cluster.cluster import READY_S, LocalCluster
from tests.tools.command import ok, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

ONE = ("ledger", "write", "--lines", "--ensemble", 1, "--write", 1, "--ack", 1)


def test_a_cluster_moves_to_another_store(tmp_path: Path) -> None:
    """Its bookie is known there, reads what was written, and no id comes twice; the store it left is not looked at."""
    dump, other = tmp_path / "dump.jsonl", f"sqlite://{tmp_path}/other.db"
    with LocalCluster(tmp_path / "cluster", 1, options=SMALL) as cluster:
        before = [int(ok(*ONE, metadata=cluster.uri, stdin=b"before\n").out) for _ in range(2)]
        ok("ledger", "delete", "--force", before[1], metadata=cluster.uri)
        cluster.stop()
        done = ok("metadata", "dump", dump, "--json", metadata=cluster.uri).document
        assert done == {"file": str(dump), "nodes": done["nodes"], "bytes": dump.stat().st_size}
        assert stat.S_IMODE(dump.stat().st_mode) == 0o600
        made = ok("metadata", "restore", dump, "--json", metadata=other).document
        assert (made["metadata"], made["nodes"]) == (other, done["nodes"])
        (bookie,) = cluster.bookies
        bookie.conf.write_text(bookie.conf.read_text().replace(cluster.uri, other))
        (cluster.directory / "metadata.db").unlink()
        bookie.begin()
        bookie.ready(time.monotonic() + READY_S)
        assert ok("ledger", "read", before[0], metadata=other).out == "before\n"
        assert int(ok(*ONE, metadata=other, stdin=b"after\n").out) > before[1]


def test_what_a_dump_and_a_restore_refuse(empty_store: str, tmp_path: Path) -> None:
    """A file that is there, a cluster that is there, a file that is no dump; the dump itself on standard output."""
    other, whole = f"sqlite://{tmp_path}/other.db", tmp_path / "whole"
    assert "NoCluster" in refused(1, "metadata", "dump", metadata=empty_store)
    ok("metadata", "init", metadata=empty_store)
    whole.write_bytes(ok("metadata", "dump", metadata=empty_store).raw)
    assert json.loads(whole.read_text().splitlines()[0])["quire metadata"] == 1
    assert "is there already" in refused(1, "metadata", "dump", whole, metadata=empty_store)
    refused(2, "metadata", "dump", "--json", metadata=empty_store)
    assert "holds a cluster already" in refused(1, "metadata", "restore", whole, metadata=empty_store)
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:-10])
    assert f"{cut}: it can't be read" in refused(2, "metadata", "restore", cut, metadata=other)
    cut.write_bytes(gzip.compress(whole.read_bytes()))
    assert f"{cut}: it can't be read" in refused(2, "metadata", "restore", cut, metadata=other)
    assert not (tmp_path / "other.db").exists()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("tmp")] == []
