"""
A topic's name, where it is read from and to, an open cluster: common to all commands of Pulsar's topics.

Knows: how places look on a command line.  Does not know: any command.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from quire.tools.terminal import output
from quire.tools.terminal.options import client_options, group, metadata_uri
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.conf.pulsar import PulsarOptions
    from quire.pulsar.api import PassedOver, Topics
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

app = group(
    "Read topics of Apache Pulsar straight from bookies, without a broker or beside one; nothing is fenced or written.",
    "quire pulsar read orders --from earliest",
)

Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://TENANT/NAMESPACE/TOPIC, or TOPIC in public/default")
]
Root = Annotated[
    str | None,
    typer.Option("--root", metavar="NODE", help="below which Pulsar's nodes are; beside the ledgers' if not given"),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="earliest, latest, LEDGER:ENTRY, LEDGER:ENTRY:BATCH_INDEX, or a publish time as 2026-05-31T18:00:00+02:00",
    ),
]
To = Annotated[
    str, typer.Option("--to", metavar="WHERE", help="the last position, or a publish time before which to end")
]
Of = Annotated[
    str | None,
    typer.Option("--subscription", metavar="NAME", help="only what this subscription has not acknowledged"),
]
Compacted = Annotated[
    bool, typer.Option("--compacted", help="of each key the newest, as far as Pulsar has compacted the topic")
]
Unconfirmed = Annotated[
    bool,
    typer.Option("--unconfirmed", help="also the last entries that are stored while no later one confirms them"),
]


def options_of(root: str | None, unconfirmed: bool = False) -> "PulsarOptions":
    """The options of a command; `ValueError` for a node that can't be."""
    from quire.conf.pulsar import PulsarOptions

    return PulsarOptions(root=None if root is None else root.rstrip("/"), unconfirmed=unconfirmed)


def with_topics(metadata: str | None, options: "PulsarOptions", work: "Callable[[Topics], Awaitable[T]]") -> T:
    """Runs `work(topics)` with the topics of the cluster at `metadata`."""

    async def whole(_reactor: "ProcessReactor", client: "Client") -> T:
        from quire.pulsar.api import Topics

        return await work(Topics(client, options))

    return with_client(metadata_uri(metadata), whole, client_options(None))


def tell(passed: "list[PassedOver]") -> None:
    """Notes what is not given, and why."""
    for each in passed:
        output.note(f"quire: passed over {each.position}: {each.text}")
