"""What the nodes of a cluster in memory say, for tests that look behind its stores' back."""

from collections.abc import Iterator, MutableMapping
from functools import lru_cache
from typing import NamedTuple

from twisted.internet.task import Clock

from quire.metadata.auditing import DELAY, Periodic
from quire.metadata.formats import ledger_codec, repair_text, service_info
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.ledgers.layout import Layout, LedgerPaths
from quire.metadata.memory.cluster import RECORDS, ROOT, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.memory.tree import Node
from quire.metadata.repair_queue import Shortage, name_of
from quire.metadata.store import ANY, ServiceInfo, Versioned
from quire.metadata.tree import Check, Create, Delete, SessionId, Write

# SPDX-License-Identifier: Apache-2.0

IDS = f"{ROOT}/idgen"
AVAILABLE = f"{ROOT}/available"
DELETIONS = f"{ROOT}/deletions"
PATHS = LedgerPaths(ROOT, Layout.HIERARCHICAL)
QUEUE = f"{ROOT}/underreplication"
VOTES = f"{QUEUE}/auditorelection/"
SHORT = f"{QUEUE}/ledgers/"
LOCKS = f"{QUEUE}/locks/"
COOKIES = f"{ROOT}/cookies"


class Ledgers(MutableMapping[int, Versioned[LedgerMetadata]]):
    """The ledgers of a cluster, which may be changed as by nobody: a value is put with its version."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._nodes = cluster.nodes

    def __repr__(self) -> str:
        return repr(dict(self))

    def __getitem__(self, ledger: int) -> Versioned[LedgerMetadata]:
        node = self._nodes.nodes.get(PATHS.path_of(ledger))
        if node is None:
            raise KeyError(ledger)
        return decoded(ledger, node.data, node.stat.version)

    def __setitem__(self, ledger: int, stored: Versioned[LedgerMetadata]) -> None:
        path, data = PATHS.path_of(ledger), ledger_codec.encode(stored.value)
        nodes = self._nodes
        if path not in nodes.nodes:
            missing = [each for each in (*PATHS.parents(ledger), ROOT) if each not in nodes.nodes]
            nodes.transact([*map(Create, reversed(missing)), Create(path, data)], 0)
        else:
            nodes.transact([Write(path, data, ANY)], 0)
        node = nodes.nodes[path]
        nodes.nodes[path] = node._replace(stat=node.stat._replace(version=stored.version))

    def __delitem__(self, ledger: int) -> None:
        self[ledger]
        self._nodes.transact([Delete(PATHS.path_of(ledger), ANY)], 0)

    def __iter__(self) -> Iterator[int]:
        found = (PATHS.id_of(path) for path in self._nodes.nodes)
        return iter(sorted(ledger for ledger in found if ledger is not None))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@lru_cache(4096)
def decoded(ledger: int, data: bytes, version: int) -> Versioned[LedgerMetadata]:
    return ledger_codec.decode_stored(ledger, data, version)


def init(cluster: MemoryCluster) -> str:
    """Makes the cluster and returns its instance id."""
    made: list[str] = []
    store = MemoryStore(Clock(), cluster)
    store.init_cluster().addCallback(made.append)
    store.close()
    return made[0]


class Backup(NamedTuple):
    """The nodes of a cluster at one moment."""

    nodes: dict[str, Node]
    names: dict[str, set[str]]
    changes: int


def backup(cluster: MemoryCluster) -> Backup:
    """Copies the nodes of a cluster."""
    nodes = cluster.nodes
    return Backup(dict(nodes.nodes), {path: set(names) for path, names in nodes.names.items()}, nodes.changes)


def put_back(cluster: MemoryCluster, saved: Backup) -> None:
    """Sets a store back to what it was."""
    nodes = cluster.nodes
    nodes.nodes.clear()
    nodes.nodes.update(saved.nodes)
    nodes.names.clear()
    nodes.names.update({path: set(names) for path, names in saved.names.items()})
    nodes.changes = saved.changes


def instance_id(cluster: MemoryCluster) -> str:
    """The id of the cluster; empty where there is none."""
    node = cluster.nodes.nodes.get(f"{ROOT}/INSTANCEID")
    return "" if node is None else node.data.decode()


def next_ledger(cluster: MemoryCluster) -> int:
    """The id that is drawn next."""
    node = cluster.nodes.nodes.get(IDS)
    return 0 if node is None else (node.stat.family + node.stat.children) // 2


def set_next_ledger(cluster: MemoryCluster, first: int) -> None:
    """Sets the id that is drawn next, as a store does that was set back."""
    if IDS not in cluster.nodes.nodes:
        put(cluster, IDS)
    node = cluster.nodes.nodes[IDS]
    cluster.nodes.nodes[IDS] = node._replace(stat=node.stat._replace(family=2 * first - node.stat.children))


def registrations(cluster: MemoryCluster, read_only: bool = False) -> dict[str, Node]:
    """The nodes of one of the two lists of bookies, by bookie."""
    path = f"{AVAILABLE}/readonly" if read_only else AVAILABLE
    names = sorted(cluster.nodes.names.get(path, set()) - {"readonly"})
    return {name: cluster.nodes.nodes[f"{path}/{name}"] for name in names}


def registered(cluster: MemoryCluster, bookie: str) -> ServiceInfo | None:
    """The announcement of a registered bookie."""
    node = registrations(cluster).get(bookie) or registrations(cluster, True).get(bookie)
    return None if node is None else service_info.decode(bookie, node.data)


def unlist(cluster: MemoryCluster, *bookies: str) -> None:
    """Removes registrations, as another program would; of all bookies where none is named."""
    paths = [f"{AVAILABLE}/{each}" for each in registrations(cluster)]
    paths += [f"{AVAILABLE}/readonly/{each}" for each in registrations(cluster, True)]
    for path in [path for path in paths if not bookies or path.rpartition("/")[2] in bookies]:
        cluster.nodes.transact([Delete(path, ANY)], cluster.nodes.nodes[path].stat.owner or 0)


def move(cluster: MemoryCluster, bookie: str) -> None:
    """Puts a writable bookie on the list of those that are read-only."""
    node = registrations(cluster)[bookie]
    owner = node.stat.owner
    assert owner is not None
    put(cluster, f"{AVAILABLE}/readonly/{bookie}", node.data, owner, claim=True)
    remove(cluster, f"{AVAILABLE}/{bookie}")


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


def put(cluster: MemoryCluster, path: str, data: bytes = b"", owner: SessionId = 0, *, claim: bool = False) -> None:
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
