"""What the nodes of a cluster in memory say, for tests that look behind its stores' back."""

from quire.metadata.auditing import DELAY, Periodic
from quire.metadata.formats import repair_text
from quire.metadata.memory.cluster import RECORDS, ROOT, MemoryCluster
from quire.metadata.memory.tree import Node
from quire.metadata.store import ANY
from quire.metadata.tree import Create, Delete, Write

# SPDX-License-Identifier: Apache-2.0

QUEUE = f"{ROOT}/underreplication"
VOTES = f"{QUEUE}/auditorelection/"


def records(cluster: MemoryCluster) -> dict[str, Node]:
    """All records, by their paths."""
    start = f"{RECORDS}/"
    return {path[len(start) :]: node for path, node in cluster.nodes.nodes.items() if path.startswith(start)}


def votes(cluster: MemoryCluster) -> list[str]:
    """The paths of all votes."""
    return sorted(path for path in cluster.nodes.nodes if path.startswith(VOTES))


def remove(cluster: MemoryCluster, *paths: str) -> None:
    """Removes nodes, as another program would."""
    cluster.nodes.transact([Delete(path, ANY) for path in paths], 0)


def put(cluster: MemoryCluster, path: str, data: bytes = b"", owner: int = 0, *, claim: bool = False) -> None:
    """Makes a node, with those above it, or writes it."""
    above = path.rpartition("/")[0]
    if above and above not in cluster.nodes.nodes:
        put(cluster, above)
    step = Write(path, data, ANY) if path in cluster.nodes.nodes else Create(path, data, claim)
    cluster.nodes.transact([step], owner)


def checked(cluster: MemoryCluster, check: Periodic) -> int | None:
    """When that check was done last."""
    node = cluster.nodes.nodes.get(f"{QUEUE}/{check.value}")
    return None if node is None else repair_text.decode_check_time(node.data)


def set_delay(cluster: MemoryCluster, seconds: int) -> None:
    """Says how long a bookie may stay away, as another program would."""
    put(cluster, f"{QUEUE}/{DELAY}", b"%d" % seconds)


def meaning(operation: str, arguments: tuple[object, ...]) -> str:
    """What an operation on the tree is for, where its own name does not say that."""
    first = arguments[0] if arguments else None
    if isinstance(first, Create | Delete) and first.path.startswith(VOTES):
        return "audit_vote" if isinstance(first, Create) else "audit_withdraw"
    return operation
