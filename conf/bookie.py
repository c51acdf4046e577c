"""
The options of a bookie, as data with documentation.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the environment; see
`properties`.  Keys that BookKeeper lacks are our own and say so in the sample.
"""

import os
from typing import Self

from pydantic import field_validator, model_validator

from quire.conf.options import Part, option, optional
from quire.conf.parts.http import HttpOptions
from quire.conf.parts.identity import IdentityOptions
from quire.conf.parts.rights import RightsOptions
from quire.conf.parts.stores import StoreOptions

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
ENTRY_LOG_BYTES_MAX = (1 << 31) - 1


class PeerOptions(Part):
    """Bounds of what the peers of a bookie make it hold, by connection, by address and of all.  They are on unset."""

    connection_pending_bytes_max: int = option(
        "connectionPendingSizeMB",
        64 * MIB,
        "what one connection sent and what waits for the journal; beyond it the bookie stops reading "
        "from it (our own key)",
        unit="MiB",
        ge=MIB,
    )
    pending_bytes_max: int = option(
        "pendingSizeMB",
        256 * MIB,
        "the same of all connections; beyond it no connection of which something waits is read from, and at twice "
        "as much no large frame (our own key)",
        unit="MiB",
        ge=MIB,
    )
    answers_bytes_max: int = option(
        "answersSizeMB",
        256 * MIB,
        "answers that their readers do not take; beyond it the connections that took none for the "
        "longest time are closed (our own key)",
        unit="MiB",
        ge=MIB,
    )
    partial_bytes_max: int = option(
        "partialFramesSizeMB",
        48 * MIB,
        "frames that are not whole yet, of all connections, at least two of the largest; beyond it the slowest of "
        "the largest are closed (our own key)",
        unit="MiB",
        ge=MIB,
    )
    partial_bytes_per_address_max: int = option(
        "partialFramesPerAddressSizeMB",
        32 * MIB,
        "the same of one address (IPv4) or /64 (IPv6); with a proxy before the bookie, as much as "
        "partialFramesSizeMB (our own key)",
        unit="MiB",
        ge=MIB,
    )
    connections_max: int = option(
        "connectionsMax",
        10_000,
        "open connections; beyond it the oldest that never asked anything is closed, without such the longest "
        "idle one (our own key)",
        ge=1,
    )
    connections_per_address_max: int = option(
        "connectionsPerAddressMax",
        5_000,
        "the same of one address (IPv4) or /64 (IPv6), of which one is closed; with a proxy before the bookie, as "
        "many as connectionsMax (our own key)",
        ge=1,
    )
    partial_frame_ms_max: int = option(
        "partialFrameTimeoutMs",
        60_000,
        "a begun frame must be whole after this, or its connection is closed (our own key)",
        unit="ms",
        ge=100,
    )
    partial_frame_bytes_per_second_min: int = option(
        "partialFrameBytesPerSecondMin",
        65_536,
        "a begun frame of more than 64 KiB must grow by so much a second, over 10 s, or its connection is closed; "
        "0: only partialFrameTimeoutMs (our own key)",
        unit="bytes",
        ge=0,
    )


