"""
Makes the kept vectors of Pulsar's topics anew: python -m tests.interop.pulsar.capture FILE [KIND ...]

Knows: how to have a real broker write messages of each kind, and to take down what it left: znodes, entries of ledgers,
and what Pulsar's own reader got.
Does not know: what any of these bytes mean.

A row is one topic: `kind`, `topic`, `interceptors` (whether the broker had its entry metadata on), `compacted` (whether
its reader was asked for what compaction left), `messages` (what the reader got, see `Topics.java`), `znodes` (path to
base64), `ledgers` (id to its entries, base64; with those of cursors, schemas and compaction), `open` (ids of ledgers
that are not closed, which are there up to the last add confirmed), `rest` (what a consumer got of each subscription, of
the kind `subscribed`: `single` has acknowledged the first 4 messages, the 6th and the 8th; `within` the first 12, the
14th, 16th and 18th, of which this broker keeps whole entries only; `none` none).
"""

import base64
import contextlib
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from quire.protocol.errors import LedgerError
from tests.interop import peer
from tests.interop.ours import Bookies, Ours
from tests.interop.pulsar.broker import Broker
from tests.reactor import between_looks

# SPDX-License-Identifier: Apache-2.0

NAMESPACE = "public/default"
KINDS = (
    *("single", "batched", "by-key", "lz4", "zlib", "zstd", "snappy", "chunked", "encrypted", "json", "avro"),
    *("transactions", "partitioned", "rolled", "trimmed", "compacted", "open", "subscribed", "terminated"),
)
LEFT = ("open", "trimmed", "terminated")  # not unloaded: the last of them can't be loaded with transactions on (4.0.0)
WITH_INTERCEPTORS = ("single", "batched", "chunked", "transactions", "rolled", "open")
INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor" for name in ("BrokerTimestamp", "Index")
)
KINDS_ON = {
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
}
SUBSCRIPTIONS = ("single", "within", "none")  # of the kind `subscribed`
PARTITIONS = 3


def settings(interceptors: bool) -> dict[str, str]:
    """Settings of a broker that can have messages of each kind."""
    more = {"brokerEntryMetadataInterceptors": INTERCEPTORS, "exposingBrokerEntryMetadataToClientEnabled": "true"}
    return KINDS_ON | (more if interceptors else {})


def path_of(topic: str) -> str:
    """The path of a topic, for requests to the administration."""
    return f"persistent/{NAMESPACE}/{topic}"


def uri_of(topic: str) -> str:
    """The name of a topic, for clients."""
    return f"persistent://{NAMESPACE}/{topic}"


def until(broker: Broker, true: Callable[[Any], bool], path: str) -> Any:
    """Asks the administration until the answer is as it should be; that answer."""
    for _ in range(600):
        if true(found := broker.ask("GET", path)):
            return found
        between_looks()
    raise AssertionError(f"{path} is still: {found}")


def write(broker: Broker, client: peer.Driver, kind: str, topic: str) -> list[str]:
    """Has a broker write a topic of this kind; the topics to be read, which are its partitions where it has some."""
    if kind == "partitioned":
        broker.ask("PUT", f"{path_of(topic)}/partitions", PARTITIONS)
        client.call("write", kind=kind, topic=uri_of(topic))
        parts = [f"{topic}-partition-{number}" for number in range(PARTITIONS)]
        for part in parts:
            broker.ask("PUT", f"{path_of(part)}/unload")
        return parts
    if kind in ("rolled", "trimmed"):
        for start in range(0, 20, 5):
            client.call("numbers", topic=uri_of(topic), **{"from": start, "to": start + 5, "size": 20})
            broker.ask("PUT", f"{path_of(topic)}/unload")
        if kind == "trimmed":
            client.call("subscribe", topic=uri_of(topic), name="s", acknowledged=12)
            until(
                broker,
                lambda found: found["ledgers"][0]["entries"] == 5 and len(found["ledgers"]) <= 3,
                f"{path_of(topic)}/internalStats",
            )
    elif kind == "compacted":
        client.call("write", kind="batched", topic=uri_of(topic))
        client.call("write", kind="single", topic=uri_of(topic))
        broker.ask("PUT", f"{path_of(topic)}/compaction")
        until(broker, lambda found: found["status"] == "SUCCESS", f"{path_of(topic)}/compaction")
        client.call("write", kind="single", topic=uri_of(topic))
    elif kind == "subscribed":
        client.call("write", kind="single", topic=uri_of(topic))
        client.call("write", kind="batched", topic=uri_of(topic))
        client.call("subscribe", topic=uri_of(topic), name="single", acknowledged=4, holes=2)
        client.call("subscribe", topic=uri_of(topic), name="within", acknowledged=12, holes=3)
        client.call("subscribe", topic=uri_of(topic), name="none", acknowledged=0)
    else:
        client.call("write", kind="single" if kind in ("open", "terminated") else kind, topic=uri_of(topic))
    if kind == "open":  # whose adds tell the bookies what was confirmed before
        client.call("numbers", topic=uri_of(topic), **{"from": 0, "to": 3, "size": 20})
    elif kind == "terminated":
        broker.ask("POST", f"{path_of(topic)}/terminate")
    if kind not in LEFT:
        broker.ask("PUT", f"{path_of(topic)}/unload")
    return [topic]


