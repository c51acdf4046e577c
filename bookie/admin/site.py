"""
All paths that a bookie serves over HTTP, in one server.

Knows: which modules answer them.  Does not know: what they answer.
"""

from quire.bookie.admin.bookie_paths import Admin, Administered, Paths
from quire.bookie.admin.gc_paths import GcPaths
from quire.bookie.admin.http import HttpServer
from quire.bookie.admin.index_paths import IndexPaths, Reindexing
from quire.bookie.upkeep.garbage import Garbage
from quire.metadata.clock import Clock

# SPDX-License-Identifier: Apache-2.0


def site(
    clock: Clock, name: str, bookie: Administered, garbage: Garbage, rebuild: Reindexing, *others: Paths
) -> HttpServer:
    """`name`: the bookie's id; requests that name another one are refused.  `others`: what its process has besides."""
    return HttpServer(clock, Admin(bookie, GcPaths(garbage, name), IndexPaths(rebuild), *others).serve, name)
