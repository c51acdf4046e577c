"""What Prometheus is shown of a part in AutoRecovery."""

import re
from pathlib import Path
from typing import Any

from quire.metrics.text import Metrics
from quire.replication.autorecovery.running import AutoRecovery
from quire.tools.daemons.recovering import RecoveryCollector
from tests.client.fakes.cluster import FakeCluster
from tests.replication.autorecovery.processes import THREE, healing
from tests.replication.stories import closed

# SPDX-License-Identifier: Apache-2.0

VECTORS = Path(__file__).parents[2] / "vectors"
# No counterpart here.
MISSING = {
    "auditor_BOOKIE_TO_LEDGERS_MAP_CREATION_TIME": "ledgers are looked at page by page, and no such map is made",
    "auditor_NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY": "a placement is wanted or it is not",
    "auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD": "`quire underreplicated list` says since when",
}
STATUS: dict[str, Any] = {
    "auditor": True,
    "vote": 3,
    "lost": ["b:1"],
    "away": [],
    "marked": 12,
    "figures": {"checkallledgersctime_ledgers": 40},
    "working": [7, 8],
    "repaired": 5,
    "failed": 2,
    "entries": 500,
    "bytes": 50_000,
    "parked": {"GONE": 1, "FAILED": 1},
}


def test_names_are_ours_and_apaches() -> None:
    """A counter has its value under both, Apache's without the library's suffix."""
    text = Metrics(RecoveryCollector(lambda: STATUS)).text().decode()
    found = dict(re.findall(r"^((?:quire|auditor|replication)\S+) (\S+)$", text, re.MULTILINE))
    assert {name: float(value) for name, value in found.items()} == {
        "quire_autorecovery_auditor": 1,
        "quire_autorecovery_working": 2,
        "quire_autorecovery_lost": 1,
        "quire_autorecovery_away": 0,
        "quire_autorecovery_marked_total": 12,
        "quire_autorecovery_repaired_total": 5,
        "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED": 5,
        "quire_autorecovery_failed_total": 2,
        "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER": 2,
        "quire_autorecovery_entries_total": 500,
        "replication_worker_NUM_ENTRIES_READ": 500,
        "replication_worker_NUM_ENTRIES_WRITTEN": 500,
        "quire_autorecovery_bytes_total": 50_000,
        'quire_autorecovery_parked{outlook="gone"}': 1,
        'quire_autorecovery_parked{outlook="failed"}': 1,
        'quire_autorecovery_check{figure="checkallledgersctime_ledgers"}': 40,
    }


def served(process: AutoRecovery, cluster: FakeCluster) -> dict[str, float]:
    """Its samples, by name and labels."""
    text = Metrics(RecoveryCollector(process.status, True, lambda: (process.measures, cluster.clock.seconds())))
    found = re.findall(r"^(\S+) (\S+)$", text.text().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_what_an_auditor_and_its_worker_did_is_measured() -> None:
    """A bookie went and came back within its delay, another was lost; checks were made, and one ledger is hopeless."""
    cluster = FakeCluster(6)
    for _ in range(3):
        closed(cluster, {0: THREE}, 20)
    closed(cluster, {0: ["b1"]}, 5, write=1)
    every = dict.fromkeys(("copies_check_interval_s", "placement_check_interval_s", "replicas_check_interval_s"), 1000)
    process = healing(cluster, lost_bookie_recovery_delay_s=60, **every)
    cluster.spin(5)
    cluster.kill("b5")
    cluster.spin(10)
    cluster.restart("b5")
    cluster.spin(10)
    cluster.kill("b1")
    cluster.spin(1500)
    found = served(process, cluster)
    good = '{success="true"}'
    assert found["auditor_NUM_BOOKIE_AUDITS_DELAYED"] == 2
    assert found["auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED"] == 1
    assert found[f"auditor_NUM_UNDER_REPLICATED_LEDGERS_count{good}"] == 1
    assert found[f"auditor_NUM_UNDER_REPLICATED_LEDGERS_sum{good}"] == 4
    assert found[f"auditor_UNDER_REPLICATED_LEDGERS_TOTAL_SIZE_sum{good}"] > 0
    assert found["election_attempts"] == 1
    assert found["auditor_NUM_LEDGERS_CHECKED"] == 4
    assert found[f"auditor_NUM_BOOKIES_PER_LEDGER_sum{good}"] == 10
    assert found[f"auditor_NUM_FRAGMENTS_PER_LEDGER_sum{good}"] == 4
    for name in ("CHECK_ALL_LEDGERS_TIME", "PLACEMENT_POLICY_CHECK_TIME", "REPLICAS_CHECK_TIME", "AUDIT_BOOKIES_TIME"):
        assert found[f"auditor_{name}_count{good}"] >= 1
    assert found[f"auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE_count{good}"] >= 1
    assert found["auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY"] == 0
    assert found["auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY"] == 0
    assert found[f"replication_worker_rereplicate_count{good}"] == 3
    assert found['replication_worker_rereplicate_count{success="false"}'] == found["quire_autorecovery_failed_total"]
    assert found["replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION"] >= 1
    assert found["replication_worker_exceptions"] == 0
    copied = found["quire_autorecovery_bytes_total"]
    assert found[f"replication_worker_NUM_BYTES_READ_sum{good}"] == copied > 0
    assert found[f"replication_worker_READ_DATA_LATENCY_count{good}"] >= 3
    assert found[f"replication_worker_WRITE_DATA_LATENCY_count{good}"] >= 3
    assert found["quire_autorecovery_store_seconds_count"] >= 3
    assert found['quire_autorecovery_check_seconds_count{check="replicascheckctime"}'] >= 1
    names = {re.sub(r"\{.*", "", each) for each in found}
    manuals = (VECTORS / "documented_metrics.txt").read_text().split("\n")
    asked = (VECTORS / "dashboard_metrics.txt").read_text().split("\n")
    wanted = {each for each in (*manuals, *asked) if re.match("auditor_|replication_worker_|election_", each)}
    assert wanted - names == set(MISSING)


def test_without_a_part_there_is_nothing_to_show() -> None:
    """A bookie that does not run AutoRecovery has none of these names."""
    assert b"autorecovery" not in Metrics(RecoveryCollector(lambda: None)).text()
