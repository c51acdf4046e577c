"""
How nodes are kept in etcd: the keys of a node, what its value says beside the data, and how they are read.

Knows: a node P/name is the key P 00 name, so that the children of P are the range from P 00 to P 01, in the order of
their names.  P 01 is the family of P, which has no value, mostly, and is put whenever a child is made: its version
says how many ever were.  A claim has no family, and so no children; its lease is its session.  A value begins with 00.
Where a transaction did several things to one node, of which etcd counts one, it begins with 01, what is to be added to
etcd's version, and when the node was made (0: as etcd says).
Does not know: transactions, sessions, calls.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quire.metadata.etcd.messages import RangeRequest, RequestOp
from quire.metadata.tree import SessionId, Stat

# SPDX-License-Identifier: Apache-2.0

PREFIX = b"quire"  # of all keys
CHILDREN, FAMILY, SESSION, GUARD = b"\x00", b"\x01", b"\x02", b"\x03"
PLAIN = b"\x00"
ADJUSTED = b"\x01"  # all values below it are plain
ADJUSTMENT = struct.Struct(">qq")

KeyValue = Any  # etcd's message


def above(path: str) -> str:
    """The path of the parent; empty at the top."""
    return path.rpartition("/")[0]


def key_of(path: str) -> bytes:
    """The key of a node."""
    parent, _, name = path.rpartition("/")
    return PREFIX + parent.encode() + CHILDREN + name.encode()


def family_of(path: str) -> bytes:
    """The key of a node's family, which is also the end of the range of its children."""
    return PREFIX + path.encode() + FAMILY


def children_of(path: str, after: str = "") -> bytes:
    """The key at which the children begin, or those above a name."""
    return PREFIX + path.encode() + CHILDREN + (after.encode() + b"\x00" if after else b"")


def name_in(key: bytes) -> str:
    """The name of the node of that key."""
    return key.rpartition(CHILDREN)[2].decode()


def session_key(session: SessionId) -> bytes:
    """The key that exists while a session does."""
    return PREFIX + SESSION + b"%x" % int(session)


class Node(NamedTuple):
    """A node as its key and value say it; `puts`: etcd's own version."""

    data: bytes
    version: int
    owner: SessionId | None
    made: int
    changed: int
    puts: int
    said_made: int  # when it was made, where its value says that

    def __repr__(self) -> str:
        return f"Node({len(self.data)} bytes, version {self.version})"  # secrets may be in it


def node_of(kv: KeyValue) -> Node:
    """Reads a node."""
    value, added, said_made = kv.value, 0, 0
    data = value[len(PLAIN) :]
    if value.startswith(ADJUSTED):
        added, said_made = ADJUSTMENT.unpack_from(value, len(ADJUSTED))
        data = data[ADJUSTMENT.size :]
    return Node(
        data,
        kv.version - 1 + added,
        kv.lease or None,
        said_made or kv.create_revision,
        kv.mod_revision,
        kv.version,
        said_made,
    )


def value_of(data: bytes, added: int = 0, said_made: int = 0) -> bytes:
    """The value of a node's key."""
    if added or said_made:
        return ADJUSTED + ADJUSTMENT.pack(added, said_made) + data
    return PLAIN + data


def made_in(family: KeyValue) -> int:
    """How many children were ever made, as a family says it: what its value adds to the puts after the first."""
    return int(family.version - 1 + int(family.value or b"0"))


def family_value(made: int, puts: int) -> bytes:
    """The value of a family that is put for the n-th time, so that it says so many were made."""
    return b"%d" % (made - (puts - 1)) if made != puts - 1 else b""


@dataclass(slots=True)
class Seen:
    """The findings of one moment: keys, how many children there are of paths, and the revision of that moment."""

    revision: int
    keys: dict[bytes, KeyValue] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def node(self, path: str) -> Node | None:
        """The node, if there is one."""
        found = self.keys.get(key_of(path))
        return None if found is None else node_of(found)

    def stat(self, path: str) -> Stat | None:
        """The facts about a node of which all was read."""
        node = self.node(path)
        if node is None:
            return None
        family, children = self.keys.get(family_of(path)), self.counts[path]
        made = 0 if family is None else made_in(family)
        return Stat(
            node.version,
            node.owner,
            node.made,
            node.changed,
            children,
            2 * made - children,  # each was made, and those that are not there are gone
            node.made if family is None else family.mod_revision,
        )


@dataclass(frozen=True, slots=True)
class Look:
    """Things to read: keys, numbers of children."""

    keys: Sequence[bytes]
    counted: Sequence[str] = ()

    def operations(self) -> list[Any]:
        """The operations of a transaction that read it."""
        ranges = [RangeRequest(key=key) for key in self.keys]
        ranges += [
            RangeRequest(key=children_of(path), range_end=family_of(path), count_only=True) for path in self.counted
        ]
        return [RequestOp(request_range=each) for each in ranges]

    def seen(self, revision: int, answers: Iterable[Any]) -> Seen:
        """Reads the answers to these operations."""
        seen, answers = Seen(revision), iter(answers)
        for key in self.keys:
            for found in next(answers).response_range.kvs:
                seen.keys[key] = found
        for path in self.counted:
            seen.counts[path] = next(answers).response_range.count
        return seen


def whole(paths: Sequence[str]) -> Look:
    """All about some nodes."""
    return Look([key for path in paths for key in (key_of(path), family_of(path))], paths)
