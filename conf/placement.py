"""
The options of a client that decide which bookies it chooses, and which of them it asks first.

Knows: as `client`, of which these are one part: BookKeeper's keys, and its and Pulsar's class names.
Does not know: what a policy does with them; see `client/placement`.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0

CLASSES = {
    "DefaultEnsemblePlacementPolicy": "random",
    "RackawareEnsemblePlacementPolicy": "rack-aware",
    "RegionAwareEnsemblePlacementPolicy": "region-aware",
    "ZoneawareEnsemblePlacementPolicy": "zone-aware",
    "ScriptBasedMapping": "script",
    "TableMapping": "file",
    "BookieRackAffinityMapping": "metadata",
}


class PlacementOptions(BaseModel):
    """Which bookies hold a ledger, and in which order a read asks them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
            "where bookies' places (/rack or /region/rack) come from: a script, a file, or the metadata store as "
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
        2, ge=1, key="minNumRacksPerWriteQuorum", description="racks that the copies of an entry should be in"
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
        description="zone-aware: zones that the copies of an entry must be in",
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
            "acknowledge an entry only when its copies are in as many racks, regions or zones as the "
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
    enforce_hosts: bool = option(
        True,
        key="enforceDifferentHosts",
        description=(
            "rather fail than put two copies of an entry on bookies that announce the same host (hostId); false: "
            "only where there are other hosts (our own key)"
        ),
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
        description="a bookie that failed or was slow is asked last so long, and one that failed is chosen last",
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
        False,
        key="bookieHealthCheckEnabled",
        description="a bookie that answered reads or appends with many errors is chosen last for a while",
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

    @field_validator("placement", "topology", mode="before")
    @classmethod
    def _class_names(cls, value: object) -> object:
        """BookKeeper and Pulsar name Java classes."""
        return CLASSES.get(value.rpartition(".")[2], value) if isinstance(value, str) else value

    @field_validator("local_place")
    @classmethod
    def _as_places_are(cls, value: str) -> str:
        """Where places come from the slash before one may be missing, too."""
        place = value.strip("/ ")
        return f"/{place}" if place else ""

    @field_validator("regions")
    @classmethod
    def _without_blanks(cls, value: str) -> str:
        """No region has blanks around its name, or nothing but them."""
        return ";".join(filter(None, map(str.strip, value.split(";"))))

    @model_validator(mode="after")
    def _topology_has_its_file(self) -> Self:
        if self.topology == "file" and not self.topology_file:
            raise ValueError("topology is 'file', but topology_file (networkTopologyFileName) names none")
        return self
