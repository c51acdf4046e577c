"""
The options that bound what the peers of a bookie make it hold, of one connection, one address and all.

Knows: each option's key, unit, default, range and meaning.  Does not know: who counts; who goes when there is too much.
"""

from pydantic import BaseModel, ConfigDict

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20


class PeerOptions(BaseModel):
    """Of a bookie.  All bounds are on without being set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection_pending_bytes_max: int = option(
        64 * MIB,
        ge=MIB,
        key="connectionPendingSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "what one connection sent and what waits for the journal; beyond it the bookie stops reading "
            "from it (our own key)"
        ),
    )
    pending_bytes_max: int = option(
        256 * MIB,
        ge=MIB,
        key="pendingSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "the same of all connections; beyond it no connection of which something waits is read from, and at twice "
            "as much no large frame (our own key)"
        ),
    )
    answers_bytes_max: int = option(
        256 * MIB,
        ge=MIB,
        key="answersSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "answers that their readers do not take; beyond it the connections that took none for the "
            "longest time are closed (our own key)"
        ),
    )
    partial_bytes_max: int = option(
        48 * MIB,
        ge=MIB,
        key="partialFramesSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "frames that are not whole yet, of all connections, at least two of the largest; beyond it the slowest of "
            "the largest are closed (our own key)"
        ),
    )
    partial_bytes_per_address_max: int = option(
        32 * MIB,
        ge=MIB,
        key="partialFramesPerAddressSizeMB",
        unit="MiB",
        scale=MIB,
        description=(
            "the same of one address (IPv4) or /64 (IPv6); with a proxy before the bookie, as much as "
            "partialFramesSizeMB (our own key)"
        ),
    )
    connections_max: int = option(
        10_000,
        ge=1,
        key="connectionsMax",
        description=(
            "open connections; beyond it the oldest that never asked anything is closed, without such the longest "
            "idle one (our own key)"
        ),
    )
    connections_per_address_max: int = option(
        5_000,
        ge=1,
        key="connectionsPerAddressMax",
        description=(
            "the same of one address (IPv4) or /64 (IPv6), of which one is closed; with a proxy before the bookie, as "
            "many as connectionsMax (our own key)"
        ),
    )
    partial_frame_ms_max: int = option(
        60_000,
        ge=100,
        key="partialFrameTimeoutMs",
        unit="ms",
        description="a begun frame must be whole after this, or its connection is closed (our own key)",
    )
    partial_frame_bytes_per_second_min: int = option(
        65_536,
        ge=0,
        key="partialFrameBytesPerSecondMin",
        unit="bytes",
        description=(
            "a begun frame of more than 64 KiB must grow by so much a second, over 10 s, or its connection is closed; "
            "0: only partialFrameTimeoutMs (our own key)"
        ),
    )
