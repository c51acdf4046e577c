"""
Pulsar's nodes in the metadata: which topics there are, their ledgers, partitions and cursors.

Knows: where the nodes are and which are missing.  Does not know: bookies.

Safety: nodes are only read.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from quire.metadata.store import at_once
from quire.metadata.tree import NoNode
from quire.metadata.tree_store import MetadataStore
from quire.protocol.pulsar_errors import MessageDamaged, NoSuchSubscription, NoSuchTopic
from quire.pulsar.codecs import decompress
from quire.pulsar.core.managed import CursorNode, TopicLedgers, decode_cursor, decode_topic
from quire.pulsar.core.names import DOMAIN, TopicName, decoded, encoded, topics_path

# SPDX-License-Identifier: Apache-2.0

LEDGERS = "/managed-ledgers"
NAMESPACE_DEPTH_MAX = 3  # tenant, cluster in old names, namespace
SYSTEM = "__"  # how names of topics begin that Pulsar keeps for itself
AT_ONCE = 200  # nodes that are asked for together
PARTITIONS_MAX = 100_000


class Nodes:
    """The nodes of one cluster of Pulsar.  `root`: below which they are; beside the ledgers' node if not given."""

    def __init__(self, store: MetadataStore, root: str | None = None) -> None:
        self._tree = store.tree
        self.root = store.root.rpartition("/")[0] if root is None else root

    async def _get(self, path: str) -> bytes | None:
        try:
            return (await self._tree.get(self.root + path))[0]
        except NoNode:
            return None

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self._tree.children(self.root + path))
        except NoNode:
            return []

    async def namespaces(self) -> AsyncGenerator[str, None]:
        """Yields the namespaces that have stored topics."""
        below = [(name, 1) for name in reversed(await self._children(LEDGERS))]
        while below:
            path, depth = below.pop()
            names = await self._children(f"{LEDGERS}/{path}")
            if DOMAIN in names:
                yield path
            elif depth < NAMESPACE_DEPTH_MAX:
                below += [(f"{path}/{name}", depth + 1) for name in reversed(names)]

    async def topics(self, namespace: str | None = None, *, system: bool = False) -> AsyncGenerator[TopicName, None]:
        """Yields the topics of a namespace or of all, each partition by itself.  `system`: Pulsar's own, too."""
        if namespace is None:
            async for each in self.namespaces():
                async for name in self.topics(each, system=system):
                    yield name
            return
        for node in await self._children(topics_path(namespace)):
            name = TopicName(namespace, decoded(node))
            if system or not name.local.startswith(SYSTEM):
                yield name

    async def ledgers(self, name: TopicName) -> TopicLedgers:
        """The ledgers of a topic or of one partition.  `NoSuchTopic`, `MessageDamaged`, `NotRead`."""
        data = await self._get(name.ledgers_path)
        if data is None:
            raise self._unknown(name)
        try:
            return decode_topic(data, decompress)
        except MessageDamaged as error:
            raise MessageDamaged(f"{name}: {error}") from None

    def _unknown(self, name: TopicName) -> NoSuchTopic:
        return NoSuchTopic(
            f"there is no topic {name} below {self.root or '/'}: `quire pulsar topics` lists them, --root says where"
            " Pulsar's nodes are"
        )

    async def partitions(self, name: TopicName) -> list[TopicName]:
        """
        The stored partitions of a topic, in their order; a topic that has none is its own.  `NoSuchTopic`.
        """
        if name.partition >= 0 or await self._get(name.ledgers_path) is not None:
            return [name]
        data = await self._get(name.partitions_path)
        count = partitions_of(name, data) if data is not None else 0
        named = {name.of_partition(number) for number in range(count)}
        nodes = {decoded(node) for node in await self._children(topics_path(name.namespace))}
        found = [TopicName(name.namespace, local) for local in nodes]
        parts = sorted(
            (each for each in found if each in named or (each.partition >= 0 and each.base == name)),
            key=lambda each: each.partition,
        )
        if not parts and data is None:
            raise self._unknown(name)
        return parts

    async def subscriptions(self, name: TopicName) -> list[str]:
        """The names of the cursors of a topic, those that Pulsar keeps for itself too."""
        return [decoded(node) for node in await self._children(name.ledgers_path)]

    async def cursor(self, name: TopicName, subscription: str) -> CursorNode:
        """The node of a cursor.  `NoSuchSubscription`, `MessageDamaged`, `NotRead`."""
        data = await self._get(f"{name.ledgers_path}/{encoded(subscription)}")
        if data is None:
            there = ", ".join(map(repr, await self.subscriptions(name))) or "none"
            raise NoSuchSubscription(f"{name} has no subscription {subscription!r}: there is {there}")
        try:
            return decode_cursor(data, decompress)
        except MessageDamaged as error:
            raise MessageDamaged(f"{name}, subscription {subscription!r}: {error}") from None

    async def schemas(self, name: TopicName) -> bytes | None:
        """The node that says where the schemas of a topic are."""
        return await self._get(name.schemas_path)

    async def every(self, names: list[TopicName]) -> list[TopicLedgers | None]:
        """The ledgers of many topics, in their order; None for one that is gone."""

        async def one(name: TopicName) -> TopicLedgers | None:
            with suppress(NoSuchTopic):
                return await self.ledgers(name)
            return None

        found: list[TopicLedgers | None] = []
        for start in range(0, len(names), AT_ONCE):
            found += await at_once([one(name) for name in names[start : start + AT_ONCE]])
        return found


def partitions_of(name: TopicName, data: bytes) -> int:
    """The number of partitions in the node of a partitioned topic; `MessageDamaged`."""
    try:
        found: Any = json.loads(data)
        count = found["partitions"]
    except (ValueError, KeyError, TypeError, RecursionError):
        count = None
    if type(count) is not int or not 0 <= count <= PARTITIONS_MAX:
        raise MessageDamaged(f"{name}: the node of a partitioned topic names no number of partitions: {data[:80]!r}")
    return count
