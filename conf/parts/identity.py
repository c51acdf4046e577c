"""
The options by which a process of the cluster is known: where the metadata is, and the id that follows from its address;
and the addresses of this machine that they can mean by a name.

Knows: each option's BookKeeper key, unit, default, range and meaning; how Linux is asked for addresses.
Does not know: which process has them: a bookie, and AutoRecovery beside it, which is known by the bookie's id where
both read one file.
"""

import fcntl
import socket
import struct

from quire.conf.options import Part, option

# SPDX-License-Identifier: Apache-2.0


class IdentityOptions(Part):
    """The cluster that a process belongs to, and how it is known there."""

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
    permitted_users: tuple[str, ...] = option(
        "permittedStartupUsers", (), "users who may start it, comma-separated; empty: everybody who can"
    )
    allow_loopback: bool = option("allowLoopback", False, "accept a loopback address as the bookie's own")


SIOCGIFADDR = 0x8915
NAME_BYTES_MAX = 15


def interface_address(name: str) -> str | None:
    """The IPv4 address of a network interface; None when there is no such interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:NAME_BYTES_MAX]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def own_address() -> str:
    """The address of this machine's own name; `OSError` when it has none."""
    return socket.gethostbyname(socket.gethostname())


def own_name(short: bool) -> str:
    """The name of this machine, with its domain unless `short`."""
    name = socket.getfqdn()
    return name.split(".", maxsplit=1)[0] if short else name
