"""
The options of a client, as data with documentation.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the
environment; see `properties`.  Keys that BookKeeper lacks are our own.

Every queue that these options bound pushes back on its user; none of them drops anything.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
CLASSES = {
    "DefaultEnsemblePlacementPolicy": "random",
    "RackawareEnsemblePlacementPolicy": "rack-aware",
    "RegionAwareEnsemblePlacementPolicy": "region-aware",
    "ZoneawareEnsemblePlacementPolicy": "zone-aware",
    "ScriptBasedMapping": "script",
    "TableMapping": "file",
    "BookieRackAffinityMapping": "metadata",
}


class ClientOptions(BaseModel):
    """One client: its connections to bookies, the windows of its writers and the read-ahead of its readers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["v2", "v3"] = option(
        "v2",
        key="useV2WireProtocol",
        description=(
            "generation of adds, reads and batch reads, v2 (true) or v3 (false, as BookKeeper has it); what "
            "V2 lacks goes over V3 in any case"
        ),
    )

    # connections
    connect_timeout_ms: int = option(
        10_000,
        ge=1,
        key="clientConnectTimeoutMillis",
        unit="ms",
        description="how long it may take to look a bookie up, connect and hear who it is",
    )
    reconnect_wait_ms_min: int = option(
        20,
        ge=0,
        key="reconnectWaitMillisMin",
        unit="ms",
        description="a bookie that refused is left alone for this long, twice as long at each failure",
    )
    reconnect_wait_ms_max: int = option(
        1_000, ge=0, key="reconnectWaitMillisMax", unit="ms", description="most that this wait grows to"
    )
    tcp_user_timeout_ms: int = option(
        20_000,
        ge=0,
        key="clientTcpUserTimeoutMillis",
        unit="ms",
        description="the kernel gives up unacknowledged bytes after this; 0: its own default",
    )
    frame_bytes_max: int = option(
        5_242_880,
        ge=4096,
        key="nettyMaxFrameSizeBytes",
        unit="bytes",
        description="largest frame sent, its length field included; answers may be 1 KiB larger",
    )

    # requests
    add_timeout_ms: int = option(
        5_000,
        ge=1,
        scale=1000,
        key="addEntryTimeoutSec",
        unit="s",
        description="a bookie that answers none of its outstanding adds for this long has failed",
    )
    read_timeout_ms: int = option(
        5_000,
        ge=1,
        scale=1000,
        key="readEntryTimeoutSec",
        unit="s",
        description="a read, LAC request or force without an answer has failed",
    )
    speculative_read_ms: int = option(
        2_000,
        ge=0,
        key="speculativeReadTimeout",
        unit="ms",
        description="the next replica is asked too after this; 0: only after an error",
    )
    speculative_read_ms_max: int = option(
        20_000,
        ge=0,
        key="maxSpeculativeReadTimeout",
        unit="ms",
        description="most that this wait grows to while a reader goes on to be late",
    )
    speculative_read_growth: float = option(
        2.0,
        ge=1.0,
        key="speculativeReadTimeoutBackoffMultiplier",
        description="how much longer each further wait within one read is",
    )
    speculative_poll_ms: int = option(
        1_500,
        ge=0,
        key="firstSpeculativeReadLACTimeout",
        unit="ms",
        description="a tailing reader's poll is sent to the next bookie too after this; 0: never",
    )
    speculative_poll_ms_max: int = option(
        5_000,
        ge=0,
        key="maxSpeculativeReadLACTimeout",
        unit="ms",
        description="most that this wait grows to within one round of polls",
    )
    speculative_poll_growth: float = option(
        2.0,
        ge=1.0,
        key="speculativeReadLACTimeoutBackoffMultiplier",
        description="how much longer each further wait within one round of polls is",
    )
    long_poll_ms: int = option(
        3_000,
        ge=1,
        key="longPollMillis",
        unit="ms",
        description="how long a bookie may hold a tailing reader's poll; below the read time-out",
    )

    # a writer's window
    window_entries_max: int = option(
        10_000,
        ge=1,
        key="writerWindowEntries",
        description="entries of one writer that wait for their ack quorum; beyond it append_many waits",
    )
    window_bytes_max: int = option(
        64 * MIB,
        ge=1,
        key="writerWindowBytes",
        unit="bytes",
        description="payload of one writer that waits for its ack quorum; beyond it append_many waits",
    )
    replica_backlog_bytes_max: int = option(
        64 * MIB,
        ge=1,
        key="replicaBacklogBytes",
        unit="bytes",
        description=(
            "what one writer has sent to a lagging bookie without an answer; beyond it the writer waits or "
            "replaces the bookie"
        ),
    )
    batch_entries_max: int = option(
        1_000,
        ge=1,
        key="batchEntries",
        description="entries in one batch; a longer append_many is cut, so that answers can overtake sending",
    )
    batch_bytes_max: int = option(
        MIB, ge=1, key="batchBytes", unit="bytes", description="payload in one batch; a single entry may exceed it"
    )

    # a writer's ledger
    add_quorum_timeout_ms: int | None = option(
        None,
        ge=1,
        scale=1000,
        key="addEntryQuorumTimeoutSec",
        unit="s",
        description=(
            "an entry that misses its ack quorum for so long ends the writer, and the ledger is closed "
            "before it; unset: it waits on"
        ),
    )
    ensemble_changes_max: int | None = option(
        None,
        ge=0,
        key="maxNumEnsembleChanges",
        description="ensemble changes of one writer; the next failure ends it; unset: any number",
    )
    delay_ensemble_change: bool = option(
        False,
        key="delayEnsembleChange",
        description="replace a bookie only when the ack quorum is out of reach without it, or when it is read-only",
    )
    disable_ensemble_change: bool = option(
        False,
        key="disableEnsembleChange",
        description="never replace a bookie that failed: appends wait until enough of them are back",
    )
    opportunistic_striping: bool = option(
        False,
        key="opportunisticStriping",
        description="with too few bookies make a new ledger's ensemble smaller, down to its write quorum",
    )
    explicit_lac_interval_ms: int = option(
        0,
        ge=0,
        key="explicitLacInterval",
        unit="ms",
        description="how often an idle writer tells its last add confirmed to readers that follow; 0: never",
    )

    # a reader
    sticky_reads: bool = option(
        True,
        key="stickyReadSEnabled",
        description=(
            "a reader stays with one replica until that fails, where ensemble size = write quorum; else they take turns"
        ),
    )
    read_ahead_bytes_max: int = option(
        4 * MIB, ge=4096, key="readAheadBytes", unit="bytes", description="what one reader asks for in one batch read"
    )
    read_ahead_entries_max: int = option(
        10_000, ge=1, key="readAheadEntries", description="entries that one reader asks for in one batch read"
    )
    read_ahead_batches: int = option(
        2, ge=1, le=64, key="readAheadBatches", description="batch reads that one streaming reader has under way"
    )
    batch_read: bool = option(
        True,
        key="batchReadEnabled",
        description="use V2's batch read where ensemble size = write quorum; bookies before 4.17 lack it",
    )

    # which bookies
    placement: str = option(
        "rack-aware",
        key="ensemblePlacementPolicy",
        description=(
            "random, rack-aware, region-aware, zone-aware, or an entry point of the group quire.placement; "
            "BookKeeper's class names mean the same"
        ),
    )
    topology: Literal["none", "script", "file", "metadata"] = option(
        "none",
        key="reppDnsResolverClass",
        description=(
            "who tells bookies' places (/rack or /region/rack): a script, a file, or the metadata store as "
            "Pulsar keeps it"
        ),
    )
    topology_script: str = option(
        "",
        key="networkTopologyScriptFileName",
        description="gets hosts as arguments, prints one place for each; empty: as none",
    )
    topology_script_hosts_max: int = option(
        100, ge=1, key="networkTopologyScriptNumberArgs", description="hosts that the script is given at a time"
    )
    topology_file: str = option(
        "",
        key="networkTopologyFileName",
        description="lines `host place`, or JSON as Pulsar keeps it; read again once a minute",
    )
    local_place: str = option(
        "", key="localPlace", description="where this client is, /rack or /region/rack; empty: nowhere near any bookie"
    )
    racks_min: int = option(
        2, ge=1, key="minNumRacksPerWriteQuorum", description="racks that the copies of an entry should lie in"
    )
    enforce_racks: bool = option(
        False,
        key="enforceMinNumRacksPerWriteQuorum",
        description="rather create no ledger than put an entry into fewer racks",
    )
    zones_min: int = option(
        2,
        ge=1,
        key="minNumZonesPerWriteQuorum",
        description="zone-aware: zones that the copies of an entry must lie in",
    )
    zones_desired: int = option(
        3, ge=1, key="desiredNumZonesPerWriteQuorum", description="zone-aware: zones that are tried first"
    )
    enforce_zones: bool = option(
        True,
        key="enforceStrictZoneawarePlacement",
        description="rather fail than use fewer zones, unknown ones, or an uneven ensemble size",
    )
    enforce_domains: bool = option(
        False,
        key="enforceMinNumFaultDomainsForWrite",
        description=(
            "acknowledge an entry only when its copies lie in as many racks, regions or zones as the "
            "placement asks for, by the places known then"
        ),
    )
    regions: str = option("", key="reppRegionsToWrite", description="regions to write to, parted by `;`; empty: all")
    regions_min: int = option(
        2,
        ge=1,
        key="reppMinimumRegionsForDurability",
        description="region-aware: no smaller number of regions may hold an ack quorum of an entry",
    )
    enforce_regions: bool = option(
        True, key="reppEnableDurabilityEnforcementInReplace", description="rather fail than let them"
    )
    weigh_disks: bool = option(
        False, key="diskWeightBasedPlacementEnabled", description="prefer bookies with more free disk"
    )
    weight_multiple_max: int = option(
        3,
        ge=0,
        key="bookieMaxMultipleForWeightBasedPlacement",
        description="a bookie counts for at most so many times the median; 0: any",
    )
    disk_info_interval_ms: int = option(
        86_400_000,
        ge=1000,
        scale=1000,
        key="getBookieInfoIntervalSeconds",
        unit="s",
        description="how long a bookie's free disk is believed",
    )
    failure_memory_ms: int = option(
        60_000,
        ge=0,
        key="bookieFailureHistoryExpirationMSec",
        unit="ms",
        description="a bookie that failed or was slow is asked last, and chosen last, so long",
    )
    reorder_reads: bool = option(
        True,
        key="reorderReadSequenceEnabled",
        description="ask near and healthy replicas first, slow and unregistered ones last",
    )
    crowded_reads: int = option(
        32,
        ge=0,
        key="readReorderThresholdPendingRequests",
        description=(
            "among equally near and healthy replicas one with so many reads of this client under way is "
            "asked after those with fewer; 0: no matter"
        ),
    )
    quarantine: bool = option(
        False, key="bookieHealthCheckEnabled", description="choose no bookie for a while that answered with many errors"
    )
    quarantine_interval_ms: int = option(
        60_000,
        ge=1,
        scale=1000,
        key="bookieHealthCheckIntervalSeconds",
        unit="s",
        description="errors are counted over this",
    )
    quarantine_errors: int = option(
        100, ge=1, key="bookieErrorThresholdPerInterval", description="errors in it that lead to quarantine"
    )
    quarantine_ms: int = option(
        1_800_000,
        ge=1,
        scale=1000,
        key="bookieQuarantineTimeSeconds",
        unit="s",
        description="how long quarantine lasts",
    )
    quarantine_ratio: float = option(
        1.0, ge=0, le=1, key="bookieQuarantineRatio", description="the share of those bookies that is put there"
    )

    # metadata
    session_timeout_ms: int = option(
        10_000,
        ge=1000,
        key="zkTimeout",
        unit="ms",
        description="metadata session, and how long an unreachable store is tried",
    )

    @field_validator("protocol", mode="before")
    @classmethod
    def _generation(cls, value: object) -> object:
        """BookKeeper's key is a truth value."""
        named: dict[object, str] = {True: "v2", False: "v3", "true": "v2", "false": "v3"}
        return (
            named.get(value.lower() if isinstance(value, str) else value, value)
            if isinstance(value, bool | str)
            else value
        )

    @field_validator("placement", "topology", mode="before")
    @classmethod
    def _class_names(cls, value: object) -> object:
        """BookKeeper and Pulsar name Java classes."""
        return CLASSES.get(value.rpartition(".")[2], value) if isinstance(value, str) else value

    @field_validator("add_quorum_timeout_ms", "ensemble_changes_max", mode="before")
    @classmethod
    def _unlimited(cls, value: object) -> object:
        """BookKeeper writes "no limit" as a negative number."""
        return None if str(value).startswith("-") else value

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.long_poll_ms >= self.read_timeout_ms:
            raise ValueError(
                f"long_poll_ms ({self.long_poll_ms}) must be below read_timeout_ms ({self.read_timeout_ms}): each "
                "poll would time out"
            )
        if self.topology == "file" and not self.topology_file:
            raise ValueError("topology is 'file', but topology_file (networkTopologyFileName) names none")
        if self.speculative_read_ms > self.speculative_read_ms_max:
            raise ValueError(
                f"speculative_read_ms ({self.speculative_read_ms}) is above speculative_read_ms_max "
                f"({self.speculative_read_ms_max})"
            )
        if self.speculative_poll_ms > self.speculative_poll_ms_max:
            raise ValueError(
                f"speculative_poll_ms ({self.speculative_poll_ms}) is above speculative_poll_ms_max "
                f"({self.speculative_poll_ms_max})"
            )
        if self.reconnect_wait_ms_min > self.reconnect_wait_ms_max:
            raise ValueError(
                f"reconnect_wait_ms_min ({self.reconnect_wait_ms_min}) is above reconnect_wait_ms_max "
                f"({self.reconnect_wait_ms_max})"
            )
        return self
