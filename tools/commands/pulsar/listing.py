"""
`quire pulsar topics, show`: which topics there are, and how one lies in ledgers.

Knows: what is printed of a topic.  Does not know: nodes, ledgers.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.tools.commands.pulsar.shared import Root, Topic, Unconfirmed, app, options_of, with_topics
from quire.tools.terminal import output
from quire.tools.terminal.options import Json, Metadata, command

if TYPE_CHECKING:
    from quire.pulsar.api import TopicInfo, Topics

# SPDX-License-Identifier: Apache-2.0

COLUMNS = {"topic": 48, "ledgers": 8, "entries": 12, "bytes": 14, "subscriptions": 0}


@command(app, "quire pulsar topics", "quire pulsar topics public/default --json")
def topics(
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="TENANT/NAMESPACE; all if not given")
    ] = None,
    system: Annotated[bool, typer.Option("--system", help="also the topics that Pulsar keeps for itself")] = False,
    root: Root = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Lists stored topics, each partition by itself: ledgers, entries, bytes, subscriptions."""
    table = output.Table(json_wanted, COLUMNS)

    async def work(found: "Topics") -> None:
        async for name in found.names(namespace, system=system):
            info = await found.info(name)
            table.row(
                {
                    "topic": name,
                    "ledgers": len(info.ledgers),
                    "entries": info.entries,
                    "bytes": info.bytes,
                    "subscriptions": len(info.subscriptions),
                }
            )

    with_topics(metadata, options_of(root), work)
    table.end("there are no topics of Pulsar here: --root says below which node they are")


@command(app, "quire pulsar show orders", "quire pulsar show persistent://public/default/orders --json")
def show(
    topic: Topic,
    unconfirmed: Unconfirmed = False,
    root: Root = None,
    metadata: Metadata = None,
    json_wanted: Json = False,
) -> None:
    """Shows how a topic lies in ledgers: of each its entries, bytes and offload; and how far its subscriptions are."""

    async def work(found: "Topics") -> "list[TopicInfo]":
        return [await found.info(each) for each in await found.partitions(topic)]

    infos = with_topics(metadata, options_of(root, unconfirmed), work)
    value = {"topic": topic, "partitions": [as_document(each) for each in infos]}
    lines = [line for each in infos for line in as_lines(each)]
    output.document(json_wanted, value, lines or f"{topic} has partitions, and nothing is stored of them yet")


def as_document(info: "TopicInfo") -> dict[str, Any]:
    """A topic as JSON."""
    return {
        **info._asdict(),
        "end": str(info.end),
        "terminated": None if info.terminated is None else str(info.terminated),
        "ledgers": [each._asdict() for each in info.ledgers],
        "subscriptions": [{**each._asdict(), "mark": str(each.mark)} for each in info.subscriptions],
        "compacted": None if info.compacted is None else {"ledger": info.compacted[0], "up_to": str(info.compacted[1])},
    }


def as_lines(info: "TopicInfo") -> list[str]:
    """A topic for people."""
    found = [f"{info.topic}: {info.entries:,} entries, {output.size_text(info.bytes)}, up to {info.end}"]
    if info.terminated is not None:
        found.append(f"  terminated at {info.terminated}: it takes nothing more")
    for each in info.ledgers:
        closed = f"{each.entries:,} entries, {output.size_text(each.size)}, closed {output.time_text(each.closed_ms)}"
        where = f", offloaded by {each.offloaded}" if each.offloaded else ""
        gone = ", deleted from the bookies" if each.deleted else ""
        found.append(f"  ledger {each.ledger}: {closed if each.closed_ms else 'open'}{where}{gone}")
    if info.compacted is not None:
        found.append(f"  compacted up to {info.compacted[1]} in ledger {info.compacted[0]}")
    found += [
        f"  subscription {each.name}: acknowledged up to {each.mark}"
        + (f" and {each.ranges} ranges" if each.ranges else "")
        + f", {each.backlog:,} entries left"
        for each in info.subscriptions
    ]
    return found
