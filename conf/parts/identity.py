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
        "metadataServiceUri",
        ...,
        "where the cluster's metadata is kept",
        example="zk://127.0.0.1:2181/ledgers",
        min_length=1,
    )
    session_timeout_ms: int = option(
        "zkTimeout",
        10_000,
        "a metadata session ends after this much silence, and with it the bookie's registration",
        unit="ms",
        ge=1000,
    )
    port: int = option("bookiePort", 3181, "TCP port for clients; 0 takes a free one", ge=0, le=65535)
    bookie_id: str | None = option(
        "bookieId", None, "a fixed id, independent of address; otherwise advertised address and port"
    )
    advertised_address: str | None = option(
        "advertisedAddress", None, "the host name or address that clients connect to"
    )
    listen: str = option(
        "listeningInterface",
        "0.0.0.0",
        "the address or network interface to listen on; 0.0.0.0 is all of them",
        min_length=1,
    )
    use_host_name: bool = option(
        "useHostNameAsBookieID", False, "the bookie's id has its host name instead of its address"
    )
    use_short_host_name: bool = option("useShortHostName", False, "the host name without its domain")
    allow_loopback: bool = option("allowLoopback", False, "accept a loopback address as the bookie's own")