class BookieOptions(PeerOptions, HttpOptions, StoreOptions, RightsOptions, IdentityOptions):
    """One bookie.  Its directories have no default: a bookie that guesses where its data is loses it."""

    host_id: str | None = optional(
        "hostId",
        "the machine that this bookie shares with others: two copies of an entry are never put on bookies with "
        "the same one; `quire host start` sets it (our own key)",
    )
    journal_directories: tuple[str, ...] = option(
        ("journalDirectories", "journalDirectory"),
        ...,
        "where the journals are, comma-separated; a ledger's journal is chosen by its id",
        min_length=1,
        example="/var/lib/quire/journal",
    )
    ledger_directories: tuple[str, ...] = option(
        "ledgerDirectories",
        ...,
        "where entry logs are, comma-separated; a ledger's directory is chosen by its id, so the order matters",
        min_length=1,
        example="/var/lib/quire/ledgers",
    )
    index_directories: tuple[str, ...] = option(
        "indexDirectories", (), "where indexes are, as many as ledger directories; empty: beside the entry logs"
    )
    allow_storage_expansion: bool = option(
        "allowStorageExpansion", False, "new, empty directories may be added to an old bookie"
    )

    tries_itself: bool = option(
        "sanityCheckMetricsEnabled",
        False,
        "each minute a ledger is written to this bookie alone, read back and deleted; bookie_SERVER_SANITY at /metrics "
        "says whether that went well",
    )

    journal_segment_bytes: int = option(
        "journalSegmentSizeMB", 64 * MIB, "size of one preallocated journal segment (our own key)", unit="MiB", ge=MIB
    )
    journal_sync_data: bool = option(
        "journalSyncData", True, "sync each group before it is acknowledged; false loses data with the power"
    )
    journal_write_data: bool = option(
        "journalWriteData",
        True,
        "entries go to the journal; false: to memory, at the next checkpoint to the disk, and after a kill this bookie "
        "doesn't know what it lost (its ledgers are in limbo until they are copied from others)",
    )
    journal_group_wait_ms_max: int = option(
        "journalMaxGroupWaitMSec",
        0,
        "how long a group may wait for more; 0: only while the last sync runs",
        unit="ms",
        ge=0,
        le=1000,
    )
    journal_group_bytes_max: int = option(
        "journalBufferedWritesThreshold", 4 * MIB, "most bytes in one group", unit="bytes", ge=4096
    )
    journal_queue_bytes_max: int = option(
        "journalMaxMemorySizeMb",
        64 * MIB,
        "most bytes waiting for a journal; beyond it adds are parked",
        unit="MiB",
        ge=MIB,
    )
    journal_backlog_bytes_max: int = option(
        "journalBacklogSizeMB",
        16384 * MIB,
        "a journal that checkpoints can't free takes no more than this (at least four segments); beyond "
        "it adds are parked (our own key)",
        unit="MiB",
        ge=MIB,
    )
    write_cache_bytes_max: int = option(
        "dbStorage_writeCacheMaxSizeMb", 128 * MIB, "both halves of the write cache", unit="MiB", ge=2 * MIB
    )
    read_cache_bytes_max: int = option("dbStorage_readAheadCacheMaxSizeMb", 32 * MIB, "read-ahead", unit="MiB", ge=0)
    entry_log_bytes_max: int = option(
        "logSizeLimit",
        1024 * MIB,
        "an entry log ends at this size; more than 2147483647 is taken for that",
        unit="bytes",
        ge=4096,
    )
    flush_interval_ms: int = option("flushInterval", 10_000, "time between checkpoints", unit="ms", ge=10)

    gc_interval_ms: int = option(
        "gcWaitTime",
        600_000,
        "time between two rounds of garbage collection: deleted ledgers are looked for, logs removed",
        unit="ms",
        ge=1000,
    )
    gc_metadata_reads_per_second: int = option(
        "gcMetadataOpRateLimit", 1000, "most reads of the metadata of ledgers that seem to be deleted, a second", ge=1
    )
    over_replicated_interval_ms: int = option(
        "gcOverreplicatedLedgerWaitTime",
        86_400_000,
        "time between two looks for copies of closed ledgers that do not name this bookie and have all "
        "their copies elsewhere; 0 or less: off",
        unit="ms",
    )
    minor_compaction_threshold: float = option(
        "minorCompactionThreshold",
        0.2,
        "minor compaction takes entry logs of which a smaller part lives; 0 or less, or above 1: off",
    )
    minor_compaction_interval_s: int = option(
        "minorCompactionInterval", 3600, "time between minor compactions; 0 or less: off", unit="s"
    )
    minor_compaction_ms_max: int = option(
        "minorCompactionMaxTimeMillis",
        -1,
        "a minor compaction begins no further log after this; 0 or less: no limit",
        unit="ms",
    )
    major_compaction_threshold: float = option("majorCompactionThreshold", 0.8, "the same of major compaction")
    major_compaction_interval_s: int = option(
        "majorCompactionInterval", 86_400, "time between major compactions; 0 or less: off", unit="s"
    )
    major_compaction_ms_max: int = option(
        "majorCompactionMaxTimeMillis", -1, "the same of a major compaction", unit="ms"
    )
    compaction_entries_per_second: int = option(
        ("compactionRateByEntries", "compactionRate"),
        0,
        "most entries that compaction moves a second; 0: no limit",
        ge=0,
    )
    compaction_bytes_per_second: int = option(
        "compactionRateByBytes", 32 * MIB, "most bytes that compaction moves a second; 0: no limit", unit="bytes", ge=0
    )
    compaction_by_bytes: bool | None = option(
        "isThrottleByBytes",
        None,
        "true: only the limit by bytes holds; false: only that by entries, if there is one; unset: both",
    )
    force_allow_compaction: bool = option(
        "forceAllowCompaction",
        False,
        "a forced garbage collection compacts although that kind of compaction is turned off",
    )
    gc_when_no_space: bool = option(
        "isForceGCAllowWhenNoSpace",
        False,
        "compact on nearly full disks too, and at once when one gets so; needs room for what is moved",
    )

    disk_usage_threshold: float = option(
        "diskUsageThreshold",
        0.95,
        "a ledger directory whose disk is fuller than this part makes the bookie read-only",
        gt=0,
        lt=1,
    )
    disk_usage_low_water_mark: float | None = option(
        "diskUsageLwmThreshold",
        None,
        "a disk that was fuller than diskUsageThreshold counts as full until it is less full than this part; unset: "
        "than diskUsageThreshold",
        gt=0,
        lt=1,
    )
    disk_usage_warn_threshold: float = option(
        "diskUsageWarnThreshold", 0.90, "a fuller disk gets a line in the log", gt=0, lt=1
    )
    disk_check_interval_ms: int = option(
        "diskCheckInterval", 10_000, "time between looks at the disks", unit="ms", ge=100
    )
    high_priority_free_bytes_min: int = option(
        "minUsableSizeForHighPriorityWrites",
        1024 * MIB,
        "a read-only bookie accepts what ledger recovery writes while a disk has this much free",
        unit="bytes",
        ge=0,
    )
    force_read_only: bool = option("forceReadOnlyBookie", False, "start read-only and stay so")
    keeps_read_only: bool = option(
        "persistBookieStatusEnabled",
        False,
        "that an operator made it read-only (`quire bookie readonly ID on`) holds through restarts",
    )

    frame_bytes_max: int = option(
        "nettyMaxFrameSizeBytes",
        5_259_264,
        "largest frame, its length field included; as it is, it takes Pulsar's largest message",
        unit="bytes",
        ge=4096,
    )
    batch_read_bytes_max: int = option(
        "maxBatchReadSize", 5_242_880, "most bytes in one batch read's answer", unit="bytes", ge=4096
    )
    reads_pending_max: int = option(
        "maxPendingReadRequestsPerThread",
        10_000,
        "reads that wait for the disk; one more is answered with too many requests; 0: no limit",
        ge=0,
    )
    long_polls_max: int = option(
        "longPollsMax",
        10_000,
        "long polls that wait; one more is refused with too many requests, and of one connection one that "
        "is above three quarters of it (our own key)",
        ge=1,
    )

    auto_recovery: bool = option(
        "autoRecoveryDaemonEnabled",
        False,
        "run AutoRecovery in the bookie's process; its own keys are in autorecovery.conf",
    )

    @field_validator("entry_log_bytes_max")
    @classmethod
    def _addressable(cls, value: int) -> int:
        """BookKeeper's default was one byte more, up to 4.2."""
        return min(value, ENTRY_LOG_BYTES_MAX)

    @property
    def compaction_limits(self) -> tuple[int, int]:
        """Entries and bytes that compaction may move a second; 0: no limit."""
        entries, moved = self.compaction_entries_per_second, self.compaction_bytes_per_second
        if self.compaction_by_bytes is None:
            return entries, moved
        return (entries, 0) if entries and not self.compaction_by_bytes else (0, moved)

    @property
    def reads_again(self) -> bool:
        """True if it has files of TLS, users or rights, which SIGHUP has it look at."""
        return self.tls or self.http_tls or self.authentication is not None

    @model_validator(mode="after")
    def _relations(self) -> Self:
        """Checks options against each other; `ValueError` names both keys."""
        if self.index_directories and len(self.index_directories) != len(self.ledger_directories):
            raise ValueError(
                f"indexDirectories names {len(self.index_directories)} directories, ledgerDirectories "
                f"{len(self.ledger_directories)}: give as many, or none"
            )
        directories = {
            "journalDirectories": self.journal_directories,
            "ledgerDirectories": self.ledger_directories,
            "indexDirectories": self.index_directories,
        }
        for key, paths in directories.items():
            if not all(paths):
                raise ValueError(f"{key} has an empty name: {','.join(paths)!r}")
            if len({os.path.normpath(path) for path in paths}) != len(paths):
                raise ValueError(f"{key} names a directory twice: {','.join(paths)}")
        if 0 < self.major_compaction_threshold < self.minor_compaction_threshold <= 1:
            raise ValueError(
                f"minorCompactionThreshold {self.minor_compaction_threshold} is above majorCompactionThreshold "
                f"{self.major_compaction_threshold}: a major compaction would take fewer logs than a minor one"
            )
        if self.disk_usage_warn_threshold > self.disk_usage_threshold:
            raise ValueError(
                f"diskUsageWarnThreshold {self.disk_usage_warn_threshold} is above diskUsageThreshold "
                f"{self.disk_usage_threshold}"
            )
        if self.disk_usage_low_water_mark is not None and self.disk_usage_low_water_mark > self.disk_usage_threshold:
            raise ValueError(
                f"diskUsageLwmThreshold {self.disk_usage_low_water_mark} is above diskUsageThreshold "
                f"{self.disk_usage_threshold}"
            )
        return self
