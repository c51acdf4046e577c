"""
The options that bound what the peers of a bookie make it hold, of one connection, one address and all.

Knows: each option's key, unit, default, range and meaning.  Does not know: who counts; who goes when there is too much.
"""

from pydantic import BaseModel, ConfigDict

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20


class PeerOptions(BaseModel):
    """Bounds of a bookie.  All are on without being set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
