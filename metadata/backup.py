"""
A cluster's metadata as one file, and such a file as the metadata of a new cluster, in whatever kind of store.

The file is lines of JSON, in UTF-8:

    {"quire metadata": 1, "cluster": ID, "layout": TEXT}
    {"path": PATH, "data": BASE64}          a node, after the one above it; without "data" it is empty
    {"end": N, "next_ledger": N, "sha256": HEX}     how many nodes; the sum of all lines before

PATH is relative to the cluster's root; that of a record begins with `-quire`, as its node is beside the root.

Knows: which nodes are of a moment or of one store, and are left out: claims (registrations, locks, votes, tokens of
ids, owners of logs), counters of ids and of deletions, the clock; that nodes begin with version 0 again, for nobody
keeps the version of a node but while a session lasts, and no session outlives its store.
Does not know: what a node means beyond that.

Safety: a dump is what was there at one moment: the tree is read again until nothing in it differs, down to the store's
count of changes at each node, so every node was then between the two readings what is in the file.  Ids that were given
before the dump ended are never given again.  A restore changes nothing where a cluster is, or what another restore has
left; what makes it a cluster comes last, in one transaction, so one that was cut off is no cluster, and goes on when
it is begun again with the same file.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any, BinaryIO, NamedTuple

from quire.metadata.auditing import DELAY
from quire.metadata.formats.json_text import parse_json
from quire.metadata.ledgers.cluster import DELETIONS, LAST
from quire.metadata.ledgers.ids import USED_UP_MAX, LedgerIds
from quire.metadata.ledgers.layout import Layout, parse_layout, records_root
from quire.metadata.position import Position
from quire.metadata.store import ANY, LEDGER_ID_MAX, ClusterExists
from quire.metadata.tree import BadVersion, Create, NodeExists, NoNode, Stat, Step, Tree, Write
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

VERSION = 1
NAME = "quire metadata"
READ_AT_ONCE = 500  # nodes
STEPS_MAX = 1000  # of one transaction, and below in bytes, of which ZooKeeper takes a MiB
BYTES_MAX = 512 << 10
STEP_BYTES = 64
READINGS_MAX = 10
RECORDS = records_root("")
TOPS = ("", RECORDS)
CLOCK = f"{RECORDS}/clock"
CLAIMED = frozenset({"/available/readonly", "/underreplication/locks", "/underreplication/auditorelection"})
OF_CLAIMS = CLAIMED | {"/available"}  # what comes and goes below these are claims, and no change
LEFT_OUT = frozenset({"/idgen", "/idgen-long", f"/{DELETIONS}", CLOCK})
RESTORING = "restored from "  # in place of whose the records are, until they are there

Seen = Callable[[int], object]  # hears of so many nodes more


class Unsettled(MetaStore):
    """The metadata changes all the time, so nothing that was read is of one moment."""


class BadDump(ValueError):
    """A file that is no dump, or not a whole one."""


class Node(NamedTuple):
    """One line of the file."""

    path: str
    data: bytes


# -- dump --------------------------------------------------------------------------------------------------------------


async def dump(store: MetadataStore, file: BinaryIO, seen: Seen = lambda _count: None) -> int:
    """
    Writes the file, which can be read from and cut; how many nodes are in it.  `Unsettled`, `NoCluster`; `MetaStore` in
    Apache's layout of etcd.
    """
    if store.layout is Layout.APACHE_ETCD:
        raise MetaStore(
            f"{store.uri}: a cluster in Apache's layout of etcd is not dumped, for its ledger ids could not go on "
            "elsewhere: keep it with `etcdctl snapshot save`"
        )
    cluster = await store.cluster()
    head = {NAME: VERSION, "cluster": cluster.instance_id, "layout": cluster.layout}
    before = None
    for _ in range(READINGS_MAX):
        file.seek(0)
        file.truncate()
        lines, state, count = Lines(file), hashlib.sha256(), 0
        lines.write(head)
        await store.tree.sync(store.root)
        changes = await store.tree.changes()
        async for node, stat in nodes(store.tree, store.root, cluster.instance_id):
            lines.write({"path": node.path, **({"data": b64encode(node.data).decode()} if node.data else {})})
            moved = 0 if node.path in OF_CLAIMS else stat.children_changed
            state.update(f"{node.path} {stat.made} {stat.changed} {moved}\n".encode())
            count += 1
            seen(1)
        if before == state.digest() or await store.tree.changes() == changes:
            lines.end({"end": count, "next_ledger": (await store.progress()).next_ledger})
            return count
        before = state.digest()
    raise Unsettled(
        f"{store.uri} was changed during each of {READINGS_MAX} readings: stop who writes (logs with cursors, "
        "repairs, programs that make ledgers), then dump again"
    )


class Lines:
    """Writes the lines of a file and their sum."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()

    def write(self, value: dict[str, Any]) -> None:
        line = json.dumps(value).encode() + b"\n"
        self._sum.update(line)
        self._file.write(line)

    def end(self, value: dict[str, Any]) -> None:
        """The last line."""
        self.write({**value, "sha256": self._sum.hexdigest()})


