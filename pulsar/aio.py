"""
The asyncio face of Pulsar's topics.

    async with connect("zk://127.0.0.1:2181/ledgers") as topics:
        plan = await topics.plan("orders", start="earliest")
        async for message in topics.read(plan):
            print(message.position, message.key, message.value)

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: formats; every decision is made below.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

from collections.abc import AsyncIterator

from quire.client.gathering import in_batches
from quire.client.loops import Connecting, Handle, ReactorThread, each, pulled, reactor_thread
from quire.conf.client import ClientOptions, store_named
from quire.conf.pulsar import PulsarOptions
from quire.pulsar import api

# SPDX-License-Identifier: Apache-2.0


def connect(
    uri: str | None = None,
    options: PulsarOptions | None = None,
    client_options: ClientOptions | None = None,
) -> "Connecting[Topics]":
    """
    Opens Pulsar's topics in a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers"); without one as the commands
    do, by QUIRE_METADATA or the client's configuration file.  Best used with `async with`, which closes them.
    `ValueError` for a URI of no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no
    cluster.
    """
    chosen, given = PulsarOptions.given(options), ClientOptions.given(client_options)
    named = store_named(uri)

    async def opened() -> Topics:
        thread = reactor_thread()
        topics = await thread.wait(
            lambda: api.connect(thread.reactor, named, chosen, given),
            lambda made: made.close(),
        )
        return Topics(thread, topics)

    return Connecting(opened)


class Topics(Handle):
    """
    The topics of a cluster of Pulsar.  Made by `connect`.  Nothing is fenced or written: all of it can be done beside a
    broker that serves them.
    """

    def __init__(self, thread: ReactorThread, topics: api.Topics) -> None:
        self._thread = thread
        self._topics = topics

    def names(self, namespace: str | None = None, *, system: bool = False) -> AsyncIterator[str]:
        """
        Yields the names of stored topics, of each partition by itself.  `namespace`: TENANT/NAMESPACE; `system`:
        Pulsar's own, too.
        """
        return each(self._thread, lambda: in_batches(self._topics.names(namespace, system=system)))

    async def partitions(self, topic: str) -> list[str]:
        """Lists the stored partitions of a topic; of one without partitions its own name.  `NoSuchTopic`."""
        return await self._thread.wait(lambda: self._topics.partitions(topic))

    async def info(self, topic: str) -> api.TopicInfo:
        """
        Describes a topic without partitions, or one partition: ledgers, end, subscriptions, compaction.  `NoSuchTopic`,
        `MessageDamaged`, `NotRead`.
        """
        return await self._thread.wait(lambda: self._topics.info(topic))

    async def plan(
        self,
        topic: str,
        *,
        start: api.Where = "earliest",
        end: api.Where = "latest",
        subscription: str | None = None,
        compacted: bool = False,
    ) -> api.Plan:
        """
        Finds out what is to be read of a topic and all its partitions, up to what is confirmed now: in ranges, which
        other processes may read, too.  `start`, `end`: a position, included; a publish time in ms since 1970 or as text
        (the end is before it); `earliest`, `latest`; or one of these by the name of a partition.  `subscription`: only
        what it has not acknowledged.  `compacted`: of each key the newest, as far as Pulsar has compacted the topic.
        `NoSuchTopic`, `NoSuchSubscription`, `LedgerOffloaded`, `MessageDamaged`, `NotRead`; `ValueError`.
        """
        return await self._thread.wait(
            lambda: self._topics.plan(topic, start=start, end=end, subscription=subscription, compacted=compacted)
        )

    def batches(self, plan: api.Plan) -> AsyncIterator[api.MessageBatch]:
        """
        Yields the messages of a plan as columns, with what was passed over.  `MessageDamaged` names the position;
        `LedgerOffloaded`, `NoSuchLedger`, `NotRead`.
        """
        return pulled(self._thread, lambda: self._topics.batches(plan))

    def read_range(self, wanted: api.TopicRange) -> AsyncIterator[api.MessageBatch]:
        """Yields the messages of one range of a plan, as `batches`."""
        return pulled(self._thread, lambda: self._topics.read_range(wanted))

    async def read(self, plan: api.Plan) -> AsyncIterator[api.Message]:
        """Yields the messages of a plan one by one, as `batches`."""
        async for batch in self.batches(plan):
            for message in batch.messages():
                yield message

    def follow(
        self, topic: str, timeout: float, *, start: api.Where = "latest", subscription: str | None = None
    ) -> AsyncIterator[api.MessageBatch]:
        """
        Yields messages as they are confirmed, until none has come for so many seconds; none of an open transaction, nor
        what is behind it in its partition.
        """
        return pulled(self._thread, lambda: self._topics.follow(topic, timeout, start=start, subscription=subscription))

    async def schema(self, topic: str, version: bytes) -> api.Schema:
        """Reads the schema of a message's `schema_version` from the registry.  `NoSuchSchema`, `MessageDamaged`."""
        return await self._thread.wait(lambda: self._topics.schema(topic, version))

    async def close(self) -> None:
        """Closes the connections."""
        await self._thread.wait(self._topics.close)
