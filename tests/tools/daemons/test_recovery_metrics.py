"""What Prometheus is shown of a part in AutoRecovery."""

import re
from typing import Any

from quire.metrics.text import Metrics
from quire.tools.daemons.recovering import RecoveryCollector

# SPDX-License-Identifier: Apache-2.0

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
        "auditor_NUM_UNDER_REPLICATED_LEDGERS_count": 12,
        "auditor_NUM_UNDER_REPLICATED_LEDGERS_sum": 12,
        "quire_autorecovery_repaired_total": 5,
        "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED": 5,
        "quire_autorecovery_failed_total": 2,
        "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER": 2,
        "quire_autorecovery_entries_total": 500,
        "replication_worker_NUM_ENTRIES_READ": 500,
        "replication_worker_NUM_ENTRIES_WRITTEN": 500,
        "quire_autorecovery_bytes_total": 50_000,
        "replication_worker_NUM_BYTES_READ_sum": 50_000,
        "replication_worker_NUM_BYTES_WRITTEN_sum": 50_000,
        'quire_autorecovery_parked{outlook="gone"}': 1,
        'quire_autorecovery_parked{outlook="failed"}': 1,
        'quire_autorecovery_check{figure="checkallledgersctime_ledgers"}': 40,
    }


def test_without_a_part_there_is_nothing_to_show() -> None:
    """A bookie that does not run AutoRecovery has none of these names."""
    assert b"autorecovery" not in Metrics(RecoveryCollector(lambda: None)).text()
