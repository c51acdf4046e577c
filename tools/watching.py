"""
Renders what a Prometheus server and Grafana are given to watch a cluster, into `metrics/watching`:
`python -m quire.tools.watching`.

    alerts.yml      alert rules, each with what it means and what to do
    cluster.json    a dashboard of all bookies beside each other, and of repair
    bookie.json     a dashboard of one bookie

Knows: which expression says what.  Does not know: what counts (docs/watching.md has every metric), how Prometheus
finds the bookies: a target is a bookie's HTTP port, and `instance` its label.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

DIRECTORY = Path(__file__).resolve().parents[1] / "metrics" / "watching"
WIDTH, HEIGHT, COLUMNS = 8, 8, 24  # of a panel, in Grafana's grid
ONE = '{instance=~"$bookie"}'  # the bookie that a dashboard shows


class Alert(NamedTuple):
    """A rule.  `wait`: how long it must hold, as Prometheus writes it."""

    name: str
    expression: str
    wait: str
    severity: str
    means: str
    do: str


class Panel(NamedTuple):
    """A graph: (expression, legend) of each curve; `unit` as Grafana calls it."""

    title: str
    unit: str
    curves: Sequence[tuple[str, str]]
    about: str = ""


ALERTS = (
    Alert(
        *("BookieDown", 'up{job=~".*bookie.*"} == 0', "2m", "critical"),
        *(
            "a bookie gives no metrics: it does not serve, or its token changed",
            "its log; quire bookie check --conf FILE",
        ),
    ),
    Alert(
        *("BookieNotWritable", "quire_bookie_status < 1", "5m", "warning"),
        *("0: read-only, a disk is full or failed, or it was ordered to; -1: not registered", "quire bookie info ID"),
    ),
    Alert(
        *("DiskNearlyFull", "quire_disk_free_bytes / quire_disk_bytes < 0.1", "5m", "warning"),
        "a disk of a bookie is full to nine tenths; read-only comes at 95 %",
        "delete ledgers and run quire bookie gc ID, or start a bookie and run quire rebalance",
    ),
    Alert(
        *("JournalSyncSlow", "histogram_quantile(0.99, rate(quire_journal_sync_seconds_bucket[5m])) > 0.05"),
        *("10m", "warning", "one sync in a hundred takes more than 50 ms: the disk of the journal is slow or failing"),
        "give the journal a disk of its own; look at the disk's own counters",
    ),
    Alert(
        *("AddsWait", "rate(quire_parked_total[5m]) > 1", "5m", "warning", "adds wait for a disk"),
        "a disk of its own for the journal, or more bookies",
    ),
    Alert(
        *("MetadataStoreSilent", "quire_metadata_store_silent_seconds > 60", "1m", "critical"),
        *(
            "the metadata store gives a bookie no answer",
            "see whether the metadata store is up, and reached from there",
        ),
    ),
    Alert(
        *("MetadataStoreBehind", "quire_metadata_store_behind > 0", "0m", "critical"),
        *("the metadata was set back, so nothing is deleted", "quire metadata set-back"),
    ),
    Alert(
        *("DirectoryLost", "quire_directories_lost_total > 0", "0m", "critical", "a ledger directory has failed"),
        "replace the disk, then start the bookie with --restore",
    ),
    Alert(
        *("LedgersInLimbo", "quire_ledgers_in_limbo > 0", "3h", "warning"),
        *("copies may be lacking on a bookie, and none come", "its log names the ledgers; quire ledger recover ID"),
    ),
    Alert(
        *(
            "DamagedFiles",
            "increase(quire_read_errors_total[10m]) > 0 or quire_entry_logs_left_alone > 0",
            "0m",
            "critical",
        ),
        *("entries of a bookie can't be read", "its log names the files; quire bookie verify --conf FILE"),
    ),
    Alert(
        *("FewDescriptors", "process_open_fds / process_max_fds > 0.9", "5m", "warning"),
        *("a process has few files left to open: clients will be turned away", "raise LimitNOFILE of its unit"),
    ),
    Alert(
        *("NoAuditor", "sum(quire_autorecovery_auditor) != 1", "5m", "critical"),
        *("0: nobody looks for lost bookies; more: two clusters in one rule", "quire autorecovery status"),
    ),
    Alert(
        *("BookieLost", "quire_autorecovery_lost > 0", "0m", "warning"),
        *("a bookie counts as lost, and what it had is copied", "bring it back, or run quire decommission ID"),
    ),
    Alert(
        *("NoSpare", 'quire_autorecovery_parked{outlook="waits_for_spare"} > 0', "1h", "warning"),
        *("no bookie is left to copy to", "start one"),
    ),
    Alert(
        *("EntriesGone", 'quire_autorecovery_parked{outlook="gone"} > 0', "0m", "critical"),
        *("entries have no copy left", "quire underreplicated list"),
    ),
)


def quantiles(name: str, where: str, by: str) -> list[tuple[str, str]]:
    """Curves of three quantiles of a histogram."""
    return [
        (f"histogram_quantile({share}, sum by ({by}) (rate({name}_bucket{where}[5m])))", f"{{{{instance}}}} p{text}")
        for share, text in ((0.5, "50"), (0.99, "99"), (0.999, "99.9"))
    ]


def rate(name: str, where: str = "", legend: str = "{{instance}}") -> list[tuple[str, str]]:
    """A curve of what is counted a second."""
    return [(f"rate({name}{where}[5m])", legend)]


CLUSTER = (
    Panel(
        "Bookies by state",
        "short",
        [("quire_bookie_status", "{{instance}}")],
        "1 writable, 0 read-only, -1 not registered",
    ),
    Panel("Entries added", "ops", rate("quire_adds_total")),
    Panel("Bytes added", "Bps", rate("quire_add_bytes_total")),
    Panel("Entries read", "ops", rate("quire_service_read_entries_total")),
    Panel("Adds, p99", "s", quantiles("quire_add_seconds", "", "le, instance")[1:2]),
    Panel("Syncs, p99", "s", quantiles("quire_journal_sync_seconds", "", "le, instance")[1:2]),
    Panel("Disks, free", "percentunit", [("quire_disk_free_bytes / quire_disk_bytes", "{{instance}} {{of}}")]),
    Panel("Runs of adds that wait", "short", [("quire_parked_runs", "{{instance}}")]),
    Panel("Connections", "short", [("quire_connections", "{{instance}}")]),
    Panel("Metadata store silent", "s", [("quire_metadata_store_silent_seconds", "{{instance}}")]),
    Panel(
        *("Bookies lost and away", "short"),
        [("quire_autorecovery_lost", "lost"), ("quire_autorecovery_away", "away")],
        "in the eyes of the auditor",
    ),
    Panel("Repaired", "ops", [*rate("quire_autorecovery_repaired_total"), *rate("quire_autorecovery_failed_total")]),
    Panel("Copied", "Bps", rate("quire_autorecovery_bytes_total")),
    Panel("Ledgers that wait for repair", "short", [("sum by (outlook) (quire_autorecovery_parked)", "{{outlook}}")]),
    Panel("CPU", "percentunit", rate("process_cpu_seconds_total")),
)
BOOKIE = (
    Panel("Adds", "s", quantiles("quire_add_seconds", ONE, "le, instance"), "from taking them to their sync"),
    Panel("Reads", "s", quantiles("quire_read_seconds", ONE, "le, instance")),
    Panel("Syncs of journals", "s", quantiles("quire_journal_sync_seconds", ONE, "le, instance")),
    Panel(
        "Entries",
        "ops",
        [*rate("quire_adds_total", ONE, "added"), *rate("quire_service_read_entries_total", ONE, "read")],
    ),
    Panel(
        *("Entries of a sync", "short"),
        [(f"rate(quire_adds_total{ONE}[5m]) / rate(quire_journal_syncs_total{ONE}[5m])", "{{instance}}")],
        "how well adds are grouped",
    ),
    Panel(
        "Reads answered from memory",
        "ops",
        [*rate("quire_reads_cached_total", ONE, "memory"), *rate("quire_reads_stored_total", ONE, "disk")],
    ),
    Panel("Checkpoints", "s", quantiles("quire_checkpoint_seconds", ONE, "le, instance")),
    Panel("Flushed", "Bps", rate("quire_flushed_bytes_total", ONE)),
    Panel("Journal", "Bps", rate("quire_journal_bytes_total", ONE)),
    Panel(
        *("Entry logs", "bytes"),
        [(f"quire_entry_log_bytes{ONE}", "all"), (f"quire_entry_log_living_bytes{ONE}", "needed")],
    ),
    Panel("Compaction moves", "Bps", rate("quire_gc_bytes_moved_total", ONE)),
    Panel("Ledgers deleted", "ops", rate("quire_gc_ledgers_deleted_total", ONE)),
    Panel("What waits", "short", [(f"quire_parked_runs{ONE}", "adds"), (f"quire_reads_waiting{ONE}", "reads")]),
    Panel(
        "Refused",
        "ops",
        [
            *rate("quire_service_adds_refused_total", ONE, "adds"),
            *rate("quire_service_reads_refused_total", ONE, "reads"),
        ],
    ),
    Panel("Disks, free", "percentunit", [(f"quire_disk_free_bytes{ONE} / quire_disk_bytes{ONE}", "{{of}}")]),
    Panel("Memory", "bytes", [(f"process_resident_memory_bytes{ONE}", "{{instance}}")]),
    Panel("Open files", "short", [(f"process_open_fds{ONE}", "{{instance}}")]),
    Panel("CPU", "percentunit", rate("process_cpu_seconds_total", ONE)),
)


def alerts() -> str:
    """The rules as Prometheus reads them."""
    lines = ["# Made by `python -m quire.tools.watching`.", "groups:", "  - name: quire", "    rules:"]
    for each in ALERTS:
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.expression)}",
            f"        for: {each.wait}",
            "        labels:",
            f"          severity: {each.severity}",
            "        annotations:",
            f"          summary: {json.dumps(each.means)}",
            f"          description: {json.dumps('To do: ' + each.do)}",
        ]
    return "\n".join(lines) + "\n"


def dashboard(title: str, name: str, panels: Sequence[Panel], variables: Sequence[dict[str, Any]] = ()) -> str:
    """A dashboard as Grafana imports it."""
    document = {
        "title": title,
        "uid": name,
        "tags": ["quire"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}, *variables]},
        "panels": [drawn(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(document, indent=1) + "\n"


def drawn(number: int, panel: Panel) -> dict[str, Any]:
    """A panel in its place."""
    per_row = COLUMNS // WIDTH
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "title": panel.title,
        "description": panel.about,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": number % per_row * WIDTH, "y": number // per_row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": source, "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(panel.curves)
        ],
    }


def files() -> dict[str, str]:
    """Every file, by its name."""
    chosen = {
        "name": "bookie",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(quire_bookie_status, instance)",
        "refresh": 2,
    }
    return {
        "alerts.yml": alerts(),
        "cluster.json": dashboard("quire: cluster", "quire-cluster", CLUSTER),
        "bookie.json": dashboard("quire: bookie", "quire-bookie", BOOKIE, [chosen]),
    }


def write_all(directory: Path = DIRECTORY) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_all()
