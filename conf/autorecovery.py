"""
The options of AutoRecovery, as data with documentation: of the auditor that finds ledgers short of copies, and of the
worker that repairs them.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the environment; see
`properties`.  Keys that BookKeeper lacks are our own and say so in the sample.

A bookie and AutoRecovery may read one file.
"""

from quire.conf.options import option
from quire.conf.parts.http import HttpOptions
from quire.conf.parts.identity import IdentityOptions
from quire.conf.parts.rights import RightsFileOptions

# SPDX-License-Identifier: Apache-2.0

DELAY_S_MAX = (1 << 31) - 1


class AutoRecoveryOptions(HttpOptions, IdentityOptions, RightsFileOptions):
    """One process of AutoRecovery.  What the metadata keeps (the delay, the switch) holds for all of them."""

    lost_bookie_recovery_delay_s: int = option(
        0,
        ge=0,
        le=DELAY_S_MAX,
        key="lostBookieRecoveryDelay",
        unit="s",
        description=(
            "how long a bookie may stay away before its ledgers are marked; only the first process of a cluster says "
            "it, then `quire autorecovery delay` does"
        ),
    )
    bookie_check_interval_s: int = option(
        86_400,
        key="auditorPeriodicBookieCheckInterval",
        unit="s",
        description="time between two looks for lost bookies in all ledgers; 0 or less: only at the auditor's start",
    )
    copies_check_interval_s: int = option(
        604_800,
        key="auditorPeriodicCheckInterval",
        unit="s",
        description="time between two checks of whether bookies have all copies that they should have; 0 or less: off",
    )
    placement_check_interval_s: int = option(
        0,
        key="auditorPeriodicPlacementPolicyCheckInterval",
        unit="s",
        description="time between two checks of where the copies lie; 0 or less: off",
    )
    replicas_check_interval_s: int = option(
        0,
        key="auditorReplicasCheckInterval",
        unit="s",
        description="time between two counts of every entry's copies; 0 or less: off",
    )
    scrub_interval_s: int = option(
        2_592_000,
        key="auditorPeriodicScrubInterval",
        unit="s",
        description="time from the start of one scrub, which reads every copy of every entry, to the start of the "
        "next; 0 or less: off (our own key)",
    )
    scrub_bytes_per_second: int = option(
        5_000_000,
        key="auditorScrubRate",
        unit="bytes",
        description="most bytes that a scrub reads a second of all bookies together; 0 or less: no limit (our own key)",
    )
    ledgers_per_second: int = option(
        2000,
        ge=1,
        key="auditorLedgersPerSecond",
        description="most ledgers whose metadata a pass of the auditor reads a second (our own key)",
    )
    repair_placement: bool = option(
        False,
        key="repairedPlacementPolicyNotAdheringBookieEnabled",
        description="ledgers whose copies lie against the placement policy are marked and moved, not only counted",
    )
    note_times: bool = option(
        True,
        key="storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        description="a mark carries the time of it",
    )

    ledgers_at_once: int = option(
        4,
        ge=1,
        le=1000,
        key="repairLedgersAtOnce",
        description="ledgers that one worker repairs at a time (our own key)",
    )
    tasks_per_second: float = option(
        0.0,
        ge=0,
        key="zkReplicationTaskRateLimit",
        description="most ledgers that one worker takes from the queue a second; 0: no limit",
    )
    bytes_per_second: int = option(
        -1,
        key="replicationRateByBytes",
        unit="bytes",
        description="most bytes that one worker copies a second; 0 or less: no limit",
    )
    open_ledger_grace_ms: int = option(
        30_000,
        ge=0,
        key="openLedgerRereplicationGracePeriod",
        unit="ms",
        description="how long the writer of an open ledger has to replace a lost bookie before the ledger is closed",
    )
    backoff_ms: int = option(
        5_000,
        ge=0,
        key="rwRereplicateBackoffMs",
        unit="ms",
        description="how long a worker waits after a failure that is not one ledger's, as of the metadata store",
    )
    failed_ledger_pause_ms: int = option(
        300_000,
        ge=0,
        key="lockReleaseOfFailedLedgerGracePeriod",
        unit="ms",
        description="most that a worker waits before it tries a ledger again that it could not repair",
    )

    metrics_host: str = option(
        "127.0.0.1",
        key="prometheusStatsHttpAddress",
        description="address of /metrics and /healthz of a process of its own",
    )
    metrics_port: int = option(
        0,
        ge=0,
        le=65535,
        key=("autoRecoveryHttpPort", "prometheusStatsHttpPort"),
        description="their port; 0 takes a free one (autoRecoveryHttpPort is our own key, for a file that a bookie on "
        "the same machine reads too)",
    )
