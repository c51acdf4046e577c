"""
The metadata store of the model: the tree in memory behind a queue, with what it is asked counted.

Knows: the time of an answer (the way there and back, and the work that waits before it), which calls are about ledgers,
and that a ledger of the model stands for a group of equal ones.
Does not know: what is asked, and why.

A group of `group` ledgers is one node.  A call about it counts as so many calls.  The auditor asks about many ledgers
at a time, so its calls take the time of one (the sizes of its batches are divided by `group` instead, see `fleet`); a
worker deals with its ledgers one after the other, so its calls take the time of so many; a command deals with them as
`OPERATIONS_MAX` lets it.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import BookieList, Versioned
from quire.metadata.tree import Create, Step
from quire.metadata.tree_store import MetadataStore
from quire.replication.autorecovery.losses import MARKS_AT_ONCE
from quire.replication.freeing.run import OPERATIONS_MAX
from tests.simulation.timeline import Process, Timeline

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

TREE_CALLS = frozenset(("transact", "get", "get_each", "exists", "listing", "sync", "use_up", "changes", "clock"))
READ_S, WRITE_S = 20e-6, 100e-6  # of the store's time for a call: 50,000 reads or 10,000 writes a second
NODE_BYTES = 80  # of an answer beside the value
BIN_S = 10.0  # of the curves of load
OF_LEDGER = re.compile(r"/(urL\d+|L\d+|[0-9a-f]{2}/\d+)$|/underreplication/ledgers/")
OPERATOR = "operator"  # whose calls are those of a command
MARK = "/underreplication/ledgers/"


class Load:
    """The calls of all handles.  `latency_s`: the way there and back; `group`: ledgers that a node stands for."""

    def __init__(self, timeline: Timeline, latency_s: float, group: int) -> None:
        self.latency_s = latency_s
        self.group = group
        self.on = False  # what the model begins with takes no time
        self.calls: Counter[tuple[str, str]] = Counter()  # by role and operation
        self.bytes: Counter[str] = Counter()  # answered, by role
        self.curve: Counter[int] = Counter()  # calls by bin of time
        self.watches: Counter[str] = Counter()  # armed, by role
        self.longest_s = 0.0  # that a call waited for those before it
        self._timeline = timeline
        self._free_at = 0.0

    def asked(self, role: str, name: str, args: tuple[Any, ...]) -> float:
        """Counts a call; returns the seconds to its answer."""
        count, turns = self._weight(name, args)
        if role == OPERATOR:
            turns = max(1, turns // OPERATIONS_MAX)
        now = self._timeline.now
        self.calls[role, name] += count
        self.curve[int(now / BIN_S)] += count
        work = count * (WRITE_S if name in ("transact", "use_up") else READ_S)
        # The calls of a group come one by one while it lasts, so what waits is only the work that comes faster.
        wait_s = max(0.0, self._free_at - now - self.group * self.latency_s)
        self.longest_s = max(self.longest_s, wait_s)
        self._free_at = max(now, self._free_at) + work
        return wait_s + turns * self.latency_s + work / count

    def answered(self, role: str, name: str, args: tuple[Any, ...], found: Any) -> None:
        """Counts the bytes of an answer."""
        if name == "listing":
            names = found[0]
            of_ledgers = self.group if MARK in f"{args[0]}/" or str(args[0]).endswith("/locks") else 1
            self.bytes[role] += of_ledgers * len(names) * (len(names[0]) + 4 if names else 0) + NODE_BYTES
        elif name == "get":
            self.bytes[role] += self._weight(name, args)[0] * (len(found[0]) + NODE_BYTES)
        elif name == "get_each":
            size = sum(len(each[0]) + NODE_BYTES for each in found if each is not None)
            self.bytes[role] += size * self.group if args and OF_LEDGER.search(args[0]) else size
        else:
            self.bytes[role] += NODE_BYTES

    def _weight(self, name: str, args: tuple[Any, ...]) -> tuple[int, int]:
        """How many calls it stands for, and how many of them one after the other."""
        if name == "get_each":
            of_ledgers = bool(args) and OF_LEDGER.search(args[0]) is not None
            return max(1, len(args)) * (self.group if of_ledgers else 1), 1
        if name == "transact":
            steps: tuple[Step, ...] = args
            if not any(OF_LEDGER.search(step.path) for step in steps):
                return 1, 1
            marks = len(steps) == 2 and all(isinstance(each, Create) and MARK in each.path for each in steps)
            return self.group, max(1, self.group // MARKS_AT_ONCE) if marks else self.group
        if args and OF_LEDGER.search(str(args[0])) and name != "listing":
            return self.group, self.group
        return 1, 1


class ModelStore(MemoryStore):
    """One handle of one process.  `role`: whose calls these are."""

    def __init__(self, process: Process, cluster: MemoryCluster, load: Load, role: str) -> None:
        self.load = load
        self.role = role
        self._process = process
        super().__init__(process, cluster)

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        """As drivers that are not in memory do: all at once."""
        return MetadataStore.read_ledgers(self, ledgers)

    def known_bookies(self) -> Deferred[BookieList]:
        """As drivers that are not in memory do: what was heard."""
        return MetadataStore.known_bookies(self)

    def _run(self, name: str, effect: Callable[..., T | Deferred[T]], *args: object) -> Deferred[T]:
        if name in TREE_CALLS:
            return self._asked(name, effect, args)
        return self._apply(partial(effect, *args), None)

    def _run_whole(self, name: str, effect: Callable[..., T | Deferred[T]], *args: object) -> Deferred[T]:
        return self._asked(name, effect, args)

    def _asked(self, name: str, effect: Callable[..., T | Deferred[T]], args: tuple[object, ...]) -> Deferred[T]:
        load = self.load
        if not load.on:
            return self._apply(partial(effect, *args), None)
        answer: Deferred[T] = Deferred()

        def reached() -> None:
            outcome = self._apply(partial(effect, *args), None)

            def came(found: T) -> T:
                load.answered(self.role, name, args, found)
                return found

            outcome.addCallback(came).chainDeferred(answer)

        self._process.call_by_the_world(load.asked(self.role, name, args), reached)
        return answer
