"""`quire bench`: its report, against real bookies."""

import pytest

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0

# What the yardstick prints, by which figures are compared.
YARDSTICK = [
    "entries_per_second",
    "megabytes_per_second",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "client_cpu_us_per_entry",
    "bookie_cpu_us_per_entry",
    "size",
    "entries",
    "window",
    "batch",
]


def check(found: dict[str, float]) -> None:
    assert list(found)[: len(YARDSTICK)] == YARDSTICK
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"]
    shortest, longest = found["seconds"] - 0.0006, found["seconds"] + 0.0006  # three digits, the rate none
    assert found["entries"] / longest - 0.6 < found["entries_per_second"] < found["entries"] / shortest + 0.6
    assert found["megabytes_per_second"] == pytest.approx(found["entries_per_second"] * found["size"] / 1e6, abs=0.1)
    assert found["client_cpu_us_per_entry"] > 0


@pytest.mark.parametrize("options", [[], ["--protocol", "v3"], ["--rate", "4000"]], ids=["closed", "v3", "open"])
def test_write(uri: str, options: list[str]) -> None:
    """
    Every key of the yardstick; syncs from the bookies' metrics, so that acknowledgements without a sync are seen; the
    ledger is gone after.
    """
    before = len(ok("ledger", "list", "--json", metadata=uri).rows)
    found = ok("bench", "write", "--size", 100, "--entries", 8000, "--json", *options, metadata=uri).document
    check(found)
    assert (found["size"], found["entries"], found["window"], found["batch"]) == (100, 8000, 1000, 50)
    assert found["syncs"] >= 3, "each of three bookies synced at least once"
    assert found["bookie_cpu_us_per_entry"] > 0
    if "--rate" in options:
        assert found["seconds"] > 1.9, "8000 entries at 4000 a second; a busy machine may take longer"
    assert len(ok("ledger", "list", "--json", metadata=uri).rows) == before


def test_one_outstanding_append(uri: str) -> None:
    """Window 1, batch 1: each append has a sync of its own on two bookies at least."""
    found = ok("bench", "write", "--window", 1, "--batch", 1, "--entries", 200, "--json", metadata=uri).document
    check(found)
    assert found["syncs"] >= 2 * 200


def test_pids_give_the_cpu_of_local_processes(cluster: LocalCluster) -> None:
    """Where bookies have no metrics page; a process that does not exist is named."""
    pids = ",".join(str(bookie.pid) for bookie in cluster.bookies)
    found = ok("bench", "write", "--entries", 20_000, "--pids", pids, "--json", metadata=cluster.uri).document
    assert found["bookie_cpu_us_per_entry"] > 0
    assert "/proc/4194305" in refused(1, "bench", "write", "--entries", 10, "--pids", 4194305, metadata=cluster.uri)


@pytest.mark.parametrize(
    "options", [[], ["--random"], ["--random", "--rate", "1000"]], ids=["stream", "random", "open"]
)
def test_read(uri: str, options: list[str]) -> None:
    """A ledger of its own is written, read and deleted; or one that is named, which stays."""
    check(ok("bench", "read", "--size", 100, "--entries", 1000, "--json", *options, metadata=uri).document)
    ledger = int(ok("ledger", "write", "--size", 50, metadata=uri, stdin=b"x" * 10_000).out)
    found = ok("bench", "read", "--ledger", ledger, "--entries", 150, "--json", *options, metadata=uri).document
    assert (found["size"], found["entries"]) == (50, 150)
    assert ok("ledger", "show", ledger, "--json", metadata=uri).document["ledger"] == ledger


def test_the_report_for_people(uri: str) -> None:
    """With a histogram; and --keep keeps the ledger."""
    before = len(ok("ledger", "list", "--json", metadata=uri).rows)
    text = ok("bench", "write", "--entries", 5000, "--keep", metadata=uri).out
    for word in ("entries/s", "p999", "CPU per entry", "syncs of all bookies", "<=", "#"):
        assert word in text
    assert len(ok("ledger", "list", "--json", metadata=uri).rows) == before + 1


def test_an_empty_ledger_has_nothing_to_read(uri: str) -> None:
    """It is named."""
    ledger = int(ok("ledger", "write", metadata=uri).out)
    assert f"ledger {ledger} is empty" in refused(2, "bench", "read", "--ledger", ledger, metadata=uri)