async def nodes(tree: Tree, root: str, instance: str) -> AsyncIterator[tuple[Node, Stat]]:
    """Yields the nodes of a cluster that stay, each after the one above it; no records of a former cluster."""
    waiting: list[str] = []
    for path, node in zip(TOPS, await tree.get_each([root + path for path in TOPS]), strict=True):
        if node is not None and (path != RECORDS or node[0].decode("utf-8", "replace") == instance):
            yield Node(path, node[0]), node[1]
            waiting.append(path)
    while waiting:
        above = waiting.pop()
        try:
            names = sorted(await tree.children(root + above))
        except NoNode:
            continue
        paths = [path for name in names if is_kept(path := f"{above}/{name}")]
        for start in range(0, len(paths), READ_AT_ONCE):
            some = paths[start : start + READ_AT_ONCE]
            for path, node in zip(some, await tree.get_each([root + path for path in some]), strict=True):
                if node is not None and node[1].owner is None:
                    yield Node(path, node[0]), node[1]
                    if node[1].children and path not in CLAIMED:
                        waiting.append(path)


def is_kept(path: str) -> bool:
    """False for what belongs to one store: counters of ids and deletions, its clock."""
    return path not in LEFT_OUT and not path.startswith("/ID-")


# -- restore -----------------------------------------------------------------------------------------------------------


class Dump(NamedTuple):
    """The facts that a whole file says of itself."""

    cluster: str
    layout: str
    nodes: int
    next_ledger: int
    sum: str


def checked(file: BinaryIO) -> Dump:
    """Reads a file to its end; `BadDump` unless it is whole."""
    sum_, count, head, end = hashlib.sha256(), 0, None, None
    file.seek(0)
    try:
        for line in file:
            value = parse_json(line)
            if end is not None:
                raise BadDump("something follows its last line")
            if "end" in value:
                end = value
                if value["sha256"] != sum_.hexdigest():
                    raise BadDump("its sum is wrong: it is damaged")
                continue
            sum_.update(line)
            if head is None:
                head = value
                if value.get(NAME) != VERSION:
                    raise BadDump(f"it is no dump of version {VERSION}")
                continue
            count += 1
            if not (node := _node(value)).path.startswith(("/", RECORDS)) and node.path:
                raise BadDump(f"it has a node {node.path[:100]!r}, which is none of a cluster")
        if head is None or end is None:
            raise BadDump("its last line is missing: it was cut off")
        if end["end"] != count:
            raise BadDump(f"it has {count} nodes instead of {end['end']}")
        found = Dump(str(head["cluster"]), str(head["layout"]), count, int(end["next_ledger"]), str(end["sha256"]))
        if not 0 <= found.next_ledger <= LEDGER_ID_MAX + 1:
            raise BadDump(f"its next ledger id is {found.next_ledger}")
        return found
    except BadDump:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadDump(f"it can't be read as a dump: {error}") from None


def nodes_in(file: BinaryIO) -> Iterator[Node]:
    """The nodes of a file that was checked."""
    file.seek(0)
    for line in file:
        value = parse_json(line)
        if "path" in value:
            yield _node(value)


def _node(value: dict[str, Any]) -> Node:
    return Node(str(value["path"]), b64decode(value.get("data", ""), validate=True))


