"""
Topics of Apache Pulsar, read straight from bookies and ZooKeeper without a broker, and beside one that serves.

In reading order: `core` (face), the formats; `codecs`, compressions; `arrow` (face), messages as Arrow batches;
`nodes`, the metadata; `reading`, one range; `planning`, all ranges; `schemas`; `topics`; `api` (face), for Twisted;
`documents` (face), messages as JSON; `aio` (face), for asyncio; `blocking` (face); `exporting` (face), topics in files.
`connect` is the blocking face.  Errors are `LedgerError`s, those of topics `PulsarError`s.

    from quire.pulsar import connect

    with connect("zk://127.0.0.1:2181/ledgers") as topics:
        for message in topics.read(topics.plan("orders")):
            print(message.position, message.key, message.value)
"""

from quire.conf.pulsar import PulsarOptions
from quire.protocol.pulsar_errors import (
    LedgerOffloaded,
    MessageDamaged,
    NoSuchSchema,
    NoSuchSubscription,
    NoSuchTopic,
    NotRead,
    PulsarError,
)
from quire.pulsar.api import (
    LedgerPart,
    Message,
    MessageBatch,
    PassedOver,
    Plan,
    Position,
    Schema,
    Subscription,
    TopicInfo,
    TopicRange,
)
from quire.pulsar.blocking import Topics, connect

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "LedgerOffloaded",
    "LedgerPart",
    "Message",
    "MessageBatch",
    "MessageDamaged",
    "NoSuchSchema",
    "NoSuchSubscription",
    "NoSuchTopic",
    "NotRead",
    "PassedOver",
    "Plan",
    "Position",
    "PulsarError",
    "PulsarOptions",
    "Schema",
    "Subscription",
    "TopicInfo",
    "TopicRange",
    "Topics",
    "connect",
]
