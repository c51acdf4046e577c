"""
The options of a client, as data with documentation.

Knows: each option's unit, default, range, meaning and, where BookKeeper has the same thing, its key (`BOOKKEEPER_KEYS`,
spec client-protocol.md 8).  Does not know: files or the environment.

Every queue that these options bound pushes back on its user; none of them drops anything.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20


class ClientOptions(BaseModel):
    """One client: its connections to bookies, the windows of its writers and the read-ahead of its readers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["v2", "v3"] = Field(
        "v2", description="generation of adds, reads and batch reads; what V2 lacks goes over V3 in any case (useV2WireProtocol, which is false in BookKeeper)"
    )

    # connections
    connect_timeout_ms: int = Field(10_000, ge=1, description="TCP connect, milliseconds (clientConnectTimeoutMillis)")
    reconnect_wait_ms_min: int = Field(20, ge=0, description="a bookie that refused is not asked again for this long, milliseconds; doubles at each failure")
    reconnect_wait_ms_max: int = Field(1_000, ge=0, description="most that the wait above grows to, milliseconds")
    tcp_user_timeout_ms: int = Field(
        20_000, ge=0, description="the kernel gives up unacknowledged bytes after this, milliseconds; 0: its own default (clientTcpUserTimeoutMillis)"
    )
    frame_bytes_max: int = Field(5_242_880, ge=4096, description="largest frame sent or taken, length field included, bytes (nettyMaxFrameSizeBytes)")

    # requests
    add_timeout_ms: int = Field(5_000, ge=1, description="a bookie that answers none of its outstanding adds for this long has failed, ms (addEntryTimeoutSec)")
    read_timeout_ms: int = Field(5_000, ge=1, description="a read, LAC request or force without an answer has failed, milliseconds (readEntryTimeoutSec)")
    speculative_read_ms: int = Field(2_000, ge=0, description="the next replica is asked too after this, ms; 0: only after an error (speculativeReadTimeout)")
    long_poll_ms: int = Field(3_000, ge=1, description="how long a bookie may hold a tailing reader's poll, milliseconds; below read_timeout_ms")

    # a writer's window
    window_entries_max: int = Field(10_000, ge=1, description="entries of one writer that wait for their ack quorum; beyond it append_many waits")
    window_bytes_max: int = Field(64 * MIB, ge=1, description="payload bytes of one writer that wait for their ack quorum; beyond it append_many waits")
    replica_backlog_bytes_max: int = Field(
        64 * MIB, ge=1, description="bytes of one writer sent to a lagging bookie and not answered, bytes; beyond it the writer waits or replaces it"
    )
    batch_entries_max: int = Field(1_000, ge=1, description="entries in one batch; a longer append_many is cut, so that acknowledgements can overtake sending")
    batch_bytes_max: int = Field(MIB, ge=1, description="payload bytes in one batch, bytes; a single entry may exceed it")

    # a reader
    read_ahead_bytes_max: int = Field(4 * MIB, ge=4096, description="what one reader asks for in one batch read, bytes")
    read_ahead_entries_max: int = Field(10_000, ge=1, description="entries that one reader asks for in one batch read")
    read_ahead_batches: int = Field(2, ge=1, le=64, description="batch reads that one streaming reader has under way")
    batch_read: bool = Field(True, description="use V2's batch read where ensemble size = write quorum; bookies before 4.17 lack it (batchReadEnabled)")

    # metadata
    session_timeout_ms: int = Field(10_000, ge=1000, description="metadata session, and how long an unreachable store is tried, milliseconds (zkTimeout)")

    @model_validator(mode="after")
    def _relations(self) -> "ClientOptions":
        if self.long_poll_ms >= self.read_timeout_ms:
            raise ValueError(f"long_poll_ms ({self.long_poll_ms}) must be below read_timeout_ms ({self.read_timeout_ms}): each poll would time out")
        if self.reconnect_wait_ms_min > self.reconnect_wait_ms_max:
            raise ValueError(f"reconnect_wait_ms_min ({self.reconnect_wait_ms_min}) is above reconnect_wait_ms_max ({self.reconnect_wait_ms_max})")
        return self


# BookKeeper's key -> (our field, what one of its units is in ours); 0 marks a key whose value needs no number.
BOOKKEEPER_KEYS: dict[str, tuple[str, int]] = {
    "useV2WireProtocol": ("protocol", 0),
    "clientConnectTimeoutMillis": ("connect_timeout_ms", 1),
    "clientTcpUserTimeoutMillis": ("tcp_user_timeout_ms", 1),
    "nettyMaxFrameSizeBytes": ("frame_bytes_max", 1),
    "addEntryTimeoutSec": ("add_timeout_ms", 1000),
    "readEntryTimeoutSec": ("read_timeout_ms", 1000),
    "speculativeReadTimeout": ("speculative_read_ms", 1),
    "batchReadEnabled": ("batch_read", 0),
    "zkTimeout": ("session_timeout_ms", 1),
}


def from_properties(properties: dict[str, str]) -> ClientOptions:
    """
    Options from BookKeeper's keys as a properties file gives them; `ValueError` names a key that isn't known or a value that
    is none.  A key without a counterpart is the caller's to sort out first.
    """
    values: dict[str, object] = {}
    for key, text in properties.items():
        if key not in BOOKKEEPER_KEYS:
            raise ValueError(f"no client option is named {key}")
        name, unit = BOOKKEEPER_KEYS[key]
        if unit:
            try:
                values[name] = int(text) * unit
            except ValueError:
                raise ValueError(f"{key} = {text!r} is not a whole number") from None
        elif text.lower() not in ("true", "false"):
            raise ValueError(f"{key} = {text!r} is neither true nor false")
        else:
            yes = text.lower() == "true"
            values[name] = ("v2" if yes else "v3") if name == "protocol" else yes
    return ClientOptions.model_validate(values)
