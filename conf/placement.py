"""
The options of a client that decide which bookies it chooses, and which of them it asks first.

Knows: as `client`, of which these are one part: BookKeeper's keys, and its and Pulsar's class names.
Does not know: what a policy does with them; see `client/placement`.
"""

from typing import Literal, Self

from pydantic import field_validator, model_validator

from quire.conf.options import Part, option

# SPDX-License-Identifier: Apache-2.0

CLASSES = {
    "DefaultEnsemblePlacementPolicy": "random",
    "RackawareEnsemblePlacementPolicy": "rack-aware",
    "RegionAwareEnsemblePlacementPolicy": "region-aware",
    "ZoneawareEnsemblePlacementPolicy": "zone-aware",
    "ScriptBasedMapping": "script",
    "TableMapping": "file",
    "BookieRackAffinityMapping": "metadata",
    "ZkBookieRackAffinityMapping": "metadata",
}


class PlacementOptions(Part):
    """The choice of the bookies that hold a ledger, and the order in which a read asks them."""

    placement: str = option(
        "ensemblePlacementPolicy",
        "rack-aware",
        "random, rack-aware, region-aware, zone-aware, or an entry point of the group quire.placement; "
        "BookKeeper's class names mean the same",
    )
    topology: Literal["none", "script", "file", "metadata"] = option(
        "reppDnsResolverClass",
        "none",
        "where bookies' places (/rack or /region/rack) come from: a script, a file, or the metadata store as "
        "Pulsar keeps it",
    )
    topology_script: str = option(
        "networkTopologyScriptFileName", "", "gets hosts as arguments, prints one place for each; empty: as none"
    )
    topology_script_hosts_max: int = option(
        "networkTopologyScriptNumberArgs", 100, "hosts that the script is given at a time", ge=1
    )
    topology_file: str = option(
        "networkTopologyFileName", "", "lines `host place`, or JSON as Pulsar keeps it; read again once a minute"
    )
    local_place: str = option(
        "localPlace", "", "where this client is, /rack or /region/rack; empty: nowhere near any bookie"
    )
    racks_min: int = option("minNumRacksPerWriteQuorum", 2, "racks that the copies of an entry should be in", ge=1)
    enforce_racks: bool = option(
        "enforceMinNumRacksPerWriteQuorum", False, "rather create no ledger than put an entry into fewer racks"
    )
    zones_min: int = option(
        "minNumZonesPerWriteQuorum", 2, "zone-aware: zones that the copies of an entry must be in", ge=1
    )
    zones_desired: int = option("desiredNumZonesPerWriteQuorum", 3, "zone-aware: zones that are tried first", ge=1)
    enforce_zones: bool = option(
        "enforceStrictZoneawarePlacement",
        True,
        "rather fail than use fewer zones, unknown ones, or an uneven ensemble size",
    )
    enforce_domains: bool = option(
        "enforceMinNumFaultDomainsForWrite",
        False,
        "acknowledge an entry only when its copies are in as many racks, regions or zones as the "
        "placement asks for, by the places known then",
    )
    regions: str = option("reppRegionsToWrite", "", "regions to write to, parted by `;`; empty: all")
    regions_min: int = option(
        "reppMinimumRegionsForDurability",
        2,
        "region-aware: no smaller number of regions may hold an ack quorum of an entry",
        ge=1,
    )
    enforce_regions: bool = option("reppEnableDurabilityEnforcementInReplace", True, "rather fail than let them")
    enforce_hosts: bool = option(
        "enforceDifferentHosts",
        True,
        "rather fail than put two copies of an entry on bookies that announce the same host (hostId); false: "
        "only where there are other hosts (our own key)",
    )
    weigh_disks: bool = option("diskWeightBasedPlacementEnabled", False, "prefer bookies with more free disk")
    weight_multiple_max: int = option(
        "bookieMaxMultipleForWeightBasedPlacement",
        3,
        "a bookie counts for at most so many times the median; 0: any",
        ge=0,
    )
    disk_info_interval_ms: int = option(
        "getBookieInfoIntervalSeconds",
        86_400_000,
        "how long a bookie's free disk is believed",
        unit="s",
        ge=1000,
        scale=1000,
    )
    failure_memory_ms: int = option(
        "bookieFailureHistoryExpirationMSec",
        60_000,
        "a bookie that failed or was slow is asked last so long, and one that failed is chosen last",
        unit="ms",
        ge=0,
    )
    reorder_reads: bool = option(
        "reorderReadSequenceEnabled", True, "ask near and healthy replicas first, slow and unregistered ones last"
    )
    crowded_reads: int = option(
        "readReorderThresholdPendingRequests",
        32,
        "among equally near and healthy replicas one with so many reads of this client under way is "
        "asked after those with fewer; 0: no matter",
        ge=0,
    )
    quarantine: bool = option(
        "bookieHealthCheckEnabled",
        False,
        "a bookie that answered reads or appends with many errors is chosen last for a while",
    )
    quarantine_interval_ms: int = option(
        "bookieHealthCheckIntervalSeconds", 60_000, "errors are counted over this", unit="s", ge=1, scale=1000
    )
    quarantine_errors: int = option(
        "bookieErrorThresholdPerInterval", 100, "errors in it that lead to quarantine", ge=1
    )
    quarantine_ms: int = option(
        "bookieQuarantineTimeSeconds", 1_800_000, "how long quarantine lasts", unit="s", ge=1, scale=1000
    )
    quarantine_ratio: float = option(
        "bookieQuarantineRatio", 1.0, "the share of those bookies that is put there", ge=0, le=1
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