def dumped(client: peer.Driver, topic: str, folder: pathlib.Path, compacted: bool = False) -> list[dict[str, Any]]:
    """What Pulsar's own reader gets."""
    file = folder / "dump.jsonl"
    client.call("dump", topic=uri_of(topic), file=file, compacted=str(compacted).lower())
    return [json.loads(line) for line in file.read_text().splitlines()]


def rest(client: peer.Driver, topic: str, subscription: str, folder: pathlib.Path) -> list[dict[str, Any]]:
    """What Pulsar's own consumer gets that goes on with a subscription."""
    file = folder / "rest.jsonl"
    client.call("rest", topic=uri_of(topic), name=subscription, file=file)
    return [json.loads(line) for line in file.read_text().splitlines()]


def below(zookeeper: KazooClient, path: str) -> Iterator[tuple[str, bytes]]:
    """Each node of a tree, with its bytes."""
    with contextlib.suppress(NoNodeError):
        yield path, zookeeper.get(path)[0]
        for child in sorted(zookeeper.get_children(path)):
            yield from below(zookeeper, f"{path}/{child}")


def ledgers_of(broker: Broker, topic: str) -> list[int]:
    """The ids of all ledgers that a topic has for anything."""
    found = broker.ask("GET", f"{path_of(topic)}/internalStats")
    ids = [each["ledgerId"] for each in (*found["ledgers"], *found.get("schemaLedgers", ()))]
    ids += [each["cursorLedger"] for each in found["cursors"].values()]
    return sorted({*ids, found["compactedLedger"]["ledgerId"]} - {-1})


def row(
    broker: Broker, client: peer.Driver, ours: Ours, zookeeper: KazooClient, kind: str, topic: str
) -> dict[str, Any]:
    """One topic as it was left."""
    messages = dumped(client, topic, broker.folder, kind == "compacted")
    names = SUBSCRIPTIONS if kind == "subscribed" else ()
    left = {name: rest(client, topic, name, broker.folder) for name in names}
    if kind not in LEFT:
        broker.ask("PUT", f"{path_of(topic)}/unload")
    ids = ledgers_of(broker, topic)
    entries, still_open = {}, []
    for ledger in ids:
        with contextlib.suppress(LedgerError):  # a ledger of a cursor without entries
            entries[ledger] = [base64.b64encode(entry).decode() for entry in ours.read(ledger, recover=False)]
        if not ours.metadata(ledger).is_closed:
            still_open.append(ledger)
    roots = [
        f"/managed-ledgers/{NAMESPACE}/persistent/{topic}",
        f"/schemas/{NAMESPACE}/{topic}",
        f"/admin/partitioned-topics/{NAMESPACE}/persistent/{topic.rsplit('-partition-', 1)[0]}",
    ]
    nodes = {path: base64.b64encode(data).decode() for root in roots for path, data in below(zookeeper, root)}
    return {
        "kind": kind,
        "topic": uri_of(topic),
        "interceptors": "brokerEntryMetadataInterceptors" in broker.settings,
        "compacted": kind == "compacted",
        "messages": messages,
        "rest": left,
        "znodes": nodes,
        "ledgers": entries,
        "open": still_open,
    }


def captured(folder: pathlib.Path, metadata: str, interceptors: bool, kinds: tuple[str, ...] = KINDS) -> Iterator[Any]:
    """A row for each kind, and partition."""
    with (
        Broker(folder, metadata, **settings(interceptors)) as broker,
        broker.topics("transactions") as client,
        Ours(metadata) as ours,
    ):
        zookeeper = KazooClient(broker.zookeeper)
        zookeeper.start()
        try:
            for kind in kinds:
                for topic in write(broker, client, kind, f"{kind}-{'entry-metadata' if interceptors else 'plain'}"):
                    yield row(broker, client, ours, zookeeper, kind, topic)
        finally:
            zookeeper.stop()
            zookeeper.close()


def main() -> None:
    file, only = pathlib.Path(sys.argv[1]), set(sys.argv[2:])
    rows: list[Any] = []
    for interceptors, kinds in ((False, KINDS), (True, WITH_INTERCEPTORS)):
        wanted = tuple(kind for kind in kinds if not only or kind in only)
        with (
            tempfile.TemporaryDirectory(prefix="quire-pulsar-") as temporary,
            peer.Cluster(bookies=0) as apache,
            Bookies(pathlib.Path(temporary), apache.metadata, 3) as _bookies,
        ):
            rows += captured(pathlib.Path(temporary), apache.metadata, interceptors, wanted)
    file.write_text("".join(json.dumps(found) + "\n" for found in rows))
    for found in rows:
        print(found["kind"], found["topic"], len(found["messages"]))


if __name__ == "__main__":
    main()
