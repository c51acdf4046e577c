"""What the nodes of a cluster in memory say, for tests that look behind its stores' back."""

from quire.metadata.auditing import DELAY, Periodic
from quire.metadata.formats import repair_text
from quire.metadata.memory.cluster import RECORDS, ROOT, MemoryCluster
from quire.metadata.memory.tree import Node
from quire.metadata.repair_queue import Shortage, name_of
from quire.metadata.store import ANY
from quire.metadata.tree import Check, Create, Delete, SessionId, Write

# SPDX-License-Identifier: Apache-2.0

QUEUE = f"{ROOT}/underreplication"
VOTES = f"{QUEUE}/auditorelection/"
SHORT = f"{QUEUE}/ledgers/"
LOCKS = f"{QUEUE}/locks/"
COOKIES = f"{ROOT}/cookies"


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


def cookies(cluster: MemoryCluster) -> set[str]:
    """The bookies that have a cookie."""
    return cluster.nodes.names.get(COOKIES, set())


def note(cluster: MemoryCluster) -> bytes:
    """What is noted about a store that was set back."""
    node = cluster.nodes.nodes.get(COOKIES)
    return b"" if node is None else node.data


def shortages(cluster: MemoryCluster) -> dict[int, Shortage]:
    """What the repair queue says of each ledger that is in it."""
    found, below = {}, [SHORT[:-1]]
    for path in below:
        below += [f"{path}/{name}" for name in cluster.nodes.names.get(path, ())]
        ledger = ledger_of(path)
        if ledger is not None:
            data, stat = cluster.nodes.nodes[path]
            found[ledger] = Shortage(ledger, *repair_text.decode_shortage(ledger, data), stat.version)
    return dict(sorted(found.items()))


def whole(cluster: MemoryCluster) -> None:
    """Takes all ledgers off the queue, as another program would."""
    remove(cluster, *(path for path in cluster.nodes.nodes if path.startswith(SHORT) and ledger_of(path) is not None))


def locks(cluster: MemoryCluster) -> dict[int, SessionId | None]:
    """The session of each repair lock, by ledger."""
    nodes, names = cluster.nodes.nodes, sorted(cluster.nodes.names.get(LOCKS[:-1], ()))
    return {ledger: nodes[LOCKS + name].stat.owner for name in names if (ledger := ledger_of(name)) is not None}


def lock(cluster: MemoryCluster, ledger: int, session: int = -1) -> None:
    """Takes a repair lock in a session of nobody."""
    put(cluster, f"{LOCKS}{name_of(ledger)}", owner=session, claim=True)


def unlock(cluster: MemoryCluster, *ledgers: int) -> None:
    """Removes these repair locks, or all."""
    paths = [f"{LOCKS}{name_of(ledger)}" for ledger in ledgers or locks(cluster)]
    if paths:
        remove(cluster, *paths)


def ledger_of(path: str) -> int | None:
    """The ledger of a shortage or a lock."""
    name = path.rpartition("/")[2]
    return int(name[3:]) if name.startswith("urL") else None


def meaning(operation: str, arguments: tuple[object, ...]) -> tuple[str, tuple[object, ...]]:
    """What an operation on the tree is for, and on which ledger, where its own name does not say that."""
    first, last = (arguments[0], arguments[-1]) if arguments else (None, None)
    steps = isinstance(first, Create | Write | Delete | Check)
    path = first.path if isinstance(first, Create | Write | Delete | Check) else first
    if path == COOKIES and steps:
        return "swap_set_back", arguments
    if not isinstance(path, str) or not path.startswith(f"{QUEUE}/"):
        return operation, arguments
    if path.startswith(VOTES) and steps:
        return ("audit_vote" if isinstance(first, Create) else "audit_withdraw"), arguments
    if path == f"{QUEUE}/disable":
        return ("repair_switch" if steps else "repair_enabled"), ()
    ledger = ledger_of(path)
    if path.startswith(LOCKS) and ledger is not None and steps:
        name = "lock_repair" if isinstance(first, Create) else "release_repair" if first is last else "finish_repair"
        return name, (ledger,)
    if path.startswith(SHORT):
        if isinstance(last, Create):
            named = ledger_of(last.path)
            return ("repair_directory", ()) if named is None else ("repair_mark", (named,))
        if ledger is not None:
            return ("repair_extend" if isinstance(first, Write) else "repair_shortage"), (ledger,)
    return (f"repair_{operation}" if f"{path}/".startswith((LOCKS, SHORT)) else operation), arguments
