"""
The records of a directory of clusters: a cluster with its address, and the cluster that holds a log.

Knows: what they say; members of a later version are kept.  Does not know: where they lie, who changes them.
"""

from __future__ import annotations  # `Value.parse` goes by the types of fields as they are written

from dataclasses import dataclass

from quire.log.core.values import Value

# SPDX-License-Identifier: Apache-2.0


@dataclass(frozen=True, slots=True)
class ClusterRecord(Value):
    """The metadata URI of a cluster.  `leaving`: it takes no log any more."""

    what = "cluster of a directory"
    tag = "cluster"
    uri: str
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class PlaceRecord(Value):
    """The name of the cluster that holds a log.  `source`: of that which it came from, until it is gone from there."""

    what = "place of a log"
    tag = "place"
    cluster: str
    source: str | None = None
