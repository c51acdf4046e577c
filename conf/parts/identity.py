"""
The options by which a process of the cluster is known: where the metadata is, and the id that follows from its address.

Knows: each option's BookKeeper key, unit, default, range and meaning.  Does not know: which process has them: a bookie,
and AutoRecovery beside it, which is known by the bookie's id where both read one file.
"""

from pydantic import BaseModel, ConfigDict

from quire.conf.options import option

# SPDX-License-Identifier: Apache-2.0


class IdentityOptions(BaseModel):
    """The cluster that a process belongs to, and how it is known there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metadata_uri: str = option(
        key="metadataServiceUri",
        description="where the cluster's metadata is kept",
        example="zk://127.0.0.1:2181/ledgers",
        min_length=1,
    )
    session_timeout_ms: int = option(
        10_000,
        ge=1000,
        key="zkTimeout",
        unit="ms",
        description="a metadata session ends after this much silence, and with it the bookie's registration",
    )
    port: int = option(3181, ge=0, le=65535, key="bookiePort", description="TCP port for clients; 0 takes a free one")
    bookie_id: str | None = option(
        None, key="bookieId", description="a fixed id, independent of address; otherwise advertised address and port"
    )
    advertised_address: str | None = option(
        None, key="advertisedAddress", description="the host name or address that clients connect to"
    )
    listen: str = option(
        "0.0.0.0",
        key="listeningInterface",
        description="the address or network interface to listen on; 0.0.0.0 is all of them",
        min_length=1,
    )
    use_host_name: bool = option(
        False, key="useHostNameAsBookieID", description="the bookie's id has its host name instead of its address"
    )
    use_short_host_name: bool = option(False, key="useShortHostName", description="the host name without its domain")
    allow_loopback: bool = option(
        False, key="allowLoopback", description="accept a loopback address as the bookie's own"
    )
