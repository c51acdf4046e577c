"""
A cluster's metadata in memory: what the handles share, and the faults that are played.

Knows: the nodes, sessions, and randomness of one cluster.
Does not know: handles, when an operation is applied (`store`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from quire.metadata.clock import time_of_day
from quire.metadata.memory.tree import Nodes
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0

ROOT = "/ledgers"  # of the cluster's nodes
RECORDS = f"{ROOT}-quire"


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A fault of one operation.  `before`: seconds until it takes effect; `after`: seconds from then until its answer;
    `error`: what it fails with, without an effect unless `applied`.  `late`: it fails now, and so many seconds later it
    still takes effect, if it can: a request that arrives after its sender has given up.
    """

    before: float = 0.0
    after: float = 0.0
    error: LedgerError | None = None
    applied: bool = False
    late: float = 0.0


Faults = Callable[[str, tuple[object, ...]], Fault | None]


@dataclass(slots=True)
class MemoryCluster:
    """The state that handles share.  `seed` decides instance ids and creation tokens."""

    name: str
    seed: int = 0
    last_session: int = 0
    time_of_day: Callable[[], float] = time_of_day
    random: Random = field(init=False)
    nodes: Nodes = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.name}/{self.seed}")
        self.nodes = Nodes(self.uri)

    @property
    def uri(self) -> str:
        """The address, for errors."""
        return f"memory://{self.name}"

    def new_session(self) -> int:
        """Begins a session."""
        self.last_session += 1
        return self.last_session


CLUSTERS: dict[str, MemoryCluster] = {}  # by the name in memory://name
