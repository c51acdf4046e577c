"""
Imports into a cluster of this process, and what is in the logs behind one.

Knows: how a store is read with the faces of logs alone.  Does not know: how it was written.
"""

from typing import Any, NamedTuple

from quire.messages.core.queues import QueueTable
from quire.messages.descriptor import CHILD, USE, Descriptor
from quire.messages.progress import Progress
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.source import Tree, Wanted

# SPDX-License-Identifier: Apache-2.0

NAME = "orders"


async def imported(
    logs,
    *roots,
    name=NAME,
    address="",
    settings=None,
    tree=None,
    reached=lambda _point: None,
    told=lambda *_each: None,
    **wanted,
):
    """One run, and its plan."""
    wanted.setdefault("single", "group_size" not in wanted)
    with tree or Tree() as tree:
        plan = await planned(logs, tree, Wanted(tuple(map(str, roots)), **wanted), lambda *_each: None)
        importing = Importing(logs, tree, name, plan, address=address, settings=settings, reached=reached, told=told)
        return plan, await importing.run()


class Held(NamedTuple):
    """All that an import left: values by their positions, the queue table, progress, documents, the descriptor."""

    values: list[tuple[int, bytes]]
    table: dict[str, dict[int, int]]
    store_ms: int
    offsets: dict[Any, int]
    documents: dict[str, bytes]
    descriptor: Descriptor


async def held(logs, name=NAME):
    """Read from the logs, without anything of the source."""
    descriptor = Descriptor.read((await logs.child(name, CHILD)).value)
    values = []
    async for batch in (await logs.read(name)).batches():
        values += zip(batch.positions, batch.values, strict=True)
    replica = await logs.replica(name, lambda: QueueTable(descriptor.placing), use=USE)
    table = await replica.read(lambda machine: ({t: machine.queues(t) for t in machine.topics()}, machine.store_ms))
    await replica.close()
    progress = Progress(with_documents=True)
    async for batch in (await logs.read(f"{name}.progress")).batches():
        for key, value in zip(batch.keys, batch.values, strict=True):
            progress.apply(key, value)
    documents = {document: b"".join(progress.document(document)) for document in progress.documents()}
    return Held(values, *table.value, progress.offsets, documents, descriptor)


async def unnamed(logs, name=NAME):
    """Ledgers that nothing names, and intents of publishers."""
    import json

    records, named, intents = logs.bk.store.records, set(), []
    for each in (name, f"{name}.progress"):
        id_ = (await logs.info(each)).id
        manifest = json.loads(await logs.manifest(each))
        named |= {segment["ledger"] for segment in manifest["segments"] + manifest["doomed"]}
        named |= {snapshot.ledger for snapshot in await logs.snapshots(each)}
        for txn in await records.children(f"logs/{id_[:2]}/{id_}/intents"):
            intents += await records.children(f"logs/{id_[:2]}/{id_}/intents/{txn}")
    return set(await logs.bk.ledger_ids()) - named, intents
