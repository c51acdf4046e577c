"""
Apache's arrangement of a cluster in etcd, below the keys that our tree asks for.

    node of the tree        key of `metadata-drivers/etcd`, with S the path of the URI
    R                       S
    R/LAYOUT, R/INSTANCEID  S/layout, S/instanceid
    R/available, .../ID     S/bookies/writable, .../ID
    R/available/readonly    S/bookies/readonly, .../ID
    R/cookies, .../ID       S/cookies, .../ID
    R/ledgers, .../UUID     S/ledgers, .../UUID
    R/buckets, .../NNN      S/buckets, .../NNN

Knows: which keys of ours are Apache's, and that the bytes of a node are all of its value there.
Does not know: what a node means, transactions beyond their keys.  Whatever Apache has no place for (repairs, records of
logs, sessions) stays where our own arrangement has it.

A directory has no family there: its own key stands for that.  It is put whenever a child of ours is made, so its
version counts those, and not what Apache's programs make (`Tree.counts_children`).  Nothing below a directory has
children.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from quire.metadata.clock import Reactor
from quire.metadata.etcd.client import Client, Stream
from quire.metadata.etcd.messages import CLASSES, VALUE, RequestOp, TxnRequest
from quire.metadata.etcd.nodes import CHILDREN, FAMILY, PLAIN, PREFIX, family_of, key_of
from quire.protocol.errors import MetaStore
from quire.security.etcd import Pems

# SPDX-License-Identifier: Apache-2.0

WatchRequest: Any = CLASSES["WatchRequest"]
NODES = {"": "", "/LAYOUT": "/layout", "/INSTANCEID": "/instanceid"}
DIRECTORIES = {
    "/available": "/bookies/writable",
    "/available/readonly": "/bookies/readonly",
    "/cookies": "/cookies",
    "/ledgers": "/ledgers",
    "/buckets": "/buckets",
}
KINDS = ("request_range", "request_put", "request_delete_range")
BEGIN, END = b"/", b"0"  # of the children of a directory; the one follows the other


class ApacheKeys:
    """The keys of one cluster, whose root in the tree and path in etcd are the same."""

    def __init__(self, root: str) -> None:
        scope = root.encode()
        self._theirs = {key_of(root + ours): scope + theirs.encode() for ours, theirs in (NODES | DIRECTORIES).items()}
        self._families = {family_of(root + ours): scope + theirs.encode() for ours, theirs in DIRECTORIES.items()}
        self._families[family_of(root)] = scope
        self._below = {PREFIX + (root + ours).encode(): scope + theirs.encode() for ours, theirs in DIRECTORIES.items()}
        self._ours = {theirs: ours for ours, theirs in self._theirs.items()}

    def theirs(self, key: bytes) -> bytes | None:
        """Apache's key of a node, or of the directory whose family is asked for; None: it has none."""
        found = self._theirs.get(key) or self._families.get(key)
        if found is None:
            above, _, name = key.partition(CHILDREN)
            found = self._below.get(above)
            return None if found is None else found + BEGIN + name
        return found

    def ours(self, key: bytes) -> bytes:
        """The tree's key for one of Apache's, or of ours."""
        if (found := self._ours.get(key)) is not None:
            return found
        for ours, theirs in self._below.items():
            if key.startswith(theirs + BEGIN):
                return ours + CHILDREN + key[len(theirs) + 1 :]
        return key

    def _is_family(self, key: bytes) -> bool:
        """True for the family of a directory, or of what is in one."""
        inside = key.endswith(FAMILY) and key[: -len(FAMILY)].rpartition(b"/")[0] in self._below
        return key in self._families or inside

    def range(self, request: Any) -> None:
        """Makes a request that names a key, or a range of them, one for Apache's keys."""
        if getattr(request, "range_end", b""):  # a put has none
            above = request.range_end[: -len(FAMILY)]
            if above in self._below:
                request.key = self.theirs(request.key)
                request.range_end = self._below[above] + END
        elif (found := self.theirs(request.key)) is not None:
            request.key = found

    def transaction(self, asked: Any) -> Any:
        """The transaction of Apache's keys that does what one of ours asks for; `MetaStore`."""
        made = TxnRequest()
        for each in asked.compare:
            if each.target == VALUE and self.theirs(each.key) is not None:
                continue  # all values are plain
            made.compare.append(each)
            self.range(made.compare[-1])
        for before, after in ((asked.success, made.success), (asked.failure, made.failure)):
            put = {self.theirs(each.request_put.key) for each in before if not self._is_family(each.request_put.key)}
            for each in before:
                operation = self._operation(each, put)
                if operation is not None:
                    after.append(operation)
        return made

    def _operation(self, asked: Any, put: set[bytes | None]) -> Any | None:
        """One operation; None: it is not wanted here.  `put`: what the same transaction puts otherwise."""
        made = RequestOp()
        made.CopyFrom(asked)
        kind = next(kind for kind in KINDS if asked.HasField(kind))
        request = getattr(made, kind)
        family = not getattr(request, "range_end", b"") and self._is_family(request.key)
        theirs = self.theirs(request.key)
        if kind == "request_range":
            request.keys_only |= family  # the value of a family is a number
            self.range(request)
        elif family:
            if kind != "request_put" or theirs is None or theirs in put:
                return None
            put.add(theirs)
            request.Clear()
            request.key, request.ignore_value = theirs, True
        else:
            self.range(request)
            if kind == "request_put" and theirs is not None and not request.ignore_value:
                if not request.value.startswith(PLAIN):
                    raise MetaStore(
                        f"etcd in Apache's layout can't change one of its keys twice in a transaction: {theirs!r}"
                    )
                request.value = request.value[len(PLAIN) :]
        return made

    def watch(self, request: Any) -> Any:
        """A watch of Apache's keys.  Whoever joins a directory puts no family, so puts in it count."""
        made = WatchRequest()
        made.CopyFrom(request)
        if made.HasField("create_request"):
            if self.theirs(made.create_request.key) is not None:
                made.create_request.ClearField("filters")
            self.range(made.create_request)
        return made

    def pair(self, kv: Any) -> None:
        """Makes a pair that was read one of ours."""
        ours = self.ours(kv.key)
        if ours != kv.key:
            kv.key = ours
            if kv.value:
                kv.value = PLAIN + kv.value


class ApacheClient(Client):
    """A client of which each call and watch is about Apache's keys."""

    def __init__(self, keys: ApacheKeys, reactor: Reactor, hosts: Sequence[str], tls: Pems | None) -> None:
        super().__init__(reactor, hosts, tls)
        self._keys = keys

    def call(self, name: str, request: Any, seconds: float) -> Deferred[Any]:
        """As `Client.call`; `MetaStore` for what this arrangement can't hold."""
        if name != "Txn":
            return super().call(name, request, seconds)
        return super().call(name, self._keys.transaction(request), seconds).addCallback(self._read)

    def _read(self, response: Any) -> Any:
        for each in response.responses:
            for kv in each.response_range.kvs:
                self._keys.pair(kv)
        return response

    def stream(
        self,
        heard: Callable[[Any], None],
        ended: Callable[[Stream, str], None],
        shaped: Callable[[Any], Any] | None = None,
    ) -> Stream:
        """As `Client.stream`."""

        def told(response: Any) -> None:
            for event in response.events:
                self._keys.pair(event.kv)
            heard(response)

        return super().stream(told, ended, shaped or self._keys.watch)
