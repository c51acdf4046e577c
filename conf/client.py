"""
The options of a client, as data with documentation.

Knows: each option's BookKeeper key, unit, default, range and meaning, and which file a client has that is told of none.
Does not know: the form of files; see `properties`.  Keys that BookKeeper lacks are our own.

A user sees one flat class, `ClientOptions`, made of one class for each subject.  pydantic collects the fields from the
last base class to the first: this is the order of the sample.

Every queue that these options bound pushes back on its user; none of them drops anything.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import field_validator, model_validator

from quire.conf.options import Part, chosen, option
from quire.conf.parts.authentication import ClientAuthenticationOptions
from quire.conf.parts.stores import StoreOptions
from quire.conf.parts.tls import ClientTlsOptions
from quire.conf.placement import PlacementOptions
from quire.conf.properties import URI, ConfigurationError, Property, options, read

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
CONF_VARIABLE = "QUIRE_CONF"
STORE_VARIABLE = "QUIRE_METADATA"
CONF_FILES = ("~/.config/quire/client.conf", "/etc/quire/client.conf")


class NoStoreNamed(ConfigurationError):
    """Nothing says where the cluster is."""


class ConnectionOptions(Part):
    """Connections to bookies, and the generation of the protocol on them."""

    protocol: Literal["v2", "v3"] = option(
        "useV2WireProtocol",
        "v2",
        "generation of adds, reads and batch reads, v2 (true) or v3 (false, as BookKeeper has it); what "
        "V2 lacks goes over V3 in any case",
    )

    connect_timeout_ms: int = option(
        "clientConnectTimeoutMillis",
        10_000,
        "how long it may take to look a bookie up, connect and get its id",
        unit="ms",
        ge=1,
    )
    reconnect_wait_ms_min: int = option(
        "reconnectWaitMillisMin",
        20,
        "a bookie that refused is left alone for this long, twice as long at each failure",
        unit="ms",
        ge=0,
    )
    reconnect_wait_ms_max: int = option(
        "reconnectWaitMillisMax", 1_000, "most that this wait grows to", unit="ms", ge=0
    )
    tcp_user_timeout_ms: int = option(
        "clientTcpUserTimeoutMillis",
        20_000,
        "the kernel gives up unacknowledged bytes after this; 0: its own default",
        unit="ms",
        ge=0,
    )
    frame_bytes_max: int = option(
        "nettyMaxFrameSizeBytes",
        5_242_880,
        "largest frame sent, its length field included: what Apache's bookies take as they are; answers "
        "may be 17 KiB larger, as entries on our bookies may by their own default",
        unit="bytes",
        ge=4096,
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

    @model_validator(mode="after")
    def _reconnect_waits(self) -> Self:
        if self.reconnect_wait_ms_min > self.reconnect_wait_ms_max:
            raise ValueError(
                f"reconnect_wait_ms_min ({self.reconnect_wait_ms_min}) is above reconnect_wait_ms_max "
                f"({self.reconnect_wait_ms_max})"
            )
        return self


class RequestOptions(Part):
    """How long a request may take, and when the next bookie is asked too."""

    add_timeout_ms: int = option(
        "addEntryTimeoutSec",
        5_000,
        "a bookie that answers none of its outstanding adds for this long has failed",
        unit="s",
        ge=1,
        scale=1000,
    )
    read_timeout_ms: int = option(
        "readEntryTimeoutSec",
        5_000,
        "a read, LAC request or force without an answer has failed",
        unit="s",
        ge=1,
        scale=1000,
    )
    speculative_read_ms: int = option(
        ("speculativeReadTimeout", "firstSpeculativeReadTimeout"),
        2_000,
        "the next replica is asked too after this; 0: only after an error",
        unit="ms",
        ge=0,
    )
    speculative_read_ms_max: int = option(
        "maxSpeculativeReadTimeout",
        20_000,
        "most that this wait grows to while a reader goes on to be late",
        unit="ms",
        ge=0,
    )
    speculative_read_growth: float = option(
        "speculativeReadTimeoutBackoffMultiplier", 2.0, "how much longer each further wait within one read is", ge=1.0
    )
    speculative_poll_ms: int = option(
        "firstSpeculativeReadLACTimeout",
        1_500,
        "a tailing reader's poll is sent to the next bookie too after this; 0: never",
        unit="ms",
        ge=0,
    )
    speculative_poll_ms_max: int = option(
        "maxSpeculativeReadLACTimeout", 5_000, "most that this wait grows to within one round of polls", unit="ms", ge=0
    )
    speculative_poll_growth: float = option(
        "speculativeReadLACTimeoutBackoffMultiplier",
        2.0,
        "how much longer each further wait within one round of polls is",
        ge=1.0,
    )
    long_poll_ms: int = option(
        "longPollMillis",
        3_000,
        "how long a bookie may hold a tailing reader's poll; below the read time-out",
        unit="ms",
        ge=1,
    )

    @model_validator(mode="after")
    def _waits(self) -> Self:
        if self.long_poll_ms >= self.read_timeout_ms:
            raise ValueError(
                f"long_poll_ms ({self.long_poll_ms}) must be below read_timeout_ms ({self.read_timeout_ms}): each "
                "poll would time out"
            )
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
        return self


class WriterOptions(Part):
    """A writer: its window, and what it does about bookies that fail."""

    # its window
    window_entries_max: int = option(
        "writerWindowEntries",
        10_000,
        "entries of one writer that wait for their ack quorum; beyond it append_many waits",
        ge=1,
    )
    window_bytes_max: int = option(
        "writerWindowBytes",
        64 * MIB,
        "payload of one writer that waits for its ack quorum; beyond it append_many waits",
        unit="bytes",
        ge=1,
    )
    replica_backlog_bytes_max: int = option(
        "replicaBacklogBytes",
        64 * MIB,
        "what one writer has sent to a lagging bookie without an answer; beyond it the writer waits or "
        "replaces the bookie",
        unit="bytes",
        ge=1,
    )
    batch_entries_max: int = option(
        "batchEntries",
        1_000,
        "entries in one batch; a longer append_many is cut, so that answers can overtake sending",
        ge=1,
    )
    batch_bytes_max: int = option(
        "batchBytes", MIB, "payload in one batch; a single entry may exceed it", unit="bytes", ge=1
    )

    # its ledger
    add_quorum_timeout_ms: int | None = option(
        "addEntryQuorumTimeoutSec",
        None,
        "an entry that misses its ack quorum for so long ends the writer, and the ledger is closed "
        "before it; unset: it waits on",
        unit="s",
        ge=1,
        scale=1000,
    )
    ensemble_changes_max: int | None = option(
        "maxNumEnsembleChanges",
        None,
        "ensemble changes of one writer; the next failure ends it; unset: any number",
        ge=0,
    )
    delay_ensemble_change: bool = option(
        "delayEnsembleChange",
        False,
        "replace a bookie only when the ack quorum is out of reach without it, or when it is read-only",
    )
    disable_ensemble_change: bool = option(
        "disableEnsembleChange", False, "never replace a bookie that failed: appends wait until enough of them are back"
    )
    opportunistic_striping: bool = option(
        "opportunisticStriping",
        False,
        "with too few bookies make a new ledger's ensemble smaller, down to its write quorum",
    )
    explicit_lac_interval_ms: int = option(
        "explicitLacInterval",
        0,
        "how often an idle writer sends its last add confirmed to the bookies, for readers that follow; 0: never",
        unit="ms",
        ge=0,
    )

    @field_validator("add_quorum_timeout_ms", "ensemble_changes_max", mode="before")
    @classmethod
    def _unlimited(cls, value: object) -> object:
        """BookKeeper writes "no limit" as a negative number."""
        return None if str(value).startswith("-") else value


class ReaderOptions(Part):
    """A reader: its choice of a replica and its read-ahead."""

    sticky_reads: bool = option(
        "stickyReadSEnabled",
        True,
        "a reader stays with one replica until that fails, where ensemble size = write quorum; else they take turns",
    )
    read_ahead_bytes_max: int = option(
        "readAheadBytes",
        MIB,
        "what one reader asks for in one batch read; over V2 no more than a frame (nettyMaxFrameSizeBytes)",
        unit="bytes",
        ge=4096,
    )
    read_ahead_entries_max: int = option(
        "readAheadEntries", 10_000, "entries that one reader asks for in one batch read", ge=1
    )
    read_ahead_batches: int = option(
        "readAheadBatches", 4, "batch reads that one streaming reader has under way", ge=1, le=64
    )
    batch_read: bool = option(
        "batchReadEnabled", True, "use V2's batch read where ensemble size = write quorum; bookies before 4.17 lack it"
    )


class ClientOptions(
    PlacementOptions,
    ReaderOptions,
    WriterOptions,
    RequestOptions,
    StoreOptions,
    ClientAuthenticationOptions,
    ClientTlsOptions,
    ConnectionOptions,
):
    """One client: its connections to bookies, the windows of its writers and the read-ahead of its readers."""

    session_timeout_ms: int = option(
        "zkTimeout", 10_000, "metadata session, and how long an unreachable store is tried", unit="ms", ge=1000
    )

    @classmethod
    def given(cls, options: "ClientOptions | None") -> "ClientOptions":
        """Returns the options that a caller gave, or the defaults; `TypeError` for anything else."""
        return chosen(cls, options)


def conf_file() -> Path | None:
    """The client's configuration file: QUIRE_CONF, else the first of the usual places that exists."""
    named = os.environ.get(CONF_VARIABLE)
    if named:
        return Path(named)
    return next((path for path in (Path(name).expanduser() for name in CONF_FILES) if path.is_file()), None)


