"""A session whose znodes are a dictionary: every call is done at once, and noted, unless a test holds its answer."""

from collections import Counter
from types import SimpleNamespace

from twisted.internet.defer import Deferred, fail, succeed

from quire.metadata.tree import Check, NodeExists, NoNode, SessionOver

# SPDX-License-Identifier: Apache-2.0


class PlayedSession:
    """`nodes`: path -> (data, owner); `calls`: what was asked, in order.  `trouble` may name what goes wrong next."""

    uri = "zk://played"
    outlives_s = 3.0
    counts_children = True

    def __init__(self, *paths):
        self.session = 1
        self.nodes = dict.fromkeys(paths, (b"", 0))
        self.changes = Counter(path.rpartition("/")[0] for path in paths)  # of children: made or removed
        self.calls = []
        self.transactions = 0  # that made or removed a znode
        self.made = dict.fromkeys(paths, 0)  # in which one each was
        self.changed = Counter()  # of children: the last
        self.held = None  # while a list: answers wait in it
        self.trouble = {}  # call -> an error, once
        self._watches = {}

    async def session_now(self):
        return self.session

    def transact(self, steps, session=None):
        assert all(isinstance(step, Check) for step in steps)
        return succeed(None) if session == self.session else fail(SessionOver(steps[0].path))

    def let_go(self):
        held, self.held = self.held, None
        for deferred, value in held:
            deferred.callback(value)

    def fire(self, path):
        """The watches at a znode, each of which fires once."""
        for watch in self._watches.pop(path, []):
            watch()

    def put(self, path, data=b"", owner=0):
        """By another session."""
        if path not in self.nodes:
            self._count(path)
            self.made[path] = self.transactions
        self.nodes[path] = (data, owner)
        self.fire(path)
        self.fire(path.rpartition("/")[0])

    def remove(self, path):
        """By another session, or by the server."""
        del self.nodes[path]
        self._count(path)
        self.fire(path)
        self.fire(path.rpartition("/")[0])

    def _count(self, path):
        parent = path.rpartition("/")[0]
        self.transactions += 1
        self.changes[parent] += 1
        self.changed[parent] = self.transactions

    def _call(self, name, path, watch=None):
        self.calls.append(f"{name} {path}")
        if watch is not None:
            self._watches.setdefault(path, []).append(watch)
        return self.trouble.pop(f"{name} {path}", None)

    def _answer(self, value):
        if self.held is None:
            return succeed(value)
        self.held.append((Deferred(), value))
        return self.held[-1][0]

    def exists(self, path, watch=None):
        error = self._call("exists", path, watch)
        if error is not None:
            return fail(error)
        found = self.nodes.get(path)
        return self._answer(None if found is None else SimpleNamespace(owner=found[1]))

    def get(self, path, watch=None):
        error = self._call("get", path, watch)
        if error is not None or path not in self.nodes:
            return fail(error or NoNode(path))
        return self._answer((self.nodes[path][0], SimpleNamespace(made=self.made[path])))

    def listing(self, path, watch=None):
        error = self._call("children", path, watch)
        if error is not None or path not in self.nodes:
            return fail(error or NoNode(path))
        names = [name[len(path) + 1 :] for name in self.nodes if name.rpartition("/")[0] == path]
        return self._answer((names, SimpleNamespace(family=self.changes[path], children_changed=self.changed[path])))

    def children(self, path, watch=None):
        return self.listing(path, watch).addCallback(lambda found: found[0])

    def create(self, path, data=b"", claim=False, session=None, shared=False):
        error = self._call("create", path)
        if error is not None:
            return fail(error)
        if path in self.nodes:
            return fail(NodeExists(path))
        if path.rpartition("/")[0] not in self.nodes:
            return fail(NoNode(path))
        self.put(path, data, self.session if claim else 0)
        return self._answer(None)

    def set(self, path, data, version, session=None):
        self._call("set", path)
        self.put(path, data, self.nodes[path][1])
        return self._answer(None)

    def delete_own(self, path, session):
        error = self._call("delete", path)
        if error is not None or path not in self.nodes or self.nodes[path][1] != session:
            return fail(error or NoNode(path))
        self.remove(path)
        return self._answer(None)
