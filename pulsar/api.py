"""
The Twisted face of Pulsar's topics.  The blocking and asyncio faces are built on it.

Knows: how a cluster is opened for them.  Does not know: topics.
"""

from quire.client.api import connect as open_client
from quire.client.connections.network import TcpReactor, begun
from quire.conf.client import ClientOptions
from quire.conf.pulsar import PulsarOptions
from quire.pulsar.core.batch import COLUMNS, Message, MessageBatch
from quire.pulsar.core.managed import LedgerPart
from quire.pulsar.core.positions import EARLIEST, LATEST, PassedOver, Position, parse_position
from quire.pulsar.core.ranges import TopicRange
from quire.pulsar.planning import Plan, Where
from quire.pulsar.schemas import Schema
from quire.pulsar.topics import Subscription, TopicInfo, Topics

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "COLUMNS",
    "EARLIEST",
    "LATEST",
    "LedgerPart",
    "Message",
    "MessageBatch",
    "PassedOver",
    "Plan",
    "Position",
    "Schema",
    "Subscription",
    "TopicInfo",
    "TopicRange",
    "Topics",
    "Where",
    "connect",
    "parse_position",
]


@begun
async def connect(
    reactor: TcpReactor,
    uri: str | None = None,
    options: PulsarOptions | None = None,
    client_options: ClientOptions | None = None,
) -> Topics:
    """
    Opens the topics of a cluster by its metadata URI; without one as the commands do.  Fails as `quire.client.api`'s.
    """
    chosen = PulsarOptions.given(options)
    return Topics(await open_client(reactor, uri, client_options), chosen, owns_client=True)
