"""
All paths that a bookie serves over HTTP, in one server.

Knows: which modules answer them.  Does not know: what they answer.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from quire.bookie.admin.bookie_paths import Admin, Administered, Paths
from quire.bookie.admin.gate import Gate, Keys
from quire.bookie.admin.gc_paths import GcPaths
from quire.bookie.admin.http import HttpServer
from quire.bookie.admin.index_paths import IndexPaths, Reindexing
from quire.bookie.upkeep.garbage import Garbage
from quire.metadata.clock import Clock

if TYPE_CHECKING:
    from quire.security.credentials import Credentials

# SPDX-License-Identifier: Apache-2.0


def site(
    clock: Clock,
    name: str,
    hosts: Collection[str],
    keys: Keys,
    bookie: Administered,
    garbage: Garbage,
    rebuild: Reindexing,
    others: Sequence[Paths] = (),
    credentials: "Credentials | None" = None,
) -> HttpServer:
    """
    `name`: the bookie's id; requests that name another one are refused.  `hosts`: names that it may be called by.
    `others`: what its process has besides.
    """
    parts: list[Paths] = [Admin(bookie), GcPaths(garbage, name), IndexPaths(rebuild), *others]
    return HttpServer(clock, Gate([part.routes for part in parts], keys, hosts, name), credentials)
