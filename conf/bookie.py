"""
The options of a bookie, as data with documentation.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: files or the environment; see `properties`.
"""

from pydantic import BaseModel, ConfigDict, Field

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20


class BookieOptions(BaseModel):
    """One bookie.  Journal and ledger directories have no default: a bookie that guesses where its data lies loses it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metadata_uri: str = Field(description="where the cluster's metadata is kept")
    port: int = Field(3181, ge=0, le=65535, description="TCP port; 0 takes a free one")
    bookie_id: str | None = Field(None, description="a fixed id; otherwise advertised address and port")
    advertised_address: str | None = Field(None, description="the host name or address that clients connect to")
    listen: str = Field("0.0.0.0", description="the address to listen on")
    allow_loopback: bool = Field(False, description="accept a loopback address as the bookie's own")
    journal_directories: tuple[str, ...] = Field(min_length=1, description="a ledger's journal is chosen by its id")
    ledger_directories: tuple[str, ...] = Field(min_length=1, description="entry logs; a ledger's directory is chosen by its id")
    index_directories: tuple[str, ...] = Field((), description="indexes; empty: beside the entry logs")
    journal_segment_bytes: int = Field(64 * MIB, ge=MIB, description="size of one preallocated journal segment, bytes")
    journal_sync_data: bool = Field(True, description="sync each group before it is acknowledged")
    journal_group_wait_ms_max: int = Field(0, ge=0, description="how long a group may wait for more, milliseconds; 0: only while the last sync runs")
    journal_group_bytes_max: int = Field(4 * MIB, ge=4096, description="most bytes in one group")
    journal_queue_bytes_max: int = Field(64 * MIB, ge=MIB, description="most bytes waiting for a journal; beyond it adds are parked")
    write_cache_bytes_max: int = Field(128 * MIB, ge=2 * MIB, description="both halves of the write cache, bytes")
    read_cache_bytes_max: int = Field(32 * MIB, ge=0, description="read-ahead, bytes")
    entry_log_bytes_max: int = Field(1024 * MIB, ge=MIB, le=(1 << 31) - 1, description="an entry log is rotated at this size, bytes")
    flush_interval_ms: int = Field(10_000, ge=10, description="time between checkpoints, milliseconds")
    frame_bytes_max: int = Field(5_242_880, ge=4096, description="largest frame, its length field included, bytes")
    batch_read_bytes_max: int = Field(5_242_880, ge=4096, description="most bytes in one batch read's answer")
    connection_pending_bytes_max: int = Field(64 * MIB, ge=MIB, description="parked adds of one connection, bytes; beyond it the bookie stops reading from it")
    connections_max: int = Field(10_000, ge=1, description="open connections; beyond it the longest idle one is closed")
    metrics_host: str = Field("127.0.0.1", description="address of /metrics")
    metrics_port: int = Field(0, ge=0, le=65535, description="port of /metrics; 0 takes a free one")
    force_read_only: bool = Field(False, description="start read-only")
    session_timeout_ms: int = Field(10_000, ge=1000, description="metadata session, milliseconds")
