"""
A bookie's id and its addresses: which address it binds, which host clients are given, and the id that follows.

Knows: which ids are allowed (metadata-rules.md 5.3).  Does not know: directories, cookies.

Safety: an id becomes part of paths and keys, so it is checked before anything is named after it.
"""

from collections.abc import Callable

from quire.conf.addresses import interface_address, own_address, own_name
from quire.conf.parts.identity import IdentityOptions
from quire.metadata.ledger import BOOKIE_ID

# SPDX-License-Identifier: Apache-2.0

RESERVED_IDS = ("readonly", ".", "..")
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.", "::1", "localhost")


class IdentityError(Exception):
    """The bookie may not start under this identity.  The text says what differs and what to do."""


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
    """The host that clients connect to; `IdentityError` for a loopback one without `allowLoopback`."""
    if options.advertised_address is not None:
        return options.advertised_address
    address = listening_address(options, interface)
    if options.use_host_name:
        host = own_name(options.use_short_host_name)
    elif address in ANY_ADDRESS:
        try:
            host = own_address()
        except OSError as failure:
            raise IdentityError(f"this machine's name has no address ({failure}): set advertisedAddress") from failure
    else:
        host = address
    if host.startswith(LOOPBACK) and not options.allow_loopback:
        raise IdentityError(
            f"the bookie would be known as {host}, which only this machine can reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true"
        )
    return host


def derive_id(options: IdentityOptions, host: str, port: int) -> str:
    """`bookieId` verbatim, else host:port."""
    return check_id(options.bookie_id if options.bookie_id is not None else f"{host}:{port}")
