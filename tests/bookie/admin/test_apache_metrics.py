"""What Apache's dashboards ask a bookie for: names, labels, units, beside a capture of Apache's own."""

import re
from pathlib import Path

import pytest

from quire.bookie.lifecycle.bookie import Bookie
from quire.protocol.digest import Digest, DigestType
from tests.bookie.fakes.in_process import connect, running
from tests.bookie.fakes.wires import adds, read
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)
APART = {"ledgerDir", "indexDir", "threadPool", "thread"}  # here a bookie has one number of all of them
ELSEWHERE = re.compile(r"auditor_|replication_worker_|election_attempts")  # the process that repairs has these
# No counterpart here, or none in Apache's present version either.
MISSING = {
    "bookie": "a label's value, no metric",
    "bookie_DELETED_LEDGER_COUNT": "bookie_DELETED_LEDGER_TOTAL since 4.10",
    "bookie_MINOR_COMPACTION_COUNT": "bookie_MINOR_COMPACTION_TOTAL since 4.10",
    "bookie_journal_JOURNAL_CB_QUEUE_SIZE": "no such queue, nor in 4.18",
    "bookie_ledger_dir__pulsar_data_bookkeeper_ledgers_0_usage": "the path of one installation",
    "bookkeeper_server_BookieReadThreadPool_queue_": "bookkeeper_server_thread_executor_queue since 4.16",
}


def listed(name: str) -> list[list[str]]:
    lines = (VECTORS / name).read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def samples(text: str) -> dict[tuple[str, str], float]:
    return {(name, labels): float(value) for name, labels, value in SAMPLE.findall(text)}


def scraped(path: Path, **options: object) -> dict[tuple[str, str], float]:
    """The samples of a bookie that stored two entries, refused a third and answered reads."""

    async def story() -> dict[tuple[str, str], float]:
        async with running(path, **options) as bookie:
            await loaded(bookie)
            return samples(bookie.metrics.text().decode())

    return run(story)


async def loaded(bookie: Bookie) -> None:
    client = await connect(bookie)
    await client.ask(adds(b"first"))
    await client.ask(adds(b"second", first=1))
    await client.ask(adds(b"third", first=2, digest=Digest(DigestType.CRC32C, b"wrong")))
    await client.ask(read(0))
    await client.ask(read(9))


def test_names_and_labels_are_those_of_the_capture(tmp_path: Path) -> None:
    """A name of ours that looks like Apache's is one of Apache's, and has its labels."""
    families = {name: (kind, set(labels.split(",")) - {""}) for name, kind, labels in listed("java_metrics.tsv")}
    older = {name for (name,) in listed("documented_metrics.txt")} - families.keys()
    dynamic = re.compile(r"bookie_ledger_dir_\w+_usage")
    for name, labels in scraped(tmp_path):
        if not name.startswith(("bookie_", "bookkeeper_")) or dynamic.fullmatch(name):
            continue
        family = re.sub("_(count|sum)$", "", name) if name not in families else name
        if family in older:
            continue
        kind, theirs = families[family]
        plain = {"quantile"} if kind == "summary" and name != family else set()
        assert theirs - APART - plain <= set(re.findall(r'(\w+)="', labels)) <= theirs, name


def test_what_dashboards_ask_for_has_a_value(tmp_path: Path) -> None:
    """Each name of eight public dashboards and two manuals, except those that say why not."""
    found = {name for name, _ in scraped(tmp_path)}
    wanted = {name for (name,) in (*listed("dashboard_metrics.txt"), *listed("documented_metrics.txt"))}
    assert {name for name in wanted - found if not ELSEWHERE.match(name)} == set(MISSING)


def test_numbers_are_in_apaches_units(tmp_path: Path) -> None:
    """Latencies in ms by success, usage in percent, counts of entries."""
    found = scraped(tmp_path)
    for name in ("bookkeeper_server_ADD_ENTRY", "bookkeeper_server_ADD_ENTRY_REQUEST"):
        assert found[f"{name}_count", 'success="true"'] == 2
        assert found[f"{name}_count", 'success="false"'] == 1
        median = found[name, 'quantile="0.5",success="true"']
        assert 0 < median <= found[name, 'quantile="1.0",success="true"'] < 60_000
        assert found[f"{name}_sum", 'success="true"'] > 0
        assert str(found[name, 'quantile="0.5",success="false"']) == "nan"
    assert found["bookie_journal_JOURNAL_ADD_ENTRY_count", 'journalIndex="0",success="true"'] == 2
    assert found["bookie_journal_JOURNAL_SYNC_count", 'journalIndex="0",success="true"'] >= 2
    assert found["bookkeeper_server_READ_ENTRY_count", 'success="true"'] == 1
    assert found["bookkeeper_server_READ_ENTRY_count", 'success="false"'] == 1
    assert found["bookie_WRITE_BYTES", ""] > 0
    assert found["bookie_write_cache_count", ""] == 2
    assert found["bookie_SERVER_STATUS", ""] == 1
    (usage,) = (value for (name, _), value in found.items() if re.fullmatch(r"bookie_ledger_dir_\w+_usage", name))
    assert 0 < usage < 100


def test_what_is_stored_and_read_ahead_is_counted(tmp_path: Path) -> None:
    """
    Entries of the index, by the rows of the first ones or of the last walk; of a sequential read its window; what
    waited for the journal and for the storage's threads.
    """

    async def story() -> dict[tuple[str, str], float]:
        async with running(tmp_path) as bookie:
            client = await connect(bookie)
            for start in range(0, 300, 100):
                client.send(adds(*[b"x" * 50] * 100, first=start))
                await client.frames(100)
            await bookie.service.storage.flush()
            for entry in (0, 1, 2):
                await client.ask(read(entry))
            (directory,) = bookie.service.storage.directories.usable
            assert directory.index.entries == 300
            directory.index.uses(lambda: None)
            return samples(bookie.metrics.text().decode())

    found = run(story)
    assert found["bookie_entries_count", ""] == 300
    assert found["bookie_readahead_batch_count_count", 'success="true"'] >= 1
    assert 2 <= found["bookie_readahead_batch_count_sum", 'success="true"'] <= 300
    assert found["bookie_readahead_batch_size_sum", 'success="true"'] > 100
    assert found["bookie_journal_JOURNAL_QUEUE_LATENCY_count", 'journalIndex="0",success="true"'] == 300
    for name in ("task_queued", "task_execution"):
        assert found[f"bookkeeper_server_BookieReadThreadPool_{name}_count", 'success="true"'] >= 2
    assert found["quire_storage_queue_seconds_count", ""] == found["quire_storage_work_seconds_count", ""] >= 2


def test_our_own_latencies_are_histograms(tmp_path: Path) -> None:
    """In seconds, with cumulative buckets."""
    found = scraped(tmp_path)
    buckets = [value for (name, _), value in found.items() if name == "quire_add_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["quire_add_seconds_count", ""] == 2
    assert 0 < found["quire_add_seconds_sum", ""] < 60


@pytest.mark.parametrize(("names", "left"), [("quire", "quire_adds_total"), ("apache", "bookie_WRITE_BYTES")])
def test_either_kind_of_names_can_be_left_out(names: str, left: str, tmp_path: Path) -> None:
    """metricsNames."""
    found = {name for name, _ in scraped(tmp_path, metrics_names=names)}
    both = {"quire_adds_total", "bookie_WRITE_BYTES"}
    assert found & both == {left}
