# Made from pulsar/aio.py by `make manual`: edit that file, not this one.
"""
The blocking face of Pulsar's topics.

    with connect("zk://127.0.0.1:2181/ledgers") as topics:
        plan = topics.plan("orders", start="earliest")
        for message in topics.read(plan):
            print(message.position, message.key, message.value)

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: formats; every decision is made below.

Handles may be used from several threads at a time.  An interrupt while a call waits cancels its operation; an append
that was sent stays sent.  A call on the reactor's own thread, or in a forked child, raises `RuntimeError` instead of
waiting for ever.
"""

from collections.abc import Iterator

from quire.client.gathering import in_batches
from quire.client.threads import Handle, ReactorThread, documented, each, pulled, reactor_thread
from quire.conf.client import ClientOptions, store_named
from quire.conf.pulsar import PulsarOptions
from quire.pulsar import aio, api

# SPDX-License-Identifier: Apache-2.0


def connect(
    uri: str | None = None,
    options: PulsarOptions | None = None,
    client_options: ClientOptions | None = None,
) -> "Topics":
    """
    Opens Pulsar's topics in a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers"); without one as the commands
    do, by QUIRE_METADATA or the client's configuration file.  Best used with `with`, which closes them.
    `ValueError` for a URI of no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no
    cluster.
    """
    chosen, given = PulsarOptions.given(options), ClientOptions.given(client_options)
    named = store_named(uri)

    def opened() -> Topics:
        thread = reactor_thread()
        topics = thread.wait(
            lambda: api.connect(thread.reactor, named, chosen, given),
            lambda made: made.close(),
        )
        return Topics(thread, topics)

    return opened()


@documented(aio.Topics)
class Topics(Handle):
    """
    The topics of a cluster of Pulsar.  Made by `connect`.  Nothing is fenced or written: all of it can be done beside a
    broker that serves them.
    """

    def __init__(self, thread: ReactorThread, topics: api.Topics) -> None:
        self._thread = thread
        self._topics = topics

    def names(self, namespace: str | None = None, *, system: bool = False) -> Iterator[str]:
        return each(self._thread, lambda: in_batches(self._topics.names(namespace, system=system)))

    def partitions(self, topic: str) -> list[str]:
        return self._thread.wait(lambda: self._topics.partitions(topic))

    def info(self, topic: str) -> api.TopicInfo:
        return self._thread.wait(lambda: self._topics.info(topic))

    def plan(
        self,
        topic: str,
        *,
        start: api.Where = "earliest",
        end: api.Where = "latest",
        subscription: str | None = None,
        compacted: bool = False,
    ) -> api.Plan:
        return self._thread.wait(
            lambda: self._topics.plan(topic, start=start, end=end, subscription=subscription, compacted=compacted)
        )

    def batches(self, plan: api.Plan) -> Iterator[api.MessageBatch]:
        return pulled(self._thread, lambda: self._topics.batches(plan))

    def read_range(self, wanted: api.TopicRange) -> Iterator[api.MessageBatch]:
        return pulled(self._thread, lambda: self._topics.read_range(wanted))

    def read(self, plan: api.Plan) -> Iterator[api.Message]:
        for batch in self.batches(plan):
            yield from batch.messages()

    def follow(
        self, topic: str, timeout: float, *, start: api.Where = "latest", subscription: str | None = None
    ) -> Iterator[api.MessageBatch]:
        return pulled(self._thread, lambda: self._topics.follow(topic, timeout, start=start, subscription=subscription))

    def schema(self, topic: str, version: bytes) -> api.Schema:
        return self._thread.wait(lambda: self._topics.schema(topic, version))

    def close(self) -> None:
        self._thread.wait(self._topics.close)