async def restore(
    store: MetadataStore, file: BinaryIO, found: Dump, random: Random, seen: Seen = lambda _count: None
) -> None:
    """
    Makes the cluster of a file, of which `found` was read.  `ClusterExists` where there is one, or the rest of another
    restore; `MetaStore` where the address insists on another layout.  To be called again after an interruption.
    """
    tree, root = store.tree, store.root
    layout = parse_layout(found.layout.encode(), store.layout)
    await tree.make()
    await _begin(store, f"{RESTORING}{found.sum}".encode())
    await LedgerIds(tree, root, layout, random).raise_to(Position([_first_id(found, layout, tree)]))
    last = {f"/{name}" for name in LAST}
    ending: list[Create] = [] if tree.has_strangers else [Create(f"{root}/{DELETIONS}")]
    batch: list[Create] = []
    size = 0
    for node in nodes_in(file):
        step = Create(root + node.path, node.data, shared=node.path == f"/underreplication/{DELAY}")
        if node.path in last:
            ending.append(step)
        elif node.path not in TOPS:
            more = STEP_BYTES + len(step.path) + len(step.data)
            if len(batch) >= STEPS_MAX or size + more > BYTES_MAX:
                await _put(tree, batch)
                seen(len(batch))
                batch, size = [], 0
            batch.append(step)
            size += more
    await _put(tree, batch)
    await _end(store, sorted(ending, key=lambda step: step.path), found)
    seen(len(batch) + len(ending))


def _first_id(found: Dump, layout: Layout, tree: Tree) -> int:
    """The next id that is given; where each number would have to be used up by a node, the first of the long ones."""
    many = tree.has_strangers and layout is not Layout.FLAT and USED_UP_MAX < found.next_ledger < 1 << 32
    return 1 << 32 if many else found.next_ledger


async def _begin(store: MetadataStore, mark: bytes) -> None:
    """Makes root and mark, or finds them as an earlier try has left them; `ClusterExists`."""
    tree, root = store.tree, store.root
    above = root.split("/")[1:-1]
    for depth in range(len(above)):
        await tree.ensure("/" + "/".join(above[: depth + 1]))
    try:
        await tree.transact([Create(root + RECORDS, mark), Create(root)])
    except NodeExists:
        records, cluster = await tree.get_each([root + RECORDS, root])
        if records is not None and records[0] != mark and records[0].startswith(RESTORING.encode()):
            raise ClusterExists(
                f"{store.uri} holds what another restore has left: run that one again with its file; without it remove "
                f"{root} and {root}{RECORDS}, or the SQLite file, by hand"
            ) from None
        if cluster is None or records is None or records[0] != mark:
            raise ClusterExists(
                f"{store.uri} holds a cluster already, or what is left of one; nothing was changed: give an address "
                "that holds none, or see `quire metadata destroy`"
            ) from None


async def _put(tree: Tree, batch: list[Create]) -> None:
    """Makes nodes, of which an earlier try may have made some; `ClusterExists` when one is another."""
    if not batch:
        return
    try:
        await tree.transact(batch)
    except NodeExists:
        there = await tree.get_each([step.path for step in batch])
        for step, node in zip(batch, there, strict=True):
            if node is not None and node[0] != step.data:
                raise ClusterExists(f"{tree.uri}: {step.path} was changed while it was restored") from None
        await _put(tree, [step for step, node in zip(batch, there, strict=True) if node is None])


async def _end(store: MetadataStore, ending: list[Create], found: Dump) -> None:
    """Makes it a cluster.  Who has looked at the address meanwhile may have made a layout."""
    tree, root = store.tree, store.root
    there = await tree.get_each([step.path for step in ending])
    steps: list[Step] = [
        step if node is None else Write(step.path, step.data, node[1].version)
        for step, node in zip(ending, there, strict=True)
    ]
    try:
        await tree.transact([*steps, Write(root + RECORDS, found.cluster.encode(), ANY)])
    except (NodeExists, BadVersion):  # by a try whose answer was lost, perhaps
        if (await tree.get(root + RECORDS))[0] != found.cluster.encode():
            raise
