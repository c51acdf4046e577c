"""
The options of a bookie, as data with documentation.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the environment; see
`properties`.  Keys that BookKeeper lacks are our own and say so in the sample.
"""

import os
from typing import Self

from pydantic import model_validator

from quire.conf.options import option
from quire.conf.parts.http import HttpOptions
from quire.conf.parts.identity import IdentityOptions
from quire.conf.parts.peers import PeerOptions
from quire.conf.parts.rights import RightsOptions
from quire.conf.parts.zookeeper import ZooKeeperOptions

# SPDX-License-Identifier: Apache-2.0

KIB = 1 << 10
MIB = 1 << 20


class BookieOptions(PeerOptions, HttpOptions, ZooKeeperOptions, RightsOptions, IdentityOptions):
    """
    One bookie.  Journal and ledger directories have no default: a bookie that guesses where its data is loses it.
    """

    host_id: str | None = option(
        None,
        key="hostId",
        min_length=1,
        description=(
            "the machine that this bookie shares with others: two copies of an entry are never put on bookies with "
            "the same one; `quire host start` sets it (our own key)"
        ),
    )
    journal_directories: tuple[str, ...] = option(
        min_length=1,
        key=("journalDirectories", "journalDirectory"),
        example="/var/lib/quire/journal",
        description="where the journals are, comma-separated; a ledger's journal is chosen by its id",
    )
    ledger_directories: tuple[str, ...] = option(
        min_length=1,
        key="ledgerDirectories",
        example="/var/lib/quire/ledgers",
        description=(
            "where entry logs are, comma-separated; a ledger's directory is chosen by its id, so the order matters"
        ),
    )
    index_directories: tuple[str, ...] = option(
        (),
        key="indexDirectories",
        description="where indexes are, as many as ledger directories; empty: beside the entry logs",
    )
    allow_storage_expansion: bool = option(
        False, key="allowStorageExpansion", description="new, empty directories may be added to an old bookie"
    )

    journal_segment_bytes: int = option(
        64 * MIB,
        ge=MIB,
        key="journalSegmentSizeMB",
        unit="MiB",
        scale=MIB,
        description="size of one preallocated journal segment (our own key)",
    )
    journal_sync_data: bool = option(
        True,
        key="journalSyncData",
        description="sync each group before it is acknowledged; false loses data with the power",
    )
    journal_write_data: bool = option(
        True,
        key="journalWriteData",
        description="entries go to the journal; false: to memory, at the next checkpoint to the disk, and after a "
        "kill this bookie doesn't know what it lost "
        "(its ledgers are in limbo until they are copied from others)",
    )
    journal_group_wait_ms_max: int = option(
        0,
        ge=0,
        le=1000,
        key="journalMaxGroupWaitMSec",
        unit="ms",
        description="how long a group may wait for more; 0: only while the last sync runs",
    )
    journal_group_bytes_max: int = option(
        4 * MIB, ge=4096, key="journalBufferedWritesThreshold", unit="bytes", description="most bytes in one group"
    )
    journal_queue_bytes_max: int = option(
        64 * MIB,
        ge=MIB,
        key="journalMaxMemorySizeMb",
        unit="MiB",
        scale=MIB,
        description="most bytes waiting for a journal; beyond it adds are parked",
    )
    journal_backlog_bytes_max: int = option(
        16384 * MIB,
        ge=MIB,
        key="journalBacklogSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "a journal that checkpoints can't free takes no more than this (at least four segments); beyond "
            "it adds are parked (our own key)"
        ),
    )
    write_cache_bytes_max: int = option(
        128 * MIB,
        ge=2 * MIB,
        key="dbStorage_writeCacheMaxSizeMb",
        unit="MiB",
        scale=MIB,
        description="both halves of the write cache",
    )
    read_cache_bytes_max: int = option(
        32 * MIB, ge=0, key="dbStorage_readAheadCacheMaxSizeMb", unit="MiB", scale=MIB, description="read-ahead"
    )
    entry_log_bytes_max: int = option(
        1024 * MIB,
        ge=4096,
        le=(1 << 31) - 1,
        key="logSizeLimit",
        unit="bytes",
        description="an entry log ends at this size",
    )
    flush_interval_ms: int = option(
        10_000, ge=10, key="flushInterval", unit="ms", description="time between checkpoints"
    )

    gc_interval_ms: int = option(
        600_000,
        ge=1000,
        key="gcWaitTime",
        unit="ms",
        description="time between two rounds of garbage collection: deleted ledgers are looked for, logs removed",
    )
    gc_metadata_reads_per_second: int = option(
        1000,
        ge=1,
        key="gcMetadataOpRateLimit",
        description="most reads of the metadata of ledgers that seem to be deleted, a second",
    )
    over_replicated_interval_ms: int = option(
        86_400_000,
        key="gcOverreplicatedLedgerWaitTime",
        unit="ms",
        description=(
            "time between two looks for copies of closed ledgers that do not name this bookie and have all "
            "their copies elsewhere; 0 or less: off"
        ),
    )
    minor_compaction_threshold: float = option(
        0.2,
        key="minorCompactionThreshold",
        description="minor compaction takes entry logs of which a smaller part lives; 0 or less, or above 1: off",
    )
    minor_compaction_interval_s: int = option(
        3600, key="minorCompactionInterval", unit="s", description="time between minor compactions; 0 or less: off"
    )
    minor_compaction_ms_max: int = option(
        -1,
        key="minorCompactionMaxTimeMillis",
        unit="ms",
        description="a minor compaction begins no further log after this; 0 or less: no limit",
    )
    major_compaction_threshold: float = option(
        0.8, key="majorCompactionThreshold", description="the same of major compaction"
    )
    major_compaction_interval_s: int = option(
        86_400, key="majorCompactionInterval", unit="s", description="time between major compactions; 0 or less: off"
    )
    major_compaction_ms_max: int = option(
        -1, key="majorCompactionMaxTimeMillis", unit="ms", description="the same of a major compaction"
    )
    compaction_entries_per_second: int = option(
        0,
        ge=0,
        key=("compactionRateByEntries", "compactionRate"),
        description="most entries that compaction moves a second; 0: no limit",
    )
    compaction_bytes_per_second: int = option(
        32 * MIB,
        ge=0,
        key="compactionRateByBytes",
        unit="bytes",
        description="most bytes that compaction moves a second; 0: no limit",
    )
    force_allow_compaction: bool = option(
        False,
        key="forceAllowCompaction",
        description="a forced garbage collection compacts although that kind of compaction is turned off",
    )
    gc_when_no_space: bool = option(
        False,
        key="isForceGCAllowWhenNoSpace",
        description="compact on nearly full disks too, and at once when one gets so; needs room for what is moved",
    )

    disk_usage_threshold: float = option(
        0.95,
        gt=0,
        lt=1,
        key="diskUsageThreshold",
        description="a ledger directory whose disk is fuller than this part makes the bookie read-only",
    )
    disk_usage_warn_threshold: float = option(
        0.90, gt=0, lt=1, key="diskUsageWarnThreshold", description="a fuller disk gets a line in the log"
    )
    disk_check_interval_ms: int = option(
        10_000, ge=100, key="diskCheckInterval", unit="ms", description="time between looks at the disks"
    )
    high_priority_free_bytes_min: int = option(
        1024 * MIB,
        ge=0,
        key="minUsableSizeForHighPriorityWrites",
        unit="bytes",
        description="a read-only bookie accepts what ledger recovery writes while a disk has this much free",
    )
    force_read_only: bool = option(False, key="forceReadOnlyBookie", description="start read-only and stay so")

    frame_bytes_max: int = option(
        5_259_264,
        ge=4096,
        key="nettyMaxFrameSizeBytes",
        unit="bytes",
        description="largest frame, its length field included; as it is, it takes Pulsar's largest message",
    )
    batch_read_bytes_max: int = option(
        5_242_880, ge=4096, key="maxBatchReadSize", unit="bytes", description="most bytes in one batch read's answer"
    )
    reads_pending_max: int = option(
        10_000,
        ge=0,
        key="maxPendingReadRequestsPerThread",
        description="reads that wait for the disk; one more is answered with too many requests; 0: no limit",
    )
    long_polls_max: int = option(
        10_000,
        ge=1,
        key="longPollsMax",
        description="long polls that wait; one more is refused with too many requests, and of one connection one that "
        "is above three quarters of it (our own key)",
    )

    auto_recovery: bool = option(
        False,
        key="autoRecoveryDaemonEnabled",
        description="run AutoRecovery in the bookie's process; its own keys are in autorecovery.conf",
    )

    metrics_host: str = option(
        "127.0.0.1", key="prometheusStatsHttpAddress", description="address of /metrics and /healthz"
    )
    metrics_port: int = option(
        0, ge=0, le=65535, key="prometheusStatsHttpPort", description="their port; 0 takes a free one"
    )

    @property
    def reads_again(self) -> bool:
        """Whether it has files of TLS, users or rights, which SIGHUP has it look at."""
        return self.tls or self.http_tls or self.authentication is not None

    @model_validator(mode="after")
    def _relations(self) -> Self:
        """What no single range can say; `ValueError` names both keys."""
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
                f"{self.major_compaction_threshold}: "
                "a major compaction would take fewer logs than a minor one"
            )
        if self.disk_usage_warn_threshold > self.disk_usage_threshold:
            raise ValueError(
                f"diskUsageWarnThreshold {self.disk_usage_warn_threshold} is above diskUsageThreshold "
                f"{self.disk_usage_threshold}"
            )
        return self