def store_named(uri: str | None) -> str:
    """
    The metadata URI that is meant: the one given, else that of QUIRE_METADATA, else `metadataServiceUri` of the
    client's configuration file.  `NoStoreNamed` when there is none.
    """
    named = uri or os.environ.get(STORE_VARIABLE)
    path = None if named else conf_file()
    if path is not None:
        named = next((found.value for found in _read(path) if found.key == URI), None)
    if named:
        return named
    where = f"{URI} is not set in {path}" if path is not None else f"none of {', '.join(CONF_FILES)} exists"
    raise NoStoreNamed(f"no metadata store is named ({where}): give its URI or set {STORE_VARIABLE}")


def from_conf_file(over: Sequence[Property] = ()) -> tuple[ClientOptions, list[str]]:
    """The options of that file, else defaults, and warnings.  `over`: stronger than the file.  `ConfigurationError`."""
    path = conf_file()
    passed_over = {URI, *(item.key for item in over)}
    found = [] if path is None else [item for item in _read(path) if item.key not in passed_over]
    return options(ClientOptions, [*found, *over])


def _read(path: Path) -> list[Property]:
    try:
        return read(str(path))
    except ConfigurationError as failure:
        if isinstance(failure.__cause__, OSError):
            text = f"{failure}; run this as a user who may read it, or without it: {CONF_VARIABLE}=/dev/null"
            raise ConfigurationError(text) from failure.__cause__
        raise
