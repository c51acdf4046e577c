"""
The options of AutoRecovery, as data with documentation: of the auditor that finds ledgers short of copies, and of the
worker that repairs them.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the environment; see
`properties`.  Keys that BookKeeper lacks are our own and say so in the sample.

A bookie and AutoRecovery may read one file.
"""

from quire.conf.options import option
from quire.conf.parts.http import HttpAddress, HttpOptions
from quire.conf.parts.identity import IdentityOptions
from quire.conf.parts.rights import RightsFileOptions

# SPDX-License-Identifier: Apache-2.0

OWN_HTTP_PORT = "autoRecoveryHttpPort"
DELAY_S_MAX = (1 << 31) - 1


class AutoRecoveryOptions(HttpOptions, IdentityOptions, RightsFileOptions):
    """One process of AutoRecovery.  What the metadata keeps (the delay, the switch) holds for all of them."""

    lost_bookie_recovery_delay_s: int = option(
        "lostBookieRecoveryDelay",
        0,
        "how long a bookie may stay away before its ledgers are marked; only the first process of a cluster says "
        "it, then `quire autorecovery delay` does",
        unit="s",
        ge=0,
        le=DELAY_S_MAX,
    )
    bookie_check_interval_s: int = option(
        "auditorPeriodicBookieCheckInterval",
        86_400,
        "time between two looks for lost bookies in all ledgers; 0 or less: only at the auditor's start",
        unit="s",
    )
    copies_check_interval_s: int = option(
        "auditorPeriodicCheckInterval",
        604_800,
        "time between two checks of whether bookies have all copies that they should have; 0 or less: off",
        unit="s",
    )
    verified_percent: int = option(
        "auditorLedgerVerificationPercentage",
        0,
        "how many percent of all entries that check also reads, at auditorScrubRate, digests checked and copies "
        "compared: drawn anew each time, in pieces of 4096; 0: bookies' lists alone say what they have",
        ge=0,
        le=100,
    )
    placement_check_interval_s: int = option(
        "auditorPeriodicPlacementPolicyCheckInterval",
        0,
        "time between two checks of where the copies lie; 0 or less: off",
        unit="s",
    )
    replicas_check_interval_s: int = option(
        "auditorReplicasCheckInterval", 0, "time between two counts of every entry's copies; 0 or less: off", unit="s"
    )
    scrub_interval_s: int = option(
        "auditorPeriodicScrubInterval",
        2_592_000,
        "time from the start of one scrub, which reads every copy of every entry, to the start of the "
        "next; 0 or less: off (our own key)",
        unit="s",
    )
    scrub_bytes_per_second: int = option(
        "auditorScrubRate",
        5_000_000,
        "most bytes that a scrub reads a second of all bookies together; 0 or less: no limit (our own key)",
        unit="bytes",
    )
    ledgers_per_second: int = option(
        "auditorLedgersPerSecond",
        2000,
        "most ledgers whose metadata a pass of the auditor reads a second (our own key)",
        ge=1,
    )
    repair_placement: bool = option(
        "repairedPlacementPolicyNotAdheringBookieEnabled",
        False,
        "ledgers whose copies lie against the placement policy are marked and moved, not only counted",
    )
    note_times: bool = option("storeSystemTimeAsLedgerUnderreplicatedMarkTime", True, "a mark carries the time of it")

    ledgers_at_once: int = option(
        "repairLedgersAtOnce", 4, "ledgers that one worker repairs at a time (our own key)", ge=1, le=1000
    )
    tasks_per_second: float = option(
        "zkReplicationTaskRateLimit",
        0.0,
        "most ledgers that one worker takes from the queue a second; 0: no limit",
        ge=0,
    )
    bytes_per_second: int = option(
        "replicationRateByBytes", -1, "most bytes that one worker copies a second; 0 or less: no limit", unit="bytes"
    )
    open_ledger_grace_ms: int = option(
        "openLedgerRereplicationGracePeriod",
        30_000,
        "how long the writer of an open ledger has to replace a lost bookie before the ledger is closed",
        unit="ms",
        ge=0,
    )
    backoff_ms: int = option(
        "rwRereplicateBackoffMs",
        5_000,
        "how long a worker waits after a failure that is not one ledger's, as of the metadata store",
        unit="ms",
        ge=0,
    )
    failed_ledger_pause_ms: int = option(
        "lockReleaseOfFailedLedgerGracePeriod",
        300_000,
        "most that a worker waits before it tries a ledger again that it could not repair",
        unit="ms",
        ge=0,
    )

    own_http_port: int | None = option(
        OWN_HTTP_PORT,
        None,
        "the port of its HTTP port, in a process of its own, for a file that a bookie on the same machine reads too; "
        "unset: as a bookie's (our own key)",
        ge=0,
        le=65535,
    )

    @property
    def http_address(self) -> HttpAddress:
        """Where the HTTP port listens."""
        found = super().http_address
        return found if self.own_http_port is None else HttpAddress(found.host, self.own_http_port, OWN_HTTP_PORT)
