"""
Names of topics, and where their nodes are in the metadata.

    persistent://TENANT/NAMESPACE/TOPIC    with -partition-N behind the name of a partition
    TENANT/NAMESPACE/TOPIC, TOPIC          the same; a name alone is in public/default

    ROOT/managed-ledgers/TENANT/NAMESPACE/persistent/TOPIC             the ledgers of a topic
    ROOT/managed-ledgers/TENANT/NAMESPACE/persistent/TOPIC/CURSOR      a subscription's place
    ROOT/admin/partitioned-topics/TENANT/NAMESPACE/persistent/TOPIC    how many partitions
    ROOT/schemas/TENANT/NAMESPACE/TOPIC                                where its schemas are

TOPIC and CURSOR are encoded there as in a form of HTML: letters, digits and `-_.*` stand for themselves, a space is
`+`, another byte of UTF-8 is `%XX`.

Knows: these names and paths.  Does not know: what is in the nodes.
"""

import re
from dataclasses import dataclass, replace

from quire.protocol.pulsar_errors import NoSuchTopic

# SPDX-License-Identifier: Apache-2.0

DOMAIN = "persistent"
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.*")
PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})")
FORM = "a topic is persistent://TENANT/NAMESPACE/TOPIC, TENANT/NAMESPACE/TOPIC, or TOPIC in public/default"
PARTS = re.compile(r"[^/\x00]{1,1000}")


def encoded(name: str) -> str:
    """The name of a node for a name of Pulsar."""
    return "".join(chr(byte) if byte in PLAIN else "+" if byte == 32 else f"%{byte:02X}" for byte in name.encode())


def decoded(node: str) -> str:
    """The name of Pulsar for the name of a node; what no encoder makes is left as it is."""
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), node.replace("+", " ").encode())
    return raw.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A persistent topic, or a partition of it.  `namespace`: TENANT/NAMESPACE, in old names with a cluster between."""

    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{DOMAIN}://{self.namespace}/{self.local}"

    @classmethod
    def parse(cls, given: str) -> "TopicName":
        """`NoSuchTopic` for a name that is none, or of a topic that is never stored."""
        domain, mark, rest = given.partition("://")
        if not mark:
            domain, rest = DOMAIN, given if "/" in given else f"public/default/{given}"
        if domain == "non-persistent":
            raise NoSuchTopic(f"{given!r} is a non-persistent topic: its messages are stored nowhere")
        parts = rest.split("/", 3)
        if (
            domain != DOMAIN
            or not 3 <= len(parts) <= (4 if mark else 3)
            or not all(map(PARTS.fullmatch, parts[:-1]))
            or not parts[-1]
        ):
            raise NoSuchTopic(f"{given!r} is no name of a topic: {FORM}")
        return cls("/".join(parts[:-1]), parts[-1])

    @property
    def partition(self) -> int:
        """Tells which partition this is; -1: a topic of its own."""
        found = PARTITION.fullmatch(self.local)
        return int(found[2]) if found else -1

    @property
    def base(self) -> "TopicName":
        """The topic that this is a partition of; a topic that is none itself."""
        found = PARTITION.fullmatch(self.local)
        return replace(self, local=found[1]) if found else self

    def of_partition(self, number: int) -> "TopicName":
        """The name of one of its partitions."""
        return replace(self, local=f"{self.local}-partition-{number}")

    @property
    def ledgers_path(self) -> str:
        return f"{topics_path(self.namespace)}/{encoded(self.local)}"

    @property
    def partitions_path(self) -> str:
        return f"/admin/partitioned-topics/{self.namespace}/{DOMAIN}/{encoded(self.local)}"

    @property
    def schemas_path(self) -> str:
        return f"/schemas/{self.namespace}/{encoded(self.base.local)}"


def topics_path(namespace: str) -> str:
    """The node below which the topics of a namespace are."""
    return f"/managed-ledgers/{namespace}/{DOMAIN}"
