"""
What a broker leaves in bookies and metadata, written by our client: ledgers of topics and cursors, and their nodes.

Knows: the order in which a broker does so.  Does not know: Pulsar's protocol, `quire.pulsar`.
"""

from collections.abc import Sequence

from quire.client.api import Client, Writer
from quire.metadata.store import ANY
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0

TOPICS = "/managed-ledgers"


class Broker:
    """The topics of one cluster.  `root`: below which its nodes are."""

    def __init__(self, client: Client, root: str = "") -> None:
        self.client, self.root = client, root
        self._known: dict[str, list[made.Field]] = {}
        self._open: dict[str, Writer] = {}

    async def node(self, path: str, data: bytes) -> None:
        """Makes or replaces a node."""
        tree, whole = self.client.store.tree, ""
        for name in f"{self.root}{path}".strip("/").split("/"):
            whole += f"/{name}"
            await tree.ensure(whole)
        await tree.set(whole, data, ANY)

    async def topic(self, name: str, entries: Sequence[bytes], *, closed: bool = True, method: int = made.NONE) -> int:
        """One more ledger of a topic (TENANT/NAMESPACE/persistent/TOPIC), with these entries; its id."""
        writer = await self.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        for entry in entries:
            await writer.append(entry)
        known = self._known.setdefault(name, [])
        if closed:
            await writer.close()
            known.append(made.ledger_info(writer.id, len(entries), sum(map(len, entries)), 1))
        else:
            known.append(made.ledger_info(writer.id))
            self._open[name] = writer
        await self.named(name, method)
        return writer.id

    async def named(self, name: str, method: int = made.NONE, *more: made.Field) -> None:
        """Writes the node of a topic."""
        raw = made.proto(*self._known[name], *more)
        await self.node(f"{TOPICS}/{name}", made.node(raw, method) if method else raw)

    async def append(self, name: str, *entries: bytes) -> None:
        """Further entries of the open ledger of a topic."""
        await self._open[name].append_many(list(entries))

    async def cursor(self, name: str, subscription: str, place: bytes, *, closed: bool = True) -> None:
        """A subscription whose place is in a ledger."""
        writer = await self.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.append(made.proto((1, 0), (2, 0)))
        await writer.append(place)
        if closed:
            await writer.close()
        await self.node(f"{TOPICS}/{name}/{subscription}", made.proto((1, writer.id)))

    async def ledger(self, *entries: bytes) -> int:
        """A closed ledger."""
        writer = await self.client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.append_many(list(entries))
        await writer.close()
        return writer.id

    async def rolled(self, name: str) -> None:
        """Closes the open ledger of a topic, of which the node then says how much it has."""
        writer = self._open.pop(name)
        await writer.close()
        count = writer.last_add_confirmed + 1
        known = self._known[name]
        known[-1] = made.ledger_info(writer.id, count, writer.length, 1)
        await self.named(name)

    async def offloaded(self, name: str, ledger: int, closed_ms: int = 1) -> None:
        """Has a closed ledger of a topic taken away by an offloader, and deleted from the bookies."""
        await self.client.delete_ledger(ledger)
        context = made.proto((4, closed_ms), (5, made.proto((3, 1), (4, 1), (6, made.proto((1, "filesystem"))))))
        head = made.proto((1, ledger))
        self._known[name] = [
            (number, raw + context if bytes(raw).startswith(head) else raw) for number, raw in self._known[name]
        ]
        await self.named(name)

    async def forgotten(self, name: str, ledger: int) -> None:
        """Has a ledger of a topic deleted, as retention does; a broker that loads a topic, if it is empty."""
        await self.client.delete_ledger(ledger)
        head = made.proto((1, ledger))
        self._known[name] = [each for each in self._known[name] if not bytes(each[1]).startswith(head)]
        await self.named(name)
