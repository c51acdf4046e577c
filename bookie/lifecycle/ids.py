"""
A bookie's id and its addresses: which address it binds, which host clients are given, and the id that follows.

Knows: which ids are allowed (metadata-rules.md 5.3).  Does not know: directories, cookies.

Safety: an id becomes part of paths and keys, so it is checked before anything is named after it.
"""

import re
from collections.abc import Callable
from ipaddress import ip_address

from quire.conf.parts.identity import IdentityOptions, interface_address, own_address, own_name
from quire.metadata.ledger import BOOKIE_ID

# SPDX-License-Identifier: Apache-2.0

RESERVED_IDS = ("readonly", ".", "..")
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.", "::1", "localhost")
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


class IdentityError(Exception):
    """The bookie may not start under this identity.  The text says what differs and what to do."""


class BookieFailed(Exception):
    """The bookie can't go on, or could not start.  The text says what to do where anything can be done."""


def check_id(bookie: str) -> str:
    """Returns the id; `IdentityError` unless it is allowed."""
    if not BOOKIE_ID.fullmatch(bookie):
        raise IdentityError(
            f"{bookie!r} can't be a bookie's id: use letters, digits and : - _ . (bookieId, advertisedAddress)"
        )
    if bookie.lower() in RESERVED_IDS:
        raise IdentityError(f"{bookie!r} can't be a bookie's id: as the last part of a path it means something else")
    return bookie


def listening_address(options: IdentityOptions, interface: Callable[[str], str | None] = interface_address) -> str:
    """The address to bind: `listen` itself, or that of the interface that it names."""
    return interface(options.listen) or options.listen


def own_host(options: IdentityOptions, interface: Callable[[str], str | None] = interface_address) -> str:
    """The host that clients connect to; `IdentityError`: a loopback one without `allowLoopback`, or no host."""
    if options.advertised_address is not None:
        return check_host(options.advertised_address)
    host = any_host(options, interface)
    if host.startswith(LOOPBACK) and not options.allow_loopback:
        raise IdentityError(
            f"the bookie would be known as {host}, which only this machine can reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true"
        )
    return host


def check_host(host: str) -> str:
    """Returns the host; `IdentityError` unless it is a name or an IP address, and nothing more."""
    try:
        ip_address(host)
    except ValueError:
        if not HOST_NAME.fullmatch(host):
            raise IdentityError(
                f"advertisedAddress={host} can't be connected to: give a host name or an IP address, without brackets "
                "and without a port (bookiePort has it)"
            ) from None
    return host


def any_host(options: IdentityOptions, interface: Callable[[str], str | None] = interface_address) -> str:
    """The host that this machine is known by, a loopback one too: enough for a process that nobody connects to."""
    if options.advertised_address is not None:
        return check_host(options.advertised_address)
    address = listening_address(options, interface)
    if options.use_host_name:
        return own_name(options.use_short_host_name)
    if address not in ANY_ADDRESS:
        return address
    try:
        return own_address()
    except OSError as failure:
        raise IdentityError(f"this machine's name has no address ({failure}): set advertisedAddress") from failure


def derive_id(options: IdentityOptions, host: str, port: int) -> str:
    """`bookieId` verbatim, else host:port."""
    return check_id(options.bookie_id if options.bookie_id is not None else f"{host}:{port}")
